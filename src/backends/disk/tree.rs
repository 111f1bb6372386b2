//! Reads entries beneath a directory.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, Statx, StatxFlags, openat, readlinkat, renameat_with, statx,
};
use rustix::io::Errno;

use super::beneath::{context, leads_nowhere, open_directory, open_in};
use super::entries::{kind_of, mount_id, vanished};
use super::file_stat::FileStat;
use super::ignore_rules::IgnoreRules;
use super::left_out::LeftOut;
use super::limits::{PATH_BYTES_MAX, SCAN_BYTES_MAX, too_much};
use super::listing::{Lister, file_size, is_absent, is_linked, look, look_at, names};
use super::root_check::Anchor;
use super::staging_dir::{self, KEPT};
use crate::backends::{FileId, Observed};
use crate::engine::clock::Timestamp;
use crate::engine::event::{FileMode, Special};
use crate::engine::path::EntryPath;

/// The entries beneath one directory handle. No operation leaves it, whatever is swapped in at the same time.
#[derive(Debug)]
pub(crate) struct DirTree {
    pub(super) backend: &'static str,
    pub(super) root: OwnedFd,
    /// A directory in the same mount, outside of the root: entries are staged and retained there until a batch is done.
    pub(super) aside: OwnedFd,
    pub(super) aside_place: PathBuf,
    pub(super) owner: Option<(u32, u32)>,
    /// The root's path for others; `None` if it has only a handle.
    anchor: Option<Anchor>,
    pub(super) left_out: LeftOut,
    /// The upper layer if this is an overlay, with the name of the directory of its files.
    upper: Option<(OwnedFd, &'static str)>,
    last_aside: AtomicU64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TreeEntry {
    pub(crate) kind: Observed,
    /// Differs if the entry has changed, except perhaps for a change in the last milliseconds.
    pub(crate) identity: FileStat,
}

impl DirTree {
    /// Opens a directory, and a staging directory in the same mount.
    pub(crate) fn beneath(
        backend: &'static str,
        root: &Path,
        aside: &Path,
        owner: Option<(u32, u32)>,
    ) -> io::Result<Self> {
        let open = |path: &Path| {
            open_in(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY).map_err(context("open", &path.display().to_string()))
        };
        let mut tree = Self::new(backend, open(root)?, (open(aside)?, aside.to_owned()), owner);
        tree.anchor = Some(Anchor::of(root, &tree.root)?);
        let same = mount_id(&tree.root)? == mount_id(&tree.aside)?;
        if !same {
            let words =
                format!("{} and {} must be on one mount: entries move between them", root.display(), aside.display());
            return Err(io::Error::new(io::ErrorKind::CrossesDevices, words));
        }
        Ok(tree)
    }

    /// Creates a tree without a path to the root. The staging directory is given with its path.
    pub(super) fn new(
        backend: &'static str,
        root: OwnedFd,
        (aside, aside_place): (OwnedFd, PathBuf),
        owner: Option<(u32, u32)>,
    ) -> Self {
        let last_aside = AtomicU64::new(0);
        Self {
            backend,
            root,
            aside,
            aside_place,
            owner,
            anchor: None,
            left_out: LeftOut::default(),
            upper: None,
            last_aside,
        }
    }

    /// Hides the direct entry of the root with this name: no scan finds it, and no operation changes it.
    pub(crate) fn hiding(mut self, name: &'static str) -> Self {
        self.left_out.hidden = Some(name);
        self
    }

    /// Applies ignore rules to this tree.
    pub(super) fn ruled_by(mut self, rules: Arc<IgnoreRules>) -> Self {
        self.left_out.rules = Some(rules);
        self
    }

    /// Makes this the tree of an overlay with this upper layer, with its files in `directory`.
    pub(super) fn above(self, upper: OwnedFd, directory: &'static str) -> Self {
        Self { upper: Some((upper, directory)), ..self }
    }

    /// Returns true if the entry at a path is in a lower layer, so that moving it copies it first.
    pub(super) fn is_in_lower(&self, path: &EntryPath) -> bool {
        let Some((upper, directory)) = &self.upper else { return false };
        let path = [directory.as_bytes(), path.as_bytes()].join(&b'/');
        EntryPath::from_bytes(&path).is_ok_and(|path| is_absent(upper.as_fd(), &path))
    }

    /// Returns the check that the root is still at its path.
    pub(crate) fn anchor(&self) -> Option<&Anchor> {
        self.anchor.as_ref()
    }

    pub(super) fn check_anchor(&self) -> io::Result<()> {
        self.anchor.as_ref().map_or(Ok(()), Anchor::check)
    }

    /// Makes the root accessible to its owner again: after a command has closed it, no other could start there.
    pub(super) fn open_root(&self) -> io::Result<()> {
        const READ_AND_ENTERED: u32 = 0o500;
        let mode = u32::from(look_at(&self.root).map_err(context("read", "/"))?.stx_mode) & 0o7777;
        if mode & READ_AND_ENTERED == READ_AND_ENTERED {
            return Ok(());
        }
        match rustix::fs::fchmod(&self.root, Mode::from_raw_mode(mode | 0o700)) {
            Ok(()) => tracing::warn!("a command closed the workspace's root to its owner; opened it again"),
            Err(error) => tracing::warn!(%error, "failed to open the workspace's root, which is closed to its owner"),
        }
        Ok(())
    }

    pub(super) fn is_hidden(&self, path: &EntryPath) -> bool {
        self.left_out.hides(path.as_bytes())
    }

    /// Reads the entry at a path; `None` if it does not exist, or if a parent is a link, which is not followed.
    pub(crate) fn observe(&self, path: &EntryPath) -> io::Result<Option<TreeEntry>> {
        if self.is_hidden(path) {
            return Ok(None);
        }
        let found = if path.is_root() {
            look_at(&self.root).and_then(|stat| observed(&self.root, c".", &stat))
        } else {
            self.parent(path).and_then(|parent| {
                let stat = look(&parent, path.name())?;
                observed(&parent, path.name(), &stat)
            })
        };
        match found {
            Ok(observed) => Ok(Some(observed)),
            Err(error) if leads_nowhere(error) => Ok(None),
            Err(error) => Err(context("read", &path.rooted())(error)),
        }
    }

    /// Returns the birth time of an entry, if the file system has one.
    pub(super) fn born(&self, path: &EntryPath) -> Option<Timestamp> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        let stat = statx(self.parent(path).ok()?, path.name(), flags, StatxFlags::BTIME).ok()?;
        let is_known = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME);
        let millis =
            stat.stx_btime.tv_sec.checked_mul(1000)?.checked_add(i64::from(stat.stx_btime.tv_nsec / 1_000_000))?;
        is_known.then_some(Timestamp(millis))
    }

