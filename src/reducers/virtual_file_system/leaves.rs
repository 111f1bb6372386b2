//! Entries by path: a persistent map of sorted leaves that a snapshot keeps just as they are.

use std::ops::Bound;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Entry, blocks};
use crate::engine::collections::{DiffItem, OrdMap};
use crate::engine::path::EntryPath;

/// An entry with its path.
pub(super) type Row = (EntryPath, Entry);

/// All entries of a workspace.
///
/// Invariant: a leaf ends with an entry at which [`blocks::is_cut`], and holds no other such; what comes
/// after the last of these is the tail. So the same entries always lie in the same leaves, however they
/// came there, and a change of one entry changes one leaf, seldom two.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Leaves {
    /// By their last entry's path.
    full: OrdMap<EntryPath, Arc<Leaf>>,
    tail: Arc<Leaf>,
    len: usize,
}

/// Some entries that follow each other.
#[derive(Debug, Clone, Default)]
struct Leaf {
    /// Read from `block` when they are first needed.
    rows: OnceLock<Vec<Row>>,
    /// The rows as a snapshot has them; empty when they have changed since.
    block: Bytes,
}

impl Leaf {
    fn of(rows: Vec<Row>) -> Self {
        Self { rows: OnceLock::from(rows), block: Bytes::new() }
    }

    fn rows(&self) -> &[Row] {
        self.rows.get_or_init(|| blocks::decode(&self.block).unwrap_or_default())
    }

    /// The rows, to be changed; they are always there.
    fn rows_mut(&mut self) -> Option<&mut Vec<Row>> {
        self.rows();
        self.block = Bytes::new();
        self.rows.get_mut()
    }

    fn position(&self, path: &[u8]) -> Result<usize, usize> {
        self.rows().binary_search_by(|(known, _)| known.as_bytes().cmp(path))
    }
}

impl PartialEq for Leaf {
    fn eq(&self, other: &Self) -> bool {
        self.rows() == other.rows()
    }
}

impl Eq for Leaf {}

impl Leaves {
    /// Puts rows that are in order into leaves.
    pub(super) fn from_sorted(rows: Vec<Row>) -> Self {
        let mut leaves = Self { len: rows.len(), ..Self::default() };
        let mut leaf = Vec::new();
        for row in rows {
            let cut = blocks::is_cut(row.0.as_bytes()).then(|| row.0.clone());
            leaf.push(row);
            if let Some(path) = cut {
                leaves.full.insert(path, Arc::new(Leaf::of(std::mem::take(&mut leaf))));
            }
        }
        leaves.tail = Arc::new(Leaf::of(leaf));
        leaves
    }

