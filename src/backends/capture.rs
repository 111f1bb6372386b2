//! Changes that commands have made to the files: where to look, and what is there.

use std::io::Read;

use super::BackendError;
use crate::engine::event::Special;
use crate::engine::path::EntryPath;

/// Finds what has changed on a workspace's disk, between commands, for one caller at a time.
pub trait ChangeDetector: Send + Sync {
    /// Finds where the disk may differ from what was last clean: too much perhaps, never too little. It only looks.
    ///
    /// Findings of [`observe`](ChangeDetector::observe), [`below`](ChangeDetector::below) and [`open`](ChangeDetector::open)
    /// count afterwards: what they found otherwise, the next call names again.
    fn dirty(&self) -> Result<Vec<DirtyPath>, BackendError>;

    /// Tells whether a scan takes microseconds when nothing has changed, so that it needs no thread of its own.
    fn is_quick(&self) -> bool {
        false
    }

    /// Takes what the last [`dirty`](ChangeDetector::dirty) saw for known.
    ///
    /// # Errors
    /// [`BackendError`]; it may then be named again.
    fn mark_clean(&self) -> Result<(), BackendError>;

    /// Takes what is there for known: the caller has put it there, and no one else uses the files.
    ///
    /// # Errors
    /// [`BackendError`]; then it may be named.
    fn adopt(&self) -> Result<(), BackendError> {
        self.dirty()?;
        self.mark_clean()
    }

    /// Looks at a path, links not followed; none where nothing is.
    fn observe(&self, path: &EntryPath) -> Result<Option<Observed>, BackendError>;

    /// Everything below a directory, as far as this process may look.
    fn below(&self, path: &EntryPath) -> Result<Below, BackendError>;

    /// A regular file's bytes; none when this process may not read it. Anything else is an error, and
    /// never waited for.
    ///
    /// # Errors
    /// [`BackendError`], also when the file is gone meanwhile.
    fn open(&self, path: &EntryPath) -> Result<Option<Box<dyn Read + Send>>, BackendError>;
}

/// A path where something may have changed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum DirtyPath {
    /// At this path. Where nothing is now, or no directory, it stands for what was below it, too.
    Entry(EntryPath),
    /// At this path and anywhere below it.
    Subtree(EntryPath),
}

/// The entries below a directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Below {
    /// The entries, in no order.
    pub entries: Vec<(EntryPath, Observed)>,
    /// Directories among them, or the one that was asked about, into which this process may not look, or that
    /// are too deep to look into (a path of 16 KiB): of what is below them nothing is known.
    pub closed: Vec<EntryPath>,
}

/// The entry at a path on a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Observed {
    /// A regular file.
    File {
        /// Bytes.
        size: u64,
        /// Tells whether its owner may execute it.
        executable: bool,
    },
    /// A symbolic link.
    Symlink {
        /// Its target.
        target: Vec<u8>,
    },
    /// A directory.
    Directory,
    /// Something without contents.
    Special(Special),
}
