//! Workspace of a tool runner: populated from the history, scanned for drift.

use crate::tools::error::WorkspaceError;
use crate::tools::policy::rules::ShellRules;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::Mutex as AsyncMutex;

use super::attribution::{self, Writers};
use super::capture::{CaptureBudget, Captured, clear_set_id, compare};
use super::hard_links::join_names;
use super::held_looks::{HeldLooks, Look};
use super::http_record::{self, HttpMask};
use super::intent::Intent;
use super::keeping::{distrust, keep, keep_at_end, keep_if_due, resume};
use super::limits::{Limits, denied, narrowed};
use super::plan::PlannedChange;
use super::populate::{fill, not_filled};
use super::processes::{ProcessKeeper, ProcessTable};
use super::recording::EventBuffer;
use super::runtime::{ContainerClaim, SessionRuntime};
use crate::backends::{BackendError, ChangeDetector, DirtyPath, KnownFilesKeeper, MachineNews, Walked, Workspace};
use crate::engine::commit::CommitError;
use crate::engine::error::{Diagnostic, ErrorKind};
use crate::engine::event::{ChangesShared, ChildLimits, DeleteEntry, DriftFound, WorkspaceTouched};
use crate::engine::id::Seq;
use crate::engine::path::EntryPath;
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::engine::state::State;
use crate::engine::store::Pending;
use crate::reducers::{AgentRuns, VirtualFileSystem};
use crate::tools::call::error::ToolError;
use crate::tools::off_thread::{own_state, with_store};

/// The extent of a scan for external changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Entries that the kernel reported, or every entry if that is due.
    Due,
    /// Every entry.
    All,
}

#[derive(Clone)]
pub struct ManagedWorkspace {
    pub(crate) workspace: Arc<dyn Workspace>,
    pub(crate) rules: Arc<ShellRules>,
    /// Claim of the session's only container, for a workspace in one.
    claim: Option<Arc<ContainerClaim>>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) processes: Arc<ProcessTable>,
    pub(crate) keeper: Option<ProcessKeeper>,
    pub(super) held: Arc<HeldLooks>,
    /// True if services may have to be started again.
    pub(crate) services_due: Arc<AsyncMutex<bool>>,
}

impl ManagedWorkspace {
    /// Opens the workspace of a session and prepares its disk.
    pub(crate) fn open(
        session: &Session,
        workspace: Arc<dyn Workspace>,
        rules: ShellRules,
    ) -> Result<Self, WorkspaceError> {
        let in_container = workspace.unrecorded_shell().is_some_and(|shell| shell.properties().in_container);
        let limits = Arc::new(Limits::of(session)?);
        let claim = match in_container {
            false => None,
            true => match ContainerClaim::of(session) {
                Some(claim) => Some(Arc::new(claim)),
                None => return Err(WorkspaceError::SecondContainer(session.name().to_owned())),
            },
        };
        let (rules, processes, held) = (Arc::new(rules), Arc::default(), Arc::default());
        let services_due = Arc::new(AsyncMutex::new(true));
        let machine = Self { workspace, rules, claim, limits, processes, keeper: None, held, services_due };
        let machine = machine.for_agent(session, &session.state()?);
        prepare(session, machine.workspace.as_ref(), machine.rules.budget)?;
        if in_container {
            machine.watch(session);
        }
        Ok(machine)
    }

    /// Records starts and stops of the container, and its connections, between calls as they happen.
    fn watch(&self, session: &Session) {
        let (session, workspace) = (session.clone(), Arc::downgrade(&self.workspace));
        self.workspace.watch_machine(Arc::new(move || {
            let Some(workspace) = workspace.upgrade() else { return };
            // The call that holds the lock records it.
            let Some(_turn) = SessionRuntime::of(&session).try_lock_workspace() else { return };
            if let Err(error) = record_machine(&session, workspace.as_ref()) {
                tracing::warn!(%error, "failed to record the start or stop of a container, or its connections");
            }
        }));
    }

