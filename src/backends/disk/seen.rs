//! What a look saw, against what is found where it says to look: others may change the files between both.

use std::collections::{BTreeMap, BTreeSet};

use super::index::{Index, Known, NONE};
use super::stamp::Stamp;
use super::tree::Found;
use crate::backends::Touched;
use crate::engine::path::EntryPath;

/// Entries of one directory from which on they are put in order to find several.
const MANY: usize = 8;

/// How the stamps of a look compare with those of the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stamps {
    /// The look was at the tree itself.
    Same,
    /// The look was at the upper layer: it names other devices and inodes, has marks of what is gone, and not what
    /// lies below.
    Upper,
}

/// What a look saw that is not settled yet.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) index: Index,
    stamps: Stamps,
    /// The entries of a listing, by name.
    orders: BTreeMap<u32, Vec<u32>>,
}

impl Seen {
    pub(super) fn new(index: Index, stamps: Stamps) -> Self {
        Self { index, stamps, orders: BTreeMap::new() }
    }

    /// The index, which may change.
    pub(super) fn index_mut(&mut self) -> &mut Index {
        self.orders.clear();
        &mut self.index
    }

    /// Whether the look saw anything at a path.
    pub(super) fn has(&mut self, path: &EntryPath) -> bool {
        path.is_root() || self.at(path).is_some()
    }

    /// Whether what was found at a path is what the look saw there. If it is not, and the file is later as it was at the
    /// look, no look would name it.
    pub(super) fn agrees(&mut self, path: &EntryPath, found: Option<&Stamp>) -> bool {
        let Some(seen) = self.at(path) else { return path.is_root() || found.is_none() };
        match found {
            Some(found) => self.is_same(&seen.stamp, found),
            None => seen.stamp.is_mark(),
        }
    }

    /// The same for everything below a directory; with `is_all` nothing else is there.
    pub(super) fn agrees_below(&mut self, path: &EntryPath, found: &[(EntryPath, Found)], is_all: bool) -> bool {
        let mut matched = 0;
        for (path, found) in found {
            match (self.at(path), self.stamps) {
                (Some(seen), _) if self.is_same(&seen.stamp, &found.identity) => matched += 1,
                // It is of a layer below.
                (None, Stamps::Upper) => {}
                _ => return false,
            }
        }
        !is_all || matched == self.count_below(path)
    }

    fn is_same(&self, seen: &Stamp, found: &Stamp) -> bool {
        match self.stamps {
            _ if seen.is_directory() && found.is_directory() => {
                self.stamps == Stamps::Upper || seen.is_same_entry(found)
            }
            Stamps::Same => seen == found,
            Stamps::Upper => seen.has_same_times(found),
        }
    }

    fn at(&mut self, path: &EntryPath) -> Option<Known> {
        let mut listing = 0;
        let mut known = None;
        for segment in path.segments() {
            let found = self.find(listing, segment)?;
            listing = found.child;
            known = Some(found);
        }
        known
    }

    fn find(&mut self, number: u32, name: &[u8]) -> Option<Known> {
        let listing = self.index.listings.get(number as usize)?;
        if listing.entries.len() < MANY {
            return listing.find(name).map(|at| listing.entries[at]);
        }
        let order = self.orders.entry(number).or_insert_with(|| listing.by_name());
        listing.find_in(order, name).map(|place| listing.entries[order[place] as usize])
    }

    /// The entries that the look saw below a directory; marks are none.
    fn count_below(&mut self, path: &EntryPath) -> usize {
        let top = if path.is_root() { 0 } else { self.at(path).map_or(NONE, |known| known.child) };
        let (mut count, mut left) = (0, vec![top]);
        while let Some(number) = left.pop() {
            let entries = self.index.listings.get(number as usize).map_or(&[][..], |listing| &listing.entries);
            count += entries.iter().filter(|known| !known.stamp.is_mark()).count();
            left.extend(entries.iter().map(|known| known.child).filter(|child| *child != NONE));
        }
        count
    }
}

/// Where the next look must name something, whatever it sees: nobody knows what is there.
#[derive(Debug, Default)]
pub(super) struct Unsure {
    waiting: BTreeSet<Touched>,
    /// Those that the last look has named.
    named: BTreeSet<Touched>,
}

impl Unsure {
    pub(super) fn add(&mut self, places: impl IntoIterator<Item = Touched>) {
        self.waiting.extend(places);
    }

    pub(super) fn name(&mut self, touched: &mut Vec<Touched>) {
        self.named.append(&mut self.waiting);
        touched.extend(self.named.iter().cloned());
    }

    pub(super) fn places(&self) -> impl Iterator<Item = Touched> {
        self.waiting.iter().chain(&self.named).cloned()
    }

    pub(super) fn settle(&mut self) {
        self.named.clear();
    }
}
