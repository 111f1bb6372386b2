//! Merges of a session's children.

use serde::{Deserialize, Serialize};

use crate::engine::collections::OrdMap;
use crate::engine::event::{ChildMerged, MergeConflicted, SessionStarted};
use crate::engine::{Recorded, Registry, Seq, SessionId, Slice, Timestamp, ValueError};

/// Last merge of each child, and the open conflicts. A rewind restores it with the files, so that later merges can be
/// made again.
///
/// A fork counts the merges of its past as made; the open conflicts stay with its parent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Merges {
    merges: OrdMap<SessionId, LastMerge>,
    conflicts: OrdMap<SessionId, MergeConflicted>,
}

/// Last merge of a child.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastMerge {
    /// Position in the child's history of the last merged changes.
    pub child_at: Seq,
    /// Position of its event.
    pub seq: Seq,
    /// Time of that event.
    pub time: Timestamp,
}

impl Merges {
    /// Returns the last merge of a child; `None` if it was never merged.
    pub fn last_merge(&self, child: SessionId) -> Option<&LastMerge> {
        self.merges.get(&child)
    }

    /// Returns the open conflicts of the last attempt to merge a child, if any.
    pub fn conflicted(&self, child: SessionId) -> Option<&MergeConflicted> {
        self.conflicts.get(&child)
    }
}

impl Slice for Merges {
    const NAME: &'static str = "Merges";
}

fn merged(mut slice: Merges, merged: &Recorded<ChildMerged>) -> Merges {
    let last = LastMerge { child_at: merged.event.child_at, seq: merged.seq, time: merged.time };
    slice.conflicts.remove(&merged.event.child);
    slice.merges.insert(merged.event.child, last);
    slice
}

fn conflicted(mut slice: Merges, conflicted: &Recorded<MergeConflicted>) -> Merges {
    slice.conflicts.insert(conflicted.event.child, conflicted.event.clone());
    slice
}

fn forked(mut slice: Merges, started: &Recorded<SessionStarted>) -> Merges {
    if started.event.begins_child() {
        slice.conflicts = OrdMap::new();
    }
    slice
}

pub(super) fn register(registry: Registry) -> Result<Registry, ValueError> {
    registry
        .event::<ChildMerged>()?
        .event::<MergeConflicted>()?
        .slice::<Merges>()?
        .reducer(merged)?
        .reducer(conflicted)?
        .reducer(forked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::event::{ChildLimits, Event, Isolation, Origin};

    fn recorded<E: Event>(seq: Seq, event: E) -> Recorded<E> {
        let (session, time) = (SessionId::from_bytes([1; 16]), Timestamp(seq.cast_signed()));
        Recorded { session, seq, time, call: None, agent: "".into(), event }
    }

    fn child(number: u8) -> SessionId {
        SessionId::from_bytes([number; 16])
    }

    fn merge(slice: Merges, number: u8, seq: Seq) -> Merges {
        let (child_name, conflicts, entries) = (String::new(), Vec::new(), Vec::new());
        let event = ChildMerged { child: child(number), child_name, base: 1, child_at: 9, merged: entries, conflicts };
        merged(slice, &recorded(seq, event))
    }

    fn conflict(slice: Merges, number: u8, seq: Seq) -> Merges {
        let (child_name, conflicts) = (String::new(), Vec::new());
        let event = MergeConflicted { child: child(number), child_name, base: 1, child_at: 8, conflicts };
        conflicted(slice, &recorded(seq, event))
    }

    #[test]
    fn merge_settles_conflicts_of_its_child_only() {
        let slice = conflict(conflict(Merges::default(), 2, 7), 3, 8);
        assert!(slice.conflicted(child(2)).is_some() && slice.last_merge(child(2)).is_none());
        let slice = merge(slice, 2, 9);
        assert!(slice.conflicted(child(2)).is_none() && slice.conflicted(child(3)).is_some());
        assert_eq!(slice.last_merge(child(2)).map(|last| (last.child_at, last.seq)), Some((9, 9)));
    }

    #[test]
    fn forked_session_keeps_merges_without_conflicts() {
        let slice = conflict(merge(Merges::default(), 2, 7), 3, 8);
        let (name, backend, program) = ("fork".to_owned(), "memory".to_owned(), String::new());
        let limits = ChildLimits::default();
        let mut started = SessionStarted { name, backend, program, options: Default::default(), origin: None, limits };
        assert_eq!(forked(slice.clone(), &recorded(1, started.clone())), slice);
        let (parent, parent_name, isolation) = (child(1), String::new(), Isolation::Fork);
        started.origin = Some(Origin { parent, parent_name, at: 8, isolation });
        let slice = forked(slice, &recorded(9, started));
        assert!(slice.conflicted(child(3)).is_none() && slice.last_merge(child(2)).is_some());
    }
}
