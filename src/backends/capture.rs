//! Detection of the changes that commands made to the files: where to look, and what is there now.

use std::io::Read;
use std::path::Path;

use super::BackendError;
use super::git::GitPlace;
use crate::engine::clock::Timestamp;
use crate::engine::event::{FileMode, Special};
use crate::engine::id::{Digest, Seq, SessionId};
use crate::engine::path::EntryPath;

/// Finds the changes on a workspace's disk between commands, for one caller at a time.
pub trait ChangeDetector: Send + Sync {
    /// Finds where the disk may differ from the last clean state: perhaps too much, never too little. Read-only.
    ///
    /// Later results of [`observe`](ChangeDetector::observe), [`below`](ChangeDetector::below) and
    /// [`open`](ChangeDetector::open) count too: the next call reports a path again if they found it different.
    fn dirty(&self) -> Result<Vec<DirtyPath>, BackendError>;

    /// Finds the same by visiting every entry, even if the kernel reports changes: its reports are incomplete.
    fn walk(&self) -> Result<Walked, BackendError> {
        Ok(Walked { dirty: self.dirty()?, late: Vec::new() })
    }

    /// Returns true if [`walk`](ChangeDetector::walk) has to be used next, before changes that the kernel does not
    /// report stay undetected for too long.
    fn is_walk_due(&self) -> bool {
        false
    }

    /// Returns the store of scan results for later processes; `None` if they are not stored.
    #[doc(hidden)]
    fn keeper(&self) -> Option<&dyn KnownFilesKeeper> {
        None
    }

    /// Returns a detector that reads the present files while another caller may be scanning: it changes no result of a
    /// scan, and marks nothing as clean. `None` if it is not supported.
    #[doc(hidden)]
    fn live(&self) -> Option<Box<dyn ChangeDetector + '_>> {
        None
    }

    /// Returns true if a scan without changes takes microseconds, so that it needs no separate thread.
    fn is_quick(&self) -> bool {
        false
    }

    /// Marks the results of the last [`dirty`](ChangeDetector::dirty) as clean.
    ///
    /// # Errors
    /// [`BackendError`]; the entries may then be reported again.
    fn mark_clean(&self) -> Result<(), BackendError>;

    /// Marks everything on disk as clean: the caller has put it there, and nothing else uses the files.
    ///
    /// # Errors
    /// [`BackendError`]; the entries may then be reported.
    fn adopt(&self) -> Result<(), BackendError> {
        self.dirty()?;
        self.mark_clean()
    }

    /// Returns the entry at a path without following links; `None` if it does not exist.
    fn observe(&self, path: &EntryPath) -> Result<Option<Observed>, BackendError>;

    /// Returns true if a directory above a path can't be entered, which hides everything in it.
    fn is_closed(&self, path: &EntryPath) -> bool {
        let _ = path;
        false
    }

    /// Lists everything below a directory, as far as this process has access.
    fn below(&self, path: &EntryPath) -> Result<Below, BackendError>;

    /// Clears the set-user-ID and set-group-ID bits of a file. Returns false, and does nothing, where files may have them.
    #[doc(hidden)]
    fn clear_set_id(&self, path: &EntryPath) -> Result<bool, BackendError> {
        let _ = path;
        Ok(false)
    }

    /// Returns the birth time of an entry, if the file system has one. A move keeps it.
    #[doc(hidden)]
    fn born(&self, path: &EntryPath) -> Option<Timestamp> {
        let _ = path;
        None
    }

    /// Returns true if a directory has entries other than the known ones.
    #[doc(hidden)]
    fn has_others(&self, directory: &EntryPath, is_known: &dyn Fn(&EntryPath) -> bool) -> Result<bool, BackendError> {
        let _ = (directory, is_known);
        Ok(false)
    }

    /// Returns true if some existing entries are left out: [`below`](ChangeDetector::below) does not list them, and
    /// only [`observe`](ChangeDetector::observe) finds them.
    #[doc(hidden)]
    fn leaves_out(&self) -> bool {
        false
    }

    /// Lets new files be recorded by their git blobs, unread, if `accept` takes git's object directory.
    #[doc(hidden)]
    fn borrow_from_git(&self, accept: &mut dyn FnMut(&Path) -> bool) {
        let _ = accept;
    }

    /// Returns the place of the directory's git worktree, if it may have changed since the last call.
    #[doc(hidden)]
    fn git_place(&self) -> Result<Option<GitPlace>, BackendError> {
        Ok(None)
    }

    /// Returns the digest of a file that need not be read because git has its contents.
    #[doc(hidden)]
    fn borrowed(&self, path: &EntryPath) -> Option<Digest> {
        let _ = path;
        None
    }

    /// Returns true if a file looks like a secret. Its contents stay on this machine, or are not stored.
    #[doc(hidden)]
    fn is_secret(&self, path: &EntryPath) -> bool {
        let _ = path;
        false
    }

    /// Reads the data of a file that is mostly holes, with the position of each piece. `None` for other files.
    #[doc(hidden)]
    fn sparse_data(&self, path: &EntryPath) -> Result<Option<Box<dyn Read + Send>>, BackendError> {
        let _ = path;
        Ok(None)
    }

    /// Returns true if the contents of files that look like secrets are stored.
    #[doc(hidden)]
    fn keeps_secrets(&self) -> bool {
        false
    }

    /// Opens a regular file; `None` if this process may not read it. Anything else is an error, and never blocks.
    ///
    /// # Errors
    /// [`BackendError`], also if the file was removed in the meantime.
    fn open(&self, path: &EntryPath) -> Result<Option<Box<dyn Read + Send>>, BackendError>;
}

