//! Copies of single entries, with their owner, permissions, times and extended attributes.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{
    Gid, Mode, OFlags, Statx, StatxTimestamp, Timespec, Timestamps, Uid, XattrFlags, fchmod, fchown, fgetxattr,
    fgetxattr_query, flistxattr, flistxattr_query, fsetxattr, futimens, openat,
};
use rustix::io::Errno;
use rustix::path::Arg;

use super::beneath::open_in;
use super::entries::make_directory;
use super::listing::look;

/// What an overlay notes about entries of its layers is not theirs.
const NOTES: [&[u8]; 2] = [b"trusted.overlay.", b"user.overlay."];

/// Makes a directory like another one, with nothing in it.
pub(super) fn copy_directory(from: &OwnedFd, name: &[u8], to: &OwnedFd) -> Result<OwnedFd, Errno> {
    let stat = look(from, name)?;
    make_directory(to, name, 0o700)?;
    let made = open_in(to, name, OFlags::RDONLY | OFlags::DIRECTORY)?;
    copy_attributes(&open_in(from, name, OFlags::RDONLY | OFlags::DIRECTORY)?, &made)?;
    resemble(&made, &stat)?;
    Ok(made)
}

/// Makes a file with what can be read from another one, whose `stat` it gets.
pub(super) fn copy_file(mut from: File, stat: &Statx, to: &OwnedFd, name: &[u8]) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(openat(to, name, flags, Mode::RUSR | Mode::WUSR)?);
    io::copy(&mut from, &mut file)?;
    copy_attributes(&from, &file)?;
    Ok(resemble(&file, stat)?)
}

/// Gives an entry the owner, the permissions and the times of another.
pub(super) fn resemble(entry: impl AsFd, stat: &Statx) -> Result<(), Errno> {
    fchown(&entry, Some(Uid::from_raw(stat.stx_uid)), Some(Gid::from_raw(stat.stx_gid)))?;
    fchmod(&entry, Mode::from_raw_mode(u32::from(stat.stx_mode) & 0o7777))?;
    futimens(&entry, &times_of(stat))
}

/// The times that an entry had when it was looked at.
pub(super) fn times_of(stat: &Statx) -> Timestamps {
    let time = |time: StatxTimestamp| Timespec { tv_sec: time.tv_sec, tv_nsec: i64::from(time.tv_nsec) };
    Timestamps { last_access: time(stat.stx_atime), last_modification: time(stat.stx_mtime) }
}

fn copy_attributes(from: impl AsFd, to: impl AsFd) -> Result<(), Errno> {
    let mut names = match flistxattr_query(&from) {
        Ok(0) | Err(Errno::NOTSUP) => return Ok(()),
        other => vec![0; other?],
    };
    let length = flistxattr(&from, &mut names)?;
    names.truncate(length);
    for name in names.split_inclusive(|byte| *byte == 0) {
        let name = CStr::from_bytes_with_nul(name).map_err(|_| Errno::INVAL)?;
        if !NOTES.iter().any(|notes| name.to_bytes().starts_with(notes)) {
            copy_attribute(&from, &to, name)?;
        }
    }
    Ok(())
}

/// Gives an entry an attribute that another one has, if it has it.
pub(super) fn copy_attribute(from: impl AsFd, to: impl AsFd, name: impl Arg + Copy) -> Result<(), Errno> {
    let mut value = match fgetxattr_query(&from, name) {
        Err(Errno::NODATA | Errno::NOTSUP) => return Ok(()),
        other => vec![0; other?],
    };
    let length = fgetxattr(&from, name, &mut value)?;
    fsetxattr(to, name, &value[..length.min(value.len())], XattrFlags::empty())
}
