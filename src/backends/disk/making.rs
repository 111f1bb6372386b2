//! Creation of single entries and their parent directories.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::OnceLock;

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, Statx, Timestamps, Uid, chownat, fchmod, fchown, futimens, linkat,
    mknodat, openat, symlinkat, utimensat,
};
use rustix::io::Errno;
use rustix::time::{ClockId, Timespec, clock_gettime};

use super::beneath::{open_directory, open_in};
use super::entries::{kind_of, make_directory, set_bits, vanished};
use super::file_stat::{FileStat, MadeStat};
use super::listing::{look, look_at};
use super::tree::DirTree;
use crate::backends::FileChange;
use crate::engine::clock::Timestamp;
use crate::engine::event::{FileMode, Node, Special};
use crate::engine::path::EntryPath;

const DIRECTORY_MODE: u32 = FileMode::DIRECTORY.bits();

pub(super) struct MakingError {
    what: &'static str,
    path: EntryPath,
    error: Errno,
    pub(super) kept: Option<PathBuf>,
}

impl MakingError {
    pub(super) fn at<'a>(what: &'static str, path: &'a EntryPath) -> impl Fn(Errno) -> Self + use<'a> {
        move |error| Self { what, path: path.clone(), error, kept: None }
    }

    /// Returns true if a directory that its owner may not enter or write may be the cause.
    pub(super) fn is_denied(&self) -> bool {
        matches!(self.error, Errno::ACCESS | Errno::PERM)
    }

    pub(super) fn words(&self) -> String {
        let error = match self.error {
            Errno::NOTDIR | Errno::LOOP => "a parent is not a directory".to_owned(),
            Errno::XDEV => "it is in another mount or volume than the workspace's root".to_owned(),
            _ if self.path.is_root() => "the root must stay a directory; use an entry below it".to_owned(),
            error => std::io::Error::from(error).to_string(),
        };
        let kept = self.kept.as_ref().map(|kept| format!("; it was saved as {}", kept.display())).unwrap_or_default();
        format!("cannot {} {}: {error}{kept}", self.what, self.path.rooted())
    }
}

/// The directory of the last made entry: entries mostly come directory by directory.
#[derive(Default)]
pub(super) struct ParentDir {
    known: Option<(EntryPath, OwnedFd)>,
}

impl ParentDir {
    pub(super) fn handle(&self) -> Result<BorrowedFd<'_>, Errno> {
        self.known.as_ref().map(|(_, handle)| handle.as_fd()).ok_or(Errno::BADF)
    }

    pub(super) fn forget(&mut self) {
        self.known = None;
    }

    /// Opens the parent directory of an entry, and reports each created directory to `made`.
    pub(super) fn lead_to(
        &mut self,
        tree: &DirTree,
        path: &EntryPath,
        mut made: impl FnMut(EntryPath),
    ) -> Result<(), MakingError> {
        let Some(parent) = path.parent() else { return Ok(()) };
        if self.known.as_ref().is_some_and(|(known, _)| *known == parent) {
            return Ok(());
        }
        let mut handle = match open_directory(tree.root.as_fd(), parent.as_bytes(), OFlags::PATH) {
            Ok(handle) => {
                self.known = Some((parent, handle));
                return Ok(());
            }
            Err(Errno::NOENT) => open_in(&tree.root, ".", OFlags::PATH).map_err(MakingError::at("open", &parent))?,
            Err(error) => return Err(MakingError::at("write", path)(error)),
        };
        let mut at = EntryPath::root();
        for segment in parent.segments() {
            at = at.join(segment).map_err(|_| MakingError::at("write", path)(Errno::INVAL))?;
            let failed = MakingError::at("create the directory", &at);
            let is_new = make_directory(&handle, segment, DIRECTORY_MODE).map_err(&failed)?;
            if is_new {
                made(at.clone());
            }
            let flags = if is_new { OFlags::RDONLY } else { OFlags::PATH };
            handle = open_in(&handle, segment, flags | OFlags::DIRECTORY).map_err(&failed)?;
            if is_new {
                fchmod(&handle, Mode::from_raw_mode(DIRECTORY_MODE)).map_err(&failed)?;
                tree.own(&handle).map_err(&failed)?;
            }
        }
        self.known = Some((parent, handle));
        Ok(())
    }
}

