//! What is done to single entries: making, removing, telling what they are.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Statx, StatxFlags, mkdirat, statx};
use rustix::io::Errno;

use super::beneath::{open_directory, open_in};
use super::file_stat::FileStat;
use super::listing::{Lister, look_at};

/// Removes an entry and everything below it. However deep it is, that takes two handles and no path.
pub(super) fn remove_all(directory: BorrowedFd<'_>, name: &[u8]) -> Result<(), Errno> {
    match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(Errno::NOENT) => return Ok(()),
        other => return other,
    }
    let mut lister = Lister::new();
    let mut handle = open_in(directory, name, OFlags::RDONLY | OFlags::DIRECTORY)?;
    let mut here = Emptying::begin(name, &handle, &mut lister)?;
    let mut above: Vec<Emptying> = Vec::new();
    loop {
        if let Some(child) = here.left.pop() {
            let found = vanished(open_in(&handle, child.as_c_str(), OFlags::RDONLY | OFlags::DIRECTORY))?;
            let Some(found) = found else { continue };
            let below = Emptying::begin(child.to_bytes(), &found, &mut lister)?;
            above.push(std::mem::replace(&mut here, below));
            handle = found;
        } else if let Some(parent) = above.pop() {
            let mut up = open_in(&handle, c"..", OFlags::PATH | OFlags::DIRECTORY)?;
            if !FileStat::of(&look_at(&up)?).is_same_entry(&parent.stamp) {
                // Somebody has moved the directory, and up from there is somewhere else.
                let names: Vec<&[u8]> = above.iter().chain([&parent]).map(|level| level.name.as_slice()).collect();
                up = open_directory(directory, &names.join(&b'/'), OFlags::PATH)?;
            }
            vanished(rustix::fs::unlinkat(&up, here.name.as_slice(), AtFlags::REMOVEDIR))?;
            (handle, here) = (up, parent);
        } else {
            return vanished(rustix::fs::unlinkat(directory, name, AtFlags::REMOVEDIR)).map(drop);
        }
    }
}

/// A directory whose files are removed.
struct Emptying {
    name: Vec<u8>,
    stamp: FileStat,
    /// The directories in it that are to be removed yet.
    left: Vec<CString>,
}

impl Emptying {
    fn begin(name: &[u8], handle: &OwnedFd, lister: &mut Lister) -> Result<Self, Errno> {
        let mut names = Vec::new();
        lister.each(handle.as_fd(), |name, stat| {
            names.push((name.to_owned(), kind_of(stat) == FileType::Directory));
            Ok(())
        })?;
        let mut left = Vec::new();
        for (name, is_directory) in names {
            if is_directory {
                left.push(name);
            } else {
                vanished(rustix::fs::unlinkat(handle, name.as_c_str(), AtFlags::empty()))?;
            }
        }
        Ok(Self { name: name.to_vec(), stamp: FileStat::of(&look_at(handle)?), left })
    }
}

/// Makes a directory where none is yet.
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

/// The number of the mount that a handle is in.
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
