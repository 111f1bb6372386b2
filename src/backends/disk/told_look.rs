//! A look at what the kernel told of, which takes up in the index what it finds.

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

/// A plain directory, what is known of it, and what tells of changes there.
struct ToldLook<'a> {
    root: BorrowedFd<'a>,
    left_out: &'a LeftOut,
    index: &'a mut StatIndex,
    watch: &'a mut Watch,
    started: FileTime,
    touched: Vec<DirtyPath>,
    /// Directories that are not there any more, or are others.
    gone: Vec<Vec<u8>>,
}

/// A look at part of a tree.
pub(super) struct ToldOutcome {
    pub(super) touched: Vec<DirtyPath>,
    /// Set if it could not tell all, so that everything has to be looked at. What it has found is in the index.
    pub(super) is_partial: bool,
}

/// Stands for what only a look at everything can tell.
struct Odd;

type Names = BTreeMap<Vec<u8>, ToldChange>;

/// Looks at what was told.
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

/// Gives a path and those of the directories above it.
fn above(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::successors(Some(path), |path: &&[u8]| parent_bytes(path))
}

impl ToldLook<'_> {
    /// Looks at directories before those below them.
    fn all(&mut self, mut left: BTreeMap<Vec<u8>, Names>) -> Result<(), Odd> {
        while let Some((directory, names)) = left.pop_first() {
            if self.directory(&directory, &names)? {
                continue;
            }
            // What is above it tells what became of it.
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

    /// Looks at names in a directory. Gives false where none is known or there at that path.
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
                // Entries may be recorded from now on that no change shows.
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
                // The index has the directory already, and not what was in it.
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
        // Its other names are not told.
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
            // Its mode or owner may be another one.
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
        // The kernel gives no name that is not one.
        if let Ok(named) = EntryPath::from_bytes(&path) {
            self.touched.push(if was_directory { DirtyPath::Subtree(named) } else { DirtyPath::Entry(named) });
        }
        if was_directory {
            self.gone.push(path);
        }
    }

    /// Looks at everything below a directory that came there, and watches it.
    fn below(&mut self, start: Start) -> Result<(), Odd> {
        let path = start.path.clone();
        let scanned = scan_below(self.root, self.index, self.left_out, start, self.watch).map_err(|_| Odd)?;
        let listing = self.index.listing_of(&path).ok_or(Odd)?;
        self.touched.extend(scanned.touched);
        let has_links = scanned.index.has_linked();
        self.index.graft(listing, scanned.index);
        // Their other names are not told.
        if has_links { Err(Odd) } else { Ok(()) }
    }
}
