//! Single entries: making directories, telling what entries are.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, Statx, StatxFlags, mkdirat, statx};
use rustix::io::Errno;

/// The mode of directories that are closed to other users.
pub(super) const PRIVATE: u32 = 0o700;

/// Makes a directory, and those above it, for its owner only; one that is there stays as it is.
#[expect(clippy::disallowed_methods, reason = "a backend makes its own directories")]
pub(crate) fn make_private(directory: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(PRIVATE).create(directory)
}

pub(super) fn make_directory(parent: impl AsFd, name: impl rustix::path::Arg, mode: u32) -> Result<bool, Errno> {
    match mkdirat(parent, name, Mode::from_raw_mode(mode)) {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        Err(error) => Err(error),
    }
}

pub(super) fn kind_of(stat: &Statx) -> FileType {
    FileType::from_raw_mode(u32::from(stat.stx_mode))
}

pub(super) fn mount_id(handle: impl AsFd) -> Result<u64, Errno> {
    statx(handle, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).map(|stat| stat.stx_mnt_id)
}

/// None where the entry is not there any more.
pub(super) fn vanished<T>(result: Result<T, Errno>) -> Result<Option<T>, Errno> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}
