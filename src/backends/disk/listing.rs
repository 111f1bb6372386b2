//! Reads a directory with the stats of its entries.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, OFlags, RawDir, Statx, StatxFlags, statx};
use rustix::io::Errno;

use super::beneath::{leads_nowhere, open_directory, open_in};
use super::entries::{kind_of, vanished};
use crate::engine::path::{EntryPath, parent_bytes};

const BUFFER_BYTES: usize = 64 * 1024;

pub(super) struct Lister {
    /// Stays empty: only its spare capacity is used.
    buffer: Vec<u8>,
}

impl Lister {
    pub(super) fn new() -> Self {
        Self { buffer: Vec::with_capacity(BUFFER_BYTES) }
    }

    /// Passes every entry of a directory that was just opened for reading to `give`, except for vanished ones.
    pub(super) fn each(
        &mut self,
        directory: BorrowedFd<'_>,
        mut give: impl FnMut(&CStr, &Statx) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let mut entries = RawDir::new(directory, self.buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = match entry {
                Ok(entry) => entry,
                // The directory itself was removed.
                Err(Errno::NOENT) => return Ok(()),
                Err(error) => return Err(error),
            };
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            if let Some(stat) = vanished(look(directory, name))? {
                give(name, &stat)?;
            }
        }
        Ok(())
    }
}

pub(super) fn names(directory: &OwnedFd) -> Result<Vec<CString>, Errno> {
    let mut names = Vec::new();
    let handle = open_in(directory, ".", OFlags::RDONLY | OFlags::DIRECTORY)?;
    Lister::new().each(handle.as_fd(), |name, _| {
        names.push(name.to_owned());
        Ok(())
    })?;
    Ok(names)
}

/// Stats an entry directly in a directory without following a link.
pub(super) fn look(directory: impl AsFd, name: impl rustix::path::Arg) -> Result<Statx, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    statx(directory, name, flags, StatxFlags::BASIC_STATS)
}

/// Returns the size of an entry; `None` for a directory.
pub(super) fn file_size(stat: &Statx) -> Option<u64> {
    (kind_of(stat) != FileType::Directory).then_some(stat.stx_size)
}

/// Returns true if a file has several names.
pub(super) fn is_linked(stat: &Statx) -> bool {
    stat.stx_nlink > 1 && kind_of(stat) != FileType::Directory
}

pub(super) fn is_absent(top: BorrowedFd<'_>, path: &EntryPath) -> bool {
    let parent = open_directory(top, parent_bytes(path.as_bytes()).unwrap_or_default(), OFlags::PATH);
    parent.and_then(|parent| look(parent, path.name())).is_err_and(leads_nowhere)
}

pub(super) fn look_at(handle: impl AsFd) -> Result<Statx, Errno> {
    statx(handle, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)
}
