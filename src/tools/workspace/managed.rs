//! The workspace as the dispatcher uses it: filled from the history, watched for drift.

use std::sync::Arc;

use super::capture::{CaptureBudget, Captured, compare};
use super::limits::Limits;
use super::populate::{fill, not_filled};
use super::recording::EventBuffer;
use crate::backends::{BackendError, MachineNews, Workspace};
use crate::engine::commit::{CommitError, Content};
use crate::engine::event::{DeleteEntry, DriftFound, Node, WorkspaceTouched};
use crate::engine::session::sessions::SessionError;
use crate::engine::session::{MachineClaim, Session};
use crate::engine::store::{Lease, Pending};
use crate::reducers::VirtualFileSystem;
use crate::tools::call::approver::Asker;
use crate::tools::call::error::ToolError;
use crate::tools::call::toolset::Tools;
use crate::tools::error::WorkspaceError;
use crate::tools::policy::CommandPolicy;
use crate::tools::rewind::Intent;

/// What a dispatcher goes by where commands run.
#[derive(Clone, Default)]
pub struct ShellRules {
    /// Which commands may run.
    pub policy: CommandPolicy,
    /// Who is asked where the policy does not know; without one such a command is refused.
    pub asker: Option<Arc<dyn Asker>>,
    /// How much is kept of what commands write.
    pub budget: CaptureBudget,
    /// How to allow a command, for who wrote one that nobody could be asked about; the command line's ways when nothing
    /// is said.
    pub advice: Option<Arc<str>>,
}

/// A workspace with the rules for it.
#[derive(Clone)]
pub(crate) struct ManagedWorkspace {
    pub(crate) workspace: Arc<dyn Workspace>,
    pub(crate) rules: Arc<ShellRules>,
    /// The session's workspace is this process's; none where who made this holds the lease.
    pub(crate) _lease: Option<Arc<Lease>>,
    /// Whether it lives in a container; then the session's place for one is held.
    pub(crate) claim: Option<Arc<MachineClaim>>,
    /// What the session may do, where that is limited.
    pub(crate) limits: Option<Arc<Limits>>,
}

impl ManagedWorkspace {
    pub(crate) fn new(
        session: &Session,
        workspace: Arc<dyn Workspace>,
        mut rules: ShellRules,
    ) -> Result<Self, WorkspaceError> {
        let lease = session.lease()?;
        let limits = Limits::of(session)?;
        rules.policy.deny.extend(limits.denied(session)?);
        let in_container = workspace.shell().is_some_and(|shell| shell.properties().in_container);
        let claim = match in_container {
            false => None,
            true => match session.claim_machine() {
                Some(claim) => Some(Arc::new(claim)),
                None => return Err(WorkspaceError::SecondContainer(session.name().to_owned())),
            },
        };
        Ok(Self { workspace, rules: Arc::new(rules), _lease: Some(lease), claim, limits: Some(Arc::new(limits)) })
    }

    /// Those of the tools that the session may use by now, under its agent's name.
    pub(crate) fn allowed(&self, session: &Session, tools: Arc<Tools>) -> Result<Arc<Tools>, SessionError> {
        let Some(limits) = &self.limits else { return Ok(tools) };
        Ok(match limits.tools(session)? {
            Some(names) => Arc::new(tools.only(&names)),
            None => tools,
        })
    }

    /// The same workspace for a child that shares it with its parent.
    pub(crate) fn shared_by(&self, child: &Session) -> Result<Self, SessionError> {
        let mut limits = Limits::of(child)?;
        limits.is_shared = !child.limits().is_unlimited();
        Ok(Self { limits: Some(Arc::new(limits)), ..self.clone() })
    }

    /// The same workspace under other rules for commands.
    pub(crate) fn ruled(&self, session: &Session, mut rules: ShellRules) -> Result<Self, SessionError> {
        let denied = self.limits.as_ref().map_or(Ok(Vec::new()), |limits| limits.denied(session))?;
        rules.policy.deny.extend(denied);
        Ok(Self { rules: Arc::new(rules), ..self.clone() })
    }

    /// Whether those that use it have one name only, by which they are held to their limits.
    pub(crate) fn is_shared(&self) -> bool {
        self.limits.as_ref().is_some_and(|limits| limits.is_shared)
    }

    /// The same with the rules for whom the session's agent is by now.
    pub(crate) fn for_agent(&self, session: &Session) -> Result<Self, SessionError> {
        let denied = self.limits.as_ref().map_or(Ok(Vec::new()), |limits| limits.denied(session))?;
        let more: Vec<_> = denied.into_iter().filter(|rule| !self.rules.policy.deny.contains(rule)).collect();
        let mut machine = self.clone();
        if !more.is_empty() {
            let mut rules = (*self.rules).clone();
            rules.policy.deny.extend(more);
            machine.rules = Arc::new(rules);
        }
        Ok(machine)
    }

