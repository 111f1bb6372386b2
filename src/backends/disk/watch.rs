//! Reports of changes below a directory, from inotify.
//!
//! An inotify watch covers one directory, without its subdirectories. It is added through an open handle before that
//! directory is listed: later changes are reported, and earlier ones are in the listing.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::inotify::{CreateFlags, Event, ReadFlags, Reader, WatchFlags, add_watch, init, remove_watch};
use rustix::fs::{CWD, OFlags, fstatfs};
use rustix::io::Errno;

use super::beneath::open_in;
use super::index::StatIndex;
use crate::backends::DirtyPath;
use crate::engine::path::{EntryPath, parent_bytes};

/// The changes to report. A write through a mapping is reported when the file is closed and unmapped.
const ASKED: WatchFlags = WatchFlags::ATTRIB
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::CREATE)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::EXCL_UNLINK)
    .union(WatchFlags::ONLYDIR);
const WRITTEN: ReadFlags = ReadFlags::MODIFY.union(ReadFlags::CLOSE_WRITE);
const ARRIVED: ReadFlags = ReadFlags::CREATE.union(ReadFlags::MOVED_TO);
/// File systems where all changes go through this kernel, by their magic numbers: ext2 to ext4, btrfs, xfs, tmpfs,
/// ramfs, overlayfs, f2fs, zfs, bcachefs.
const LOCAL: [u32; 9] =
    [0xEF53, 0x9123_683E, 0x5846_5342, 0x0102_1994, 0x8584_58F6, 0x794C_7630, 0xF2F5_2010, 0x2FC1_2FC1, 0xCA45_1A4E];
const BUFFER_BYTES: usize = 64 << 10;
/// The maximum number of events per scan, so that a fast writer can't keep it reading forever.
const EVENTS_MAX: usize = 1 << 18;
/// This process uses one of this many parts of the user's kernel limits.
const SHARE: usize = 4;

/// The number of directories that this process watches.
static WATCHES: AtomicUsize = AtomicUsize::new(0);
/// The number of this process's inotify instances for them.
static INSTANCES: AtomicUsize = AtomicUsize::new(0);

/// The watches of a tree.
#[derive(Debug)]
pub(super) struct Watch {
    inotify: OwnedFd,
    directories: BTreeMap<i32, WatchedDirectory>,
    generation: u64,
    watches_max: usize,
    /// True once it can't report all changes.
    pub(super) is_broken: bool,
}

#[derive(Debug)]
struct WatchedDirectory {
    path: Vec<u8>,
    /// The last scan that found the directory.
    generation: u64,
}

/// The changes reported since the last scan.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// By directory and name.
    pub(super) names: BTreeMap<Vec<u8>, BTreeMap<Vec<u8>, ToldChange>>,
    /// True if reports were lost, so that anything may have changed.
    pub(super) is_everything: bool,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ToldChange {
    /// True if a file may have other contents, even with the same stat.
    pub(super) is_written: bool,
    /// True if the entry is new, so that a directory may have unwatched subdirectories.
    pub(super) is_arrived: bool,
}

impl Watch {
    /// Creates a watch of nothing. `None` if the kernel, or this process's share of its limits, allows no more.
    pub(super) fn new() -> Option<Self> {
        let instances_max = kernel_limit("max_user_instances") / SHARE;
        if INSTANCES.fetch_add(1, Ordering::Relaxed) >= instances_max {
            INSTANCES.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        match init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC) {
            Ok(inotify) => Some(Self {
                inotify,
                directories: BTreeMap::new(),
                generation: 0,
                watches_max: kernel_limit("max_user_watches") / SHARE,
                is_broken: false,
            }),
            Err(error) => {
                INSTANCES.fetch_sub(1, Ordering::Relaxed);
                tracing::info!(%error, "inotify can't be used; changes are found by scanning every file");
                None
            }
        }
    }

    /// Creates a watch with another limit, which applies to the whole process's count.
    #[cfg(test)]
    pub(super) fn of_at_most(watches_max: usize) -> Option<Self> {
        let mut watch = Self::new()?;
        watch.watches_max = watches_max;
        Some(watch)
    }

    /// Starts a scan. Directories added from now on count as seen by it.
    pub(super) fn begin(&mut self) {
        self.generation += 1;
    }

    /// Watches an open directory at this path.
    pub(super) fn add(&mut self, directory: &OwnedFd, path: &[u8]) {
        if self.is_broken {
            return;
        }
        if let Err(error) = self.try_add(directory, path) {
            let path = String::from_utf8_lossy(path);
            tracing::info!(%error, %path, "a directory can't be watched; changes are found by scanning every file");
            self.is_broken = true;
        }
    }

    fn try_add(&mut self, directory: &OwnedFd, path: &[u8]) -> Result<(), Errno> {
        let kind = fstatfs(directory)?.f_type;
        if !u32::try_from(kind & 0xFFFF_FFFF).is_ok_and(|kind| LOCAL.contains(&kind)) {
            return Err(Errno::OPNOTSUPP);
        }
        let itself = format!("/proc/self/fd/{}", directory.as_raw_fd());
        let watch = add_watch(&self.inotify, itself, ASKED)?;
        let watched = WatchedDirectory { path: path.to_vec(), generation: self.generation };
        if self.directories.insert(watch, watched).is_none()
            && WATCHES.fetch_add(1, Ordering::Relaxed) >= self.watches_max
        {
            return Err(Errno::NOSPC);
        }
        Ok(())
    }

