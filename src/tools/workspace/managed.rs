//! Workspace of a tool runner: populated from the history, scanned for drift.

use crate::tools::error::WorkspaceError;
use crate::tools::policy::rules::ShellRules;
use std::sync::Arc;

use super::capture::{Captured, compare};
use super::intent::Intent;
use super::limits::{Limits, denied, limits_of};
use super::populate::{fill, not_filled};
use super::recording::EventBuffer;
use crate::backends::{BackendError, MachineNews, Workspace};
use crate::engine::commit::CommitError;
use crate::engine::event::{DeleteEntry, DriftFound, WorkspaceTouched};
use crate::engine::session::error::SessionError;
use crate::engine::session::{MachineClaim, Session};
use crate::engine::store::{Lease, Pending};
use crate::reducers::VirtualFileSystem;
use crate::tools::call::error::ToolError;

#[derive(Clone)]
pub(crate) struct ManagedWorkspace {
    pub(crate) workspace: Arc<dyn Workspace>,
    pub(crate) rules: Arc<ShellRules>,
    /// Lease of the session's workspace; `None` where the creator of this value holds it.
    pub(crate) _lease: Option<Arc<Lease>>,
    /// Claim of the session's only container, for a workspace in one.
    pub(crate) claim: Option<Arc<MachineClaim>>,
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
        rules.policy.deny.extend(denied(&limits_of(session)?));
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

    pub(crate) fn shared_by(&self, child: &Session) -> Result<Self, SessionError> {
        let mut limits = Limits::of(child)?;
        limits.is_shared = !child.limits().is_unlimited();
        Ok(Self { limits: Some(Arc::new(limits)), ..self.clone() })
    }

    pub(crate) fn with_shell_rules(&self, session: &Session, rules: ShellRules) -> Result<Self, SessionError> {
        Self { rules: Arc::new(rules), ..self.clone() }.for_agent(session)
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.limits.as_ref().is_some_and(|limits| limits.is_shared)
    }

    pub(crate) fn for_agent(&self, session: &Session) -> Result<Self, SessionError> {
        let mut machine = self.clone();
        if self.limits.is_none() {
            return Ok(machine);
        }
        let limits = limits_of(session)?;
        let more: Vec<_> = denied(&limits).filter(|rule| !self.rules.policy.deny.contains(rule)).collect();
        if !more.is_empty() {
            let mut rules = (*self.rules).clone();
            rules.policy.deny.extend(more);
            machine.rules = Arc::new(rules);
        }
        Ok(machine)
    }

    /// Prepares the disk: populates a blank one, or repairs one with an interrupted landing, and records external
    /// changes. While a call is in flight, the files are that call's, and the next call scans.
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
        let mut captured = compare(disk, disk.dirty()?, &tree, self.rules.budget)?;
        disk.mark_clean()?;
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

    /// Returns the error of opening a workspace during a merge or rewind, which the opening would undo.
    fn is_changing(&self) -> BackendError {
        let reason = "its files are being merged into or rewound; open it again when that is done".to_owned();
        BackendError { backend: self.workspace.backend_name(), reason }
    }

    /// Records external changes. A disk left blank by a failed rewind is refused, because its half-done changes are not
    /// external; opening the workspace repairs it.
    pub(crate) async fn record_drift(&self, session: &Session) -> Result<(), ToolError> {
        if self.workspace.capture().is_none() {
            return Ok(());
        }
        if self.workspace.is_blank() {
            let what = "the workspace's files are not those of the session, since going back to others failed half-way";
            return Err(ToolError::new(format!("{what}; open the session again, which makes them so")));
        }
        let captured = self.captured(session, files_of(session)?).await?;
        // The state has the changes only once they are durable.
        if let Some(pending) = self.record_found(session, captured)? {
            pending.durable().await?;
        }
        Ok(())
    }

    /// Scans the disk for differences from these files and marks them clean. The caller must submit them before it
    /// awaits anything else.
    pub(crate) async fn captured(&self, session: &Session, tree: VirtualFileSystem) -> Result<Captured, ToolError> {
        let failed = |error: BackendError| ToolError::new(error.to_string());
        // An abandoned scan must not be mistaken for this one.
        let looking = session.looking().await;
        let Some(disk) = self.workspace.capture() else { return Ok(Captured::default()) };
        let touched = if disk.is_quick() { Some(disk.dirty().map_err(failed)?) } else { None };
        if touched.as_ref().is_some_and(Vec::is_empty) {
            disk.mark_clean().map_err(failed)?;
            return Ok(Captured::default());
        }
        let (workspace, budget) = (Arc::clone(&self.workspace), self.rules.budget);
        let looked = tokio::task::spawn_blocking(move || {
            let captured = match (workspace.capture(), touched) {
                (None, _) => Ok(Captured::default()),
                (Some(disk), Some(touched)) => compare(disk, touched, &tree, budget),
                (Some(disk), None) => disk.dirty().and_then(|touched| compare(disk, touched, &tree, budget)),
            };
            (captured, looking)
        });
        let stopped = |_| ToolError::new("what changed on the disk could not be found out: the search was stopped");
        let (captured, _looking) = looked.await.map_err(stopped)?;
        let captured = captured.map_err(failed)?;
        disk.mark_clean().map_err(failed)?;
        Ok(captured)
    }

    fn record_found(&self, session: &Session, captured: Captured) -> Result<Option<Pending>, SessionError> {
        let backend = self.workspace.backend_name().to_owned();
        record_found(session, &DriftFound { backend, entries: captured.len() }, captured)
    }

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

    pub(crate) fn record_news(&self, news: &[MachineNews], recording: &mut EventBuffer) -> Result<(), CommitError> {
        push_news(news, recording)?;
        if self.claim.is_some() {
            recording.push(&WorkspaceTouched { backend: self.workspace.backend_name().to_owned() })?;
        }
        Ok(())
    }
}

pub(crate) fn record_found(
    session: &Session,
    found: &DriftFound,
    captured: Captured,
) -> Result<Option<Pending>, SessionError> {
    if captured.is_empty() {
        return Ok(None);
    }
    let mut recording = EventBuffer::of_nobody(session);
    recording.push(found)?;
    let (changes, contents) = captured.into_changes();
    for change in changes {
        recording.push_change(&change, &contents)?;
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
