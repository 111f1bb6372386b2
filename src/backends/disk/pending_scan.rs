//! A scan that is not settled yet, compared with the entries that its caller reads afterwards.
//!
//! Others may change the files between a scan and the reads of its findings. So each handle's stat is read before its
//! first byte and compared with the scan's. If they differ, the index forgets the path: the next scan reports it, even
//! if it then matches this scan again, because the caller has read something else.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::dir_xattrs::Forms;
use super::file_stat::{FileStat, FileTime, MadeStat};
use super::index::{IndexedEntry, IndexedListing, NONE, StatIndex};
use super::limits::PATH_BYTES_MAX;
use super::listing::is_absent;
use super::scan::ScanOutcome;
use super::tree::TreeEntry;
use crate::backends::DirtyPath;
use crate::engine::path::{EntryPath, parent_bytes};

/// The minimum number of entries that makes sorting a directory worthwhile.
const MANY: usize = 8;

#[derive(Debug)]
pub(super) enum ScannedFiles {
    Tree,
    /// The upper layer of an overlay, if it had any files. Its devices and inodes differ from the tree's, and it has
    /// marks of deleted entries.
    Upper(Option<OwnedFd>),
}

/// The known files of a disk, and the scan that will replace them when settled.
#[derive(Debug, Default)]
pub(crate) struct KnownFiles {
    pub(super) index: StatIndex,
    pub(super) pending: Option<PendingScan>,
    /// Paths that the next scan reports regardless of its findings.
    pub(super) carried: Vec<DirtyPath>,
}

impl KnownFiles {
    /// Takes over a scan. Returns its findings.
    pub(super) fn scanned(&mut self, outcome: ScanOutcome, files: ScannedFiles) -> Vec<DirtyPath> {
        let ScanOutcome { index, mut touched, started } = outcome;
        touched.extend(self.carried.iter().cloned());
        self.pending = Some(PendingScan::of(index, files, started));
        touched
    }

    pub(super) fn learn(&mut self, root: BorrowedFd<'_>, made: &[(EntryPath, MadeStat)], forms: Forms) {
        let pending = self.pending.as_mut().map(PendingScan::index_mut);
        for index in std::iter::once(&mut self.index).chain(pending) {
            if let Err(error) = index.learn(root, made, forms) {
                tracing::debug!(%error, "the changes made will be scanned again");
            }
        }
    }

    /// Settles the last scan.
    pub(super) fn mark_clean(&mut self) {
        if let Some(pending) = self.pending.take() {
            (self.index, self.carried) = (pending.index, Vec::new());
        }
    }
}

/// An index that replaces the known one when the scan is settled.
#[derive(Debug)]
pub(crate) struct PendingScan {
    pub(super) index: StatIndex,
    files: ScannedFiles,
    started: FileTime,
    orders: BTreeMap<u32, Vec<u32>>,
    last: Option<(Vec<u8>, u32)>,
    /// Paths where the caller read something else.
    pub(super) doubted: Vec<EntryPath>,
}

impl PendingScan {
    pub(super) fn of(index: StatIndex, files: ScannedFiles, started: FileTime) -> Self {
        Self { index, files, started, orders: BTreeMap::new(), last: None, doubted: Vec::new() }
    }

    pub(super) fn index_mut(&mut self) -> &mut StatIndex {
        self.orders.clear();
        self.last = None;
        &mut self.index
    }

    /// Compares the stat that the caller read at a path with the scan; `None` if the entry did not exist.
    pub(super) fn shown(&mut self, path: &EntryPath, shown: Option<&FileStat>) {
        let scanned = self.at(path).map(|entry| entry.stamp).filter(|scanned| !self.is_nothing(scanned));
        let agrees = match (&scanned, shown) {
            (None, None) => true,
            (None, Some(shown)) => !shown.is_fresh(self.started) && self.is_lower(path),
            (Some(_), None) => false,
            (Some(scanned), Some(shown)) => self.is_same(scanned, shown),
        };
        if !agrees && !path.is_root() {
            // Everything below a directory comes and goes with it, and a scan does not report unchanged entries.
            let is_deep = [scanned.as_ref(), shown].into_iter().flatten().any(FileStat::is_directory);
            self.doubt(path, is_deep);
        }
    }

