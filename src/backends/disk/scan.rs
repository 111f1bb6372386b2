//! Scans a whole tree and compares it with the index.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use rustix::fs::{OFlags, Statx};
use rustix::io::Errno;

use super::beneath::{leads_nowhere, open_directory, open_in};
use super::dir_xattrs::Forms;
use super::file_stat::{FileStat, FileTime};
use super::ignore_rules::DirRules;
use super::index::{IndexedEntry, IndexedListing, NONE, StatIndex};
use super::left_out::LeftOut;
use super::limits::{PATH_BYTES_MAX, SCAN_BYTES_MAX, too_much};
use super::listing::{Lister, file_size, is_linked};
use super::watch::{Watch, joined};
use crate::backends::DirtyPath;
use crate::engine::lock::lock;
use crate::engine::path::EntryPath;

const HANDLES_MAX: usize = 64;
/// The minimum number of entries that makes a second thread worthwhile.
const MANY: usize = 4096;
/// The error of exceeding the limit of a scan.
const OVER: Errno = Errno::OVERFLOW;

pub(super) struct ScanOutcome {
    pub(super) index: StatIndex,
    pub(super) touched: Vec<DirtyPath>,
    pub(super) started: FileTime,
}

/// The directory where a scan starts.
pub(super) struct Start {
    pub(super) path: Vec<u8>,
    pub(super) before: Before,
    /// Its known listing.
    pub(super) old: u32,
}

/// Scans everything beneath a directory, except for left-out entries.
pub(super) fn scan(
    root: BorrowedFd<'_>,
    known: &StatIndex,
    forms: Forms,
    left_out: &LeftOut,
) -> io::Result<ScanOutcome> {
    scan_from(root, known, forms, left_out, Start::at_root(known), None)
}

/// Scans a plain tree, and watches each directory before it lists it.
pub(super) fn scan_watched(
    root: BorrowedFd<'_>,
    known: &StatIndex,
    left_out: &LeftOut,
    watch: &mut Watch,
) -> io::Result<ScanOutcome> {
    scan_from(root, known, Forms::Plain, left_out, Start::at_root(known), Some(watch))
}

/// Scans a directory below the root. The first listing of the returned index is that directory's.
pub(super) fn scan_below(
    root: BorrowedFd<'_>,
    known: &StatIndex,
    left_out: &LeftOut,
    start: Start,
    watch: &mut Watch,
) -> io::Result<ScanOutcome> {
    scan_from(root, known, Forms::Plain, left_out, start, Some(watch))
}

fn scan_from(
    root: BorrowedFd<'_>,
    known: &StatIndex,
    forms: Forms,
    left_out: &LeftOut,
    start: Start,
    watch: Option<&mut Watch>,
) -> io::Result<ScanOutcome> {
    let started = FileTime::now();
    let Start { path, before, old } = start;
    let is_alone = known.len() < MANY || !path.is_empty();
    let rules = left_out.at(root, &path);
    let first = ScanJob { parent: None, path, rules, before, is_settled: false, old, id: 0, covered: false };
    let handles = AtomicUsize::new(0);
    let scan = DiskScan {
        root,
        known,
        forms,
        left_out,
        started,
        watch: watch.map(Mutex::new),
        queue: Mutex::new(Queue { jobs: vec![first], busy: 0, failed: None }),
        wake: Condvar::new(),
        is_alone,
        next_id: AtomicU32::new(1),
        handles: &handles,
    };
    let parts = if is_alone { vec![scan.work()] } else { scan.work_in_two() };
    let queue = scan.queue.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some(error) = queue.failed {
        return Err(error);
    }
    let mut listings = Vec::new();
    listings.resize_with(scan.next_id.into_inner() as usize, IndexedListing::default);
    let mut touched = Vec::new();
    for part in parts {
        for (id, listing) in part.listings {
            listings[id as usize] = listing;
        }
        touched.extend(part.touched);
    }
    Ok(ScanOutcome { index: StatIndex { listings }, touched, started })
}

