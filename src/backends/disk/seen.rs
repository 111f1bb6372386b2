//! What a look saw, against what is found where it says to look: others may change the files between both.

use std::collections::{BTreeMap, BTreeSet};

use super::PATH_BYTES_MAX;
use super::file_stat::FileStat;
use super::index::{IndexedEntry, IndexedListing, NONE, StatIndex};
use super::tree::TreeEntry;
use crate::backends::DirtyPath;
use crate::engine::path::EntryPath;

/// Entries of one directory from which on they are put in order to find several.
const MANY: usize = 8;

/// What a look was at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScannedEntry {
    /// The tree itself.
    Tree,
    /// The upper layer of an overlay: it says other devices and inodes than the tree, has marks of what is gone, and not
    /// what lies below. So not every difference from the tree shows.
    Upper,
}

/// What a look saw that is not settled yet.
#[derive(Debug)]
pub(super) struct UnsettledScan {
    pub(super) index: StatIndex,
    place: ScannedEntry,
    /// The entries of large listings, by name.
    orders: BTreeMap<u32, Vec<u32>>,
    /// The directory that was asked about last, and its listing.
    last: Option<(Vec<u8>, u32)>,
}

impl UnsettledScan {
    pub(super) fn new(index: StatIndex, place: ScannedEntry) -> Self {
        Self { index, place, orders: BTreeMap::new(), last: None }
    }

    /// The index, which may change.
    pub(super) fn index_mut(&mut self) -> &mut StatIndex {
        self.orders.clear();
        self.last = None;
        &mut self.index
    }

    /// What the next look must name, where something else was found at a path than this one saw: it may be by then as
    /// it was seen, and known otherwise. `is_below` tells whether what is there lies below the layer that was looked at.
    pub(super) fn differs(
        &mut self,
        path: &EntryPath,
        found: Option<&FileStat>,
        is_below: impl FnOnce() -> bool,
    ) -> Option<DirtyPath> {
        if path.is_root() {
            return None;
        }
        let seen = self.at(path).map(|known| known.stamp).filter(|seen| !self.is_nothing(seen));
        let agrees = match (&seen, found) {
            (None, None) => true,
            (None, Some(_)) => self.place == ScannedEntry::Upper && is_below(),
            (Some(_), None) => false,
            (Some(seen), Some(found)) => self.is_same(seen, found),
        };
        // With a directory goes, and comes, what is below it, and of that a look names nothing that is as it was.
        let is_deep = [seen.as_ref(), found].into_iter().flatten().any(FileStat::is_directory);
        (!agrees).then(|| if is_deep { DirtyPath::Subtree(path.clone()) } else { DirtyPath::Entry(path.clone()) })
    }

    /// The same for everything that was found below a directory, but for what is in those that are `closed`.
    pub(super) fn differ_below(
        &mut self,
        path: &EntryPath,
        found: &[(EntryPath, TreeEntry)],
        closed: &[EntryPath],
    ) -> Vec<DirtyPath> {
        let mut differing = Vec::new();
        let mut count = 0;
        for (path, found) in found {
            match self.differs(path, Some(&found.identity), || true) {
                Some(touched) => differing.push(touched),
                None => count += usize::from(self.at(path).is_some()),
            }
        }
        for closed in closed {
            let is_closed = self.listing(closed.as_bytes()).is_none_or(|listing| listing.doubtful);
            if !is_closed && closed.as_bytes().len() <= PATH_BYTES_MAX {
                differing.push(DirtyPath::Subtree(closed.clone()));
            }
        }
        if !closed.is_empty() || count != self.count_below(path) {
            self.find_missing(path, found, closed, &mut differing);
        }
        differing
    }

