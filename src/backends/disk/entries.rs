//! Single entries: creating directories, and finding the kinds of entries.

use std::ffi::OsStr;
use std::fs::{DirEntry, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, FileType, FlockOperation, IFlags, Mode, OFlags, Statx, StatxFlags, chmod, flock, fstat,
    ioctl_getflags, ioctl_setflags, lstat, mkdirat, openat, stat, statx,
};
use rustix::io::Errno;

use super::beneath::failed;
use crate::engine::path::EntryPath;

/// The mode of directories that other users can't enter.
pub(super) const PRIVATE: u32 = 0o700;

/// Creates a directory and its parents, for the owner only; an existing one keeps its mode. Asks ext4 to spread the
/// subdirectories: without a journal it skips recently freed inodes one by one, so removed files of one workspace would
/// slow down the others.
#[expect(clippy::disallowed_methods, reason = "a backend makes its own directories")]
pub fn make_private(directory: &Path) -> io::Result<()> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(PRIVATE).create(directory);
    made.map_err(|error| io::Error::new(error.kind(), format!("cannot create {}: {error}", directory.display())))?;
    let apart = || {
        let handle = openat(CWD, directory, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let flags = ioctl_getflags(&handle)?;
        if flags.contains(IFlags::TOPDIR) { Ok(()) } else { ioctl_setflags(&handle, flags | IFlags::TOPDIR) }
    };
    if let Err(error) = apart() {
        tracing::debug!(%error, directory = %directory.display(), "the file system does not spread the subdirectories");
    }
    Ok(())
}

/// Lists a directory; empty if it does not exist.
#[expect(clippy::disallowed_methods, reason = "a backend looks for its own directories")]
pub fn entries_in(directory: &Path) -> io::Result<Vec<DirEntry>> {
    match std::fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other?.collect(),
    }
}

/// Returns the status change time of an entry, which programs can't set, in milliseconds since 1970. For a removed
/// entry it is that of the nearest parent directory.
pub fn changed_at(root: &Path, path: &EntryPath) -> Option<i64> {
    let above = std::iter::successors(Some(path.clone()), EntryPath::parent);
    let stats = above.filter_map(|path| lstat(root.join(OsStr::from_bytes(path.as_bytes()))).ok());
    let changed =
        stats.map(|stat| stat.st_ctime.saturating_mul(1000).saturating_add(stat.st_ctime_nsec as i64 / 1_000_000));
    changed.into_iter().next()
}

/// Locks a file while it is open; `None` if it is already locked or missing. `CREATE` creates it in an existing
/// directory.
pub fn lock_file(path: &Path, create: OFlags) -> io::Result<Option<File>> {
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | create;
    let file = match openat(CWD, path, flags, Mode::RUSR | Mode::WUSR) {
        Err(Errno::NOENT) => return Ok(None),
        other => other.map_err(failed("open", path))?,
    };
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => return Ok(None),
        other => other.map_err(failed("lock", path))?,
    }
    // The previous holder may have removed it, and a new file has another lock.
    let ours = fstat(&file).map_err(failed("read", path))?;
    let there = vanished(stat(path)).map_err(failed("read", path))?;
    let is_ours = there.is_some_and(|there| (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino));
    Ok(is_ours.then(|| file.into()))
}

pub(super) fn make_directory(parent: impl AsFd, name: impl rustix::path::Arg, mode: u32) -> Result<bool, Errno> {
    match mkdirat(parent, name, Mode::from_raw_mode(mode)) {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Sets the permission bits through an `O_PATH` handle: a link swapped in at a path would lead elsewhere.
pub(super) fn set_bits(handle: &OwnedFd, bits: u32) -> Result<(), Errno> {
    chmod(format!("/proc/self/fd/{}", handle.as_raw_fd()), Mode::from_raw_mode(bits))
}

pub(super) fn kind_of(stat: &Statx) -> FileType {
    FileType::from_raw_mode(u32::from(stat.stx_mode))
}

pub(super) fn mount_id(handle: impl AsFd) -> Result<u64, Errno> {
    statx(handle, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).map(|stat| stat.stx_mnt_id)
}

/// Converts the error of a missing entry into `None`.
pub(super) fn vanished<T>(result: Result<T, Errno>) -> Result<Option<T>, Errno> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}
