//! Selecting the changes that an undo takes back.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use super::UndoSubject;
use super::history::{Author, ChangeHistory, FileChanges};
use super::left::UndoLeftReason;
use crate::engine::id::Seq;
use crate::engine::path::EntryPath;
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::reducers::{AgentRuns, Change, VirtualFileSystem, directories_above};
use crate::tools::error::WorkspaceError;
use crate::tools::workspace::plan::PlannedChange;

/// The selected changes and their possible authors.
#[derive(Debug, Default)]
pub(super) struct UndoSelection {
    /// The calls to take back, in order.
    pub(super) calls: Vec<Seq>,
    /// The undos that took back only these calls, and the undos of those undos, in order.
    pub(super) undos: Vec<Seq>,
    /// The external changes to take back, by the position of the first event.
    pub(super) external: Vec<Seq>,
    changes: Vec<FileChanges>,
    /// Changes that other calls may have made as well.
    shared: Vec<FileChanges>,
    /// Changes that a person may have made.
    doubtful: Vec<FileChanges>,
}

/// A piece of the history without other changes to the selected paths. Its changes are taken back at once.
pub(super) struct ChangedPiece {
    /// The files before the piece.
    pub(super) before: VirtualFileSystem,
    /// The files after the piece.
    pub(super) after: VirtualFileSystem,
    /// The selected changes, by path.
    pub(super) changes: Vec<Change>,
    /// The paths that the selected events name.
    pub(super) touched: BTreeSet<EntryPath>,
}

/// Selects the changes of a subject.
///
/// # Errors
/// [`WorkspaceError::NothingToUndo`]: the changes were not found.
pub(super) fn selected(
    history: &ChangeHistory,
    subject: &UndoSubject,
    takes_shared: bool,
) -> Result<UndoSelection, WorkspaceError> {
    let mut selection = UndoSelection::default();
    let (from, chosen) = chosen(history, subject);
    // An undo that took back only selected calls is selected with them.
    let undos = history.undos_of(&chosen);
    let calls: BTreeSet<Seq> = chosen.iter().copied().chain(undos).collect();
    let is_wanted = |call: &Seq| calls.contains(call);
    // Changes that a named call shares with calls without other changes count as its own.
    let is_taken = |calls: &[Seq]| match subject {
        UndoSubject::Call(call) => calls.iter().all(|other| history.touches_only_with(*other, *call)),
        _ => false,
    };
    for changes in history.changes.iter().filter(|changes| changes.first > from) {
        match (subject, &changes.author) {
            (UndoSubject::External(at), _) if changes.is_outside() => {
                let is_it = |at: Seq| changes.first.saturating_sub(1) <= at && at <= changes.last;
                let is_latest = || history.outside().next_back() == Some(changes);
                if at.map_or_else(is_latest, is_it) {
                    selection.external.push(changes.first);
                    selection.changes.push(changes.clone());
                }
            }
            (UndoSubject::External(_), _) => {}
            (_, Author::Perhaps(calls)) if calls.iter().all(is_wanted) => match takes_shared {
                true => {
                    selection.external.push(changes.first);
                    selection.changes.push(changes.clone());
                }
                false => selection.doubtful.push(changes.clone()),
            },
            (_, Author::Calls(calls)) => match calls.iter().filter(|call| is_wanted(call)).count() {
                0 => {}
                count if count == calls.len() || takes_shared || is_taken(calls) => {
                    selection.calls.extend(calls.iter().filter(|call| is_wanted(call)));
                    selection.changes.push(changes.clone());
                }
                _ => selection.shared.push(changes.clone()),
            },
            _ => {}
        }
    }
    let mut found: BTreeSet<Seq> = selection.calls.drain(..).collect();
    if found.is_empty() && selection.external.is_empty() {
        // No change certainly comes from the chosen calls, so they are reported as uncertain.
        let uncertain = selection.shared.iter().chain(&selection.doubtful).flat_map(FileChanges::calls);
        found.extend(uncertain.filter(|call| is_wanted(call)));
    }
    (selection.calls, selection.undos) = found.into_iter().partition(|call| chosen.contains(call));
    if selection.changes.is_empty() && selection.shared.is_empty() && selection.doubtful.is_empty() {
        let call = if let UndoSubject::Call(call) = subject { Some(*call) } else { None };
        return Err(nothing(history, call));
    }
    Ok(selection)
}

/// Returns the position before the selected changes, and the calls of a subject.
fn chosen(history: &ChangeHistory, subject: &UndoSubject) -> (Seq, BTreeSet<Seq>) {
    let from = if let UndoSubject::After(seq) = subject { *seq } else { 0 };
    let after = history.changes.iter().filter(|changes| changes.first > from);
    // An undo is a person's change. It stays unless all its subjects are selected.
    let all = after.flat_map(FileChanges::calls).copied().filter(|call| !history.is_undo(*call));
    let calls = match subject {
        UndoSubject::Call(wanted) => BTreeSet::from([*wanted]),
        UndoSubject::Run(_) => history.of_run.clone(),
        UndoSubject::External(_) => BTreeSet::new(),
        _ => all.collect(),
    };
    (from, calls)
}

