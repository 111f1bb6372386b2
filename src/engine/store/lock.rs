//! One process per store.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::StoreError;

const LOCK: &str = "lock";
/// Characters of the command that are written down.
const HOLDER_CHARS: usize = 200;

/// Holds a store for this process until it is dropped, or the process ends in any way.
#[derive(Debug)]
pub(super) struct StoreLock {
    file: File,
}

impl StoreLock {
    /// Takes the lock and writes down who has it.
    ///
    /// # Errors
    /// [`StoreError::Locked`] with what the holder wrote.
    #[expect(clippy::disallowed_methods, reason = "the store is where files are")]
    pub(super) fn take(directory: &Path) -> Result<Self, StoreError> {
        let path = directory.join(LOCK);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(StoreError::io("open", &path))?;
        lock(&mut file, directory)?;
        let holder = format!("process {} ({})\n", std::process::id(), command_line());
        let written = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(holder.as_bytes()));
        // On a full disk the lock still holds; only its message is missing.
        if let Err(error) = written {
            tracing::debug!(%error, "the holder of the lock could not be written down");
        }
        Ok(Self { file })
    }

    /// Takes the lock to look only: where nothing may be written, nothing is. None where there is no lock.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    #[expect(clippy::disallowed_methods, reason = "the store is where files are")]
    pub(super) fn take_to_look(directory: &Path) -> Result<Option<Self>, StoreError> {
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

fn lock(file: &mut File, directory: &Path) -> Result<(), StoreError> {
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

/// How this process was called.
pub(super) fn command_line() -> String {
    let words: Vec<_> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    words.join(" ").chars().take(HOLDER_CHARS).collect()
}

impl Drop for StoreLock {
    /// A child process that this one is just starting holds the same open file until it becomes another program:
    /// closing alone would leave the store locked for that moment.
    fn drop(&mut self) {
        if let Err(error) = self.file.unlock() {
            tracing::debug!(%error, "the store's lock goes with its file");
        }
    }
}
