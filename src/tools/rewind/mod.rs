//! Rewind: returns the log and the files to an earlier position, as new events.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use super::call::tool_runner::ToolRunner;
use super::declared;
use super::off_thread::off_thread;
use super::workspace::capture::{CaptureBudget, compare};
use super::workspace::held_looks::Look;
use super::workspace::managed::{files_of, prepare, record_found};
use super::workspace::plan::{ChangePlan, NewContents, PlannedChange};
use super::workspace::project::Landing;
use super::workspace::runtime::SessionRuntime;
use crate::backends::{Walked, Workspace, WorkspaceSpec};
use crate::engine::commit::{Commit, CommitError};
use crate::engine::event::{
    CallStarted, DeleteEntry, DriftFound, Event, Isolation, Origin, SessionRewound, SliceRestored, WriteFile, WriteMode,
};
use crate::engine::id::{CommitId, Seq};
use crate::engine::path::EntryPath;
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::engine::slice::{EncodedSlice, Slice};
use crate::engine::state::State;
use crate::reducers::{Allowances, Change, DeclaredSlices, ToolRules, VirtualFileSystem, directories_above};
use crate::tools::error::WorkspaceError;
use crate::tools::workspace::processes::end;

/// Time limit for processes to end.
const ENDS_WITHIN: Duration = Duration::from_secs(10);

/// The options of a rewind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RewindOptions {
    /// True to rewind in cases that are refused by default: records external changes first, so that they can be
    /// restored; leaves entries that can't be restored; removes contents that were never stored; and removes entries
    /// that the user's own directory had before the session.
    pub force: bool,
    /// True to retain entries from before the session even with [`force`](RewindOptions::force).
    pub keep_earlier: bool,
    /// True to also rewind the existing `.git` of a user's own directory, and with it the commits made since.
    pub git: bool,
    /// True to only report the result, without any changes.
    pub dry_run: bool,
    /// The id of the request: a second rewind with it returns the report of the first.
    pub id: Option<CommitId>,
}

/// The report of a rewind.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Rewound {
    /// The position of the restored state.
    pub to: Seq,
    /// The head before the rewind; a rewind to it undoes this one.
    pub from: Seq,
    /// The first and last positions of the rewind's events. `None` in a dry run, or if nothing differed.
    pub recorded: Option<(Seq, Seq)>,
    /// The undone differences.
    pub changes: Vec<Change>,
    /// The other restored slices.
    pub slices: Vec<String>,
    /// The external changes, which were recorded first.
    pub drift: Vec<EntryPath>,
    /// The entries that could not be restored and stay as they are, and each [`.git`](RewindOptions::git) that stays.
    pub left: Vec<EntryPath>,
    /// The entries that were removed or replaced for good because their contents were never stored.
    pub lost: Vec<EntryPath>,
    /// The hard links that became separate files because the file system can't link them.
    pub apart: Vec<EntryPath>,
    /// True if an earlier request with the same id made the rewind. `drift`, `left`, `lost` and `apart` are then empty,
    /// because they are not recorded.
    pub repeated: bool,
}

impl ToolRunner {
    /// Rewinds the session to the state after the event at `to`: its files, and every slice except logs. Waits for the
    /// workspace lock. Ends the background processes that began after `to`, and, if
    /// anything changes, services that restart; the next command starts these again. See [`rewind`].
    pub async fn rewind(&self, to: Seq, options: RewindOptions) -> Result<Rewound, WorkspaceError> {
        let (mut processes, restarting) = self.machine().processes.ended_by_rewind(to);
        let work = |options| rewind(self.session(), self.workspace(), self.machine().rules.budget, to, options);
        let has_any = !processes.is_empty() || !restarting.is_empty();
        if has_any && !options.dry_run {
            match work(RewindOptions { dry_run: true, ..options }).await {
                // Their files stay.
                Ok(planned) if planned.changes.is_empty() && planned.slices.is_empty() => {}
                Ok(_) | Err(WorkspaceError::Drifted(_)) => processes.extend(restarting),
                Err(error) => return Err(error),
            }
            if let Some(container) = self.workspace().container() {
                // Frozen processes would not end.
                let resumed = tokio::task::spawn_blocking(move || container.resume()).await;
                drop(resumed.inspect_err(|error| tracing::warn!(%error, "failed to resume a container")));
            }
            // The ends of the processes record their changes.
            end(&processes, ENDS_WITHIN).await;
        }
        let rewound = work(options).await?;
        *self.machine().services_due.lock().await = true;
        Ok(rewound)
    }
}

