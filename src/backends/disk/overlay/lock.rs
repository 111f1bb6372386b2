//! Who has the directory of an overlay: a lock in it, which goes last when the directory does.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, flock, fstat, openat, stat, unlinkat};
use rustix::io::Errno;

use super::refs::{LayerUser, failed};
use crate::backends::disk::beneath::open_in;
use crate::backends::disk::entries::vanished;
use crate::backends::disk::listing::names;

/// Locked by whoever has the overlay, or removes it.
pub(super) const LOCK: &str = "lock";
/// Says whose overlay it is. Whoever has it may write there.
const NOTE: &str = "store";

impl LayerUser {
    /// Keeps others from the overlay for as long as the file is open. None where somebody has it, or where there is no
    /// directory.
    ///
    /// # Errors
    /// When the lock can't be made.
    pub(crate) fn try_hold(&self) -> io::Result<Option<File>> {
        let path = self.home().join(LOCK);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match openat(CWD, path.as_path(), flags, Mode::RUSR | Mode::WUSR) {
            Err(Errno::NOENT) => return Ok(None),
            other => other.map_err(failed("open", &path))?,
        };
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Ok(None),
            other => other.map_err(failed("lock", &path))?,
        }
        // Who had it before may have removed it, and the next one has another lock.
        let ours = fstat(&file).map_err(failed("look at", &path))?;
        let there = vanished(stat(&path)).map_err(failed("look at", &path))?;
        let is_ours = there.is_some_and(|there| (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino));
        Ok(is_ours.then(|| file.into()))
    }

    /// What says whose overlay it is, in a file of its own.
    pub(crate) fn note_of_store(&self) -> std::path::PathBuf {
        self.home().join(NOTE)
    }

    /// Removes the directory with everything in it.
    pub(super) fn clear(&self) -> io::Result<()> {
        let home = self.home();
        let handle = match open_in(CWD, home.as_path(), OFlags::RDONLY | OFlags::DIRECTORY) {
            Err(Errno::NOENT) => return Ok(()),
            other => other.map_err(failed("open", &home))?,
        };
        for name in names(&handle).map_err(failed("read", &home))? {
            if ![LOCK.as_bytes(), NOTE.as_bytes()].contains(&name.to_bytes()) {
                remove_entry(&handle, &home.join(OsStr::from_bytes(name.to_bytes())))?;
            }
        }
        // Last, or a killed process would leave what nobody knows the owner of, and somebody could begin in the rest.
        for name in [NOTE, LOCK] {
            vanished(unlinkat(&handle, name, AtFlags::empty())).map_err(failed("remove", &home.join(name)))?;
        }
        match rustix::fs::rmdir(&home) {
            // Somebody has begun there.
            Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST) => Ok(()),
            Err(error) => Err(failed("remove", &home)(error)),
        }
    }
}

fn remove_entry(directory: impl AsFd, path: &Path) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default();
    match unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        // Its directories may be shut.
        Err(Errno::ISDIR | Errno::PERM) => crate::backends::config::remove(path),
        Err(error) => Err(failed("remove", path)(error)),
    }
}