    /// Takes the reports so far.
    pub(super) fn drain(&mut self, told: &mut Told) {
        let mut buffer: Vec<u8> = Vec::with_capacity(BUFFER_BYTES);
        let mut reader = Reader::new(&self.inotify, buffer.spare_capacity_mut());
        for _ in 0..EVENTS_MAX {
            match reader.next() {
                Ok(event) => note(&mut self.directories, told, &event),
                Err(Errno::WOULDBLOCK) => return,
                Err(Errno::INTR) => {}
                Err(error) => {
                    tracing::warn!(%error, "inotify can't be read; changes are found by scanning every file");
                    self.is_broken = true;
                    break;
                }
            }
        }
        told.is_everything = true;
    }

    /// Ends the watches of directories that the scan did not find at their paths, if it covered these.
    pub(super) fn drop_unseen(&mut self, was_looked_at: impl Fn(&[u8]) -> bool) {
        let (inotify, generation) = (&self.inotify, self.generation);
        self.directories.retain(|watch, watched| {
            let is_kept = watched.generation == generation || !was_looked_at(&watched.path);
            if !is_kept {
                WATCHES.fetch_sub(1, Ordering::Relaxed);
                // Fails for a removed directory: the kernel has ended its watch.
                let _ = remove_watch(inotify, *watch);
            }
            is_kept
        });
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        WATCHES.fetch_sub(self.directories.len(), Ordering::Relaxed);
        INSTANCES.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Told {
    fn tell(&mut self, directory: &[u8], name: &[u8], change: ToldChange) {
        let names = match self.names.get_mut(directory) {
            Some(names) => names,
            None => self.names.entry(directory.to_vec()).or_default(),
        };
        match names.get_mut(name) {
            Some(known) => {
                known.is_written |= change.is_written;
                known.is_arrived |= change.is_arrived;
            }
            None => drop(names.insert(name.to_vec(), change)),
        }
    }

    /// Reports the entry at a path, or everything for the root.
    pub(super) fn tell_of(&mut self, path: &[u8]) {
        match path.iter().rposition(|byte| *byte == b'/') {
            _ if path.is_empty() => self.is_everything = true,
            Some(cut) => self.tell(&path[..cut], &path[cut + 1..], ToldChange::default()),
            None => self.tell(b"", path, ToldChange::default()),
        }
    }

    /// Ignores this process's own writes to the files at these paths. Files that differ from the ones made, which are
    /// fresh in the index, were also written by others.
    pub(super) fn leave_out_made(&mut self, made: &BTreeSet<EntryPath>, index: &StatIndex) {
        if made.is_empty() || self.is_everything {
            return;
        }
        for (directory, names) in &mut self.names {
            let Some(listing) = index.listing_of(directory) else { continue };
            let known = index.find_all(listing, names.keys());
            for ((name, change), known) in names.iter_mut().zip(known) {
                let is_made = || EntryPath::from_bytes(&joined(directory, name)).is_ok_and(|path| made.contains(&path));
                if change.is_written && known.is_none_or(|known| !known.fresh) && is_made() {
                    change.is_written = false;
                }
            }
        }
    }

    /// Returns true if a change of the path, or of a directory above it, was reported.
    pub(super) fn covers(&self, path: &EntryPath) -> bool {
        let mut at = path.as_bytes();
        while !at.is_empty() {
            let parent = parent_bytes(at).unwrap_or_default();
            let name = &at[if parent.is_empty() { 0 } else { parent.len() + 1 }..];
            if self.names.get(parent).is_some_and(|names| names.contains_key(name)) {
                return true;
            }
            at = parent;
        }
        self.is_everything
    }

    /// Returns the files that may have other contents, even with the same stat.
    pub(super) fn written(&self) -> impl Iterator<Item = DirtyPath> {
        self.paths(|change| change.is_written).map(DirtyPath::Entry)
    }

    /// Returns the paths of the changes that satisfy a condition.
    pub(super) fn paths(&self, is_so: impl Fn(&ToldChange) -> bool + Copy) -> impl Iterator<Item = EntryPath> {
        self.names.iter().flat_map(move |(directory, names)| {
            let names = names.iter().filter(move |(_, change)| is_so(change));
            // Names from the kernel are valid.
            names.filter_map(move |(name, _)| EntryPath::from_bytes(&joined(directory, name)).ok())
        })
    }
}

pub(super) fn joined(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() { name.to_vec() } else { [directory, name].join(&b'/') }
}

fn note(directories: &mut BTreeMap<i32, WatchedDirectory>, told: &mut Told, event: &Event<'_>) {
    let flags = event.events();
    if flags.intersects(ReadFlags::QUEUE_OVERFLOW | ReadFlags::UNMOUNT) {
        told.is_everything = true;
    }
    if flags.contains(ReadFlags::IGNORED) {
        // If it is missing, this process has ended the watch.
        if let Some(gone) = directories.remove(&event.wd()) {
            WATCHES.fetch_sub(1, Ordering::Relaxed);
            told.tell_of(&gone.path);
        }
        return;
    }
    let Some(watched) = directories.get(&event.wd()) else { return };
    match event.file_name() {
        Some(name) => {
            let change = ToldChange { is_written: flags.intersects(WRITTEN), is_arrived: flags.intersects(ARRIVED) };
            told.tell(&watched.path, name.to_bytes(), change);
        }
        None => told.tell_of(&watched.path),
    }
}

/// Reads a limit of inotify; 0 if it is unknown.
fn kernel_limit(name: &str) -> usize {
    let mut text = String::new();
    let path = format!("/proc/sys/fs/inotify/{name}");
    let read = open_in(CWD, path.as_str(), OFlags::RDONLY)
        .map_err(std::io::Error::from)
        .and_then(|file| std::fs::File::from(file).read_to_string(&mut text));
    if read.is_err() { 0 } else { text.trim().parse().unwrap_or(0) }
}