    pub(crate) fn shared_by(&self, child: &Session) -> Result<Self, SessionError> {
        let mut limits = Limits::of(child)?;
        limits.is_shared = !child.limits().is_unlimited();
        Ok(Self { limits: Arc::new(limits), ..self.clone() })
    }

    /// Adds the denials of the session's limits to the rules.
    pub(crate) fn for_agent(&self, session: &Session, state: &State) -> Self {
        self.within(&narrowed(session, state))
    }

    /// Adds the denials of these limits to the rules.
    pub(crate) fn within(&self, limits: &ChildLimits) -> Self {
        let mut machine = self.clone();
        let more: Vec<_> = denied(limits).filter(|rule| !self.rules.policy.deny.contains(rule)).collect();
        if !more.is_empty() {
            Arc::make_mut(&mut machine.rules).policy.deny.extend(more);
        }
        machine
    }

    /// Records external changes since the current state, after [held](Self::hold_drift) ones.
    pub async fn record_drift(&self, session: &Session, extent: Extent) -> Result<(), ToolError> {
        if self.workspace.capture().is_some() {
            self.record_drift_since(session, &own_state(session).await?, extent).await?;
        }
        Ok(())
    }

    /// Records external changes since `state`, which includes every recorded change, after [held](Self::hold_drift)
    /// ones. Returns true if it recorded any. Refuses a disk left blank by a failed rewind: its half-done changes are
    /// not external, and opening the workspace repairs it.
    pub(crate) async fn record_drift_since(
        &self,
        session: &Session,
        state: &State,
        extent: Extent,
    ) -> Result<bool, ToolError> {
        let Some(look) = self.look(session, state, extent).await? else { return Ok(false) };
        self.record_look(session, state, look).await
    }

    /// Records a scan, after the held scans. Returns true if they found changes.
    async fn record_look(&self, session: &Session, state: &State, look: Look) -> Result<bool, ToolError> {
        let looks: Vec<Look> = self.held.take().into_iter().chain([look]).collect();
        let is_drift = looks.iter().any(|look| !look.captured.changes.is_empty());
        if is_drift {
            let (of, workspace, state) = (session.clone(), Arc::clone(&self.workspace), state.clone());
            let recorded = with_store(session, move || record_looks(&of, workspace.as_ref(), &state, looks)).await;
            let recorded = match recorded.and_then(|recorded| recorded) {
                // The state has the changes only once they are durable.
                Ok(Some(pending)) => pending.durable().await.map(drop).map_err(SessionError::from),
                other => other.map(drop),
            };
            recorded.inspect_err(|_| distrust(self.workspace.as_ref()))?;
        }
        keep_if_due(session, &self.workspace).await;
        Ok(is_drift)
    }

    /// Records previously hidden changes, with the calls that may have made them. Returns the changed paths.
    pub(crate) async fn record_unseen(&self, session: &Session, calls: &[Seq]) -> Result<Vec<EntryPath>, ToolError> {
        let state = own_state(session).await?;
        let Some(mut look) = self.look(session, &state, Extent::All).await? else { return Ok(Vec::new()) };
        look.perhaps = calls.to_vec();
        let paths: BTreeSet<EntryPath> = look.captured.changes.iter().map(PlannedChange::path).cloned().collect();
        self.record_look(session, &state, look).await?;
        Ok(paths.into_iter().collect())
    }

    /// Scans the disk and holds the findings until [`record_drift`](Self::record_drift). By then the authors of the
    /// changes may be known.
    pub(crate) async fn hold_drift(&self, session: &Session) -> Result<(), ToolError> {
        if !self.held.is_full()
            && let Some(look) = self.look(session, &own_state(session).await?, Extent::Due).await?
            && !look.captured.changes.is_empty()
        {
            self.held.hold(look, self.workspace.root().as_deref().map(Path::new));
        }
        Ok(())
    }

