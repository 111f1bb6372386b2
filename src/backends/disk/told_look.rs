//! Scans the paths that the kernel reported, and updates the index.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{OFlags, Statx};

use super::beneath::{leads_nowhere, open_directory, open_in};
use super::entries::vanished;
use super::file_stat::{FileStat, FileTime};
use super::index::{IndexedEntry, NONE, StatIndex};
use super::left_out::LeftOut;
use super::listing::{file_size, is_linked, look};
use super::scan::{Before, Start, scan_below};
use super::watch::{Told, ToldChange, Watch, joined};
use crate::backends::DirtyPath;
use crate::engine::path::{EntryPath, parent_bytes};

/// A plain directory, its index, and its kernel watch.
struct ToldLook<'a> {
    root: BorrowedFd<'a>,
    left_out: &'a LeftOut,
    index: &'a mut StatIndex,
    watch: &'a mut Watch,
    started: FileTime,
    touched: Vec<DirtyPath>,
    /// Directories that were removed or replaced.
    gone: Vec<Vec<u8>>,
}

/// The result of a partial scan.
pub(super) struct ToldOutcome {
    pub(super) touched: Vec<DirtyPath>,
    /// True if it is incomplete, so that a full scan is needed. Its findings are in the index.
    pub(super) is_partial: bool,
}

/// The error of a case that needs a full scan.
struct Odd;

type Names = BTreeMap<Vec<u8>, ToldChange>;

/// Scans the reported paths.
pub(super) fn look_at_told(
    root: BorrowedFd<'_>,
    left_out: &LeftOut,
    index: &mut StatIndex,
    watch: &mut Watch,
    told: &Told,
) -> ToldOutcome {
    watch.begin();
    let started = FileTime::now();
    let mut look = ToldLook { root, left_out, index, watch, started, touched: Vec::new(), gone: Vec::new() };
    let is_partial = look.all(told.names.clone()).is_err();
    let ToldLook { watch, touched, mut gone, .. } = look;
    if !gone.is_empty() {
        gone.sort_unstable();
        watch.drop_unseen(|path| above(path).any(|above| gone.binary_search_by(|gone| gone[..].cmp(above)).is_ok()));
    }
    ToldOutcome { touched, is_partial: is_partial || watch.is_broken }
}

/// Returns a path and its parent directories.
fn above(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::successors(Some(path), |path: &&[u8]| parent_bytes(path))
}

impl ToldLook<'_> {
    /// Scans parent directories first.
    fn all(&mut self, mut left: BTreeMap<Vec<u8>, Names>) -> Result<(), Odd> {
        while let Some((directory, names)) = left.pop_first() {
            if self.directory(&directory, &names)? {
                continue;
            }
            // The entry in its parent shows the change.
            let cut = directory.iter().rposition(|byte| *byte == b'/');
            let (parent, name) = match cut {
                _ if directory.is_empty() => return Err(Odd),
                Some(cut) => (&directory[..cut], &directory[cut + 1..]),
                None => (&b""[..], &directory[..]),
            };
            left.entry(parent.to_vec()).or_default().entry(name.to_vec()).or_default();
        }
        Ok(())
    }

    /// Scans names in a directory. Returns false if it is unknown or no longer at that path.
    fn directory(&mut self, path: &[u8], names: &Names) -> Result<bool, Odd> {
        let handle = match open_directory(self.root, path, OFlags::PATH) {
            Ok(handle) => handle,
            Err(error) if leads_nowhere(error) => return Ok(false),
            Err(_) => return Err(Odd),
        };
        let Some(listing) = self.index.listing_of(path) else { return Ok(false) };
        let before = self.index.find_all(listing, names.keys());
        let rules = self.left_out.enter(&self.left_out.at(self.root, path), handle.as_fd(), path);
        let mut update = BTreeMap::new();
        let mut below = Vec::new();
        for ((name, change), before) in names.iter().zip(before) {
            if self.left_out.depends_on(name) {
                // Unchanged entries may now become recorded.
                return Err(Odd);
            }
            let now = vanished(look(&handle, name.as_slice())).map_err(|_| Odd)?;
            let is_left_out = |now: &Statx| self.left_out.skips(&rules, &joined(path, name), file_size(now));
            if before.is_none() && now.as_ref().is_none_or(is_left_out) {
                continue;
            }
            let known = self.entry(&handle, joined(path, name), *change, (before, now), &mut below)?;
            update.insert(name.as_slice(), known.map(|known| (known, 0)));
        }
        self.index.update(listing, update);
        let mut is_partial = false;
        for start in below {
            let path = start.path.clone();
            if self.below(start).is_err() {
                // The index has the directory already, but not its contents.
                self.named(path, true);
                is_partial = true;
            }
        }
        if is_partial { Err(Odd) } else { Ok(true) }
    }

    fn entry(
        &mut self,
        directory: &OwnedFd,
        path: Vec<u8>,
        change: ToldChange,
        (before, now): (Option<IndexedEntry>, Option<Statx>),
        below: &mut Vec<Start>,
    ) -> Result<Option<IndexedEntry>, Odd> {
        // The kernel does not report its other names.
        if before.is_some_and(|before| before.is_linked) || now.as_ref().is_some_and(is_linked) {
            return Err(Odd);
        }
        let was_directory = before.is_some_and(|before| before.stamp.is_directory());
        let Some(stat) = now else {
            if before.is_some() {
                self.named(path, was_directory);
            }
            return Ok(None);
        };
        let stamp = FileStat::of(&stat);
        let known = IndexedEntry::new(stamp, NONE, stamp.is_fresh(self.started));
        if !stamp.is_directory() {
            if change.is_written || before.is_none_or(|before| before.stamp != stamp) {
                self.named(path, was_directory);
            }
            return Ok(Some(known));
        }
        let relation = Before::of(before, &stamp);
        if relation == Before::Same && !change.is_arrived {
            // Its mode or owner may have changed.
            if !before.is_some_and(|before| before.stamp.has_same_mode(&stamp)) {
                self.named(path.clone(), false);
            }
            let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
            return open_in(directory, name, OFlags::RDONLY | OFlags::DIRECTORY).map(|_| Some(known)).map_err(|_| Odd);
        }
        if was_directory && relation != Before::Same {
            self.gone.push(path.clone());
        }
        below.push(Start { path, before: relation, old: before.map_or(NONE, |before| before.child) });
        Ok(Some(known))
    }

    fn named(&mut self, path: Vec<u8>, was_directory: bool) {
        // Names from the kernel are valid.
        if let Ok(named) = EntryPath::from_bytes(&path) {
            self.touched.push(if was_directory { DirtyPath::Subtree(named) } else { DirtyPath::Entry(named) });
        }
        if was_directory {
            self.gone.push(path);
        }
    }

    /// Scans everything below a new directory, and watches it.
    fn below(&mut self, start: Start) -> Result<(), Odd> {
        let path = start.path.clone();
        let scanned = scan_below(self.root, self.index, self.left_out, start, self.watch).map_err(|_| Odd)?;
        let listing = self.index.listing_of(&path).ok_or(Odd)?;
        self.touched.extend(scanned.touched);
        let has_links = scanned.index.has_linked();
        self.index.graft(listing, scanned.index);
        // The kernel does not report their other names.
        if has_links { Err(Odd) } else { Ok(()) }
    }
}
