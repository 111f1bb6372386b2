//! Changes that commands have made to the files: where to look, and what is there.

use std::io::Read;
use std::path::Path;

use super::BackendError;
use super::git::GitPlace;
use crate::engine::clock::Timestamp;
use crate::engine::event::{FileMode, Special};
use crate::engine::id::{Digest, Seq, SessionId};
use crate::engine::path::EntryPath;

/// Finds what has changed on a workspace's disk, between commands, for one caller at a time.
pub trait ChangeDetector: Send + Sync {
    /// Finds where the disk may differ from what was last clean: too much perhaps, never too little. It only looks.
    ///
    /// Findings of [`observe`](ChangeDetector::observe), [`below`](ChangeDetector::below) and [`open`](ChangeDetector::open)
    /// count afterwards: what they found otherwise, the next call names again.
    fn dirty(&self) -> Result<Vec<DirtyPath>, BackendError>;

    /// The same by looking at every entry, also where the kernel tells what changed: it does not tell all.
    fn walk(&self) -> Result<Walked, BackendError> {
        Ok(Walked { dirty: self.dirty()?, late: Vec::new() })
    }

    /// Tells whether [`walk`](ChangeDetector::walk) has to be used next, since what the kernel does not tell would stay
    /// unknown for long.
    fn is_walk_due(&self) -> bool {
        false
    }

    /// Gives the way to keep what is known for a later process; none where that is not done.
    #[doc(hidden)]
    fn keeper(&self) -> Option<&dyn KnownFilesKeeper> {
        None
    }

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

    /// Returns true if a directory above a path can't be entered, so that nothing can be seen there.
    fn is_closed(&self, path: &EntryPath) -> bool {
        let _ = path;
        false
    }

    /// Everything below a directory, as far as this process may look.
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

    /// Tells whether entries are left out that are there: of a path that [`below`](ChangeDetector::below) does not show,
    /// only [`observe`](ChangeDetector::observe) tells.
    #[doc(hidden)]
    fn leaves_out(&self) -> bool {
        false
    }

    /// Lets new files be taken for what git has, unread, if `accept` takes the directory of its objects.
    #[doc(hidden)]
    fn borrow_from_git(&self, accept: &mut dyn FnMut(&Path) -> bool) {
        let _ = accept;
    }

    /// Returns the place of the directory's git worktree, if it may be another one than the last time.
    #[doc(hidden)]
    fn git_place(&self) -> Result<Option<GitPlace>, BackendError> {
        Ok(None)
    }

    /// Returns the digest of a file that need not be read, since git has its contents.
    #[doc(hidden)]
    fn borrowed(&self, path: &EntryPath) -> Option<Digest> {
        let _ = path;
        None
    }

    /// Returns true if a file looks like a secret. Its contents stay on this machine, or are not kept.
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

    /// Returns true if the contents of files that look like secrets are kept.
    #[doc(hidden)]
    fn keeps_secrets(&self) -> bool {
        false
    }

    /// A regular file's bytes; none when this process may not read it. Anything else is an error, and
    /// never waited for.
    ///
    /// # Errors
    /// [`BackendError`], also when the file is gone meanwhile.
    fn open(&self, path: &EntryPath) -> Result<Option<Box<dyn Read + Send>>, BackendError>;
}

/// The findings of a look at every entry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Walked {
    /// Paths at which the disk may differ from what was last clean.
    pub dirty: Vec<DirtyPath>,
    /// Those that the kernel had not told: they may have changed before earlier looks, which have missed them.
    pub late: Vec<DirtyPath>,
}

/// The position in a history whose files are those on a disk.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptAt {
    /// The session.
    pub session: SessionId,
    /// Its last event then.
    pub seq: Seq,
    /// The time of that event, which another event at this position does not have.
    pub time: Timestamp,
}

/// Keeps what is known of a disk for a later process, which then reads only what has changed since.
#[doc(hidden)]
pub trait KnownFilesKeeper {
    /// Takes up what an earlier process kept. `changed_since` gives the paths that the history has changed after that
    /// position; none where it can't tell, and then nothing is taken up. Does nothing once anything is known.
    fn resume(&self, changed_since: &dyn Fn(&KeptAt) -> Option<Vec<EntryPath>>);

    /// Tells whether enough has changed, and time passed, to keep it again.
    fn is_due(&self) -> bool;

    /// Keeps what is known: the files are those of the history at this position. Does nothing where that may not be so.
    fn keep(&self, at: &KeptAt);

    /// Notes that what is known of the disk may not be what the history says. Nothing is kept any more.
    fn distrust(&self);
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

/// Identity of a file on a disk: its device and its inode.
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
        /// Identity of a file with several names.
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
    /// Something without contents.
    Special(Special),
}

impl Observed {
    /// Returns true for a directory.
    pub fn is_directory(&self) -> bool {
        matches!(self, Self::Directory { .. })
    }
}
