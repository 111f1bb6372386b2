//! Entries by path: a persistent map of sorted leaves, which a snapshot stores unchanged.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::blocks::{self, Block, LeafRow};
use super::leaf::Leaf;
use super::{Entry, EntryMap, range_below};
use crate::engine::collections::{DiffItem, OrdMap};
use crate::engine::path::EntryPath;

/// All entries of a workspace.
///
/// Invariant: [`blocks::is_cut`] is true for the last entry of a leaf and no other; the entries after the last leaf are
/// the tail. So equal entries always form equal leaves, whatever their history, and a change of one entry changes one
/// leaf, rarely two.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Leaves {
    /// By their last entry's path.
    full: OrdMap<EntryPath, Arc<Leaf>>,
    tail: Arc<Leaf>,
    len: usize,
}

impl Leaves {
    pub(super) fn from_sorted(rows: Vec<LeafRow>) -> Self {
        let mut leaves = Self { len: rows.len(), ..Self::default() };
        let mut leaf = Vec::new();
        for row in rows {
            let cut = blocks::is_cut(row.0.as_bytes()).then(|| row.0.clone());
            leaf.push(row);
            if let Some(path) = cut {
                leaves.full.insert(path, Arc::new(Leaf::from_rows(std::mem::take(&mut leaf))));
            }
        }
        leaves.tail = Arc::new(Leaf::from_rows(leaf));
        leaves
    }

    /// Loads the blocks of a snapshot; their rows are decoded on demand.
    pub(super) fn from_blocks(given: &[Bytes]) -> Result<Self, &'static str> {
        let mut leaves = Self::default();
        let mut before = EntryPath::root();
        for (number, bytes) in given.iter().enumerate() {
            let Some(block) = Block::new(bytes, before.as_bytes())? else { return Self::from_other_blocks(given) };
            let last = EntryPath::from_bytes(block.last_path()).map_err(|_| blocks::WRONG)?;
            leaves.len += block.len();
            let leaf = Arc::new(Leaf::from_block(block));
            if blocks::is_cut(last.as_bytes()) {
                leaves.full.insert(last.clone(), leaf);
            } else if number + 1 == given.len() {
                leaves.tail = leaf;
            } else {
                return Self::from_other_blocks(given);
            }
            before = last;
        }
        Ok(leaves)
    }

    /// Loads blocks that end elsewhere.
    fn from_other_blocks(given: &[Bytes]) -> Result<Self, &'static str> {
        let mut rows = Vec::new();
        for block in given {
            rows.extend(blocks::decode(block)?);
        }
        rows.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(Self::from_sorted(rows))
    }

    /// Returns the blocks of a snapshot, one for each leaf.
    pub(super) fn to_blocks(&self) -> Vec<Vec<u8>> {
        self.leaves().map(|leaf| leaf.to_block()).filter(|block| !block.is_empty()).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn get(&self, path: &[u8]) -> Option<&Entry> {
        self.leaf(path).get(path)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&EntryPath, &Entry)> {
        self.leaves().flat_map(|leaf| leaf.rows()).map(|(path, entry)| (path, entry))
    }

    pub(super) fn range(
        &self,
        from: Bound<Vec<u8>>,
        until: Bound<Vec<u8>>,
    ) -> impl Iterator<Item = (&EntryPath, &Entry)> + use<'_> {
        let first = match &from {
            Bound::Included(path) | Bound::Excluded(path) => self.full.range::<_, [u8]>(from_path(path)),
            Bound::Unbounded => self.full.iter(),
        };
        let leaves = first.map(|(_, leaf)| leaf).chain(std::iter::once(&self.tail));
        let rows = leaves.flat_map(move |leaf| {
            let begin = (from.as_ref().map(Vec::as_slice), Bound::Unbounded);
            let rows = leaf.rows();
            &rows[rows.partition_point(|(path, _)| !RangeBounds::<[u8]>::contains(&begin, path.as_bytes()))..]
        });
        let within = move |(path, _): &&LeafRow| {
            let end = (Bound::Unbounded, until.as_ref().map(Vec::as_slice));
            RangeBounds::<[u8]>::contains(&end, path.as_bytes())
        };
        rows.take_while(within).map(|(path, entry)| (path, entry))
    }

    /// Returns the rows of the leaves that differ from `later`, on both sides.
    pub(super) fn differing<'a>(&'a self, later: &'a Self) -> (Vec<&'a LeafRow>, Vec<&'a LeafRow>) {
        let (mut before, mut after) = (Vec::new(), Vec::new());
        for item in self.full.diff(&later.full) {
            match item {
                DiffItem::Add(_, leaf) => after.extend(leaf.rows()),
                DiffItem::Remove(_, leaf) => before.extend(leaf.rows()),
                DiffItem::Update { old: (_, old), new: (_, new) } => {
                    before.extend(old.rows());
                    after.extend(new.rows());
                }
            }
        }
        if self.tail != later.tail {
            before.extend(self.tail.rows());
            after.extend(later.tail.rows());
        }
        (before, after)
    }

    fn leaves(&self) -> impl Iterator<Item = &Arc<Leaf>> {
        self.full.iter().map(|(_, leaf)| leaf).chain(std::iter::once(&self.tail))
    }

    fn leaf(&self, path: &[u8]) -> &Leaf {
        self.full_at(path).map_or(&self.tail, |(_, leaf)| leaf)
    }

    fn leaf_mut(&mut self, path: &[u8]) -> &mut Arc<Leaf> {
        let last = self.full_at(path).map(|(last, _)| last.clone());
        let leaf = last.and_then(|last| self.full.get_mut(&last));
        leaf.unwrap_or(&mut self.tail)
    }

    fn full_at(&self, path: &[u8]) -> Option<(&EntryPath, &Arc<Leaf>)> {
        // The map's `get_next` misses a key in an inner node, so its `None` proves nothing.
        self.full.get_next(path).or_else(|| self.full.range::<_, [u8]>(from_path(path)).next())
    }
}

