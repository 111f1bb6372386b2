//! A staging directory for a user's directory: next to it, or within it if entries can't be moved there.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FlockOperation, OFlags, flock, unlinkat};
use rustix::io::Errno;

use super::beneath::{context, open_in};
use super::entries::{PRIVATE, make_directory, mount_id};
use super::listing::{look_at, names};
use super::remove::remove_all;

/// The directory of all processes that have a directory open, within it. Next to it, the directory's name is appended.
pub(crate) const WITHIN: &str = ".foldspace";
/// The prefix of entries that could not be restored: only a person removes them.
pub(super) const KEPT: &str = "kept-";

/// This process's own directory, within one shared by all processes. The next process removes the remains of a killed
/// one, except for entries that could not be restored.
#[derive(Debug)]
pub(crate) struct StagingDir {
    pub(crate) home: PathBuf,
    all: OwnedFd,
    name: String,
    /// Locked, so that others see that it is in use.
    own: OwnedFd,
    /// True if it is within the directory, where scans must ignore it.
    pub(crate) is_within: bool,
}

impl StagingDir {
    pub(crate) fn of(directory: &Path) -> io::Result<Self> {
        let mut beside = OsString::from(WITHIN);
        beside.push("-");
        beside.push(directory.file_name().unwrap_or_default());
        // The parent may be another mount, or not writable for this user.
        if let Some(parent) = directory.parent()
            && let Ok(aside) = Self::at(directory, &parent.join(beside), false)
        {
            return Ok(aside);
        }
        let home = directory.join(WITHIN);
        Self::at(directory, &home, true).map_err(context("create", &home.display().to_string()))
    }

    fn at(directory: &Path, home: &Path, is_within: bool) -> Result<Self, Errno> {
        let made = make_directory(CWD, home, PRIVATE)?;
        let opened = Self::open(directory, home, is_within);
        if made && opened.is_err() {
            remove_directory(CWD, home);
        }
        opened
    }

    fn open(directory: &Path, home: &Path, is_within: bool) -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let (top, all) = (open_in(CWD, directory, flags)?, open_in(CWD, home, flags)?);
        let (one, other) = (look_at(&top)?, look_at(&all)?);
        if other.stx_uid != rustix::process::geteuid().as_raw() {
            return Err(Errno::PERM);
        }
        // One mount may have two volumes.
        let device = |stat: &rustix::fs::Statx| (stat.stx_dev_major, stat.stx_dev_minor);
        if device(&one) != device(&other) || mount_id(&top)? != mount_id(&all)? {
            return Err(Errno::XDEV);
        }
        // Stops other processes from creating directories, and from removing a directory that is not locked yet.
        flock(&all, FlockOperation::LockExclusive)?;
        let made = remove_left_behind(&all).and_then(|()| make_own(&all));
        flock(&all, FlockOperation::Unlock)?;
        let (name, own) = made?;
        Ok(Self { home: home.to_owned(), all, name, own, is_within })
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.home.join(&self.name)
    }
}

impl Drop for StagingDir {
    fn drop(&mut self) {
        if let Err(error) = empty(&self.own) {
            tracing::debug!(%error, path = %self.path().display(), "the staging directory is emptied later");
        }
        remove_directory(&self.all, self.name.as_str());
        remove_directory(CWD, &self.home);
    }
}

fn make_own(all: &OwnedFd) -> Result<(String, OwnedFd), Errno> {
    let mut number = 0_u32;
    while !make_directory(all, number.to_string(), PRIVATE)? {
        number += 1;
    }
    let name = number.to_string();
    let own = open_in(all, name.as_str(), OFlags::RDONLY | OFlags::DIRECTORY)?;
    flock(&own, FlockOperation::NonBlockingLockExclusive)?;
    Ok((name, own))
}

fn remove_left_behind(all: &OwnedFd) -> Result<(), Errno> {
    for name in names(all)? {
        let own = match open_in(all, name.as_c_str(), OFlags::RDONLY | OFlags::DIRECTORY) {
            Ok(own) => own,
            // A marker, not a directory.
            Err(Errno::NOTDIR | Errno::NOENT) => continue,
            Err(error) => return Err(error),
        };
        if flock(&own, FlockOperation::NonBlockingLockExclusive).is_ok() {
            empty(&own)?;
            remove_directory(all, name.as_c_str());
        }
    }
    Ok(())
}

/// Removes everything except for entries that could not be restored.
pub(super) fn empty(directory: &OwnedFd) -> Result<(), Errno> {
    let names = names(directory)?;
    let unneeded = names.iter().filter(|name| !name.to_bytes().starts_with(KEPT.as_bytes()));
    unneeded.into_iter().try_for_each(|name| remove_all(directory.as_fd(), name.to_bytes()))
}

fn remove_directory(parent: impl AsFd, name: impl rustix::path::Arg) {
    match unlinkat(parent, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOTEMPTY | Errno::NOENT) => {}
        Err(error) => tracing::debug!(%error, "failed to remove an empty directory"),
    }
}
