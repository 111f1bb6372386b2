//! The file changes in a history, their authors, and the undone calls.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use crate::engine::event::{
    CallFinished, CallObserved, CallStarted, CallStatus, ChangesShared, ChildMerged, DriftFound, Event, MountHydrated,
    RunBegan, SessionRewound, UNDO_TOOL, started_tool,
};
use crate::engine::id::Seq;
use crate::engine::recorded::EventRef;
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::tools::workspace::plan::PlannedChange;

/// Consecutive file changes by the same author.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileChanges {
    pub(super) first: Seq,
    pub(super) last: Seq,
    pub(super) author: Author,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Author {
    /// The calls that may have made the changes, in order.
    Calls(Vec<Seq>),
    /// These calls, or a person: it is uncertain if the calls were running.
    Perhaps(Vec<Seq>),
    /// A person or a program outside of any call.
    Outside,
    /// The session itself: its initial files, a mount, a merge or a rewind.
    Session,
}

/// All file changes in a session, and the state of its undos.
#[derive(Debug, Default)]
pub(super) struct ChangeHistory {
    pub(super) changes: Vec<FileChanges>,
    /// The calls of the requested run.
    pub(super) of_run: BTreeSet<Seq>,
    /// The calls that an undo of the latest call has skipped.
    passed: BTreeSet<Seq>,
    undos: Undos,
}

/// The subjects of each undo, by its call, and the currently undone subjects: calls, undos, and external changes by the
/// position of the first event.
#[derive(Debug, Default)]
struct Undos {
    taken_back: BTreeMap<Seq, Vec<Seq>>,
    undone: BTreeSet<Seq>,
    /// Earlier values of `undone`, each with the position of its replacement.
    earlier: Vec<(Seq, BTreeSet<Seq>)>,
}

impl Undos {
    fn took_back(&mut self, undo: Seq, at: Seq, subjects: Vec<Seq>) {
        self.earlier.push((at, self.undone.clone()));
        // Latest first: an undo among the subjects has to be undone before the calls that it took back.
        let mut work: Vec<(Seq, bool)> = subjects.iter().map(|subject| (*subject, true)).collect();
        work.sort_unstable();
        self.taken_back.insert(undo, subjects);
        while let Some((subject, is_undone)) = work.pop() {
            let has_changed = if is_undone { self.undone.insert(subject) } else { self.undone.remove(&subject) };
            if has_changed {
                let mut below: Vec<_> = self.taken_back.get(&subject).into_iter().flatten().copied().collect();
                below.sort_unstable();
                // A redo goes in the original order, an undo in reverse.
                if is_undone {
                    below.reverse();
                }
                work.extend(below.into_iter().map(|below| (below, !is_undone)));
            }
        }
    }

    /// Handles a rewind, which takes back everything after its target.
    fn rewound(&mut self, at: Seq, to: Seq, after: impl Iterator<Item = Seq>) {
        let then = self.earlier.iter().find(|(until, _)| *until > to).map(|(_, undone)| undone.clone());
        let now = then.unwrap_or_else(|| self.undone.clone()).into_iter().chain(after).collect();
        self.earlier.push((at, std::mem::replace(&mut self.undone, now)));
    }
}

impl ChangeHistory {
    /// Reads the history of a session. `run` selects the calls in [`of_run`](Self::of_run).
    pub(super) fn read(session: &Session, run: Option<&str>) -> Result<Self, SessionError> {
        let mut history = Self::default();
        let mut reading = HistoryReading::default();
        session.visit(1, &mut |event| {
            history.take(event, run, &mut reading);
            ControlFlow::Continue(())
        })?;
        Ok(history)
    }