    /// Takes up the blocks of a snapshot; their rows are read when they are needed.
    pub(super) fn from_blocks(given: &[Bytes]) -> Result<Self, &'static str> {
        let mut leaves = Self::default();
        let mut before: &[u8] = b"";
        for (number, block) in given.iter().enumerate() {
            let Some(outline) = blocks::outline(block, before)? else { return Self::from_other_blocks(given) };
            let leaf = Arc::new(Leaf { rows: OnceLock::new(), block: block.clone() });
            if outline.cut {
                leaves.full.insert(EntryPath::from_bytes(outline.last).map_err(|_| blocks::WRONG)?, leaf);
            } else if number + 1 == given.len() {
                leaves.tail = leaf;
            } else {
                return Self::from_other_blocks(given);
            }
            leaves.len += outline.count;
            before = outline.last;
        }
        Ok(leaves)
    }

    /// The same for blocks that end elsewhere.
    fn from_other_blocks(given: &[Bytes]) -> Result<Self, &'static str> {
        let mut rows = Vec::new();
        for block in given {
            rows.extend(blocks::decode(block)?);
        }
        rows.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(Self::from_sorted(rows))
    }

    /// The blocks of a snapshot, one for each leaf.
    pub(super) fn to_blocks(&self) -> Vec<Vec<u8>> {
        let encoded = |leaf: &Arc<Leaf>| match leaf.block.is_empty() {
            true => blocks::encode(leaf.rows()),
            false => leaf.block.to_vec(),
        };
        self.leaves().map(encoded).filter(|block| !block.is_empty()).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn get(&self, path: &[u8]) -> Option<&Entry> {
        let leaf = self.leaf(path);
        leaf.position(path).ok().map(|at| &leaf.rows()[at].1)
    }

    pub(super) fn get_mut(&mut self, path: &[u8]) -> Option<&mut Entry> {
        let at = self.leaf(path).position(path).ok()?;
        self.leaf_mut(path).rows_mut()?.get_mut(at).map(|(_, entry)| entry)
    }

    pub(super) fn insert(&mut self, path: EntryPath, entry: Entry) {
        let position = self.leaf(path.as_bytes()).position(path.as_bytes());
        let Some(rows) = self.leaf_mut(path.as_bytes()).rows_mut() else { return };
        match position {
            Ok(at) => rows[at].1 = entry,
            Err(at) if blocks::is_cut(path.as_bytes()) => {
                let after = rows.split_off(at);
                let mut before = std::mem::replace(rows, after);
                before.push((path.clone(), entry));
                self.full.insert(path, Arc::new(Leaf::of(before)));
                self.len += 1;
            }
            Err(at) => {
                rows.insert(at, (path, entry));
                self.len += 1;
            }
        }
    }

    pub(super) fn remove(&mut self, path: &[u8]) -> Option<Entry> {
        let at = self.leaf(path).position(path).ok()?;
        self.len -= 1;
        if !blocks::is_cut(path) {
            return self.leaf_mut(path).rows_mut().map(|rows| rows.remove(at).1);
        }
        let mut leaf = Arc::unwrap_or_clone(self.full.remove(path)?);
        let mut rows = std::mem::take(leaf.rows_mut()?);
        let (_, entry) = rows.pop()?;
        if !rows.is_empty() {
            self.leaf_mut(path).rows_mut()?.splice(0..0, rows);
        }
        Some(entry)
    }

    /// All rows in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&EntryPath, &Entry)> {
        self.leaves().flat_map(|leaf| leaf.rows()).map(|(path, entry)| (path, entry))
    }

    /// The rows between two bounds, in order.
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
            let rows = leaf.rows();
            let skip = rows.partition_point(|(path, _)| match &from {
                Bound::Included(from) => path.as_bytes() < from.as_slice(),
                Bound::Excluded(from) => path.as_bytes() <= from.as_slice(),
                Bound::Unbounded => false,
            });
            &rows[skip..]
        });
        let within = move |(path, _): &&Row| match &until {
            Bound::Included(until) => path.as_bytes() <= until.as_slice(),
            Bound::Excluded(until) => path.as_bytes() < until.as_slice(),
            Bound::Unbounded => true,
        };
        rows.take_while(within).map(|(path, entry)| (path, entry))
    }

    /// The rows of the leaves that are not the same in `later`, here and there.
    pub(super) fn differing<'a>(&'a self, later: &'a Self) -> (Vec<&'a Row>, Vec<&'a Row>) {
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

    /// The leaf in which the path is or would be.
    fn leaf(&self, path: &[u8]) -> &Leaf {
        self.full_at(path).map_or(&self.tail, |(_, leaf)| leaf)
    }

    fn leaf_mut(&mut self, path: &[u8]) -> &mut Leaf {
        let last = self.full_at(path).map(|(last, _)| last.clone());
        let leaf = last.and_then(|last| self.full.get_mut(&last));
        Arc::make_mut(leaf.unwrap_or(&mut self.tail))
    }

    fn full_at(&self, path: &[u8]) -> Option<(&EntryPath, &Arc<Leaf>)> {
        // The map's `get_next` overlooks a key that stands in an inner node: its "none" proves nothing.
        self.full.get_next(path).or_else(|| self.full.range::<_, [u8]>(from_path(path)).next())
    }
}

/// All keys from that path on.
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
        Entry { node: Node::Directory, version, created_at: Timestamp(1), updated_at: Timestamp(2) }
    }

    fn rows(map: &BTreeMap<EntryPath, Entry>) -> Vec<Row> {
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
        fn leaves_are_as_a_plain_map(
            steps in prop::collection::vec((any::<bool>(), 0_u16..2000), 0..1500),
            bounds in prop::collection::vec((0_u16..2000, 0_u16..2000), 0..20),
        ) {
            let (mut leaves, mut map) = (Leaves::default(), BTreeMap::new());
            let mut halfway = None;
            for (at, (add, number)) in steps.iter().enumerate() {
                if *add || number % 3 == 0 {
                    leaves.insert(path(*number), entry(at as u64));
                    map.insert(path(*number), entry(at as u64));
                } else {
                    prop_assert_eq!(leaves.remove(path(*number).as_bytes()), map.remove(&path(*number)));
                }
                if at == steps.len() / 2 {
                    halfway = Some((leaves.clone(), map.clone()));
                }
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
                let seen = |rows: &[&Row], other: &BTreeMap<EntryPath, Entry>| {
                    rows.iter().filter(|(path, entry)| other.get(path) != Some(entry)).count()
                };
                prop_assert_eq!(seen(&old, &map), differs(&before_map, &map));
                prop_assert_eq!(seen(&new, &before_map), differs(&map, &before_map));
            }
        }
    }
}
