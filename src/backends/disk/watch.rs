//! Being told of changes below a directory by inotify.
//!
//! A watch of inotify is one directory, without what is below it. Each is added to an open handle before that directory
//! is listed: what comes after the listing is told, and what came before is in it.

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

/// Changes to be told of. A file that was written through a mapping is told of when it is closed and unmapped.
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
/// File systems all of whose changes this kernel makes itself, by their magic numbers: ext2 to ext4, btrfs, xfs, tmpfs,
/// ramfs, overlayfs, f2fs, zfs, bcachefs.
const LOCAL: [u32; 9] =
    [0xEF53, 0x9123_683E, 0x5846_5342, 0x0102_1994, 0x8584_58F6, 0x794C_7630, 0xF2F5_2010, 0x2FC1_2FC1, 0xCA45_1A4E];
const BUFFER_BYTES: usize = 64 << 10;
/// Events of one look. Who causes more while it reads them does not keep it for ever.
const EVENTS_MAX: usize = 1 << 18;
/// This process uses one in so many of what the kernel allows a user.
const SHARE: usize = 4;

/// Directories that this process watches.
static WATCHES: AtomicUsize = AtomicUsize::new(0);
/// Instances of inotify that this process has for them.
static INSTANCES: AtomicUsize = AtomicUsize::new(0);

/// The watches of a tree.
#[derive(Debug)]
pub(super) struct Watch {
    inotify: OwnedFd,
    directories: BTreeMap<i32, WatchedDirectory>,
    generation: u64,
    watches_max: usize,
    /// Set once it can't tell of everything.
    pub(super) is_broken: bool,
}

#[derive(Debug)]
struct WatchedDirectory {
    path: Vec<u8>,
    /// The look that saw it there last.
    generation: u64,
}

/// Changes told since the last look.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// By directory and name.
    pub(super) names: BTreeMap<Vec<u8>, BTreeMap<Vec<u8>, ToldChange>>,
    /// Set if some was lost, so that anything may have changed.
    pub(super) is_everything: bool,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ToldChange {
    /// Set if a file may hold something else, whatever stat says of it.
    pub(super) is_written: bool,
    /// Set if it came there, so that a directory may have some below it that is not watched.
    pub(super) is_arrived: bool,
}

impl Watch {
    /// Watches nothing yet. None where the kernel, or this process's share of its limits, allows no more.
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
                tracing::info!(%error, "changes are found by looking at every file: inotify can't be used");
                None
            }
        }
    }

    /// The same with another share of the watches, counted with those of the whole process.
    #[cfg(test)]
    pub(super) fn of_at_most(watches_max: usize) -> Option<Self> {
        let mut watch = Self::new()?;
        watch.watches_max = watches_max;
        Some(watch)
    }

    /// Begins a look. Directories that it adds count as seen by it.
    pub(super) fn begin(&mut self) {
        self.generation += 1;
    }

    /// Watches an open directory that is at this path.
    pub(super) fn add(&mut self, directory: &OwnedFd, path: &[u8]) {
        if self.is_broken {
            return;
        }
        if let Err(error) = self.try_add(directory, path) {
            let path = String::from_utf8_lossy(path);
            tracing::info!(%error, %path, "changes are found by looking at every file: a directory can't be watched");
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

    /// Takes what was told so far.
    pub(super) fn drain(&mut self, told: &mut Told) {
        let mut buffer: Vec<u8> = Vec::with_capacity(BUFFER_BYTES);
        let mut reader = Reader::new(&self.inotify, buffer.spare_capacity_mut());
        for _ in 0..EVENTS_MAX {
            match reader.next() {
                Ok(event) => note(&mut self.directories, told, &event),
                Err(Errno::WOULDBLOCK) => return,
                Err(Errno::INTR) => {}
                Err(error) => {
                    tracing::warn!(%error, "changes are found by looking at every file: inotify can't be read");
                    self.is_broken = true;
                    break;
                }
            }
        }
        told.is_everything = true;
    }

    /// Ends the watches of directories that the look, which looked at their paths, has not seen there.
    pub(super) fn drop_unseen(&mut self, was_looked_at: impl Fn(&[u8]) -> bool) {
        let (inotify, generation) = (&self.inotify, self.generation);
        self.directories.retain(|watch, watched| {
            let is_kept = watched.generation == generation || !was_looked_at(&watched.path);
            if !is_kept {
                WATCHES.fetch_sub(1, Ordering::Relaxed);
                // The kernel has ended that of a directory that is no more.
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

    /// Tells of the entry at a path, or of everything where that is the root.
    pub(super) fn tell_of(&mut self, path: &[u8]) {
        match path.iter().rposition(|byte| *byte == b'/') {
            _ if path.is_empty() => self.is_everything = true,
            Some(cut) => self.tell(&path[..cut], &path[cut + 1..], ToldChange::default()),
            None => self.tell(b"", path, ToldChange::default()),
        }
    }

    /// Leaves out that this process wrote the files at these paths. Those that are not as it made them, which are fresh
    /// in the index, others have written as well.
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

    /// Tells whether a change at a path, or of what is above it, was told.
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

    /// Gives the files that may hold something else, whatever stat says of them.
    pub(super) fn written(&self) -> impl Iterator<Item = DirtyPath> {
        self.paths(|change| change.is_written).map(DirtyPath::Entry)
    }

    /// Gives the paths of the changes that are so.
    pub(super) fn paths(&self, is_so: impl Fn(&ToldChange) -> bool + Copy) -> impl Iterator<Item = EntryPath> {
        self.names.iter().flat_map(move |(directory, names)| {
            let names = names.iter().filter(move |(_, change)| is_so(change));
            // The kernel gives no name that is not one.
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
        // Else this process has ended it.
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

/// Reads a limit of inotify; 0 where there is none to read.
fn kernel_limit(name: &str) -> usize {
    let mut text = String::new();
    let path = format!("/proc/sys/fs/inotify/{name}");
    let read = open_in(CWD, path.as_str(), OFlags::RDONLY)
        .map_err(std::io::Error::from)
        .and_then(|file| std::fs::File::from(file).read_to_string(&mut text));
    if read.is_err() { 0 } else { text.trim().parse().unwrap_or(0) }
}