    async fn look(&self, session: &Session, state: &State, extent: Extent) -> Result<Option<Look>, ToolError> {
        let Some(disk) = self.workspace.capture() else { return Ok(None) };
        if self.workspace.is_blank() {
            let what = "the workspace is inconsistent after a failed rewind";
            return Err(ToolError::new(format!("{what}; reopen the session to repair it")));
        }
        let is_whole = extent == Extent::All || disk.is_walk_due();
        let (mut files, began) = (VirtualFileSystem::of(state), session.now());
        self.held.apply_to(&mut files, began);
        let (captured, late) = self.looked(session, files, if is_whole { walk } else { dirty }).await?;
        let mut look = Look::new(captured, late);
        look.after = self.held.looked(began);
        Ok(Some(look))
    }

    /// Persists the index of the disk for the next process, if all changes are recorded.
    pub(crate) fn keep_at_end(&self, session: &Session) {
        match self.held.is_empty() {
            true => keep_at_end(session, self.workspace.as_ref()),
            false => distrust(self.workspace.as_ref()),
        }
    }

    /// Scans the disk for differences from these files and marks them clean. The caller must submit them before it
    /// awaits anything else.
    pub(crate) async fn captured(&self, session: &Session, tree: VirtualFileSystem) -> Result<Captured, ToolError> {
        Ok(self.looked(session, tree, dirty).await?.0)
    }

    async fn looked(
        &self,
        session: &Session,
        tree: VirtualFileSystem,
        look: fn(&dyn ChangeDetector) -> Result<Walked, BackendError>,
    ) -> Result<(Captured, Vec<DirtyPath>), ToolError> {
        // An abandoned scan must not be mistaken for this one.
        let looking = SessionRuntime::of(session).lock_scan().await;
        let Some(disk) = self.workspace.capture() else { return Ok(Default::default()) };
        let walked = if disk.is_quick() { Some(look(disk)?) } else { None };
        if walked.as_ref().is_some_and(|walked| walked.dirty.is_empty()) {
            disk.mark_clean()?;
            return Ok(Default::default());
        }
        let (of, workspace, budget) = (session.clone(), Arc::clone(&self.workspace), self.rules.budget);
        let looked = tokio::task::spawn_blocking(move || {
            let compared = |disk: &dyn ChangeDetector| {
                let Walked { dirty, late } = walked.map_or_else(|| look(disk), Ok)?;
                let mut captured = compare(disk, dirty, &tree, budget)?;
                clear_set_id(disk, &tree, &mut captured)?;
                captured.withhold(&of)?;
                Ok::<_, ToolError>((captured, late))
            };
            (workspace.capture().map_or_else(|| Ok(Default::default()), compared), looking)
        });
        let stopped = |_| ToolError::new("the scan of the disk was stopped");
        let (captured, _looking) = looked.await.map_err(stopped)?;
        let captured = captured?;
        disk.mark_clean()?;
        Ok(captured)
    }

    /// Joins the names of hard-linked files before a command runs.
    pub(crate) async fn join_names(&self, files: &VirtualFileSystem) {
        if files.has_hard_links() {
            let (workspace, files) = (Arc::clone(&self.workspace), files.clone());
            // The call itself would meet a panic of the disk.
            drop(tokio::task::spawn_blocking(move || join_names(workspace.as_ref(), &files)).await);
        }
    }

    pub(crate) fn record_end(&self, session: &Session) -> Result<(), SessionError> {
        record_machine(session, self.workspace.as_ref())
    }

    pub(crate) fn record_news(&self, news: &[MachineNews], recording: &mut EventBuffer) -> Result<(), CommitError> {
        push_news(news, recording)?;
        if self.claim.is_some() {
            recording.push(&WorkspaceTouched { backend: self.workspace.backend_name().to_owned() })?;
        }
        Ok(())
    }
}

