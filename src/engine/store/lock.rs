//! The lock file that limits a store to one owner process.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use super::owner::StoreOwner;
use super::{Result, StoreError};
use crate::engine::clock::Timestamp;

const LOCK: &str = "lock";
/// Attempts to take a lock that another process is only probing, and the pause between attempts.
const TRIES: usize = 50;
const PAUSE: Duration = Duration::from_millis(1);
const NOTE_MAX: u64 = 64 << 10;

#[derive(Debug)]
pub(super) struct StoreLock {
    file: File,
}

impl StoreLock {
    #[expect(clippy::disallowed_methods, reason = "the store accesses files directly")]
    pub(super) fn take(directory: &Path) -> Result<Self> {
        let path = directory.join(LOCK);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(&path).map_err(StoreError::io("open", &path))?;
        lock(&file, directory)?;
        note(&mut file);
        Ok(Self { file })
    }

    /// Takes the lock, without writing to it if the directory is read-only. `None` if the lock file is missing.
    pub(super) fn take_to_look(directory: &Path) -> Result<Option<Self>> {
        match Self::take(directory) {
            Err(error) if error.is_write_protected() => {}
            taken => return taken.map(Some),
        }
        let Some(file) = existing(directory)? else { return Ok(None) };
        lock(&file, directory).map(|()| Some(Self { file }))
    }

    pub(super) fn is_in(&self, directory: &Path) -> bool {
        let there = directory.join(LOCK).symlink_metadata();
        let (Ok(ours), Ok(there)) = (self.file.metadata(), there) else { return false };
        (ours.dev(), ours.ino()) == (there.dev(), there.ino())
    }

    /// Fails with [`StoreError::Locked`] if another process has the lock, and with [`StoreError::ReadOnly`] if not.
    pub(super) fn of_other(directory: &Path) -> Result<()> {
        let Some(file) = existing(directory)? else { return Err(StoreError::ReadOnly) };
        // This probe may disturb a process that is taking the lock, which therefore retries.
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => Err(locked(&file, directory)),
            // Closing is not enough: a child process that is being started may share the open file for a moment.
            Ok(()) => file.unlock().map_err(StoreError::io("unlock", directory)).and(Err(StoreError::ReadOnly)),
            Err(TryLockError::Error(error)) => Err(StoreError::io("lock", directory)(error)),
        }
    }
}

impl StoreOwner {
    /// Returns the process that currently owns the store in a directory, if any.
    ///
    /// # Errors
    /// [`StoreError::Io`] if the lock can't be read.
    pub fn of(directory: &Path) -> Result<Option<Self>> {
        match StoreLock::of_other(directory) {
            Err(StoreError::Locked { owner, .. }) => Ok(Some(*owner)),
            Err(StoreError::ReadOnly) | Ok(()) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Returns true if a directory has the files of a store.
pub fn is_data_directory(directory: &Path) -> bool {
    directory.join(LOCK).is_file() && directory.join("journal").is_dir()
}

#[expect(clippy::disallowed_methods, reason = "the store accesses files directly")]
fn existing(directory: &Path) -> Result<Option<File>> {
    let path = directory.join(LOCK);
    match File::open(&path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StoreError::io("open", &path)(error)),
    }
}

fn lock(file: &File, directory: &Path) -> Result<()> {
    for _ in 0..TRIES {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if file.try_lock_shared().is_err() => return Err(locked(file, directory)),
            // Another process is only probing, with a shared lock like the one just taken here.
            Err(TryLockError::WouldBlock) => drop(file.unlock()),
            Err(TryLockError::Error(error)) => return Err(StoreError::io("lock", &directory.join(LOCK))(error)),
        }
        std::thread::sleep(PAUSE);
    }
    Err(locked(file, directory))
}

fn locked(file: &File, directory: &Path) -> StoreError {
    let mut text = Vec::new();
    let read = file.take(NOTE_MAX).read_to_end(&mut text);
    let owner: Option<StoreOwner> = read.ok().and_then(|_| serde_json::from_slice(&text).ok());
    // Written by the owner, when it took the lock.
    let written = file.metadata().ok().map(|known| Timestamp(known.mtime() * 1000 + known.mtime_nsec() / 1_000_000));
    let owner = StoreOwner { since: written, ..owner.unwrap_or_default() };
    StoreError::Locked { path: directory.to_owned(), owner: owner.into() }
}

/// Writes the owner into a locked file. On a full disk the lock is valid without it.
fn note(file: &mut File) {
    let owner = serde_json::to_vec(&StoreOwner::this_process()).unwrap_or_default();
    let written = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(&owner));
    if let Err(error) = written {
        tracing::debug!(%error, "failed to write the owner of the store's lock");
    }
}

impl Drop for StoreLock {
    /// Unlocks explicitly: a child process that is being started shares the open file until it executes its program.
    fn drop(&mut self) {
        if let Err(error) = self.file.unlock() {
            tracing::debug!(%error, "failed to unlock the store; closing the file releases it");
        }
    }
}
