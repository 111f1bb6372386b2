//! One process per store.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::Path;

use super::StoreError;

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
        let path = directory.join("lock");
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(StoreError::io("open", &path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                let read = file.read_to_string(&mut holder);
                let known = read.is_ok() && !holder.trim().is_empty();
                let holder = if known { holder.trim().to_owned() } else { "another process".to_owned() };
                return Err(StoreError::Locked { path: directory.to_owned(), holder });
            }
            Err(TryLockError::Error(error)) => return Err(StoreError::io("lock", &path)(error)),
        }
        let holder = format!("process {} ({})\n", std::process::id(), command_line());
        let written = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(holder.as_bytes()));
        // On a full disk the lock still holds; only its message is missing.
        if let Err(error) = written {
            tracing::debug!(%error, "the holder of the lock could not be written down");
        }
        Ok(Self { file })
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
