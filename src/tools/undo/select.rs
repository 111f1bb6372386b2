//! The commits that an undo takes back, with the files before and after each.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use super::UndoSubject;
use crate::engine::event::{CallObserved, ChangesShared, DeleteEntry, DriftFound, Event, SessionStarted, WriteFile};
use crate::engine::id::Seq;
use crate::engine::path::EntryPath;
use crate::engine::recorded::EventRef;
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::reducers::{AgentRuns, VirtualFileSystem};
use crate::tools::error::WorkspaceError;

/// A part of the history whose changes are taken back.
pub(super) struct UndoneCommit {
    /// The position of its first change.
    pub(super) first: Seq,
    pub(super) before: VirtualFileSystem,
    pub(super) after: VirtualFileSystem,
}

#[derive(Default)]
pub(super) struct UndoSelection {
    pub(super) commits: Vec<UndoneCommit>,
    /// The calls that made the changes.
    pub(super) calls: Vec<Seq>,
    /// Paths that several calls may have changed, not all of which are selected.
    pub(super) shared: Vec<EntryPath>,
    /// The position of the last change of any file; 0 for none.
    pub(super) last_change: Seq,
}

/// Changes of files that one commit has.
struct ChangedFiles {
    first: Seq,
    last: Seq,
    /// The calls that made them; none for external changes.
    calls: Vec<Seq>,
    paths: Vec<EntryPath>,
}

/// Finds the changes of the calls that are meant.
///
/// # Errors
/// [`WorkspaceError::NothingToUndo`]: there are no such calls, or they changed no files.
pub(super) fn selected(session: &Session, subject: &UndoSubject) -> Result<UndoSelection, WorkspaceError> {
    let (all, of_run) = changed_files(session, subject)?;
    let last_change = all.last().map_or(0, |changed| changed.last);
    let wanted: BTreeSet<Seq> = match subject {
        UndoSubject::Last => {
            let last = all.iter().rev().find(|changed| !changed.calls.is_empty());
            last.into_iter().flat_map(|changed| changed.calls.iter().copied()).collect()
        }
        UndoSubject::Call(call) => BTreeSet::from([*call]),
        UndoSubject::Run(_) => of_run,
        UndoSubject::After(seq) => {
            all.iter().filter(|changed| changed.first > *seq).flat_map(|changed| changed.calls.clone()).collect()
        }
    };
    let from = if let UndoSubject::After(seq) = subject { *seq } else { 0 };
    let (mut found, mut shared) = (Vec::new(), Vec::new());
    for changed in all.into_iter().filter(|changed| changed.first > from) {
        let meant = changed.calls.iter().filter(|call| wanted.contains(call)).count();
        match meant {
            0 => {}
            meant if meant == changed.calls.len() => found.push(changed),
            _ => shared.extend(changed.paths),
        }
    }
    if found.is_empty() && shared.is_empty() {
        return Err(WorkspaceError::NothingToUndo);
    }
    let calls: BTreeSet<Seq> = found.iter().flat_map(|changed| changed.calls.iter().copied()).collect();
    let commits = with_files(session, &found)?;
    Ok(UndoSelection { commits, calls: calls.into_iter().collect(), shared, last_change })
}

/// Returns the files that the directory held when it was taken up; none where the session began with nothing.
pub(super) fn taken_up(session: &Session) -> Result<VirtualFileSystem, SessionError> {
    let mut last = None;
    session.visit(1, &mut |event| {
        match event.kind {
            DriftFound::KIND if last.is_none() => last = Some(event.seq),
            WriteFile::KIND | DeleteEntry::KIND if last.is_some() => last = Some(event.seq),
            SessionStarted::KIND if last.is_none() => {}
            _ => return ControlFlow::Break(()),
        }
        ControlFlow::Continue(())
    })?;
    Ok(match last {
        Some(last) => VirtualFileSystem::of(&session.state_at(last)?),
        None => VirtualFileSystem::default(),
    })
}