    /// Lists a directory, including ignored entries.
    pub(super) fn entries_in(&self, directory: &EntryPath) -> io::Result<Vec<EntryPath>> {
        let failed = context("open", &directory.rooted());
        match open_directory(self.root.as_fd(), directory.as_bytes(), OFlags::RDONLY) {
            Ok(handle) => {
                let names = names(&handle).map_err(failed)?;
                Ok(names.iter().filter_map(|name| directory.join(name.to_bytes()).ok()).collect())
            }
            Err(error) if leads_nowhere(error) => Ok(Vec::new()),
            Err(error) => Err(failed(error)),
        }
    }

    /// Opens a regular file for reading. Other kinds of entries are never opened, not even briefly.
    pub(crate) fn open(&self, path: &EntryPath) -> io::Result<File> {
        self.regular_file(path)?.1.open(path)
    }

    /// Clears the set-user-ID and set-group-ID bits of a regular file, whatever name it has by now.
    pub(super) fn clear_set_id(&self, path: &EntryPath) -> io::Result<()> {
        let clear = |file: &OwnedFd| {
            let mode = FileMode::of(look_at(file)?.stx_mode.into()).without_set_id();
            // `fchmod` refuses a handle that can't read.
            rustix::fs::chmod(itself(file), Mode::from_raw_mode(mode.bits()))
        };
        clear(&self.regular_file(path)?.1.0).map_err(context("change", &path.rooted()))
    }

    pub(crate) fn regular_file(&self, path: &EntryPath) -> io::Result<(FileStat, RegularFile)> {
        let find = || {
            if self.is_hidden(path) {
                return Err(Errno::NOENT);
            }
            let name = if path.is_root() { &b"."[..] } else { path.name() };
            let handle = open_in(self.parent(path)?, name, OFlags::PATH)?;
            let stat = look_at(&handle)?;
            if kind_of(&stat) != FileType::RegularFile {
                return Err(Errno::INVAL);
            }
            Ok((FileStat::of(&stat), RegularFile(handle)))
        };
        match find() {
            Ok(found) => Ok(found),
            Err(Errno::INVAL) => {
                let words = format!("cannot open {}: it is not a regular file", path.rooted());
                Err(io::Error::new(io::ErrorKind::InvalidInput, words))
            }
            Err(error) => Err(context("open", &path.rooted())(error)),
        }
    }

    /// Visits a directory, unless it is the root, and everything below it, parents first; vanished entries are skipped.
    /// Returns the directories that this process may not read, or whose paths are too long.
    pub(crate) fn walk(
        &self,
        below: &EntryPath,
        visit: &mut dyn FnMut(EntryPath, TreeEntry),
    ) -> io::Result<Vec<EntryPath>> {
        self.walk_with(below, &mut |_| false, visit)
    }

