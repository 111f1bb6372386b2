//! The last known entries of a tree, by directory.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{OFlags, Statx};
use rustix::io::Errno;

use super::beneath::{leads_nowhere, open_directory};
use super::dir_xattrs::Forms;
use super::entries::vanished;
use super::file_stat::{FileStat, MadeStat};
use super::listing::{is_linked, look};
use crate::engine::path::EntryPath;

pub(super) const NONE: u32 = u32::MAX;
/// The minimum number of searched names that makes sorting a directory's entries worthwhile.
const MANY: usize = 8;

/// The entries of a tree as of their last scan. The first listing is the root's.
#[derive(Debug, Default)]
pub(super) struct StatIndex {
    pub(super) listings: Vec<IndexedListing>,
}

/// The entries of one directory, in the order of the file system.
#[derive(Debug, Default)]
pub(super) struct IndexedListing {
    pub(super) names: Vec<u8>,
    pub(super) entries: Vec<IndexedEntry>,
    /// The number of the part of the lower layers that an overlay's directory shows.
    pub(super) form: u32,
    /// True if it could not be read completely.
    pub(super) doubtful: bool,
    /// True if all its entries were read after the directory's stat in its parent's listing.
    pub(super) is_whole: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct IndexedEntry {
    pub(super) stamp: FileStat,
    /// The end of its name, which begins at the end of the previous one.
    name_end: u32,
    pub(super) child: u32,
    /// True if it may have changed without a change of its stat.
    pub(super) fresh: bool,
    /// True for a file with several names; each of them can change it.
    pub(super) is_linked: bool,
}

impl IndexedEntry {
    pub(super) fn new(stamp: FileStat, child: u32, fresh: bool) -> Self {
        Self { stamp, name_end: 0, child, fresh, is_linked: false }
    }

    pub(super) fn linked(self, is_linked: bool) -> Self {
        Self { is_linked, ..self }
    }
}

impl IndexedListing {
    pub(super) fn name(&self, at: usize) -> &[u8] {
        let from = if at == 0 { 0 } else { self.entries[at - 1].name_end as usize };
        &self.names[from..self.entries[at].name_end as usize]
    }

    /// Passes the current stats of the open directory's known entries to `give`, except for vanished ones.
    pub(super) fn each_known(
        &self,
        directory: BorrowedFd<'_>,
        mut give: impl FnMut(&[u8], &Statx) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        for name in (0..self.entries.len()).map(|at| self.name(at)) {
            if let Some(stat) = vanished(look(directory, name))? {
                give(name, &stat)?;
            }
        }
        Ok(())
    }

    pub(super) fn push(&mut self, name: &[u8], known: IndexedEntry) {
        self.names.extend_from_slice(name);
        // Only a directory with 16 million entries of the longest names exceeds this.
        let name_end = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        self.entries.push(IndexedEntry { name_end, ..known });
    }

    pub(super) fn find(&self, name: &[u8]) -> Option<usize> {
        (0..self.entries.len()).find(|at| self.name(*at) == name)
    }

    /// Finds several names.
    fn places<'n>(&self, names: impl ExactSizeIterator<Item = &'n [u8]>) -> Vec<Option<usize>> {
        let order = (names.len() >= MANY).then(|| self.by_name());
        let find = |name: &[u8]| match &order {
            Some(order) => self.find_in(order, name).map(|place| order[place] as usize),
            None => self.find(name),
        };
        names.map(find).collect()
    }

    pub(super) fn by_name(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..u32::try_from(self.entries.len()).unwrap_or(u32::MAX)).collect();
        order.sort_unstable_by(|a, b| self.name(*a as usize).cmp(self.name(*b as usize)));
        order
    }

    pub(super) fn find_in(&self, by_name: &[u32], name: &[u8]) -> Option<usize> {
        by_name.binary_search_by(|at| self.name(*at as usize).cmp(name)).ok()
    }
}

/// Entries that became known without a scan, with their forms; `None` for a removed entry.
pub(super) type Update<'a> = BTreeMap<&'a [u8], Option<(IndexedEntry, u32)>>;

impl StatIndex {
    /// Returns true if it has a file with several names.
    pub(super) fn has_linked(&self) -> bool {
        self.listings.iter().flat_map(|listing| &listing.entries).any(|entry| entry.is_linked)
    }

    /// Marks all entries as certain: this process made them, and later changes have other modification times.
    pub(super) fn trust(&mut self) {
        self.listings.iter_mut().flat_map(|listing| &mut listing.entries).for_each(|entry| entry.fresh = false);
    }

