//! The children of a session, and what became of their work.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::engine::clock::Timestamp;
use crate::engine::collections::{OrdMap, Vector};
use crate::engine::event::{ChildMerged, ChildStarted, Isolation, MergeConflicted, SessionStarted};
use crate::engine::id::SessionId;
use crate::engine::recorded::{Recorded, Seq};
use crate::engine::registry::{Registry, RegistryError};
use crate::engine::slice::{Slice, SliceError};

/// Children in a block of a snapshot.
const BLOCK: usize = 64;

/// The children that a session has begun, up to where each was merged, and the conflicts that are open.
///
/// A session that was forked has none of its parent's children; but what its past has merged it has merged, too.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Children {
    children: Vector<Child>,
    merges: OrdMap<SessionId, LastMerge>,
    conflicts: OrdMap<SessionId, MergeConflicted>,
}

/// A child, as its parent knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Child {
    /// The child; with shared isolation the session itself.
    pub id: SessionId,
    /// How it was called when it began.
    pub name: String,
    /// The last position of this history that its past has.
    pub at: Seq,
    /// How much of this session it has.
    pub isolation: Isolation,
    /// Under which agent's name it acts; empty for nobody's.
    pub agent: String,
    /// The event that tells of it.
    pub seq: Seq,
}

/// Up to where a child was merged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastMerge {
    /// The position of the child's history up to which its changes are merged.
    pub child_at: Seq,
    /// The event that tells of it.
    pub seq: Seq,
    /// When.
    pub time: Timestamp,
}

impl Children {
    /// The children in the order in which they began.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Child> {
        self.children.iter()
    }

    /// Up to where a child was merged; none when it never was.
    pub fn last_merge(&self, child: SessionId) -> Option<&LastMerge> {
        self.merges.get(&child)
    }

    /// What keeps a child from being merged, since that was tried last; none when nothing does.
    pub fn conflicted(&self, child: SessionId) -> Option<&MergeConflicted> {
        self.conflicts.get(&child)
    }
}

impl Slice for Children {
    const NAME: &'static str = "Children";

    fn encode(&self) -> Result<Vec<Vec<u8>>, SliceError> {
        let wrong = |error| SliceError::new(Self::NAME, error);
        let mut blocks = vec![serde_json::to_vec(&(&self.merges, &self.conflicts)).map_err(wrong)?];
        let children: Vec<&Child> = self.children.iter().collect();
        for children in children.chunks(BLOCK) {
            blocks.push(serde_json::to_vec(children).map_err(wrong)?);
        }
        Ok(blocks)
    }

    fn decode(blocks: &[Bytes]) -> Result<Self, SliceError> {
        let wrong = |error| SliceError::new(Self::NAME, error);
        let (first, blocks) = blocks.split_first().ok_or_else(|| SliceError::new(Self::NAME, "it has no blocks"))?;
        let (merges, conflicts) = serde_json::from_slice(first).map_err(wrong)?;
        let mut children = Vector::new();
        for block in blocks {
            children.extend(serde_json::from_slice::<Vec<Child>>(block).map_err(wrong)?);
        }
        Ok(Self { children, merges, conflicts })
    }
}

fn begun(mut slice: Children, started: &Recorded<ChildStarted>) -> Children {
    let ChildStarted { child, name, at, isolation, agent, limits: _ } = started.event.clone();
    slice.children.push_back(Child { id: child, name, at, isolation, agent, seq: started.seq });
    slice
}

fn merged(mut slice: Children, merged: &Recorded<ChildMerged>) -> Children {
    let last = LastMerge { child_at: merged.event.child_at, seq: merged.seq, time: merged.time };
    slice.conflicts.remove(&merged.event.child);
    slice.merges.insert(merged.event.child, last);
    slice
}

fn conflicted(mut slice: Children, conflicted: &Recorded<MergeConflicted>) -> Children {
    slice.conflicts.insert(conflicted.event.child, conflicted.event.clone());
    slice
}

/// A child does not have its parent's children.
fn forked(mut slice: Children, started: &Recorded<SessionStarted>) -> Children {
    if started.event.begins_child() {
        slice.children = Vector::new();
        slice.conflicts = OrdMap::new();
    }
    slice
}