    /// Walks the tree including ignored entries that are known.
    pub(crate) fn walk_with(
        &self,
        below: &EntryPath,
        is_known: &mut dyn FnMut(&EntryPath) -> bool,
        visit: &mut dyn FnMut(EntryPath, TreeEntry),
    ) -> io::Result<Vec<EntryPath>> {
        let mut unreadable = Vec::new();
        let mut lister = Lister::new();
        let mut left = vec![(below.clone(), self.left_out.at(self.root.as_fd(), below.as_bytes()))];
        let mut bytes = 0;
        while let Some((directory, rules)) = left.pop() {
            if directory.as_bytes().len() > PATH_BYTES_MAX {
                unreadable.push(directory);
                continue;
            }
            let handle = match open_directory(self.root.as_fd(), directory.as_bytes(), OFlags::RDONLY) {
                Ok(handle) => handle,
                Err(Errno::ACCESS | Errno::PERM) => {
                    unreadable.push(directory);
                    continue;
                }
                Err(error) if leads_nowhere(error) => continue,
                Err(error) => return Err(context("open", &directory.rooted())(error)),
            };
            if directory == *below && !directory.is_root() {
                let stat = look_at(&handle).map_err(context("read", &directory.rooted()))?;
                visit(directory.clone(), TreeEntry { kind: observed_directory(&stat), identity: FileStat::of(&stat) });
            }
            let rules = self.left_out.enter(&rules, handle.as_fd(), directory.as_bytes());
            let listed = lister.each(handle.as_fd(), |name, stat| {
                let (Ok(path), Some(found)) =
                    (directory.join(name.to_bytes()), vanished(observed(&handle, name, stat))?)
                else {
                    return Ok(());
                };
                let is_directory = found.kind.is_directory();
                if self.left_out.skips(&rules, path.as_bytes(), file_size(stat))
                    && (self.is_hidden(&path) || !is_known(&path))
                {
                    return Ok(());
                }
                bytes += path.as_bytes().len();
                if bytes > SCAN_BYTES_MAX {
                    return Err(Errno::OVERFLOW);
                }
                if is_directory {
                    left.push((path.clone(), self.left_out.below(&rules, path.as_bytes())));
                }
                visit(path, found);
                Ok(())
            });
            match listed {
                Err(Errno::OVERFLOW) => return Err(too_much(directory.as_bytes())),
                // A directory that may be listed, but not entered.
                Err(Errno::ACCESS | Errno::PERM) => unreadable.push(directory),
                other => other.map_err(context("read", &directory.rooted()))?,
            }
        }
        Ok(unreadable)
    }

    pub(super) fn parent(&self, path: &EntryPath) -> Result<OwnedFd, Errno> {
        let parent = crate::engine::path::parent_bytes(path.as_bytes()).unwrap_or_default();
        open_directory(self.root.as_fd(), parent, OFlags::PATH)
    }

    pub(super) fn next_aside(&self) -> String {
        self.last_aside.fetch_add(1, Ordering::Relaxed).to_string()
    }

    /// Empties the staging directory after an interrupted process, except for entries that could not be restored.
    pub(super) fn empty_aside(&self) -> io::Result<()> {
        Ok(staging_dir::empty(&self.aside)?)
    }

    /// Retains a staged entry for good. Returns its new path.
    pub(super) fn keep_aside(&self, name: &str) -> PathBuf {
        let kept = format!("{KEPT}{}-{name}", std::process::id());
        let renamed = renameat_with(&self.aside, name, &self.aside, kept.as_str(), RenameFlags::NOREPLACE);
        self.aside_place.join(if renamed.is_ok() { kept.as_str() } else { name })
    }
}

/// An `O_PATH` handle of a regular file.
pub(crate) struct RegularFile(OwnedFd);

impl RegularFile {
    pub(crate) fn open(self, path: &EntryPath) -> io::Result<File> {
        read_again(&self.0).map_err(context("open", &path.rooted()))
    }
}

pub(super) fn read_again(handle: &OwnedFd) -> Result<File, Errno> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    openat(CWD, itself(handle), flags, Mode::empty()).map(File::from)
}

/// Returns the path of what a handle has open.
fn itself(handle: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", handle.as_raw_fd())
}

fn observed_directory(stat: &Statx) -> Observed {
    Observed::Directory { mode: FileMode::of(stat.stx_mode.into()) }
}

fn observed(parent: impl AsFd, name: impl rustix::path::Arg, stat: &Statx) -> Result<TreeEntry, Errno> {
    let kind = match kind_of(stat) {
        FileType::RegularFile => {
            let device = u64::from(stat.stx_dev_major) << 32 | u64::from(stat.stx_dev_minor);
            let shared = is_linked(stat).then_some(FileId(device, stat.stx_ino));
            Observed::File { size: stat.stx_size, mode: FileMode::of(stat.stx_mode.into()), shared }
        }
        FileType::Directory => observed_directory(stat),
        FileType::Symlink => match readlinkat(parent, name, Vec::new()) {
            Ok(target) => Observed::Symlink { target: target.into_bytes() },
            // It was replaced between the two calls.
            Err(Errno::INVAL) => return Err(Errno::NOENT),
            Err(error) => return Err(error),
        },
        FileType::Fifo => Observed::Special(Special::Fifo),
        FileType::Socket => Observed::Special(Special::Socket),
        _ => Observed::Special(Special::Device),
    };
    Ok(TreeEntry { kind, identity: FileStat::of(stat) })
}