    /// Forgets a path, so that the next scan reports it, or everything below the first unknown directory above it.
    pub(super) fn doubt(&mut self, path: &EntryPath, is_deep: bool) {
        if self.listings.is_empty() {
            self.listings.push(IndexedListing::default());
        }
        let mut at = 0;
        let mut segments = path.segments().peekable();
        while let Some(segment) = segments.next() {
            let is_last = segments.peek().is_none();
            let listing = &mut self.listings[at];
            let found = listing.find(segment);
            let child = found.map_or(NONE, |found| listing.entries[found].child);
            if !is_last && child != NONE {
                at = child as usize;
                continue;
            }
            let stamp = if is_last && !is_deep { FileStat::UNKNOWN } else { FileStat::UNKNOWN_BELOW };
            let unknown = IndexedEntry::new(stamp, NONE, true);
            match found.map(|found| &mut listing.entries[found]) {
                Some(entry) => *entry = IndexedEntry { name_end: entry.name_end, ..unknown },
                None => listing.push(segment, unknown),
            }
            return;
        }
        self.listings[0].doubtful = true;
    }

    pub(super) fn len(&self) -> usize {
        self.listings.iter().map(|listing| listing.entries.len()).sum()
    }

    /// Adds the changes made at these paths beneath `root`, and their parent directories.
    ///
    /// Others may have changed the entries before they are read here: a file that differs from the one made is fresh,
    /// and a path without a file is in doubt. Entries below known directories are retained.
    pub(super) fn learn(
        &mut self,
        root: BorrowedFd<'_>,
        made: &[(EntryPath, MadeStat)],
        forms: Forms,
    ) -> Result<(), Errno> {
        if self.listings.is_empty() {
            self.listings.push(IndexedListing::default());
        }
        let mut by_parent: BTreeMap<EntryPath, BTreeMap<&[u8], MadeStat>> = BTreeMap::new();
        for (path, made) in made {
            let Some(parent) = path.parent() else { continue };
            by_parent.entry(parent).or_default().insert(path.name(), *made);
        }
        // Parents sort before their children.
        let mut missing = Vec::new();
        for (parent, entries) in by_parent {
            let directory = match open_directory(root, parent.as_bytes(), OFlags::PATH) {
                Err(error) if leads_nowhere(error) => None,
                other => Some(other?),
            };
            let listing = if directory.is_some() { self.lead_to(root, &parent, forms)? } else { None };
            let (Some(directory), Some(listing)) = (directory, listing) else {
                // Deletions, too: when a missing directory returns, its known entries are compared with it.
                missing.extend(entries.keys().filter_map(|name| parent.join(name).ok()));
                continue;
            };
            let mut update = Update::new();
            for (name, made) in entries {
                let known = known_now(directory.as_fd(), name, made, forms)?;
                let is_told = match known {
                    Some((known, _)) if !known.stamp.is_mark() => known.fresh || known.stamp.is_as_made(made),
                    _ => made == MadeStat::Nothing,
                };
                if !is_told {
                    missing.extend(parent.join(name));
                }
                update.insert(name, known);
            }
            self.update(listing, update);
        }
        // Entries that the batch itself changed later are not in doubt.
        missing.retain(|path| {
            let last = made.iter().rposition(|(made, _)| made == path).map_or(0, |at| at + 1);
            !made[last..].iter().any(|(later, _)| later.is_below(path) || path.is_below(later))
        });
        missing.iter().for_each(|path| self.doubt(path, false));
        Ok(())
    }

    /// Finds the listing of a directory; unknown parent directories get empty ones.
    fn lead_to(&mut self, root: BorrowedFd<'_>, path: &EntryPath, forms: Forms) -> Result<Option<usize>, Errno> {
        let mut at = 0;
        let mut walked = EntryPath::root();
        for segment in path.segments() {
            let parent = walked.clone();
            walked = walked.join(segment).map_err(|_| Errno::INVAL)?;
            let found = self.listings[at].find(segment).map(|entry| self.listings[at].entries[entry]);
            at = match found {
                Some(known) if known.child != NONE => known.child as usize,
                _ => {
                    let directory = match open_directory(root, parent.as_bytes(), OFlags::PATH) {
                        Err(error) if leads_nowhere(error) => return Ok(None),
                        other => other?,
                    };
                    let known = known_now(directory.as_fd(), segment, MadeStat::Directory, forms)?;
                    let Some(known) = known else { return Ok(None) };
                    if !known.0.stamp.is_directory() {
                        return Ok(None);
                    }
                    self.update(at, Update::from([(segment, Some(known))]));
                    self.listings.len() - 1
                }
            };
        }
        Ok(Some(at))
    }