struct ScanJob<'a> {
    parent: Option<Arc<Handle<'a>>>,
    path: Vec<u8>,
    /// The rules that it inherits.
    rules: DirRules,
    before: Before,
    /// True if its stat is unchanged, and would differ after a change.
    is_settled: bool,
    old: u32,
    id: u32,
    /// True if a subtree that contains it was reported.
    covered: bool,
}

/// The known entry at the path of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Before {
    Nothing,
    NoDirectory,
    Another,
    Same,
    Unknown,
}

impl Before {
    pub(super) fn of(before: Option<IndexedEntry>, directory: &FileStat) -> Self {
        match before {
            None => Self::Nothing,
            Some(before) if before.stamp.is_unknown() => Self::Unknown,
            Some(before) if before.child == NONE => Self::NoDirectory,
            Some(before) if before.stamp.is_same_entry(directory) => Self::Same,
            Some(_) => Self::Another,
        }
    }
}

impl Start {
    fn at_root(known: &StatIndex) -> Self {
        let old = if known.listings.is_empty() { NONE } else { 0 };
        Self { path: Vec::new(), before: Before::Same, old }
    }
}

struct Handle<'a> {
    directory: OwnedFd,
    handles: &'a AtomicUsize,
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        self.handles.fetch_sub(1, Ordering::Relaxed);
    }
}

struct Queue<'a> {
    jobs: Vec<ScanJob<'a>>,
    busy: usize,
    failed: Option<io::Error>,
}

struct DiskScan<'a> {
    root: BorrowedFd<'a>,
    known: &'a StatIndex,
    forms: Forms,
    left_out: &'a LeftOut,
    started: FileTime,
    watch: Option<Mutex<&'a mut Watch>>,
    queue: Mutex<Queue<'a>>,
    wake: Condvar,
    /// True if one thread does all the work: then wake-ups, a system call each, are skipped.
    is_alone: bool,
    next_id: AtomicU32,
    handles: &'a AtomicUsize,
}

#[derive(Default)]
struct ScanPart {
    listings: Vec<(u32, IndexedListing)>,
    touched: Vec<DirtyPath>,
    bytes: usize,
}

impl<'a> DiskScan<'a> {
    fn work_in_two(&self) -> Vec<ScanPart> {
        std::thread::scope(|scope| {
            let other = scope.spawn(|| self.work());
            let mine = self.work();
            match other.join() {
                Ok(part) => vec![mine, part],
                Err(_) => {
                    lock(&self.queue).failed = Some(Errno::IO.into());
                    vec![mine]
                }
            }
        })
    }