impl EntryMap for Leaves {
    /// Decodes no leaf.
    fn is_directory(&self, path: &[u8]) -> Option<bool> {
        self.leaf(path).find(path).map(|entry| entry.is_directory())
    }

    fn get_mut(&mut self, path: &[u8]) -> Option<&mut Entry> {
        Arc::make_mut(self.leaf_mut(path)).get_mut(path)
    }

    fn add(&mut self, path: EntryPath, entry: Entry) {
        self.len += 1;
        let cut = blocks::is_cut(path.as_bytes());
        let leaf = Arc::make_mut(self.leaf_mut(path.as_bytes()));
        if cut {
            let front = leaf.split_off_front(path.clone(), entry);
            self.full.insert(path, Arc::new(front));
        } else {
            leaf.add(path, entry);
        }
    }

    fn remove(&mut self, path: &[u8]) -> Option<Entry> {
        self.leaf(path).find(path)?;
        self.len -= 1;
        if !blocks::is_cut(path) {
            return Arc::make_mut(self.leaf_mut(path)).remove(path);
        }
        let mut last = Arc::unwrap_or_clone(self.full.remove(path)?);
        let entry = last.remove(path);
        Arc::make_mut(self.leaf_mut(path)).join_front(last);
        entry
    }

    fn remove_below(&mut self, path: &EntryPath) {
        let (from, until) = range_below(path.as_bytes());
        let below: Vec<EntryPath> = self.range(from, until).map(|(path, _)| path.clone()).collect();
        for path in below {
            self.remove(path.as_bytes());
        }
    }
}

fn from_path(path: &[u8]) -> (Bound<&[u8]>, Bound<&[u8]>) {
    (Bound::Included(path), Bound::Unbounded)
}

impl Serialize for Leaves {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for Leaves {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let rows = std::collections::BTreeMap::<EntryPath, Entry>::deserialize(deserializer)?;
        Ok(Self::from_sorted(rows.into_iter().collect()))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::engine::clock::Timestamp;
    use crate::engine::event::Node;