/// Prepares the disk: populates a blank disk, or repairs an interrupted landing, and records external changes. While a
/// call is in flight, it owns the files, and the next call scans.
pub(crate) fn prepare(
    session: &Session,
    workspace: &dyn Workspace,
    budget: CaptureBudget,
) -> Result<(), WorkspaceError> {
    let Some(disk) = workspace.capture() else { return Ok(()) };
    borrow_from_git(session, disk);
    let is_blank = workspace.is_blank();
    let runtime = SessionRuntime::of(session);
    let (turn, looking) = (runtime.try_lock_workspace(), runtime.try_lock_scan());
    let is_alone = turn.is_some() && looking.is_some();
    if !is_blank && !is_alone {
        return Ok(());
    }
    let tree = files_of(session)?;
    let intent = if is_blank { workspace.intent()? } else { None };
    let intent = intent.and_then(|note| Intent::decode(session, &note));
    let mut left_out = Vec::new();
    match &intent {
        // The opening would undo a merge or rewind in flight.
        Some(_) if !is_alone => {
            let reason = "a merge or rewind of its files is in flight; open it again afterwards".to_owned();
            return Err(BackendError { backend: workspace.backend_name(), reason }.into());
        }
        Some(intent) => super::recovery::put_back(session, &tree, workspace, disk, budget, intent)?,
        None if is_blank => {
            workspace.filling()?;
            let lost = fill(session, &tree, workspace)?;
            left_out = not_filled(disk, &tree)?;
            left_out.extend(lost.into_iter().map(|path| DeleteEntry { path }));
        }
        None => {}
    }
    if !is_blank {
        resume(session, disk);
    }
    let mut captured = compare(disk, disk.dirty()?, &tree, budget)?;
    // In the first scan every file is new, and the directory's owner chose its bits.
    if tree.iter().next().is_some() {
        clear_set_id(disk, &tree, &mut captured)?;
    }
    disk.mark_clean()?;
    captured.withhold(session)?;
    let known: BTreeSet<_> = captured.changes.iter().map(PlannedChange::path).collect();
    left_out.retain(|gone| !known.contains(&gone.path));
    captured.changes.splice(0..0, left_out.into_iter().map(PlannedChange::Delete));
    let largest = captured.changes.iter().max_by_key(|change| change.size()).map(|change| change.path().clone());
    let found = record_found(session, &session.state()?, workspace, Look::new(captured, Vec::new()));
    let recorded = found.and_then(|pending| Ok(pending.map(Pending::wait).transpose()?));
    recorded.inspect_err(|_| distrust(workspace)).map_err(|error| unrecorded(error, largest, workspace))?;
    if is_blank {
        workspace.filled()?;
    }
    if is_alone && disk.keeper().is_some_and(KnownFilesKeeper::is_due) {
        keep(session, workspace);
    }
    Ok(())
}

/// Names the largest change if the disk has no room for it.
fn unrecorded(error: SessionError, largest: Option<EntryPath>, workspace: &dyn Workspace) -> WorkspaceError {
    match largest {
        Some(path) if error.kind() == ErrorKind::Full => {
            // Files in a container can't be deleted from here.
            let root = workspace.root().filter(|_| workspace.container().is_none());
            let place = root.map(|root| format!("{root}{}", path.rooted()));
            WorkspaceError::Unrecorded { path, place, source: error }
        }
        _ => error.into(),
    }
}

fn borrow_from_git(session: &Session, disk: &dyn ChangeDetector) {
    disk.borrow_from_git(&mut |objects| match session.borrow_from(objects) {
        Ok(accepted) => accepted,
        Err(error) => {
            tracing::warn!(%error, "reading every file: the store can't borrow from git");
            false
        }
    });
}

fn dirty(disk: &dyn ChangeDetector) -> Result<Walked, BackendError> {
    Ok(Walked { dirty: disk.dirty()?, late: Vec::new() })
}

fn walk(disk: &dyn ChangeDetector) -> Result<Walked, BackendError> {
    disk.walk()
}

/// Records scans in their order. A scan is recorded even if an earlier one could not be.
fn record_looks(
    session: &Session,
    workspace: &dyn Workspace,
    state: &State,
    looks: Vec<Look>,
) -> Result<Option<Pending>, SessionError> {
    let mut last = Ok(None);
    for look in looks {
        let now = if matches!(last, Ok(None)) { Ok(state.clone()) } else { session.state() };
        let recorded = now.and_then(|state| record_found(session, &state, workspace, look));
        // Waiting for the last commit waits for all.
        last = match (last, recorded) {
            (Err(error), _) | (_, Err(error)) => Err(error),
            (Ok(before), Ok(recorded)) => Ok(recorded.or(before)),
        };
    }
    last
}

