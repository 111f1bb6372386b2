//! One process per store.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use super::owner::StoreOwner;
use super::{Result, StoreError};

const LOCK: &str = "lock";
/// Tries to take a lock that is being looked at, and the pause between two.
const TRIES: usize = 50;
const PAUSE: Duration = Duration::from_millis(1);
const NOTE_MAX: u64 = 64 << 10;

#[derive(Debug)]
pub(super) struct StoreLock {
    file: File,
}

impl StoreLock {
    #[expect(clippy::disallowed_methods, reason = "the store is where files are")]
    pub(super) fn take(directory: &Path) -> Result<Self> {
        let path = directory.join(LOCK);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(&path).map_err(StoreError::io("open", &path))?;
        lock(&file, directory)?;
        note(&mut file);
        Ok(Self { file })
    }

    /// Takes the lock without writing where that is not allowed; none if there is no lock.
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

    /// Fails with [`StoreError::Locked`] if another process has the lock, and with [`StoreError::ReadOnly`] if none has.
    pub(super) fn of_other(directory: &Path) -> Result<()> {
        let Some(file) = existing(directory)? else { return Err(StoreError::ReadOnly) };
        // A process that takes it at this moment tries again, because of such looks.
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => Err(locked(&file, directory)),
            // Not by closing alone: a program that is being started may have the same open file for a moment.
            Ok(()) => file.unlock().map_err(StoreError::io("unlock", directory)).and(Err(StoreError::ReadOnly)),
            Err(TryLockError::Error(error)) => Err(StoreError::io("lock", directory)(error)),
        }
    }
}

impl StoreOwner {
    /// Returns the process that has the store of a directory now, if one has.
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

#[expect(clippy::disallowed_methods, reason = "the store is where files are")]
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
            // Somebody looks who has it, and so does this process now.
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
    StoreError::Locked { path: directory.to_owned(), owner: owner.unwrap_or_default().into() }
}

/// Writes the owner into a locked file. On a full disk the lock still holds without it.
fn note(file: &mut File) {
    let owner = serde_json::to_vec(&StoreOwner::this_process()).unwrap_or_default();
    let written = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(&owner));
    if let Err(error) = written {
        tracing::debug!(%error, "could not write the owner of a lock");
    }
}

impl Drop for StoreLock {
    /// Unlocks explicitly: a child process that is just being started shares the open file until it executes its
    /// program.
    fn drop(&mut self) {
        if let Err(error) = self.file.unlock() {
            tracing::debug!(%error, "the store's lock goes with its file");
        }
    }
}
