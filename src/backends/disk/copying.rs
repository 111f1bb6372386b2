//! Copies of single entries, with owner, permissions and times.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Statx, StatxTimestamp, Timespec, Timestamps, Uid, XattrFlags, chmodat,
    chownat, fchmod, fchown, fgetxattr, fgetxattr_query, flistxattr, flistxattr_query, fsetxattr, futimens, makedev,
    mknodat, openat, readlinkat, symlinkat, utimensat,
};
use rustix::io::Errno;

use super::beneath::open_in;
use super::entries::{kind_of, make_directory};
use super::listing::look;

pub(super) fn copy_directory(from: &OwnedFd, name: &[u8], to: &OwnedFd) -> Result<OwnedFd, Errno> {
    let stat = look(from, name)?;
    make_directory(to, name, 0o700)?;
    let made = open_in(to, name, OFlags::RDONLY | OFlags::DIRECTORY)?;
    resemble(&made, &stat)?;
    Ok(made)
}

/// Creates a file with the contents of another file, and the owner, permissions and times of its `stat`.
pub(super) fn copy_file(from: File, stat: &Statx, to: &OwnedFd, name: &[u8]) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(openat(to, name, flags, Mode::RUSR | Mode::WUSR)?);
    io::copy(&mut (&from).take(stat.stx_size), &mut file)?;
    copy_attributes(&from, &file)?;
    // Last, because attributes may include permissions.
    Ok(resemble(&file, stat)?)
}

/// Creates a link, pipe, socket or device like the original of that name.
pub(super) fn copy_other(from: &OwnedFd, stat: &Statx, to: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
    let kind = kind_of(stat);
    match kind {
        FileType::Symlink => symlinkat(readlinkat(from, name, Vec::new())?.as_c_str(), to, name)?,
        _ => mknodat(to, name, kind, Mode::empty(), makedev(stat.stx_rdev_major, stat.stx_rdev_minor))?,
    }
    let (user, group) = (Some(Uid::from_raw(stat.stx_uid)), Some(Gid::from_raw(stat.stx_gid)));
    chownat(to, name, user, group, AtFlags::SYMLINK_NOFOLLOW)?;
    if kind != FileType::Symlink {
        chmodat(to, name, mode_of(stat), AtFlags::empty())?;
    }
    utimensat(to, name, &times_of(stat), AtFlags::SYMLINK_NOFOLLOW)
}

/// Copies the extended attributes of an entry, except overlay attributes.
pub(super) fn copy_attributes(from: impl AsFd, to: impl AsFd) -> Result<(), Errno> {
    let mut names = match flistxattr_query(&from) {
        Ok(0) | Err(Errno::NOTSUP) => return Ok(()),
        other => vec![0; other?],
    };
    let length = flistxattr(&from, &mut names)?;
    names.truncate(length);
    for name in names.split_inclusive(|byte| *byte == 0) {
        let name = CStr::from_bytes_with_nul(name).map_err(|_| Errno::INVAL)?;
        if [&b"trusted.overlay."[..], b"user.overlay."].iter().any(|overlays| name.to_bytes().starts_with(overlays)) {
            continue;
        }
        let mut value = vec![0; fgetxattr_query(&from, name)?];
        let length = fgetxattr(&from, name, &mut value)?;
        value.truncate(length);
        fsetxattr(&to, name, &value, XattrFlags::empty())?;
    }
    Ok(())
}

/// Copies the owner, permissions and times from one entry to another.
pub(super) fn resemble(entry: impl AsFd, stat: &Statx) -> Result<(), Errno> {
    fchown(&entry, Some(Uid::from_raw(stat.stx_uid)), Some(Gid::from_raw(stat.stx_gid)))?;
    fchmod(&entry, mode_of(stat))?;
    futimens(&entry, &times_of(stat))
}

fn mode_of(stat: &Statx) -> Mode {
    Mode::from_raw_mode(u32::from(stat.stx_mode) & 0o7777)
}

fn times_of(stat: &Statx) -> Timestamps {
    let time = |time: StatxTimestamp| Timespec { tv_sec: time.tv_sec, tv_nsec: i64::from(time.tv_nsec) };
    Timestamps { last_access: time(stat.stx_atime), last_modification: time(stat.stx_mtime) }
}