/// Rewinds a session to the state after the event at `to`, without a tool runner.
///
/// Log and files change together, and no history is lost: one commit holds a [`SessionRewound`], the file events that
/// lead back, and a [`SliceRestored`] for each other slice that differs. Slices that are logs stay. A position inside a
/// commit stands for the commit's end. It may be inside a call; then the call's earlier commits count. Waits for a call
/// in flight.
///
/// A rewind happens completely or not at all. An error leaves files and log unchanged. If the process dies halfway, the
/// next opening of the workspace restores the files from the log. Dropping the future does not stop a started rewind.
///
/// # Errors
/// [`WorkspaceError`], notably [`Drifted`](WorkspaceError::Drifted), [`NotKept`](WorkspaceError::NotKept) and
/// [`Earlier`](WorkspaceError::Earlier), which [`force`](RewindOptions::force) overrides.
pub async fn rewind(
    session: &Session,
    workspace: &Arc<dyn Workspace>,
    budget: CaptureBudget,
    to: Seq,
    options: RewindOptions,
) -> Result<Rewound, WorkspaceError> {
    let runtime = SessionRuntime::of(session);
    let turn = runtime.lock_workspace().await;
    let looking = runtime.lock_scan().await;
    let to = session.aside(|| session.check_own().and_then(|()| session.commit_end(to)))?;
    let work = RewindWork { session: session.clone(), workspace: Arc::clone(workspace), budget, to, options };
    off_thread((turn, looking), WorkspaceError::Stopped, move || work.run()).await
}

/// Returns the recorded report of the rewind with the id, if the session has one.
///
/// # Errors
/// [`SessionError::OtherRequest`] if the request with the id was not a rewind to `to`.
#[doc(hidden)]
pub fn rewound_before(session: &Session, id: CommitId, to: Option<Seq>) -> Result<Option<Rewound>, SessionError> {
    let Some((committed, rewound)) = session.first_with_id::<SessionRewound>(id)? else { return Ok(None) };
    let SessionRewound { to: restored, from, .. } = rewound;
    if to.is_some_and(|to| to != restored) {
        return Err(SessionError::OtherRequest { seq: committed.first });
    }
    let files = |seq| Ok::<_, SessionError>(VirtualFileSystem::of(&session.state_at(seq)?));
    let changes = files(committed.first - 1)?.diff(&files(committed.last)?);
    let mut slices = Vec::new();
    session.visit_between(committed.first, committed.last, &mut |event| {
        slices.extend(event.decoded::<SliceRestored>().map(|restored| restored.slice));
        ControlFlow::Continue(())
    })?;
    let (recorded, none) = (Some((committed.first, committed.last)), Vec::new);
    let (drift, left, lost, apart) = (none(), none(), none(), none());
    Ok(Some(Rewound { to: restored, from, recorded, changes, slices, drift, left, lost, apart, repeated: true }))
}

struct RewindWork {
    session: Session,
    workspace: Arc<dyn Workspace>,
    budget: CaptureBudget,
    to: Seq,
    options: RewindOptions,
}

