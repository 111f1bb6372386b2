//! The files of a long fold: fast to find, without an order.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use super::{Entry, EntryMap};
use crate::engine::path::EntryPath;

/// Entries by path. Long folds are bound by memory access, so lookups touch packed data: an index of four bytes per
/// path, and contiguous paths.
#[derive(Default)]
pub(super) struct EntryTable {
    hasher: RandomState,
    /// Offsets into `paths`.
    index: HashTable<u32>,
    /// Paths, each preceded by its number in `entries` and its length.
    paths: Vec<u8>,
    /// The same paths by number; separate from the entries, which are rewritten often.
    names: Vec<EntryPath>,
    /// `None` for a removed entry: its path stays.
    entries: Vec<Option<Entry>>,
}

/// Bytes of paths that make it full: offsets have four bytes, and an event adds only a few paths.
const FULL: usize = 3 << 30;

/// Returns the path at an offset, and its number.
#[inline]
fn path_at(paths: &[u8], at: u32) -> Option<(&[u8], usize)> {
    let (number, rest) = paths.get(at as usize..)?.split_first_chunk::<4>()?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    Some((rest.get(..u32::from_le_bytes(*length) as usize)?, u32::from_le_bytes(*number) as usize))
}

impl EntryTable {
    pub(super) fn with_capacity(count: usize) -> Self {
        let (names, entries) = (Vec::with_capacity(count), Vec::with_capacity(count));
        Self { index: HashTable::with_capacity(count), names, entries, ..Self::default() }
    }

    #[inline]
    fn number_of(&self, path: &[u8]) -> Option<usize> {
        let mut found = None;
        let same = |at: &u32| {
            found = path_at(&self.paths, *at).filter(|(known, _)| *known == path).map(|(_, number)| number);
            found.is_some()
        };
        self.index.find(self.hasher.hash_one(path), same)?;
        found
    }

    #[inline]
    pub(super) fn get(&self, path: &[u8]) -> Option<&Entry> {
        self.entries.get(self.number_of(path)?)?.as_ref()
    }

    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.paths.len() < FULL
    }

    pub(super) fn into_sorted(self) -> Vec<(EntryPath, Entry)> {
        let entries = self.names.into_iter().zip(self.entries).filter_map(|(path, entry)| Some((path, entry?)));
        let mut entries: Vec<_> = entries.collect();
        entries.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        entries
    }
}

impl EntryMap for EntryTable {
    #[inline]
    fn is_directory(&self, path: &[u8]) -> Option<bool> {
        self.get(path).map(Entry::is_directory)
    }

    #[inline]
    fn get_mut(&mut self, path: &[u8]) -> Option<&mut Entry> {
        let number = self.number_of(path)?;
        self.entries.get_mut(number)?.as_mut()
    }

    fn add(&mut self, path: EntryPath, entry: Entry) {
        if let Some(known) = self.number_of(path.as_bytes()).and_then(|number| self.entries.get_mut(number)) {
            *known = Some(entry);
            return;
        }
        let bytes = path.as_bytes();
        let (Ok(at), Ok(number), Ok(length)) =
            (u32::try_from(self.paths.len()), u32::try_from(self.entries.len()), u32::try_from(bytes.len()))
        else {
            debug_assert!(self.has_room(), "has_room is asked before");
            return;
        };
        let hash = self.hasher.hash_one(bytes);
        self.paths.extend_from_slice(&number.to_le_bytes());
        self.paths.extend_from_slice(&length.to_le_bytes());
        self.paths.extend_from_slice(bytes);
        let Self { hasher, index, paths, .. } = self;
        let rehash = |at: &u32| path_at(paths, *at).map_or(0, |(path, _)| hasher.hash_one(path));
        index.insert_unique(hash, at, rehash);
        self.names.push(path);
        self.entries.push(Some(entry));
    }

    fn remove(&mut self, path: &[u8]) -> Option<Entry> {
        let number = self.number_of(path)?;
        self.entries.get_mut(number)?.take()
    }

    fn remove_below(&mut self, path: &EntryPath) {
        let below = self.names.iter().zip(&mut self.entries).filter(|(other, _)| other.is_below(path));
        below.for_each(|(_, entry)| *entry = None);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::engine::clock::Timestamp;
    use crate::engine::event::Node;

    fn entry(version: u64) -> Entry {
        let time = Timestamp(0);
        Entry { node: Node::DIRECTORY, version, created_at: time, updated_at: time }
    }

    proptest! {
        /// Compares the table with a plain map, through random additions and removals.
        #[test]
        fn table_equals_a_plain_map(steps in proptest::collection::vec((0_u8..4, "[ab](/[abc]){0,2}"), 1..200)) {
            let (mut table, mut model) = (EntryTable::default(), BTreeMap::new());
            for ((step, path), version) in steps.into_iter().zip(1..) {
                let path = EntryPath::lookup(&path).unwrap();
                match step {
                    0 => {
                        table.remove_below(&path);
                        model.retain(|other: &EntryPath, _| !other.is_below(&path));
                    }
                    1 => prop_assert_eq!(table.remove(path.as_bytes()), model.remove(&path)),
                    _ => {
                        table.add(path.clone(), entry(version));
                        model.insert(path.clone(), entry(version));
                    }
                }
                prop_assert_eq!(table.get(path.as_bytes()), model.get(&path));
                prop_assert_eq!(table.get_mut(path.as_bytes()), model.get_mut(&path));
            }
            prop_assert_eq!(table.into_sorted(), model.into_iter().collect::<Vec<_>>());
        }
    }
}