pub(super) fn register(registry: Registry) -> Result<Registry, RegistryError> {
    registry
        .event::<ChildMerged>()?
        .event::<MergeConflicted>()?
        .slice::<Children>()?
        .reducer(begun)?
        .reducer(merged)?
        .reducer(conflicted)?
        .reducer(forked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::event::{ChildLimits, Event, Origin};

    fn recorded<E: Event>(seq: Seq, event: E) -> Recorded<E> {
        let (session, time) = (SessionId::from_bytes([1; 16]), Timestamp(seq.cast_signed()));
        Recorded { session, seq, time, call: None, agent: "".into(), event }
    }

    fn child(number: u8) -> SessionId {
        SessionId::from_bytes([number; 16])
    }

    fn begin(slice: Children, number: u8, seq: Seq) -> Children {
        let (name, agent) = (format!("child-{number}"), String::new());
        let started = ChildStarted {
            child: child(number),
            name,
            at: seq - 1,
            isolation: Isolation::Fork,
            agent,
            limits: ChildLimits::default(),
        };
        begun(slice, &recorded(seq, started))
    }

    fn merge(slice: Children, number: u8, seq: Seq) -> Children {
        let (child_name, merged_entries) = (String::new(), Vec::new());
        let event = ChildMerged {
            child: child(number),
            child_name,
            base: 1,
            child_at: 9,
            merged: merged_entries,
            conflicts: vec![],
        };
        merged(slice, &recorded(seq, event))
    }

    fn conflict(slice: Children, number: u8, seq: Seq) -> Children {
        let event = MergeConflicted {
            child: child(number),
            child_name: String::new(),
            base: 1,
            child_at: 8,
            conflicts: vec![],
        };
        conflicted(slice, &recorded(seq, event))
    }

    #[test]
    fn a_merge_settles_the_conflicts_of_its_child_only() {
        let slice = conflict(conflict(begin(begin(Children::default(), 2, 5), 3, 6), 2, 7), 3, 8);
        assert!(slice.conflicted(child(2)).is_some() && slice.last_merge(child(2)).is_none());
        let slice = merge(slice, 2, 9);
        assert!(slice.conflicted(child(2)).is_none() && slice.conflicted(child(3)).is_some());
        assert_eq!(slice.last_merge(child(2)).map(|last| (last.child_at, last.seq)), Some((9, 9)));
        assert_eq!(slice.iter().map(|child| child.name.as_str()).collect::<Vec<_>>(), ["child-2", "child-3"]);
    }

    #[test]
    fn who_was_forked_has_no_siblings_but_what_was_merged() {
        let slice = conflict(merge(begin(begin(Children::default(), 2, 5), 3, 6), 2, 7), 3, 8);
        let (name, backend, program) = ("fork".to_owned(), "memory".to_owned(), String::new());
        let limits = ChildLimits::default();
        let mut started = SessionStarted { name, backend, program, options: Default::default(), origin: None, limits };
        assert_eq!(forked(slice.clone(), &recorded(1, started.clone())), slice);
        let (parent, parent_name, isolation) = (child(1), String::new(), Isolation::Fork);
        started.origin = Some(Origin { parent, parent_name, at: 8, isolation });
        let slice = forked(slice, &recorded(9, started));
        assert_eq!((slice.iter().count(), slice.conflicted(child(3))), (0, None));
        assert!(slice.last_merge(child(2)).is_some());
    }

    #[test]
    fn a_snapshot_keeps_it_all_and_most_blocks_when_one_more_begins() {
        let mut slice = conflict(merge(Children::default(), 2, 3), 3, 4);
        for seq in 5..5 + 3 * BLOCK as u64 {
            slice = begin(slice, 4, seq);
        }
        let blocks = slice.encode().unwrap();
        let bytes: Vec<Bytes> = blocks.iter().cloned().map(Bytes::from).collect();
        assert_eq!(Children::decode(&bytes).unwrap(), slice);
        let more = begin(slice, 5, 999).encode().unwrap();
        assert_eq!(more[..blocks.len()], blocks[..]);
        assert!(Children::decode(&[]).is_err());
    }
}
