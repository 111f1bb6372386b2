//! Changes found on the disk, and the observed calls that made them.
//!
//! The disk is compared at the beginning and at the end of each call that is observed. So between two looks the same
//! calls were open, and what changed is theirs: that of the one that may have made it, or of several, which are all named.

use std::collections::BTreeMap;

use super::plan::PlannedChange;
use crate::engine::event::ObservedAccess;
use crate::engine::id::Seq;
use crate::engine::path::EntryPath;
use crate::reducers::AgentRuns;

/// Observed calls that may have made a change; none for an external one.
pub(super) type Writers = Vec<Seq>;

/// Sorts changes by the calls that may have made them.
pub(super) fn sorted(changes: Vec<PlannedChange>, runs: &AgentRuns) -> BTreeMap<Writers, Vec<PlannedChange>> {
    let mut by_writers: BTreeMap<Writers, Vec<PlannedChange>> = BTreeMap::new();
    for change in changes {
        by_writers.entry(writers(change.path(), runs)).or_default().push(change);
    }
    by_writers
}

/// Returns the calls that name a path; else those, and the tasks, that may change any.
fn writers(path: &EntryPath, runs: &AgentRuns) -> Writers {
    let is_it = |named: &EntryPath| named == path || named.is_below(path) || path.is_below(named);
    let naming = runs.open.iter().filter(|(_, call)| call.access != ObservedAccess::None);
    let naming: Writers = naming.filter(|(_, call)| call.paths.iter().any(is_it)).map(|(seq, _)| *seq).collect();
    if !naming.is_empty() {
        return naming;
    }
    let any = runs.open.iter().filter(|(_, call)| call.access == ObservedAccess::Any).map(|(seq, _)| *seq);
    let mut any: Writers = any.chain(runs.tasks.values().map(|task| task.call)).collect();
    any.sort_unstable();
    any.dedup();
    any
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::clock::Timestamp;
    use crate::engine::event::DeleteEntry;
    use crate::reducers::{ObservedCall, ObservedTask};

    fn path(text: &str) -> EntryPath {
        EntryPath::lookup(text).unwrap()
    }

    fn call(access: ObservedAccess, paths: &[&str]) -> ObservedCall {
        let (run, id, agent) = ("r".to_owned(), String::new(), "claude".into());
        ObservedCall { run, id, agent, access, paths: paths.iter().copied().map(path).collect(), began: Timestamp(0) }
    }

    fn of(runs: &AgentRuns, changed: &str) -> Writers {
        let change = PlannedChange::Delete(DeleteEntry { path: path(changed) });
        sorted(vec![change], runs).into_keys().next().unwrap()
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
        assert_eq!(of(&runs, "c"), [3, 5]);
    }
}