/// Returns the error for a history without such changes.
pub(super) fn nothing(history: &ChangeHistory, call: Option<Seq>) -> WorkspaceError {
    WorkspaceError::NothingToUndo { outside: history.outside().next_back().map(|changes| changes.first), call }
}

impl UndoSelection {
    /// Returns the position of the first change.
    pub(super) fn first(&self) -> Option<Seq> {
        self.changes.iter().chain(&self.shared).chain(&self.doubtful).map(|changes| changes.first).min()
    }

    /// Splits the history into pieces, in order.
    pub(super) fn pieces(&self, session: &Session) -> Result<Vec<ChangedPiece>, SessionError> {
        let Some(first) = self.changes.first() else { return Ok(Vec::new()) };
        let mut touches: Vec<(Option<usize>, Seq, EntryPath)> = Vec::new();
        session.visit(first.first, &mut |event| {
            if let Some(path) = PlannedChange::of(event).map(|change| change.path().clone()) {
                let found = self.changes.partition_point(|changes| changes.last < event.seq);
                let is_in = self.changes.get(found).is_some_and(|changes| changes.first <= event.seq);
                touches.push((is_in.then_some(found), event.seq, path));
            }
            ControlFlow::Continue(())
        })?;
        let ours = TouchedPaths::of(touches.iter().filter(|(of, ..)| of.is_some()).map(|(.., path)| path));
        let mut spans: Vec<(Seq, Seq)> = Vec::new();
        let mut is_cut = true;
        for (of, seq, path) in &touches {
            match (of, spans.last_mut()) {
                (None, _) => is_cut |= ours.are_related_to(path),
                (Some(_), Some(span)) if !is_cut => span.1 = *seq,
                (Some(_), _) => {
                    spans.push((*seq, *seq));
                    is_cut = false;
                }
            }
        }
        let mut pieces = Vec::new();
        for (first, last) in spans {
            let within = touches.iter().filter(|(of, seq, _)| of.is_some() && (first..=last).contains(seq));
            let touched = TouchedPaths::of(within.map(|(.., path)| path));
            let (before, after) = (files_at(session, first - 1)?, files_at(session, last)?);
            let mut changes = before.diff(&after);
            changes.retain(|change| touched.are_related_to(change.path()));
            pieces.push(ChangedPiece { before, after, changes, touched: touched.0 });
        }
        Ok(pieces)
    }

    /// Lists the changed paths that may not be due to the selected calls and that still differ.
    pub(super) fn uncertain(
        &self,
        session: &Session,
        now: &VirtualFileSystem,
    ) -> Result<Vec<(EntryPath, UndoLeftReason)>, SessionError> {
        let mut paths = Vec::new();
        let shared = self.shared.iter().map(|changes| (changes, UndoLeftReason::Shared));
        let doubtful = self.doubtful.iter().map(|changes| (changes, UndoLeftReason::Doubtful));
        for (FileChanges { first, last, .. }, reason) in shared.chain(doubtful) {
            let before = files_at(session, first - 1)?;
            let changed = before.diff(&files_at(session, *last)?);
            let changed = changed.iter().map(Change::path).filter(|path| now.node(path) != before.node(path));
            paths.extend(changed.map(|path| (path.clone(), reason)));
        }
        Ok(paths)
    }
}

fn files_at(session: &Session, seq: Seq) -> Result<VirtualFileSystem, SessionError> {
    Ok(VirtualFileSystem::of(&session.state_at(seq)?))
}

/// The paths that events name.
struct TouchedPaths(BTreeSet<EntryPath>);

impl TouchedPaths {
    fn of<'p>(paths: impl Iterator<Item = &'p EntryPath>) -> Self {
        Self(paths.cloned().collect())
    }

    /// Returns true if one of the paths is equal to, above or below this one.
    fn are_related_to(&self, path: &EntryPath) -> bool {
        self.0.contains(path)
            || directories_above(path).any(|above| self.0.contains(&above))
            || self
                .0
                .range::<EntryPath, _>(path..)
                .take_while(|other| other.as_bytes().starts_with(path.as_bytes()))
                .any(|other| other.is_below(path))
    }
}

/// Finds an agent's run by its id, by a prefix of the id, or as `last`.
pub fn known_run(session: &Session, wanted: &str) -> Result<String, WorkspaceError> {
    let state = session.state()?;
    let runs = state.slice::<AgentRuns>().map(|runs| &runs.runs);
    let runs = || runs.into_iter().flatten();
    if wanted == "last" {
        let last = runs().max_by_key(|(_, run)| run.seq).map(|(id, _)| id.clone());
        return last.ok_or_else(|| WorkspaceError::NoRun);
    }
    let mut meant = runs().filter(|(id, _)| *id == wanted || id.starts_with(wanted)).map(|(id, _)| id);
    match (meant.next(), meant.next()) {
        (Some(id), None) => Ok(id.clone()),
        (Some(_), Some(_)) if runs().any(|(id, _)| id == wanted) => Ok(wanted.to_owned()),
        (Some(one), Some(other)) => {
            Err(WorkspaceError::UnknownRun(format!("run {wanted} is ambiguous: {one}, {other}")))
        }
        (None, _) => Err(WorkspaceError::UnknownRun(format!("run {wanted} not found"))),
    }
}