    fn path(number: u16) -> EntryPath {
        EntryPath::from_bytes(format!("f{number}").as_bytes()).unwrap()
    }

    fn entry(version: u64) -> Entry {
        Entry { node: Node::DIRECTORY, version, created_at: Timestamp(1), updated_at: Timestamp(2) }
    }

    fn rows(map: &BTreeMap<EntryPath, Entry>) -> Vec<LeafRow> {
        map.iter().map(|(path, entry)| (path.clone(), entry.clone())).collect()
    }

    fn check(leaves: &Leaves, map: &BTreeMap<EntryPath, Entry>) {
        assert_eq!(leaves.len(), map.len());
        assert!(leaves.iter().eq(map.iter()));
        assert_eq!(*leaves, Leaves::from_sorted(rows(map)), "the same entries lie in the same leaves");
        let blocks: Vec<Bytes> = leaves.to_blocks().into_iter().map(Bytes::from).collect();
        let back = Leaves::from_blocks(&blocks).unwrap();
        assert_eq!(back.len(), map.len());
        assert_eq!(back.to_blocks(), blocks);
        assert_eq!(back, *leaves);
    }

    proptest! {
        #[test]
        fn leaves_equal_a_plain_map(
            steps in prop::collection::vec((any::<bool>(), 0_u16..2000), 0..1500),
            bounds in prop::collection::vec((0_u16..2000, 0_u16..2000), 0..20),
        ) {
            let (mut leaves, mut map) = (Leaves::default(), BTreeMap::new());
            let mut halfway = None;
            for (at, (add, number)) in steps.iter().enumerate() {
                if *add || number % 3 == 0 {
                    match leaves.get_mut(path(*number).as_bytes()) {
                        Some(known) => *known = entry(at as u64),
                        None => leaves.add(path(*number), entry(at as u64)),
                    }
                    map.insert(path(*number), entry(at as u64));
                } else {
                    prop_assert_eq!(leaves.remove(path(*number).as_bytes()), map.remove(&path(*number)));
                }
                if at % 200 == 150 {
                    let blocks: Vec<Bytes> = leaves.to_blocks().into_iter().map(Bytes::from).collect();
                    leaves = Leaves::from_blocks(&blocks).unwrap();
                }
                if at == steps.len() / 2 {
                    halfway = Some((leaves.clone(), map.clone()));
                }
                let path = path(*number);
                prop_assert_eq!(leaves.is_directory(path.as_bytes()), map.get(&path).map(Entry::is_directory));
            }
            check(&leaves, &map);
            for number in 0..2000 {
                prop_assert_eq!(leaves.get(path(number).as_bytes()), map.get(&path(number)));
                prop_assert_eq!(leaves.get_mut(path(number).as_bytes()).cloned(), map.get(&path(number)).cloned());
            }
            for (from, until) in bounds {
                let (from, until) = (path(from).min(path(until)), path(from).max(path(until)));
                if from == until {
                    continue;
                }
                let found = leaves.range(
                    Bound::Excluded(from.as_bytes().to_vec()),
                    Bound::Excluded(until.as_bytes().to_vec()),
                );
                prop_assert!(found.eq(map.range((Bound::Excluded(from), Bound::Excluded(until)))));
            }
            if let Some((before, before_map)) = halfway {
                check(&before, &before_map);
                let (old, new) = before.differing(&leaves);
                let differs = |map: &BTreeMap<EntryPath, Entry>, other: &BTreeMap<EntryPath, Entry>| {
                    map.iter().filter(|(path, entry)| other.get(*path) != Some(entry)).count()
                };
                prop_assert!(old.is_sorted_by(|a, b| a.0 < b.0) && new.is_sorted_by(|a, b| a.0 < b.0));
                let seen = |rows: &[&LeafRow], other: &BTreeMap<EntryPath, Entry>| {
                    rows.iter().filter(|(path, entry)| other.get(path) != Some(entry)).count()
                };
                prop_assert_eq!(seen(&old, &map), differs(&before_map, &map));
                prop_assert_eq!(seen(&new, &before_map), differs(&map, &before_map));
            }
        }
    }
}