impl RewindWork {
    fn run(&self) -> Result<Rewound, WorkspaceError> {
        if let Some(id) = self.options.id
            && let Some(earlier) = rewound_before(&self.session, id, Some(self.to))?
        {
            return Ok(earlier);
        }
        let then = self.session.state_at(self.to)?;
        let (now, drift) = self.present()?;
        let state = self.session.state()?;
        let from = state.seq();
        let mut old = VirtualFileSystem::of(&then);
        let kept = match WorkspaceSpec::directory_of(self.session.started()) {
            Some(_) if !self.options.git => keep_git(&self.session, &mut old, &now)?,
            _ => BTreeSet::new(),
        };
        let mut plan = ChangePlan::kept(&self.session, &now, &old, (&NewContents::new(), self.options.force))?;
        if !plan.left.is_empty() && !self.options.force {
            return Err(WorkspaceError::NotKept(plan.left));
        }
        if !self.options.force || self.options.keep_earlier {
            check_earlier(&self.session, &plan.changes)?;
        }
        plan.left.extend(kept);
        let (restored, present) = (self.restored(&then, &state)?, state.restorable(VirtualFileSystem::NAME)?);
        let slices: Vec<EncodedSlice> = restored.into_iter().filter(|slice| !present.contains(slice)).collect();
        let names = slices.iter().map(|slice| slice.name.to_string()).collect();
        let (mut recorded, mut apart) = (None, Vec::new());
        let differs =
            !plan.steps.is_empty() || !slices.is_empty() || declared::changes_own_events(&self.session, self.to)?;
        if differs && !self.options.dry_run {
            let commit = self.commit(from, &plan, slices)?;
            let (session, workspace) = (&self.session, self.workspace.as_ref());
            let (committed, names) =
                Landing { session, workspace, now: &now, steps: &plan.steps, fresh: &NewContents::new() }
                    .land(commit)?;
            recorded = Some((committed.first, committed.last));
            apart = names;
        }
        let ChangePlan { changes, left, lost, .. } = plan;
        Ok(Rewound { to: self.to, from, recorded, changes, slices: names, drift, left, lost, apart, repeated: false })
    }

    /// Returns the slices to restore. Declared slices keep their present declarations, and policies stay, with their
    /// counts of then. In the part of a fork's history that is its parent's, the allowances were the
    /// parent's, so the fork's initial allowances replace them.
    fn restored(&self, then: &State, now: &State) -> Result<Vec<EncodedSlice>, WorkspaceError> {
        let mut slices = then.restorable(VirtualFileSystem::NAME)?;
        if let Some(declared) = slices.iter_mut().find(|slice| *slice.name == *DeclaredSlices::NAME) {
            let encoded = declared::rewound(&self.session, then, now)?.encode().map_err(SessionError::from)?;
            declared.blocks = encoded.into_iter().map(Bytes::from).collect();
        }
        let rules = ToolRules::of(now).with_counts_of(&ToolRules::of(then));
        if let Some(policies) = slices.iter_mut().find(|slice| *slice.name == *ToolRules::NAME) {
            policies.blocks = rules.encode().map_err(SessionError::from)?.into_iter().map(Bytes::from).collect();
        }
        let is_before = |origin: &&Origin| origin.isolation == Isolation::Fork && self.to <= origin.at;
        if let Some(origin) = self.session.origin().filter(is_before) {
            // An imported history may state any origin, so limit it to the head.
            let begun = origin.at.saturating_add(1).min(self.session.head()?);
            let begun = self.session.state_at(begun)?.restorable(VirtualFileSystem::NAME)?;
            let own = begun.into_iter().filter(|slice| *slice.name == *Allowances::NAME);
            slices.retain(|slice| *slice.name != *Allowances::NAME);
            slices.extend(own);
        }
        Ok(slices)
    }

    fn present(&self) -> Result<(VirtualFileSystem, Vec<EntryPath>), WorkspaceError> {
        if self.workspace.is_blank() && !self.options.dry_run {
            prepare(&self.session, self.workspace.as_ref(), self.budget)?;
        }
        let mut files = files_of(&self.session)?;
        let Some(disk) = self.workspace.capture().filter(|_| !self.workspace.is_blank()) else {
            return Ok((files, Vec::new()));
        };
        let Walked { dirty, late } = disk.walk()?;
        let mut captured = compare(disk, dirty, &files, self.budget)?;
        let drift: BTreeSet<EntryPath> = captured.changes.iter().map(|change| change.path().clone()).collect();
        let drift: Vec<EntryPath> = drift.into_iter().collect();
        if !drift.is_empty() && !self.options.force {
            return Err(WorkspaceError::Drifted(drift));
        }
        if self.options.dry_run {
            captured.changes.iter().for_each(|change| change.apply_to(&mut files, self.session.now()));
            return Ok((files, drift));
        }
        captured.withhold(&self.session)?;
        if let Some(pending) =
            record_found(&self.session, &self.session.state()?, self.workspace.as_ref(), Look::new(captured, late))?
        {
            pending.wait().map_err(SessionError::from)?;
        }
        disk.mark_clean()?;
        Ok((files_of(&self.session)?, drift))
    }

