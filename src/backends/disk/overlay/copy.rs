//! A copy of a layer in which little was changed.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Statx, Uid, chownat, makedev, mknodat, readlinkat, symlinkat, utimensat,
};
use rustix::io::Errno;

use super::mount::Notes;
use crate::backends::disk::beneath::{open_directory, open_in};
use crate::backends::disk::copying::{copy_attribute, copy_directory, copy_file, resemble, times_of};
use crate::backends::disk::entries::kind_of;
use crate::backends::disk::listing::{Lister, look_at};

/// Entries of a layer above which it is not copied: to make them takes as long as to seal the layer and mount another.
pub(super) const ENTRIES_MAX: usize = 16;
/// Bytes of files above which a layer is not copied.
const BYTES_MAX: u64 = 1 << 20;

/// Copies all that is in a layer's directory into an empty one, marks of deletion, too. Gives false where it is too
/// much; some of it is copied then.
///
/// Names of one file become files of their own.
pub(super) fn copy(from: BorrowedFd<'_>, into: BorrowedFd<'_>, notes: Notes) -> io::Result<bool> {
    let mut left = vec![Vec::new()];
    let mut lister = Lister::new();
    let (mut entries, mut bytes) = (0, 0_u64);
    while let Some(path) = left.pop() {
        let open = |top| open_directory(top, &path, OFlags::RDONLY);
        let (source, target) = (open(from)?, open(into)?);
        let mut found: Vec<(CString, Statx)> = Vec::new();
        lister.each(source.as_fd(), |name, stat| {
            found.push((name.to_owned(), *stat));
            Ok(())
        })?;
        entries += found.len();
        let is_file = |stat: &&Statx| kind_of(stat) == FileType::RegularFile;
        let sizes = found.iter().map(|(_, stat)| stat).filter(is_file).map(|stat| stat.stx_size);
        bytes = sizes.fold(bytes, u64::saturating_add);
        if entries > ENTRIES_MAX || bytes > BYTES_MAX {
            return Ok(false);
        }
        for (name, stat) in found {
            let name = name.to_bytes();
            match kind_of(&stat) {
                FileType::Directory => {
                    let made = copy_directory(&source, name, &target)?;
                    let its = open_in(&source, name, OFlags::RDONLY | OFlags::DIRECTORY)?;
                    for note in [notes.opaque(), notes.redirect()] {
                        copy_attribute(&its, &made, note)?;
                    }
                    left.push(if path.is_empty() { name.to_vec() } else { [&path[..], name].join(&b'/') });
                }
                FileType::RegularFile => {
                    copy_file(File::from(open_in(&source, name, OFlags::RDONLY)?), &stat, &target, name)?;
                }
                kind => copy_other(kind, &source, &stat, (&target, name))?,
            }
        }
        resemble(&target, &look_at(&source)?)?;
    }
    Ok(true)
}

/// A link, a pipe, a socket, or a mark of deletion, which is a device.
fn copy_other(kind: FileType, source: &OwnedFd, stat: &Statx, (target, name): (&OwnedFd, &[u8])) -> Result<(), Errno> {
    match kind {
        FileType::Symlink => symlinkat(readlinkat(source, name, Vec::new())?.as_c_str(), target, name)?,
        _ => {
            let mode = Mode::from_raw_mode(u32::from(stat.stx_mode) & 0o7777);
            mknodat(target, name, kind, mode, makedev(stat.stx_rdev_major, stat.stx_rdev_minor))?;
        }
    }
    let (user, group) = (Some(Uid::from_raw(stat.stx_uid)), Some(Gid::from_raw(stat.stx_gid)));
    chownat(target, name, user, group, AtFlags::SYMLINK_NOFOLLOW)?;
    utimensat(target, name, &times_of(stat), AtFlags::SYMLINK_NOFOLLOW)
}