impl FileChange {
    pub(super) fn check(&self, tree: &DirTree) -> Result<(), MakingError> {
        match self.path() {
            path if path.is_root() => Err(self.failed(Errno::INVAL)),
            path if tree.is_hidden(path) => Err(self.failed(Errno::PERM)),
            _ => Ok(()),
        }
    }

    /// Returns the error of a failed change.
    pub(super) fn failed(&self, error: Errno) -> MakingError {
        let what = match self {
            Self::Write { .. } => "write",
            Self::Mode { .. } => "change the mode of",
            Self::Link { .. } => "link",
            Self::Delete { .. } => "delete",
        };
        MakingError::at(what, self.path())(error)
    }
}

impl DirTree {
    /// Creates `name` in `directory` as a name of the file at `to`. Returns false if `present`, which it replaces,
    /// is already that file, or if links are not possible. Names in a lower layer do not count: a write separates them.
    pub(super) fn link(
        &self,
        (path, to): (&EntryPath, &EntryPath),
        present: Option<&Statx>,
        (directory, name): (BorrowedFd<'_>, &[u8]),
    ) -> Result<bool, Errno> {
        let parent = self.parent(to)?;
        let file = vanished(look(&parent, to.name()))?;
        let (Some(file), Some(present)) = (file, present) else { return Ok(false) };
        let are_files = [&file, present].iter().all(|stat| kind_of(stat) == FileType::RegularFile);
        let is_joined = FileStat::of(&file).is_same_entry(&FileStat::of(present)) && !self.is_in_lower(path);
        if !are_files || is_joined {
            return Ok(false);
        }
        match linkat(&parent, to.name(), directory, name, AtFlags::empty()) {
            Ok(()) => {
                // A build may use this name, so its file time must not go back.
                if times_of(present).last_modification > times_of(&file).last_modification {
                    utimensat(directory, name, &times_of(present), AtFlags::SYMLINK_NOFOLLOW)?;
                }
                Ok(true)
            }
            // Another mount, no support for links, too many links, or another user's file.
            Err(Errno::XDEV | Errno::PERM | Errno::MLINK | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns the times of directories, except for unreadable ones.
    pub(super) fn directory_times(&self, paths: BTreeSet<EntryPath>) -> Vec<(EntryPath, Timestamps)> {
        let times = |path: EntryPath| {
            let handle = open_directory(self.root.as_fd(), path.as_bytes(), OFlags::PATH).ok()?;
            Some((path, times_of(&look_at(&handle).ok()?)))
        };
        paths.into_iter().filter_map(times).collect()
    }

    /// Restores the times of directories, after links in them were replaced.
    pub(super) fn set_directory_times(&self, times: Vec<(EntryPath, Timestamps)>) {
        for (path, times) in times {
            let opened = open_directory(self.root.as_fd(), path.as_bytes(), OFlags::RDONLY);
            if let Err(error) = opened.and_then(|directory| futimens(&directory, &times)) {
                tracing::debug!(%error, %path, "failed to restore a directory's time");
            }
        }
    }

    /// Creates an entry at a free name.
    pub(super) fn make(
        &self,
        (directory, name): (BorrowedFd<'_>, &[u8]),
        (node, bytes): (&Node, &[u8]),
        times: Timestamps,
    ) -> Result<MadeStat, Errno> {
        let leaf = |bytes: &[u8]| MadeStat::Leaf { bytes: bytes.len() as u64, modified: times.last_modification };
        match node {
            Node::File { mode, .. } => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let handle = openat(directory, name, flags, Mode::RUSR | Mode::WUSR)?;
                let mut file = File::from(handle);
                file.write_all(bytes).map_err(errno)?;
                self.own(&file)?;
                fchmod(&file, Mode::from_raw_mode(mode.bits()))?;
                futimens(&file, &times)?;
                Ok(leaf(bytes))
            }
            Node::Symlink { target } => {
                symlinkat(target.as_slice(), directory, name)?;
                self.own_at(directory, name)?;
                utimensat(directory, name, &times, AtFlags::SYMLINK_NOFOLLOW)?;
                Ok(leaf(target))
            }
            Node::Directory { mode } => {
                rustix::fs::mkdirat(directory, name, Mode::RWXU)?;
                let handle = open_in(directory, name, OFlags::DIRECTORY)?;
                self.own(&handle)?;
                fchmod(&handle, Mode::from_raw_mode(mode.bits()))?;
                Ok(MadeStat::Directory)
            }
            Node::Special { special: Special::Fifo } => {
                // Its bits are not recorded, so only its owner gets access.
                mknodat(directory, name, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
                self.own_at(directory, name)?;
                utimensat(directory, name, &times, AtFlags::SYMLINK_NOFOLLOW)?;
                Ok(leaf(&[]))
            }
            Node::Special { special: Special::Socket | Special::Device } => Err(Errno::OPNOTSUPP),
        }
    }

    fn own_at(&self, directory: BorrowedFd<'_>, name: &[u8]) -> Result<(), Errno> {
        let Some((user, group)) = self.owner else { return Ok(()) };
        let (user, group) = (Some(Uid::from_raw(user)), Some(Gid::from_raw(group)));
        chownat(directory, name, user, group, AtFlags::SYMLINK_NOFOLLOW)
    }

    fn own(&self, handle: impl AsFd) -> Result<(), Errno> {
        match self.owner {
            Some((user, group)) => fchown(handle, Some(Uid::from_raw(user)), Some(Gid::from_raw(group))),
            None => Ok(()),
        }
    }
}

pub(super) fn errno(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

/// Sets the permission bits of an entry other than a link, even if its owner may not open it.
pub(super) fn set_mode(parent: impl AsFd, name: &[u8], bits: u32) -> Result<(), Errno> {
    set_bits(&open_in(parent, name, OFlags::PATH)?, bits)
}

/// Returns the umask of this process as of the first call.
pub(crate) fn umask() -> u32 {
    static UMASK: OnceLock<u32> = OnceLock::new();
    *UMASK.get_or_init(|| {
        // The system call sets the umask, which would affect files that other threads create.
        let mut text = String::new();
        let status = open_in(CWD, "/proc/self/status", OFlags::RDONLY);
        let read = status.map_err(io::Error::from).and_then(|status| File::from(status).read_to_string(&mut text));
        let line = text.lines().find_map(|line| line.strip_prefix("Umask:"));
        let umask = line.and_then(|line| u32::from_str_radix(line.trim(), 8).ok());
        read.ok().and(umask).unwrap_or(0o022)
    })
}

/// Returns the given modification time, by default now in nanoseconds: later changes, in ticks, then have another time.
pub(super) fn times(modified: Option<Timestamp>) -> Timestamps {
    let wanted = |Timestamp(millis): Timestamp| Timespec {
        tv_sec: millis.div_euclid(1000),
        tv_nsec: millis.rem_euclid(1000) * 1_000_000,
    };
    let omit = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
    let last_modification = modified.map_or_else(|| clock_gettime(ClockId::Realtime), wanted);
    Timestamps { last_access: omit, last_modification }
}

/// Returns the modification time of an entry.
pub(super) fn times_of(stat: &Statx) -> Timestamps {
    let last_modification = Timespec { tv_sec: stat.stx_mtime.tv_sec, tv_nsec: stat.stx_mtime.tv_nsec.into() };
    Timestamps { last_modification, ..times(None) }
}