    fn take(&mut self, event: &EventRef<'_>, run: Option<&str>, reading: &mut HistoryReading) {
        match event.kind {
            kind if PlannedChange::KINDS.contains(&kind) => self.take_change(event, reading),
            DriftFound::KIND => {
                let perhaps = event.decoded::<DriftFound>().map(|drift| drift.perhaps).unwrap_or_default();
                let author = match perhaps.is_empty() {
                    false => Author::Perhaps(perhaps),
                    // The first drift, before any call, records the initial files.
                    true if !reading.has_begun => Author::Session,
                    true => Author::Outside,
                };
                reading.has_begun = true;
                reading.marker = Some((event.seq, author));
            }
            ChangesShared::KIND => {
                if let Some(shared) = event.decoded::<ChangesShared>() {
                    reading.marker = Some((event.seq, Author::Calls(shared.calls)));
                }
            }
            MountHydrated::KIND | ChildMerged::KIND => reading.marker = Some((event.seq, Author::Session)),
            SessionRewound::KIND => {
                reading.marker = Some((event.seq, Author::Session));
                if let Some(SessionRewound { to, .. }) = event.decoded() {
                    let after = self.changes.iter().filter(|changes| changes.first > to);
                    self.undos.rewound(event.seq, to, after.flat_map(FileChanges::subjects));
                }
            }
            CallStarted::KIND => {
                reading.has_begun = true;
                if started_tool(event.version, event.payload).is_ok_and(|tool| tool == UNDO_TOOL) {
                    reading.undos.insert(event.seq);
                }
            }
            RunBegan::KIND => reading.has_begun = true,
            CallFinished::KIND if event.call.is_some_and(|call| reading.undos.remove(&call)) => {
                if let (Some(call), Some(finished)) = (event.call, event.decoded::<CallFinished>())
                    && finished.status == CallStatus::Ok
                {
                    let listed = |name: &str| {
                        let positions = finished.result[name].as_array().into_iter().flatten();
                        positions.filter_map(serde_json::Value::as_u64).collect::<Vec<Seq>>()
                    };
                    self.undos.took_back(call, event.seq, ["calls", "undos", "external"].map(listed).concat());
                    self.passed.extend(listed("passed"));
                }
            }
            CallObserved::KIND
                if run.is_some()
                    && event.decoded::<CallObserved>().is_some_and(|observed| Some(&*observed.run) == run) =>
            {
                self.of_run.extend(event.call);
            }
            _ => {}
        }
    }

    fn take_change(&mut self, event: &EventRef<'_>, reading: &HistoryReading) {
        let author = match (event.call, &reading.marker) {
            (Some(call), _) => Author::Calls(vec![call]),
            // The event that names the author directly precedes the changes.
            (None, Some((seq, author))) if is_next(*seq, event.seq, &self.changes) => author.clone(),
            (None, _) => Author::Session,
        };
        match self.changes.last_mut().filter(|last| last.last + 1 == event.seq && last.author == author) {
            Some(last) => last.last = event.seq,
            None => self.changes.push(FileChanges { first: event.seq, last: event.seq, author }),
        }
    }

    /// Returns the undos that took back only these calls, and the undos of those undos.
    pub(super) fn undos_of(&self, calls: &BTreeSet<Seq>) -> BTreeSet<Seq> {
        let mut undos = BTreeSet::new();
        for (undo, subjects) in &self.undos.taken_back {
            let is_ours = |subject: &Seq| calls.contains(subject) || undos.contains(subject);
            if !subjects.is_empty() && subjects.iter().all(is_ours) && !calls.contains(undo) {
                undos.insert(*undo);
            }
        }
        undos
    }

    /// Returns true if a call is an undo, or a redo.
    pub(super) fn is_undo(&self, call: Seq) -> bool {
        self.undos.taken_back.contains_key(&call)
    }

    /// Returns true if an undo has skipped and reported a call.
    pub(super) fn was_passed(&self, call: Seq) -> bool {
        self.passed.contains(&call)
    }

    /// Iterates over the calls that changed files and are not undone, latest first. Excludes undos.
    pub(super) fn undoable(&self) -> impl Iterator<Item = Seq> {
        let calls: BTreeSet<Seq> = self.changes.iter().flat_map(|changes| changes.calls().iter().copied()).collect();
        let is_undone = |call: Seq| self.undos.undone.contains(&call) && !self.changed_since_undo(call);
        let is_open = move |call: &Seq| !is_undone(*call) && !self.is_undo(*call);
        calls.into_iter().rev().filter(is_open)
    }

    /// Returns true if a call continued and changed files after its last undo.
    fn changed_since_undo(&self, call: Seq) -> bool {
        let mut undos = self.undos.taken_back.iter().rev();
        let undo = undos.find(|(_, subjects)| subjects.contains(&call)).map(|(undo, _)| *undo);
        let is_by = |changes: &&FileChanges| !changes.is_outside() && changes.calls().contains(&call);
        let last = self.changes.iter().rev().find(is_by).map(|changes| changes.first);
        undo.zip(last).is_some_and(|(undo, last)| last > undo)
    }

