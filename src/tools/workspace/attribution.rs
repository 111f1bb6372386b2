//! Attribution of changes on the disk to the observed calls that made them.
//!
//! The disk is scanned at the beginning and at the end of each observed call, so the open calls are the same between
//! two scans. A change belongs to the open call that may have made it; if several may have made it, all are named. If
//! none of them certainly ran, the change stays external and names them as possible authors. The same applies if only
//! background tasks ran: a server runs for hours, while a person edits files.

use std::collections::{BTreeMap, BTreeSet};

use super::plan::PlannedChange;
use crate::engine::clock::Timestamp;
use crate::engine::event::{CallStatus, ObservedAccess};
use crate::engine::id::Seq;
use crate::engine::path::EntryPath;
use crate::reducers::AgentRuns;

/// The longest time from an edit to a change of the same file that belongs to it, for example a formatter's change.
const MOMENT_MILLIS: i64 = 3_000;

/// Observed calls that may have made a change; empty for an external change.
#[derive(Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Writers {
    /// True if none of them certainly ran.
    pub(super) in_doubt: bool,
    pub(super) calls: Vec<Seq>,
}

/// Bounds of the time of a change: a scan before it, and the entry's latest change.
type ChangeTimes = (Option<Timestamp>, Option<Timestamp>);

/// Groups changes by the calls that may have made them. `times` returns the bounds of an entry's changes.
pub(super) fn sorted(
    changes: Vec<PlannedChange>,
    runs: &AgentRuns,
    times: impl Fn(&EntryPath) -> ChangeTimes,
) -> BTreeMap<Writers, Vec<PlannedChange>> {
    let mut by_writers: BTreeMap<Writers, Vec<PlannedChange>> = BTreeMap::new();
    for change in changes {
        by_writers.entry(writers(&change, runs, times(change.path()))).or_default().push(change);
    }
    by_writers
}

/// Returns the calls that name a path; else the calls that may change any path; else the edit just before; else, in
/// doubt, the calls that began the background tasks.
fn writers(change: &PlannedChange, runs: &AgentRuns, (after, changed_at): ChangeTimes) -> Writers {
    let path = change.path();
    let is_it = |named: &EntryPath| named == path || named.is_below(path) || path.is_below(named);
    let naming = runs.open.iter().filter(|(_, call)| call.access != ObservedAccess::None);
    let mut calls: Vec<Seq> = naming.filter(|(_, call)| call.paths.iter().any(is_it)).map(|(seq, _)| *seq).collect();
    if calls.is_empty() {
        let any = runs.open.iter().filter(|(_, call)| call.access == ObservedAccess::Any);
        calls = any.map(|(seq, _)| *seq).collect();
    }
    if calls.is_empty() {
        if let Some(edit) = edited_just_before(change, runs, changed_at) {
            return Writers { in_doubt: false, calls: vec![edit] };
        }
        let began: BTreeSet<Seq> = runs.tasks.values().map(|task| task.call).collect();
        return Writers { in_doubt: !began.is_empty(), calls: began.into_iter().collect() };
    }
    let ran = |call: &Seq| match runs.open.get(call) {
        Some(open) if open.doubt || open.until.is_some() => open.made_between(after, changed_at),
        _ => true,
    };
    Writers { in_doubt: !calls.iter().any(ran), calls }
}