    /// Adds what was seen below a directory and not found.
    fn find_missing(
        &mut self,
        top: &EntryPath,
        found: &[(EntryPath, TreeEntry)],
        closed: &[EntryPath],
        missing: &mut Vec<DirtyPath>,
    ) {
        let place = self.place;
        let found: BTreeSet<&EntryPath> = found.iter().map(|(path, _)| path).collect();
        let closed: BTreeSet<&EntryPath> = closed.iter().collect();
        let mut left = vec![top.clone()];
        while let Some(directory) = left.pop() {
            let Some(listing) = self.listing(directory.as_bytes()).filter(|_| !closed.contains(&directory)) else {
                continue;
            };
            for (at, known) in listing.entries.iter().enumerate() {
                let Ok(path) = directory.join(listing.name(at)) else { continue };
                if found.contains(&path) {
                    left.extend((known.child != NONE).then_some(path));
                } else if place == ScannedEntry::Tree || !known.stamp.is_mark() {
                    let is_deep = known.stamp.is_directory();
                    missing.push(if is_deep { DirtyPath::Subtree(path) } else { DirtyPath::Entry(path) });
                }
            }
        }
    }

    /// Whether what was seen is a mark of something that is gone.
    fn is_nothing(&self, seen: &FileStat) -> bool {
        self.place == ScannedEntry::Upper && seen.is_mark()
    }

    fn is_same(&self, seen: &FileStat, found: &FileStat) -> bool {
        match self.place {
            ScannedEntry::Tree if seen.is_directory() => seen.is_same_entry(found),
            ScannedEntry::Tree => seen == found,
            ScannedEntry::Upper if seen.is_directory() => found.is_directory(),
            ScannedEntry::Upper => seen.has_same_times(found),
        }
    }

    fn at(&mut self, path: &EntryPath) -> Option<IndexedEntry> {
        let directory = crate::engine::path::parent_bytes(path.as_bytes()).unwrap_or_default();
        let number = self.number(directory)?;
        self.find(number, path.name())
    }

    fn listing(&mut self, directory: &[u8]) -> Option<&IndexedListing> {
        let number = self.number(directory)?;
        self.index.listings.get(number as usize)
    }

    /// The listing of a directory.
    fn number(&mut self, directory: &[u8]) -> Option<u32> {
        if let Some((_, number)) = self.last.as_ref().filter(|(last, _)| last == directory) {
            return Some(*number);
        }
        let mut number = 0;
        for segment in directory.split(|byte| *byte == b'/').filter(|segment| !segment.is_empty()) {
            number = self.find(number, segment)?.child;
        }
        self.last = Some((directory.to_vec(), number));
        Some(number)
    }

    fn find(&mut self, number: u32, name: &[u8]) -> Option<IndexedEntry> {
        let listing = self.index.listings.get(number as usize)?;
        if listing.entries.len() < MANY {
            return listing.find(name).map(|at| listing.entries[at]);
        }
        let order = self.orders.entry(number).or_insert_with(|| listing.by_name());
        listing.find_in(order, name).map(|place| listing.entries[order[place] as usize])
    }

    /// How many entries the look saw below a directory.
    fn count_below(&mut self, path: &EntryPath) -> usize {
        let (mut count, mut left) = (0, Vec::from_iter(self.number(path.as_bytes())));
        while let Some(number) = left.pop() {
            let entries = self.index.listings.get(number as usize).map_or(&[][..], |listing| &listing.entries);
            count += entries.iter().filter(|known| !self.is_nothing(&known.stamp)).count();
            left.extend(entries.iter().map(|known| known.child).filter(|child| *child != NONE));
        }
        count
    }
}

/// Where the next look must name something, whatever it sees: nobody knows what is there.
#[derive(Debug, Default)]
pub(super) struct Unsure {
    waiting: BTreeSet<DirtyPath>,
    /// Those that the last look has named.
    named: BTreeSet<DirtyPath>,
}

impl Unsure {
    pub(super) fn add(&mut self, places: impl IntoIterator<Item = DirtyPath>) {
        self.waiting.extend(places);
    }

    pub(super) fn name(&mut self, touched: &mut Vec<DirtyPath>) {
        self.named.append(&mut self.waiting);
        touched.extend(self.named.iter().cloned());
    }

    pub(super) fn places(&self) -> impl Iterator<Item = DirtyPath> {
        self.waiting.iter().chain(&self.named).cloned()
    }

    pub(super) fn settle(&mut self) {
        self.named.clear();
    }
}
