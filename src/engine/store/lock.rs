//! One process per store.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::holder::LeaseHolder;
use super::{Result, StoreError};

const LOCK: &str = "lock";

#[derive(Debug)]
pub(super) struct StoreLock {
    file: File,
}

impl StoreLock {
    pub(super) fn take(directory: &Path) -> Result<Self> {
        let path = directory.join(LOCK);
        let mut file = open(&path)?;
        lock(&mut file, directory)?;
        note(&mut file, format!("{}\n", LeaseHolder::this_process()).as_bytes());
        Ok(Self { file })
    }

    /// Takes the lock without writing where that is not allowed; none if there is no lock.
    #[expect(clippy::disallowed_methods, reason = "the store is where files are")]
    pub(super) fn take_to_look(directory: &Path) -> Result<Option<Self>> {
        match Self::take(directory) {
            Err(error) if error.is_write_protected() => {}
            taken => return taken.map(Some),
        }
        let path = directory.join(LOCK);
        match File::open(&path) {
            Ok(mut file) => lock(&mut file, directory).map(|()| Some(Self { file })),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(StoreError::io("open", &path)(error)),
        }
    }
}

fn lock(file: &mut File, directory: &Path) -> Result<()> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            let read = file.read_to_string(&mut holder);
            let known = read.is_ok() && !holder.trim().is_empty();
            let holder = if known { holder.trim().to_owned() } else { "another process".to_owned() };
            Err(StoreError::Locked { path: directory.to_owned(), holder })
        }
        Err(TryLockError::Error(error)) => Err(StoreError::io("lock", &directory.join(LOCK))(error)),
    }
}

/// Opens a file to be locked, or creates it for its owner only.
#[expect(clippy::disallowed_methods, reason = "the store is where files are")]
pub(super) fn open(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.open(path).map_err(StoreError::io("open", path))
}

/// Writes the owner into a locked file. On a full disk the lock still holds without it.
pub(super) fn note(file: &mut File, owner: &[u8]) {
    let written = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(owner));
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