    /// Fills a disk that has nothing of the session, or puts back what was cut off on its way from one state to another,
    /// and records what is otherwise than the history says.
    ///
    /// Where a call is under way in the session already, its files are its own: the next call looks.
    pub(crate) fn prepare(&self, session: &Session) -> Result<(), WorkspaceError> {
        let Some(disk) = self.workspace.capture() else { return Ok(()) };
        let is_blank = self.workspace.is_blank();
        let (turn, looking) = (session.turn_now(), session.looking_now());
        let is_alone = turn.is_some() && looking.is_some();
        if !is_blank && !is_alone {
            return Ok(());
        }
        let tree = files_of(session)?;
        let intent = if is_blank { self.workspace.intent()? } else { None };
        let intent = intent.and_then(|note| Intent::decode(session, &note));
        let is_filled = match &intent {
            Some(_) if !is_alone => return Err(self.is_changing().into()),
            Some(intent) => {
                let (workspace, budget) = (self.workspace.as_ref(), self.rules.budget);
                super::recovery::put_back(session, &tree, workspace, disk, budget, intent)?;
                false
            }
            None if is_blank => {
                self.workspace.filling()?;
                fill(session, &tree, self.workspace.as_ref())?;
                true
            }
            None => false,
        };
        let mut captured = compare(disk, disk.touched()?, &tree, self.rules.budget)?;
        disk.settle()?;
        if is_filled {
            let gone = not_filled(self.workspace.as_ref(), &tree)?;
            let is_known = |gone: &DeleteEntry| captured.deleted.iter().any(|known| known.path == gone.path);
            let more: Vec<DeleteEntry> = gone.into_iter().filter(|gone| !is_known(gone)).collect();
            captured.deleted.extend(more);
        }
        if let Some(pending) = self.record_found(session, captured)? {
            pending.wait().map_err(SessionError::from)?;
        }
        if is_blank {
            self.workspace.filled()?;
        }
        Ok(())
    }

    /// Who opens it now would undo what somebody is doing.
    fn is_changing(&self) -> BackendError {
        let reason = "its files are being merged into or rewound; open it again when that is done".to_owned();
        BackendError { backend: self.workspace.backend_name(), reason }
    }

    /// Records what somebody changed on the disk outside of any call. A disk that is blank, since a rewind could
    /// neither be done nor undone, is refused: what is half done there is nobody's change. Opening puts it right.
    pub(crate) async fn record_drift(&self, session: &Session) -> Result<(), ToolError> {
        if self.workspace.capture().is_none() {
            return Ok(());
        }
        if self.workspace.is_blank() {
            let what = "the workspace's files are not those of the session, since going back to others failed half-way";
            return Err(ToolError::new(format!("{what}; open the session again, which makes them so")));
        }
        let captured = self.captured(session, files_of(session)?).await?;
        // Only then does the state show it.
        if let Some(pending) = self.record_found(session, captured)? {
            pending.durable().await?;
        }
        Ok(())
    }

    /// What differs on the disk from these files. It is known from now on: whoever asks must take it up
    /// before anything else is waited for.
    pub(crate) async fn captured(&self, session: &Session, tree: VirtualFileSystem) -> Result<Captured, ToolError> {
        let failed = |error: BackendError| ToolError::new(error.to_string());
        // A look that nobody waits for any more must not be mistaken for this one.
        let looking = session.looking().await;
        let Some(disk) = self.workspace.capture() else { return Ok(Captured::default()) };
        let touched = if disk.is_quick() { Some(disk.touched().map_err(failed)?) } else { None };
        if touched.as_ref().is_some_and(Vec::is_empty) {
            disk.settle().map_err(failed)?;
            return Ok(Captured::default());
        }
        let (workspace, budget) = (Arc::clone(&self.workspace), self.rules.budget);
        let looked = tokio::task::spawn_blocking(move || {
            let captured = match (workspace.capture(), touched) {
                (None, _) => Ok(Captured::default()),
                (Some(disk), Some(touched)) => compare(disk, touched, &tree, budget),
                (Some(disk), None) => disk.touched().and_then(|touched| compare(disk, touched, &tree, budget)),
            };
            (captured, looking)
        });
        let stopped = |_| ToolError::new("what changed on the disk could not be found out: the search was stopped");
        let (captured, _looking) = looked.await.map_err(stopped)?;
        let captured = captured.map_err(failed)?;
        disk.settle().map_err(failed)?;
        Ok(captured)
    }

    fn record_found(&self, session: &Session, captured: Captured) -> Result<Option<Pending>, SessionError> {
        let backend = self.workspace.backend_name().to_owned();
        record_found(session, &DriftFound { backend, entries: captured.len() }, captured)
    }

    /// Records what has happened to the machine since the last call.
    pub(crate) fn record_end(&self, session: &Session) -> Result<(), SessionError> {
        let news = self.workspace.news();
        if news.is_empty() {
            return Ok(());
        }
        let mut recording = EventBuffer::of_nobody(session);
        push_news(&news, &mut recording)?;
        recording.submit()?.wait()?;
        Ok(())
    }

    /// Records that a call used the machine, and what happened to it meanwhile.
    pub(crate) fn record_news(&self, news: &[MachineNews], recording: &mut EventBuffer) -> Result<(), CommitError> {
        push_news(news, recording)?;
        if self.claim.is_some() {
            recording.push(&WorkspaceTouched { backend: self.workspace.backend_name().to_owned() })?;
        }
        Ok(())
    }
}

/// Records what was found on a disk; nothing where nothing was.
pub(crate) fn record_found(
    session: &Session,
    found: &DriftFound,
    mut captured: Captured,
) -> Result<Option<Pending>, SessionError> {
    if captured.is_empty() {
        return Ok(None);
    }
    let mut recording = EventBuffer::of_nobody(session);
    recording.push(found)?;
    for event in &captured.deleted {
        recording.push(event)?;
    }
    for event in &captured.written {
        recording.push(event)?;
        // In the commit of its event: what is seen in the history can be read.
        if let Node::File { content: digest, .. } = event.node
            && let Some(bytes) = captured.contents.remove(&digest)
        {
            recording.keep(Content { digest, bytes });
        }
    }
    recording.submit().map(Some)
}

fn push_news(news: &[MachineNews], recording: &mut EventBuffer) -> Result<(), CommitError> {
    news.iter().try_for_each(|news| match news {
        MachineNews::Started(event) => recording.push(event),
        MachineNews::Stopped(event) => recording.push(event),
    })
}

pub(crate) fn files_of(session: &Session) -> Result<VirtualFileSystem, SessionError> {
    Ok(VirtualFileSystem::of(&session.state()?))
}