    /// Finds the listing of a directory.
    pub(super) fn listing_of(&self, path: &[u8]) -> Option<usize> {
        let mut at = self.listings.first().map(|_| 0)?;
        for segment in path.split(|byte| *byte == b'/').filter(|segment| !segment.is_empty()) {
            let listing = self.listings.get(at)?;
            at = listing.entries.get(listing.find(segment)?)?.child as usize;
        }
        (at < self.listings.len()).then_some(at)
    }

    /// Finds several names in a directory.
    pub(super) fn find_all<'n>(
        &self,
        listing: usize,
        names: impl ExactSizeIterator<Item = &'n Vec<u8>>,
    ) -> Vec<Option<IndexedEntry>> {
        let listing = &self.listings[listing];
        listing.places(names.map(Vec::as_slice)).into_iter().map(|at| at.map(|at| listing.entries[at])).collect()
    }

    /// Replaces the known entries below a directory with scanned ones.
    pub(super) fn graft(&mut self, listing: usize, scanned: StatIndex) {
        let Ok(shift) = u32::try_from(self.listings.len().saturating_sub(1)) else { return };
        let mut scanned = scanned.listings.into_iter().map(|mut listing| {
            let children = listing.entries.iter_mut().filter(|entry| entry.child != NONE);
            children.for_each(|entry| entry.child = entry.child.saturating_add(shift));
            listing
        });
        if let (Some(top), Some(place)) = (scanned.next(), self.listings.get_mut(listing)) {
            *place = top;
            self.listings.extend(scanned);
        }
    }

    pub(super) fn update(&mut self, listing: usize, update: Update<'_>) {
        let places = self.listings[listing].places(update.keys().copied());
        let mut removed = Vec::new();
        for (place, (name, now)) in places.into_iter().zip(update) {
            let before = place.map(|at| self.listings[listing].entries[at]);
            let now = now.map(|(known, form)| IndexedEntry { child: self.child(before, &known, form), ..known });
            let entries = &mut self.listings[listing];
            match (place, now) {
                (Some(at), Some(known)) => {
                    let entry = &mut entries.entries[at];
                    *entry = IndexedEntry { name_end: entry.name_end, ..known };
                }
                (Some(at), None) => removed.push(at),
                (None, Some(known)) => entries.push(name, known),
                (None, None) => {}
            }
        }
        if !removed.is_empty() {
            removed.sort_unstable();
            self.remove(listing, &removed);
        }
    }

    /// Returns the previous listing of a directory, unless it has become another directory.
    fn child(&mut self, before: Option<IndexedEntry>, now: &IndexedEntry, form: u32) -> u32 {
        if !now.stamp.is_directory() {
            return NONE;
        }
        let kept = before.filter(|before| before.child != NONE && before.stamp.is_same_entry(&now.stamp));
        let child = match kept {
            Some(before) => before.child,
            None => {
                self.listings.push(IndexedListing::default());
                u32::try_from(self.listings.len() - 1).unwrap_or(NONE)
            }
        };
        if let Some(listing) = self.listings.get_mut(child as usize) {
            listing.form = form;
            // The stat is newer than the entries.
            listing.is_whole = false;
        }
        child
    }

    fn remove(&mut self, listing: usize, removed: &[usize]) {
        let old = std::mem::take(&mut self.listings[listing]);
        let mut new =
            IndexedListing { form: old.form, doubtful: old.doubtful, is_whole: old.is_whole, ..Default::default() };
        for at in (0..old.entries.len()).filter(|at| removed.binary_search(at).is_err()) {
            new.push(old.name(at), old.entries[at]);
        }
        self.listings[listing] = new;
    }
}

/// Reads an entry that was just made. It is not fresh while it has the modification time that was set.
fn known_now(
    directory: BorrowedFd<'_>,
    name: &[u8],
    made: MadeStat,
    forms: Forms,
) -> Result<Option<(IndexedEntry, u32)>, Errno> {
    let Some(stat) = vanished(look(directory, name))? else { return Ok(None) };
    let (stamp, is_linked) = (FileStat::of(&stat), is_linked(&stat));
    let is_leaf = !stamp.is_directory() && !stamp.is_mark();
    let known = IndexedEntry::new(stamp, NONE, is_leaf && !stamp.is_as_made(made)).linked(is_linked);
    if forms == Forms::Plain || !stamp.is_directory() {
        return Ok(Some((known, 0)));
    }
    match open_directory(directory, name, OFlags::RDONLY) {
        Ok(handle) => Ok(Some((known, forms.of(&handle)?))),
        Err(error) if leads_nowhere(error) => Ok(None),
        Err(error) => Err(error),
    }
}