/// Lists the commits that changed files, in order, and the calls of the run that is meant.
fn changed_files(
    session: &Session,
    subject: &UndoSubject,
) -> Result<(Vec<ChangedFiles>, BTreeSet<Seq>), WorkspaceError> {
    let run = match subject {
        UndoSubject::Run(run) => Some(known_run(session, run)?),
        _ => None,
    };
    let (mut all, mut of_run): (Vec<ChangedFiles>, BTreeSet<Seq>) = Default::default();
    let mut together: Option<(Seq, Vec<Seq>)> = None;
    session.visit(1, &mut |event| {
        if let (Some(run), Some(Ok(observed))) = (&run, event.typed::<CallObserved>())
            && observed.event.run == *run
        {
            of_run.extend(event.call);
        }
        if let Some(Ok(shared)) = event.typed::<ChangesShared>() {
            together = Some((event.seq, shared.event.calls));
        }
        let Some(path) = changed_path(event) else { return ControlFlow::Continue(()) };
        let is_shared = together.as_ref().filter(|(seq, _)| event.call.is_none() && is_next(*seq, event.seq, &all));
        let calls = match is_shared {
            Some((_, calls)) => calls.clone(),
            None => event.call.into_iter().collect(),
        };
        match all.last_mut().filter(|last| last.last + 1 == event.seq && last.calls == calls) {
            Some(last) => {
                last.last = event.seq;
                last.paths.push(path);
            }
            None => all.push(ChangedFiles { first: event.seq, last: event.seq, calls, paths: vec![path] }),
        }
        ControlFlow::Continue(())
    })?;
    Ok((all, of_run))
}

/// Tells whether a change follows the event that says whose it may be, directly or after others that do.
fn is_next(shared: Seq, change: Seq, all: &[ChangedFiles]) -> bool {
    change == shared + 1 || all.last().is_some_and(|last| last.first == shared + 1 && last.last + 1 == change)
}

/// Finds a run of an agent by its id, by the beginning of that, or as `last`.
pub(crate) fn known_run(session: &Session, wanted: &str) -> Result<String, WorkspaceError> {
    let state = session.state()?;
    let runs = state.slice::<AgentRuns>().map(|runs| &runs.runs);
    let runs = || runs.into_iter().flatten();
    if wanted == "last" {
        let last = runs().max_by_key(|(_, run)| run.seq).map(|(id, _)| id.clone());
        return last.ok_or(WorkspaceError::NothingToUndo);
    }
    let mut meant = runs().filter(|(id, _)| *id == wanted || id.starts_with(wanted)).map(|(id, _)| id);
    match (meant.next(), meant.next()) {
        (Some(id), None) => Ok(id.clone()),
        (Some(_), Some(_)) if runs().any(|(id, _)| id == wanted) => Ok(wanted.to_owned()),
        (Some(one), Some(other)) => {
            Err(WorkspaceError::UnknownRun(format!("{wanted} is the beginning of {one} and {other}")))
        }
        (None, _) => Err(WorkspaceError::UnknownRun(format!("there is no run {wanted}"))),
    }
}

fn changed_path(event: &EventRef<'_>) -> Option<EntryPath> {
    match event.kind {
        WriteFile::KIND => Some(event.typed::<WriteFile>()?.ok()?.event.path),
        DeleteEntry::KIND => Some(event.typed::<DeleteEntry>()?.ok()?.event.path),
        _ => None,
    }
}

/// Folds the files before and after each part.
fn with_files(session: &Session, found: &[ChangedFiles]) -> Result<Vec<UndoneCommit>, SessionError> {
    let mut commits = Vec::new();
    for ChangedFiles { first, last, .. } in found {
        let before = VirtualFileSystem::of(&session.state_at(first - 1)?);
        let after = VirtualFileSystem::of(&session.state_at(*last)?);
        commits.push(UndoneCommit { first: *first, before, after });
    }
    Ok(commits)
}