    /// Returns the latest undo that is not itself undone. A redo does not count as an undo.
    pub(super) fn redoable(&self) -> Option<Seq> {
        let takes_back_calls = |subjects: &Vec<Seq>| subjects.iter().any(|subject| !self.is_undo(*subject));
        let mut undos = self.undos.taken_back.iter().rev();
        let found = undos.find(|(undo, subjects)| !self.undos.undone.contains(undo) && takes_back_calls(subjects));
        found.map(|(undo, _)| *undo)
    }

    /// Iterates over the external changes that are not undone, in order.
    pub(super) fn outside(&self) -> impl DoubleEndedIterator<Item = &FileChanges> {
        let is_open = |changes: &&FileChanges| changes.is_outside() && !self.undos.undone.contains(&changes.first);
        self.changes.iter().filter(is_open)
    }

    /// Returns true if `call` may have made every change that `other` may have made.
    pub(super) fn touches_only_with(&self, other: Seq, call: Seq) -> bool {
        self.changes.iter().map(FileChanges::calls).all(|calls| !calls.contains(&other) || calls.contains(&call))
    }
}

#[derive(Default)]
struct HistoryReading {
    /// The last event that names the author of the changes after it.
    marker: Option<(Seq, Author)>,
    /// The undos without an outcome.
    undos: BTreeSet<Seq>,
    /// True after a call, a run or the first drift.
    has_begun: bool,
}

impl FileChanges {
    /// Returns the calls that may have made the changes.
    pub(super) fn calls(&self) -> &[Seq] {
        match &self.author {
            Author::Calls(calls) | Author::Perhaps(calls) => calls,
            Author::Outside | Author::Session => &[],
        }
    }

    /// Returns true if the changes come, or may come, from outside of any call.
    pub(super) fn is_outside(&self) -> bool {
        matches!(self.author, Author::Outside | Author::Perhaps(_))
    }

    fn subjects(&self) -> Vec<Seq> {
        match &self.author {
            Author::Calls(calls) => calls.clone(),
            Author::Outside | Author::Perhaps(_) => vec![self.first],
            Author::Session => Vec::new(),
        }
    }
}

/// Returns true if a change directly follows a marker or the changes after the marker.
fn is_next(marker: Seq, change: Seq, all: &[FileChanges]) -> bool {
    change == marker + 1 || all.last().is_some_and(|last| last.first == marker + 1 && last.last + 1 == change)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn undone(undos: &Undos) -> Vec<Seq> {
        undos.undone.iter().copied().collect()
    }

    #[test]
    fn undo_of_an_undo_is_a_redo_at_any_depth() {
        let mut undos = Undos::default();
        undos.took_back(10, 12, vec![5]);
        assert_eq!(undone(&undos), [5]);
        undos.took_back(20, 22, vec![10]);
        assert_eq!(undone(&undos), [10]);
        undos.took_back(30, 32, vec![20]);
        assert_eq!(undone(&undos), [5, 20]);
        undos.took_back(40, 42, vec![30]);
        assert_eq!(undone(&undos), [10, 30]);
    }

    #[test]
    fn redo_of_an_undo_that_took_undos_back_leaves_them_as_they_were() {
        let mut undos = Undos::default();
        undos.took_back(10, 12, vec![5]);
        let before = undone(&undos);
        // All after a position: the calls and the undo among them.
        undos.took_back(20, 22, vec![5, 7, 10]);
        assert_eq!(undone(&undos), [5, 7, 10]);
        undos.took_back(30, 32, vec![20]);
        assert_eq!(undone(&undos), [before, vec![20]].concat());
    }

    #[test]
    fn rewind_brings_the_undos_of_its_target_back() {
        let mut undos = Undos::default();
        undos.took_back(10, 12, vec![5]);
        undos.took_back(20, 22, vec![10]);
        undos.rewound(30, 15, [20].into_iter());
        assert_eq!(undone(&undos), [5, 20]);
        undos.rewound(40, 25, [30].into_iter());
        assert_eq!(undone(&undos), [10, 30]);
    }
}