    fn work(&self) -> ScanPart {
        let mut part = ScanPart::default();
        let mut lister = Lister::new();
        let mut below = Vec::new();
        let mut queue = lock(&self.queue);
        loop {
            let Some(job) = queue.jobs.pop() else {
                if queue.busy == 0 {
                    self.wake_others();
                    return part;
                }
                queue = self.wake.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            queue.busy += 1;
            drop(queue);
            let outcome = self.directory(job, &mut lister, &mut part, &mut below);
            queue = lock(&self.queue);
            queue.busy -= 1;
            match outcome {
                Ok(()) => queue.jobs.append(&mut below),
                Err(error) => {
                    queue.jobs.clear();
                    queue.failed.get_or_insert(error);
                }
            }
            self.wake_others();
        }
    }

    fn wake_others(&self) {
        if !self.is_alone {
            self.wake.notify_all();
        }
    }

    fn directory(
        &self,
        job: ScanJob<'a>,
        lister: &mut Lister,
        part: &mut ScanPart,
        below: &mut Vec<ScanJob<'a>>,
    ) -> io::Result<()> {
        let empty = IndexedListing::default();
        let old = self.known.listings.get(job.old as usize).unwrap_or(&empty);
        // Its stat changes when entries are added or removed, and so does its form.
        let is_known = job.is_settled && old.is_whole;
        let handle = match self.open(&job, if is_known { OFlags::PATH } else { OFlags::RDONLY }) {
            Ok(handle) => handle,
            Err(error) if leads_nowhere(error) || matches!(error, Errno::ACCESS | Errno::PERM) => {
                part.subtree(&job.path);
                part.listings.push((job.id, IndexedListing { doubtful: true, ..IndexedListing::default() }));
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        let form = if is_known { old.form } else { self.form_of(&job, &handle)? };
        let mut covered = job.covered;
        if !covered {
            covered = old.doubtful || job.before == Before::Unknown || self.hides_anew(&job, old, form);
            if covered {
                part.subtree(&job.path);
            } else if job.before != Before::Same {
                part.entry(&job.path);
            }
        }
        let mut listing = IndexedListing { form, ..IndexedListing::default() };
        let count = self.handles.fetch_add(1, Ordering::Relaxed);
        let handle = Arc::new(Handle { directory: handle, handles: self.handles });
        let share = (count < HANDLES_MAX).then_some(&handle);
        let rules = self.left_out.enter(&job.rules, handle.directory.as_fd(), &job.path);
        let mut compare =
            Compare { scan: self, path: &job.path, rules: &rules, covered, share, old: Matching::new(old) };
        let mut give = |name: &[u8], stat: &Statx| {
            compare.entry(name, stat, &mut listing, part, below);
            if part.bytes > SCAN_BYTES_MAX { Err(OVER) } else { Ok(()) }
        };
        let directory = handle.directory.as_fd();
        let listed = match is_known {
            true => old.each_known(directory, give),
            false => lister.each(directory, |name, stat| give(name.to_bytes(), stat)),
        };
        listing.is_whole = listed.is_ok();
        match listed {
            Err(OVER) => return Err(too_much(&job.path)),
            Ok(()) if !covered => compare.vanished(part),
            Ok(()) => {}
            Err(Errno::ACCESS | Errno::PERM) => {
                listing.doubtful = true;
                part.subtree(&job.path);
            }
            Err(error) => return Err(error.into()),
        }
        part.listings.push((job.id, listing));
        Ok(())
    }

    fn form_of(&self, job: &ScanJob<'_>, handle: &OwnedFd) -> Result<u32, Errno> {
        if job.path.is_empty() { Ok(0) } else { self.forms.of(handle) }
    }

    /// Returns true if a directory of an overlay now shows or hides other parts of the lower layers.
    fn hides_anew(&self, job: &ScanJob<'_>, old: &IndexedListing, form: u32) -> bool {
        match (self.forms, job.before) {
            (Forms::Plain, _) => false,
            (_, Before::NoDirectory) => true,
            (_, Before::Nothing) => form != 0,
            (_, Before::Another | Before::Same | Before::Unknown) => form != old.form,
        }
    }

    /// Opens a directory for listing, and watches it if watching is on.
    fn open(&self, job: &ScanJob<'_>, flags: OFlags) -> Result<OwnedFd, Errno> {
        let opened = match &job.parent {
            Some(parent) => {
                let cut = job.path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
                open_in(&parent.directory, &job.path[cut..], flags | OFlags::DIRECTORY)
            }
            None => open_directory(self.root, &job.path, flags),
        };
        if let (Ok(directory), Some(watch)) = (&opened, &self.watch) {
            lock(watch).add(directory, &job.path);
        }
        opened
    }
}

struct Compare<'s, 'a> {
    scan: &'s DiskScan<'a>,
    path: &'s [u8],
    rules: &'s DirRules,
    covered: bool,
    /// The directory itself, if it may stay open for its subdirectories.
    share: Option<&'s Arc<Handle<'a>>>,
    old: Matching<'s>,
}

impl<'a> Compare<'_, 'a> {
    fn entry(
        &mut self,
        name: &[u8],
        stat: &Statx,
        listing: &mut IndexedListing,
        part: &mut ScanPart,
        below: &mut Vec<ScanJob<'a>>,
    ) {
        let stamp = FileStat::of(stat);
        let before = self.old.find(name);
        let is_new = before.is_none() && !self.scan.left_out.is_nothing();
        if is_new && self.scan.left_out.skips(self.rules, &joined(self.path, name), file_size(stat)) {
            return;
        }
        let is_unchanged = before.is_some_and(|before| before.stamp == stamp && !before.fresh);
        // An entry that could not change unnoticed before can't now. A plain tree is still scanned again: unlike
        // overlays, an older kernel may stamp a change after a scan with the same time.
        let is_settled = is_unchanged && self.scan.forms != Forms::Plain;
        let fresh = !is_settled && stamp.is_fresh(self.scan.started);
        if !stamp.is_directory() {
            match before {
                _ if self.covered || is_unchanged => {}
                Some(before) if before.stamp.is_directory() => part.subtree(&joined(self.path, name)),
                _ => part.entry(&joined(self.path, name)),
            }
            listing.push(name, IndexedEntry::new(stamp, NONE, fresh).linked(is_linked(stat)));
            return;
        }
        let id = self.scan.next_id.fetch_add(1, Ordering::Relaxed);
        listing.push(name, IndexedEntry::new(stamp, id, fresh));
        let path = joined(self.path, name);
        let before_it = Before::of(before, &stamp);
        if before_it == Before::Same && !self.covered && !before.is_some_and(|was| was.stamp.has_same_mode(&stamp)) {
            part.entry(&path);
        }
        if path.len() > PATH_BYTES_MAX {
            if !self.covered && before_it != Before::Same {
                part.subtree(&path);
            }
            return;
        }
        part.bytes += path.len();
        below.push(ScanJob {
            parent: self.share.cloned(),
            rules: self.scan.left_out.below(self.rules, &path),
            path,
            before: before_it,
            is_settled,
            old: before.map_or(NONE, |before| before.child),
            id,
            covered: self.covered,
        });
    }

    fn vanished(self, part: &mut ScanPart) {
        let old = self.old.listing;
        for at in self.old.unmatched() {
            let path = joined(self.path, old.name(at));
            if old.entries[at].stamp.is_directory() { part.subtree(&path) } else { part.entry(&path) }
        }
    }
}

/// Finds names in a listing. They mostly come in the previous order.
struct Matching<'s> {
    listing: &'s IndexedListing,
    next: usize,
    by_name: Option<ByName>,
}

struct ByName {
    sorted: Vec<u32>,
    found: Vec<bool>,
}

impl<'s> Matching<'s> {
    fn new(listing: &'s IndexedListing) -> Self {
        Self { listing, next: 0, by_name: None }
    }

