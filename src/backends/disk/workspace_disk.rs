//! The disk operations that workspaces need.

use std::io;
use std::path::Path;

use super::ignore_rules::IgnoreRules;
use super::pending_scan::KnownFiles;
use super::tree::DirTree;
use crate::backends::{BackendError, DirtyPath, FileChange, KeptAt, Walked};
use crate::engine::id::Digest;
use crate::engine::path::EntryPath;

pub(crate) trait WorkspaceDisk: Send {
    fn tree(&self) -> io::Result<&DirTree>;

    /// Finds the possible changes since the last `mark_clean`: perhaps too much, never too little. It changes nothing.
    /// Read the reported entries after the call, not before.
    fn dirty(&mut self) -> io::Result<Vec<DirtyPath>>;

    /// Finds the same without any effect on later scans.
    fn peek(&self) -> io::Result<Vec<DirtyPath>>;

    /// Finds the same by scanning every entry.
    fn walk(&mut self) -> io::Result<Walked> {
        Ok(Walked { dirty: self.dirty()?, late: Vec::new() })
    }

    fn is_walk_due(&self) -> bool {
        false
    }

    /// Loads the stored results of an earlier process. `changed_since` returns the paths changed since in the history.
    fn resume(&mut self, changed_since: &dyn Fn(&KeptAt) -> Option<Vec<EntryPath>>) {
        let _ = changed_since;
    }

    fn is_keeping_due(&self) -> bool {
        false
    }

    /// Stores the known files, which match the history at that position.
    fn keep(&mut self, at: &KeptAt) {
        let _ = at;
    }

    /// Stops storing: the files may not match the history.
    fn distrust(&mut self) {}

    /// Returns true if files may have set-user-ID bits. They may not in a directory of the host's that a container shares.
    fn allows_set_id(&self) -> bool {
        true
    }

    /// Returns the rules for leaving entries out.
    fn rules(&self) -> Option<&IgnoreRules> {
        None
    }

    /// Records new files by their git blobs, unread, from the next full scan on.
    fn borrow_from_git(&mut self) {}

    /// Returns the digest of a file that need not be read.
    fn borrowed(&mut self, path: &EntryPath) -> Option<Digest> {
        let _ = path;
        None
    }

    /// Returns the known files and the last `dirty`, which is compared with its caller's reads.
    fn known(&mut self) -> &mut KnownFiles;

    /// Settles the results of `dirty`. The next one finds later changes.
    fn mark_clean(&mut self) -> io::Result<()> {
        self.known().mark_clean();
        Ok(())
    }

    /// Marks everything on disk as known, without a scan of the changes.
    fn adopt(&mut self) -> io::Result<()> {
        self.dirty()?;
        if let Some(pending) = &mut self.known().pending {
            pending.index_mut().trust();
        }
        self.mark_clean()
    }

    /// Applies changes and adds them to the index, so that the next `dirty` does not report them.
    fn apply(&mut self, changes: &[FileChange]) -> Result<(), BackendError>;

    /// Applies changes to files that nothing else uses at the same time.
    fn populate(&mut self, changes: &[FileChange]) -> Result<(), BackendError>;

    fn is_overlay(&self) -> bool {
        false
    }

    /// Returns true if `attach` shows the files. If not, a container is created with their directory.
    fn is_attached(&self) -> bool {
        self.is_overlay()
    }

    /// Shows the files at `at` in the mount namespace of a running process.
    fn attach(&mut self, pid: i32, at: &Path) -> io::Result<()> {
        let _ = (pid, at);
        Ok(())
    }

    /// Removes the files from all places where `attach` has shown them to this process.
    fn detach(&mut self, pid: i32) -> io::Result<()> {
        let _ = pid;
        Ok(())
    }

    /// Returns true if this process sees the files at all places where `attach` has shown them to it.
    fn is_seen(&self) -> bool {
        true
    }

    /// Keeps scans fast after many changes. No command may run at the same time.
    fn seal_if_large(&mut self) -> Result<(), SealError> {
        Ok(())
    }

    /// Joins the names of each file if a lower layer has them, so that a write through one name is seen through the
    /// others. No command may run at the same time.
    fn join_names(&mut self, names: &dyn Fn() -> Vec<Vec<EntryPath>>) -> Result<(), BackendError> {
        let _ = names;
        Ok(())
    }

    /// Shares the current files, copy-on-write, with the sibling disk `name`, which must be empty. No command may run,
    /// and nothing else may use that disk. Returns false without any change if sharing is not supported.
    fn share(&mut self, name: &str) -> Result<bool, SealError> {
        let _ = name;
        Ok(false)
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum SealError {
    /// The operation failed without any change.
    #[error(transparent)]
    Unmade(#[from] io::Error),
    /// The files could not be attached: the container shows the old ones and has to be removed.
    #[error(transparent)]
    Misplaced(io::Error),
}