/// Records changes that were found between calls: as changes of the open observed calls, else as external changes.
pub(crate) fn record_found(
    session: &Session,
    state: &State,
    workspace: &dyn Workspace,
    mut look: Look,
) -> Result<Option<Pending>, SessionError> {
    let Captured { changes, contents, .. } = std::mem::take(&mut look.captured);
    if changes.is_empty() {
        return Ok(None);
    }
    let runs = state.slice::<AgentRuns>().cloned().unwrap_or_default();
    let is_late = |change: &&PlannedChange| {
        look.late.iter().any(|late| match late {
            DirtyPath::Entry(path) => path == change.path(),
            DirtyPath::Subtree(path) => path == change.path() || change.path().is_below(path),
        })
    };
    let mut last = None;
    let root = workspace.root().map(PathBuf::from);
    let times = |path: &EntryPath| (look.after, look.changed_at(root.as_deref(), path));
    // Links come last, since they need existing files.
    let (links, changes): (Vec<_>, Vec<_>) = changes.into_iter().partition(|change| change.link().is_some());
    let mut sorted = attribution::sorted(changes, &runs, times);
    match sorted.last_entry() {
        Some(mut last) => last.get_mut().extend(links),
        None => sorted = attribution::sorted(links, &runs, times),
    }
    for (Writers { mut in_doubt, mut calls }, changes) in sorted {
        if calls.is_empty() && !look.perhaps.is_empty() {
            (in_doubt, calls) = (true, look.perhaps.clone());
        }
        let recording = match calls[..] {
            [call] if !in_doubt => EventBuffer::of_observed(session, call, &runs.agent_of(call)),
            _ => EventBuffer::without_agent(session),
        };
        let mut recording = recording.over(state);
        if in_doubt || calls.is_empty() {
            let late = changes.iter().filter(|change| change.link().is_none()).filter(is_late).count() as u64;
            let backend = workspace.backend_name().to_owned();
            let entries: BTreeSet<_> = changes.iter().map(PlannedChange::path).collect();
            recording.push(&DriftFound { backend, entries: entries.len() as u64, late, perhaps: calls })?;
        } else if calls.len() > 1 {
            recording.push(&ChangesShared { calls })?;
        }
        changes.iter().try_for_each(|change| recording.push_change(change, &contents))?;
        // Waiting for the last commit waits for all.
        last = Some(recording.submit()?);
    }
    Ok(last)
}

fn record_machine(session: &Session, workspace: &dyn Workspace) -> Result<(), SessionError> {
    let news = workspace.news();
    if news.is_empty() {
        return Ok(());
    }
    let mut recording = EventBuffer::without_agent(session);
    push_news(&news, &mut recording)?;
    recording.submit()?.wait()?;
    Ok(())
}

pub(crate) fn push_news(news: &[MachineNews], recording: &mut EventBuffer) -> Result<(), CommitError> {
    let mut mask = None;
    // In the order in which they began, for a rerun that asks in that order.
    let exchanged =
        |news: &MachineNews| if let MachineNews::Exchanged(report, _) = news { Some(report.order) } else { None };
    let mut news: Vec<&MachineNews> = news.iter().collect();
    news.sort_by_key(|news| exchanged(news));
    news.into_iter().try_for_each(|news| match news {
        MachineNews::Exchanged(report, masks) => {
            http_record::record(report, mask.get_or_insert_with(|| HttpMask::new(masks)), recording)
        }
        MachineNews::Started(event) => recording.push(event),
        MachineNews::Stopped(event) => recording.push(event),
        MachineNews::Connected(event) => recording.push(event),
    })
}

pub(crate) fn files_of(session: &Session) -> Result<VirtualFileSystem, SessionError> {
    Ok(VirtualFileSystem::of(&session.state()?))
}