/// Returns the latest edit of a file, if the file changed again a moment after it.
fn edited_just_before(change: &PlannedChange, runs: &AgentRuns, changed_at: Option<Timestamp>) -> Option<Seq> {
    let PlannedChange::Write(write) = change else { return None };
    let edit = runs.ended.iter().rev().find(|ended| ended.observed.paths.contains(&write.path))?;
    if edit.status != CallStatus::Ok || edit.observed.access != ObservedAccess::Named {
        return None;
    }
    let passed = changed_at?.0.saturating_sub(edit.at.0);
    (-MOMENT_MILLIS..=MOMENT_MILLIS).contains(&passed).then_some(edit.call)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::event::{DeleteEntry, Node, WriteFile, WriteMode};
    use crate::reducers::{EndedObservation, ObservedCall, ObservedTask};

    fn path(text: &str) -> EntryPath {
        EntryPath::lookup(text).unwrap()
    }

    fn call(access: ObservedAccess, paths: &[&str]) -> ObservedCall {
        let paths = paths.iter().copied().map(path).collect();
        ObservedCall { run: "r".to_owned(), agent: "claude".into(), access, paths, ..Default::default() }
    }

    fn writers_of(runs: &AgentRuns, change: PlannedChange, at: i64) -> Writers {
        sorted(vec![change], runs, |_| (Some(Timestamp(at - 20)), Some(Timestamp(at)))).into_keys().next().unwrap()
    }

    fn of(runs: &AgentRuns, changed: &str) -> Vec<Seq> {
        writers_of(runs, PlannedChange::Delete(DeleteEntry { path: path(changed) }), 0).calls
    }

    fn written(runs: &AgentRuns, changed: &str, at: i64) -> Writers {
        let (path, node) = (path(changed), Node::file(b"x", false));
        writers_of(runs, PlannedChange::Write(WriteFile { path, mode: WriteMode::Overwrite, node }), at)
    }

    #[test]
    fn change_without_open_call_is_external() {
        let mut runs = AgentRuns::default();
        assert!(of(&runs, "a").is_empty());
        runs.open.insert(5, call(ObservedAccess::None, &["a"]));
        runs.open.insert(6, call(ObservedAccess::Named, &["b"]));
        assert!(of(&runs, "a").is_empty(), "a call that only reads, and one that edits another file");
    }

    #[test]
    fn change_is_of_the_call_that_names_it_or_of_all_that_may() {
        let mut runs = AgentRuns::default();
        runs.open.insert(5, call(ObservedAccess::Any, &[]));
        assert_eq!(of(&runs, "a"), [5]);
        runs.open.insert(6, call(ObservedAccess::Named, &["a", "deep/b"]));
        assert_eq!(of(&runs, "a"), [6]);
        assert_eq!(of(&runs, "deep"), [6], "a directory that comes with the file");
        assert_eq!(of(&runs, "c"), [5]);
        let task = ObservedTask { run: "r".to_owned(), call: 3, agent: "claude".into() };
        runs.tasks.insert("t".to_owned(), task);
        assert_eq!(of(&runs, "c"), [5], "the task may have made it, the call more likely");
    }

    #[test]
    fn change_while_only_tasks_run_is_in_doubt() {
        let mut runs = AgentRuns::default();
        let task = |call| ObservedTask { run: "r".to_owned(), call, agent: "claude".into() };
        runs.tasks.insert("one".to_owned(), task(9));
        runs.tasks.insert("two".to_owned(), task(3));
        assert_eq!(written(&runs, "a", 50), Writers { in_doubt: true, calls: vec![3, 9] });
        runs.open.insert(10, call(ObservedAccess::Named, &["a"]));
        assert_eq!(written(&runs, "a", 50), Writers { in_doubt: false, calls: vec![10] });
        assert_eq!(written(&runs, "b", 50), Writers { in_doubt: true, calls: vec![3, 9] });
    }

    #[test]
    fn change_is_in_doubt_unless_a_call_ran_at_its_time() {
        let mut runs = AgentRuns::default();
        runs.open.insert(5, ObservedCall { doubt: true, ..call(ObservedAccess::Any, &[]) });
        assert_eq!(written(&runs, "a", 70), Writers { in_doubt: true, calls: vec![5] });
        runs.open.get_mut(&5).unwrap().since = Some(Timestamp(60));
        assert_eq!([59, 60].map(|at| written(&runs, "a", at).in_doubt), [true, false]);
        runs.open.insert(6, ObservedCall { until: Some(Timestamp(50)), ..call(ObservedAccess::Any, &[]) });
        assert_eq!([50, 51].map(|at| written(&runs, "a", at).in_doubt), [false, true], "one of them ran at 50");
        runs.open.insert(7, call(ObservedAccess::Any, &[]));
        assert_eq!(written(&runs, "a", 55), Writers { in_doubt: false, calls: vec![5, 6, 7] });
    }

    #[test]
    fn change_just_after_an_edit_of_the_file_is_of_the_edit() {
        let mut runs = AgentRuns::default();
        let edit = |access, status| EndedObservation {
            call: 5,
            observed: call(access, &["a"]),
            status,
            noted: false,
            at: Timestamp(10_000),
        };
        runs.ended.push(edit(ObservedAccess::Named, CallStatus::Ok));
        let formatted = [13_000, 13_001].map(|at| written(&runs, "a", at).calls);
        assert_eq!(formatted, [vec![5], vec![]]);
        assert!(written(&runs, "b", 11_000).calls.is_empty(), "the edit did not name it");
        assert!(of(&runs, "a").is_empty(), "no formatter removes a file");
        runs.open.insert(6, call(ObservedAccess::Any, &[]));
        assert_eq!(written(&runs, "a", 11_000).calls, [6], "an open call may have made it");
        runs.open.clear();
        runs.ended.push(edit(ObservedAccess::Named, CallStatus::Error));
        assert!(written(&runs, "a", 11_000).calls.is_empty(), "the edit was refused");
    }
}