    fn doubt(&mut self, path: &EntryPath, is_deep: bool) {
        self.index.doubt(path, is_deep);
        self.doubted.push(path.clone());
    }

    /// Compares a directory and everything below it, except for the contents of `closed` directories.
    pub(super) fn shown_below(&mut self, path: &EntryPath, shown: &[(EntryPath, TreeEntry)], closed: &[EntryPath]) {
        shown.iter().for_each(|(path, entry)| self.shown(path, Some(&entry.identity)));
        for closed in closed.iter().filter(|closed| closed.as_bytes().len() <= PATH_BYTES_MAX) {
            if self.listing(closed.as_bytes()).is_some_and(|listing| !listing.doubtful) {
                self.doubt(closed, true);
            }
        }
        for missing in self.missing(path, shown, closed) {
            self.shown(&missing, None);
        }
    }

    /// Returns the scan's entries below a directory that the caller did not find.
    fn missing(&mut self, top: &EntryPath, shown: &[(EntryPath, TreeEntry)], closed: &[EntryPath]) -> Vec<EntryPath> {
        let shown: BTreeSet<&EntryPath> = shown.iter().map(|(path, _)| path).collect();
        let closed: BTreeSet<&EntryPath> = closed.iter().collect();
        let (mut missing, mut left) = (Vec::new(), vec![top.clone()]);
        while let Some(directory) = left.pop() {
            let is_closed = closed.contains(&directory);
            let Some(listing) = self.listing(directory.as_bytes()).filter(|_| !is_closed) else { continue };
            for (at, entry) in listing.entries.iter().enumerate() {
                match directory.join(listing.name(at)) {
                    Ok(path) if shown.contains(&path) => left.extend((entry.child != NONE).then_some(path)),
                    other => missing.extend(other),
                }
            }
        }
        missing
    }

    /// Returns true if a path is in a lower layer, as far as the scan knows.
    fn is_lower(&mut self, path: &EntryPath) -> bool {
        let directory = parent_bytes(path.as_bytes()).unwrap_or_default();
        let is_seen = self.listing(directory).is_some();
        match &self.files {
            ScannedFiles::Tree => false,
            ScannedFiles::Upper(Some(upper)) if is_seen => is_absent(upper.as_fd(), path),
            ScannedFiles::Upper(_) => true,
        }
    }

    /// Returns true if the entry is a mark of a deleted one.
    fn is_nothing(&self, seen: &FileStat) -> bool {
        matches!(self.files, ScannedFiles::Upper(_)) && seen.is_mark()
    }

    fn is_same(&self, scanned: &FileStat, shown: &FileStat) -> bool {
        match self.files {
            ScannedFiles::Tree if scanned.is_directory() => {
                scanned.is_same_entry(shown) && scanned.has_same_mode(shown)
            }
            ScannedFiles::Tree => scanned == shown,
            ScannedFiles::Upper(_) if scanned.is_directory() => !scanned.is_unknown() && scanned.has_same_mode(shown),
            ScannedFiles::Upper(_) => scanned.has_same_times(shown),
        }
    }

    /// Returns true if the scan found an entry at a path.
    pub(super) fn has(&mut self, path: &EntryPath) -> bool {
        self.at(path).is_some()
    }

    /// Returns true if the scan found a file at a path, last written before a moment.
    pub(super) fn is_older(&mut self, path: &EntryPath, moment: FileTime) -> bool {
        self.at(path).is_some_and(|entry| !entry.stamp.is_unknown() && !entry.stamp.is_fresh(moment))
    }

    fn at(&mut self, path: &EntryPath) -> Option<IndexedEntry> {
        let directory = parent_bytes(path.as_bytes()).unwrap_or_default();
        let number = self.number(directory)?;
        self.find(number, path.name())
    }

    fn listing(&mut self, directory: &[u8]) -> Option<&IndexedListing> {
        let number = self.number(directory)?;
        self.index.listings.get(number as usize)
    }

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
}