/// The findings of a full walk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Walked {
    /// Paths where the disk may differ from the last clean state.
    pub dirty: Vec<DirtyPath>,
    /// Paths that the kernel did not report: they may have changed before earlier scans, which missed them.
    pub late: Vec<DirtyPath>,
}

/// The position in a history that matches the files on a disk.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptAt {
    /// The session.
    pub session: SessionId,
    /// The session's last event at that time.
    pub seq: Seq,
    /// The time of that event, which distinguishes it from another event at the same position.
    pub time: Timestamp,
}

/// Stores scan results for a later process, which then reads only the changes since.
#[doc(hidden)]
pub trait KnownFilesKeeper {
    /// Loads the results of an earlier process. `changed_since` returns the paths that the history has changed since
    /// that position; if it returns `None`, nothing is loaded. Does nothing once there are results.
    fn resume(&self, changed_since: &dyn Fn(&KeptAt) -> Option<Vec<EntryPath>>);

    /// Returns true if enough has changed, and enough time has passed, to store the results again.
    fn is_due(&self) -> bool;

    /// Stores the results: the files match the history at this position. Does nothing if that is uncertain.
    fn keep(&self, at: &KeptAt);

    /// Records that the results may not match the history. Nothing is stored any more.
    fn distrust(&self);
}

/// A path where something may have changed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum DirtyPath {
    /// At this path. If it no longer holds a directory, everything that was below it is included.
    Entry(EntryPath),
    /// At this path and anywhere below it.
    Subtree(EntryPath),
}

/// The entries below a directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Below {
    /// The entries, in no order.
    pub entries: Vec<(EntryPath, Observed)>,
    /// Directories among them, or the requested one, that this process may not read or that have a path over 16 KiB.
    /// Nothing below them is known.
    pub closed: Vec<EntryPath>,
}

/// The identity of a file on a disk: its device and inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileId(pub u64, pub u64);

/// The entry at a path on a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Observed {
    /// A regular file.
    File {
        /// Bytes.
        size: u64,
        /// Permission bits.
        mode: FileMode,
        /// The identity of a file with several names.
        shared: Option<FileId>,
    },
    /// A symbolic link.
    Symlink {
        /// Its target.
        target: Vec<u8>,
    },
    /// A directory.
    Directory {
        /// Permission bits.
        mode: FileMode,
    },
    /// An entry without contents.
    Special(Special),
}

impl Observed {
    /// Returns true for a directory.
    pub fn is_directory(&self) -> bool {
        matches!(self, Self::Directory { .. })
    }
}