    fn find(&mut self, name: &[u8]) -> Option<IndexedEntry> {
        if self.by_name.is_none() && self.next < self.listing.entries.len() && self.listing.name(self.next) == name {
            self.next += 1;
            return Some(self.listing.entries[self.next - 1]);
        }
        if self.listing.entries.is_empty() {
            return None;
        }
        let (listing, next) = (self.listing, self.next);
        let by_name = self.by_name.get_or_insert_with(|| ByName::new(listing, next));
        let place = listing.find_in(&by_name.sorted, name)?;
        let at = by_name.sorted[place] as usize;
        by_name.found[at] = true;
        Some(listing.entries[at])
    }

    fn unmatched(&self) -> impl Iterator<Item = usize> {
        let from = if self.by_name.is_some() { 0 } else { self.next };
        let found = |at: usize| self.by_name.as_ref().is_some_and(|by_name| by_name.found[at]);
        (from..self.listing.entries.len()).filter(move |at| !found(*at))
    }
}

impl ByName {
    fn new(listing: &IndexedListing, found_in_order: usize) -> Self {
        let found = (0..listing.entries.len()).map(|at| at < found_in_order).collect();
        Self { sorted: listing.by_name(), found }
    }
}

impl ScanPart {
    fn entry(&mut self, path: &[u8]) {
        self.bytes += path.len();
        // Names from the kernel are valid.
        self.touched.extend(EntryPath::from_bytes(path).map(DirtyPath::Entry));
    }

    fn subtree(&mut self, path: &[u8]) {
        self.bytes += path.len();
        self.touched.extend(EntryPath::from_bytes(path).map(DirtyPath::Subtree));
    }
}