    fn commit(&self, from: Seq, plan: &ChangePlan, slices: Vec<EncodedSlice>) -> Result<Commit, WorkspaceError> {
        let too_large = |error: CommitError| match error {
            CommitError::TooLarge { .. } => WorkspaceError::TooLarge { from, to: self.to, reason: error.to_string() },
            other => WorkspaceError::Session(other.into()),
        };
        let mut commit = self.session.commit();
        if let Some(id) = self.options.id {
            commit = commit.with_id(id);
        }
        let (entries, left) = (plan.changes.len() as u64, plan.left.len() as u64);
        commit.push(&SessionRewound { to: self.to, from, entries, left }).map_err(too_large)?;
        plan.steps.iter().try_for_each(|step| step.push_to(&mut commit)).map_err(too_large)?;
        for EncodedSlice { name, version, blocks } in slices {
            commit.push(&SliceRestored { slice: name.to_string(), version, blocks }).map_err(too_large)?;
        }
        Ok(commit)
    }
}

/// Changes `then` so that each present `.git` that is there, or was in the directory before the session, stays as it
/// is. Returns those that differ.
fn keep_git(
    session: &Session,
    then: &mut VirtualFileSystem,
    now: &VirtualFileSystem,
) -> Result<BTreeSet<EntryPath>, SessionError> {
    let Some(last) = taken_up(session)? else { return Ok(BTreeSet::new()) };
    let (earlier, time) = (VirtualFileSystem::of(&session.state_at(last)?), session.now());
    let mut kept = BTreeSet::new();
    for change in then.diff(now) {
        let all = std::iter::once(change.path().clone()).chain(directories_above(change.path()));
        let Some(git) = all.into_iter().filter(|path| path.name() == b".git").last() else { continue };
        if now.get(&git).is_none() || then.get(&git).is_none() && earlier.get(&git).is_none() {
            continue;
        }
        let (path, mode) = (change.path().clone(), WriteMode::Overwrite);
        match change.sides().1 {
            Some(present) => then.write(&WriteFile { path, mode, node: present.node.clone() }, time),
            None => then.delete(&DeleteEntry { path }),
        }
        for path in directories_above(&git) {
            if let Some(node) = now.node(&path).filter(|_| !then.is_directory(&path)).cloned() {
                then.write(&WriteFile { path, mode, node }, time);
            }
        }
        kept.insert(git);
    }
    Ok(kept)
}

/// Refuses changes that remove entries from before the session in the session's directory.
fn check_earlier(session: &Session, changes: &[Change]) -> Result<(), WorkspaceError> {
    let removed: Vec<&EntryPath> = changes
        .iter()
        .filter_map(|change| match change {
            Change::Removed { path, .. } => Some(path),
            Change::Added { .. } | Change::Changed { .. } => None,
        })
        .collect();
    if removed.is_empty() || WorkspaceSpec::directory_of(session.started()).is_none() {
        return Ok(());
    }
    let Some(last) = taken_up(session)? else { return Ok(()) };
    let found = VirtualFileSystem::of(&session.state_at(last)?);
    let earlier: BTreeSet<&EntryPath> = removed.into_iter().filter(|path| found.get(path).is_some()).collect();
    if earlier.is_empty() {
        return Ok(());
    }
    let is_top = |path: &&&EntryPath| path.parent().is_none_or(|parent| !earlier.contains(&parent));
    let paths = earlier.iter().filter(is_top).map(|path| (*path).clone()).collect();
    Err(WorkspaceError::Earlier { count: earlier.len(), paths })
}

/// Returns the end of the commits that recorded the directory's initial contents before the first call.
pub fn taken_up(session: &Session) -> Result<Option<Seq>, SessionError> {
    let fork = session.origin().filter(|origin| origin.isolation == Isolation::Fork);
    let begun = fork.map_or(1, |origin| origin.at.saturating_add(1));
    let (mut is_taking, mut last) = (false, None);
    session.visit(begun, &mut |event| {
        match event.kind {
            CallStarted::KIND | SessionRewound::KIND => return ControlFlow::Break(()),
            DriftFound::KIND => is_taking = true,
            kind if PlannedChange::KINDS.contains(&kind) => {}
            _ => is_taking = false,
        }
        if is_taking {
            last = Some(event.seq);
        }
        ControlFlow::Continue(())
    })?;
    Ok(last)
}
