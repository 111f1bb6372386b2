//! A copy of a layer in which little was changed.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{
    FileType, OFlags, Statx, XattrFlags, fchmod, fgetxattr, fgetxattr_query, flistxattr, flistxattr_query, fsetxattr,
    futimens,
};
use rustix::io::Errno;

use super::mount::Notes;
use crate::backends::disk::beneath::{open_directory, open_in};
use crate::backends::disk::copying::{copy_directory, copy_file, copy_other, mode_of, resemble, times_of};
use crate::backends::disk::entries::kind_of;
use crate::backends::disk::listing::{Lister, look_at};

/// Entries of a layer, directories too, above which it is not copied: to make each takes time, to seal the layer and to
/// mount another takes the same for any number.
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
                    copy_directory(&source, name, &target)?;
                    left.push(if path.is_empty() { name.to_vec() } else { [&path[..], name].join(&b'/') });
                }
                FileType::RegularFile => {
                    let file = File::from(open_in(&source, name, OFlags::RDONLY)?);
                    copy_file(file.try_clone()?, &stat, &target, name)?;
                    if has_attributes(&file)? {
                        let made = open_in(&target, name, OFlags::RDONLY)?;
                        copy_attributes(&file, &made, notes)?;
                        // They may hold permissions.
                        fchmod(&made, mode_of(&stat))?;
                        futimens(&made, &times_of(&stat))?;
                    }
                }
                _ => copy_other(&source, &stat, &target, name)?,
            }
        }
        // What is made in a directory takes after it, so it gets them when all is made.
        copy_attributes(&source, &target, notes)?;
        resemble(&target, &look_at(&source)?)?;
    }
    Ok(true)
}

fn has_attributes(file: impl AsFd) -> Result<bool, Errno> {
    match flistxattr_query(file) {
        Err(Errno::NOTSUP) => Ok(false),
        other => other.map(|length| length > 0),
    }
}

/// Copies the attributes of an entry, and of the overlay's notes those that say what it shows.
fn copy_attributes(from: impl AsFd, to: impl AsFd, notes: Notes) -> Result<(), Errno> {
    if !has_attributes(&from)? {
        return Ok(());
    }
    let mut names = vec![0; flistxattr_query(&from)?];
    let length = flistxattr(&from, &mut names)?;
    names.truncate(length);
    for name in names.split_inclusive(|byte| *byte == 0) {
        let name = CStr::from_bytes_with_nul(name).map_err(|_| Errno::INVAL)?;
        if notes.is_kept(name.to_bytes()) {
            let mut value = vec![0; fgetxattr_query(&from, name)?];
            let length = fgetxattr(&from, name, &mut value)?;
            value.truncate(length);
            fsetxattr(&to, name, &value, XattrFlags::empty())?;
        }
    }
    Ok(())
}
