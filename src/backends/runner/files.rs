//! Files below the runner's root, without a process.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use super::wire::{Entry, EntryKind, MAX_PIECE, Reply, Request, WriteMode};
use super::{Runner, RunnerError};

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileEntry {
    /// Its name; empty where it was asked for by its path.
    pub(crate) name: OsString,
    /// What it is.
    pub(crate) kind: EntryKind,
    /// Its permissions.
    pub(crate) mode: u32,
    /// Its bytes.
    pub(crate) size: u64,
    /// When it was changed last, in nanoseconds since 1970.
    pub(crate) modified_ns: i64,
}

impl Runner {
    /// A file's contents.
    ///
    /// # Errors
    /// [`RunnerError::TooLarge`] over `limit` bytes; [`RunnerError::Outside`] when the path leads out of the root;
    /// [`RunnerError::Io`] as the system says.
    pub(crate) fn read(&self, path: &Path, limit: usize) -> Result<Vec<u8>, RunnerError> {
        let mut content = Vec::new();
        loop {
            let request = Request::Read { path: below(path), offset: content.len() as u64, limit: MAX_PIECE as u32 };
            let (size, read) = self.ask(&request, |reply| match reply {
                Reply::Piece { size, bytes } => {
                    content.extend_from_slice(bytes);
                    Some((size, bytes.len()))
                }
                _ => None,
            })?;
            if size > limit as u64 || content.len() > limit {
                let message = format!("{} has {size} bytes, of at most {limit}", path.display());
                return Err(RunnerError::TooLarge(message));
            }
            if read == 0 || content.len() as u64 >= size {
                return Ok(content);
            }
        }
    }

    /// Puts a file's contents, at once or not at all, and makes the directories above it.
    ///
    /// # Errors
    /// [`RunnerError::TooLarge`] over [`MAX_PIECE`] bytes; else as [`Runner::read`].
    pub(crate) fn write(
        &self,
        path: &Path,
        mode: WriteMode,
        executable: bool,
        content: &[u8],
    ) -> Result<(), RunnerError> {
        if content.len() > MAX_PIECE {
            let message = format!("{} bytes are more than the {MAX_PIECE} that can be written at once", content.len());
            return Err(RunnerError::TooLarge(message));
        }
        self.ask(&Request::Write { path: below(path), mode, executable, content }, done)
    }

    /// A directory's entries, sorted by name.
    ///
    /// # Errors
    /// As [`Runner::read`].
    pub(crate) fn list(&self, path: &Path) -> Result<Vec<FileEntry>, RunnerError> {
        self.ask(&Request::List { path: below(path) }, |reply| match reply {
            Reply::Entries(entries) => Some(entries.iter().map(FileEntry::new).collect()),
            _ => None,
        })
    }

    /// What is at a path; a link is not followed.
    ///
    /// # Errors
    /// As [`Runner::read`].
    pub(crate) fn stat(&self, path: &Path) -> Result<FileEntry, RunnerError> {
        self.ask(&Request::Stat { path: below(path) }, |reply| match reply {
            Reply::Entries(entries) => entries.first().map(FileEntry::new),
            _ => None,
        })
    }

    /// Removes an entry; a directory that is not empty only if `recursive`.
    ///
    /// # Errors
    /// As [`Runner::read`].
    pub(crate) fn remove(&self, path: &Path, recursive: bool) -> Result<(), RunnerError> {
        self.ask(&Request::Remove { path: below(path), recursive }, done)
    }
}

impl FileEntry {
    fn new(entry: &Entry<'_>) -> Self {
        let Entry { name, kind, mode, size, modified_ns } = *entry;
        Self { name: OsString::from_vec(name.to_vec()), kind, mode, size, modified_ns }
    }
}

fn done(reply: Reply<'_>) -> Option<()> {
    matches!(reply, Reply::Done { .. }).then_some(())
}

/// The path as the runner takes it: a leading slash means the root.
pub(super) fn below(path: &Path) -> &[u8] {
    let bytes = path.as_os_str().as_bytes();
    bytes.iter().position(|&byte| byte != b'/').and_then(|start| bytes.get(start..)).unwrap_or_default()
}
