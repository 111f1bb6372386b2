//! The operations that workspaces need of a disk.

use std::io;
use std::path::Path;

use super::pending_scan::PendingScan;
use super::tree::DirTree;
use crate::backends::{BackendError, DirtyPath, FileChange};

/// A session's files on a disk, and what has changed there.
pub(crate) trait WorkspaceDisk: Send {
    /// Gives the files.
    ///
    /// # Errors
    /// When they can't be reached.
    fn tree(&self) -> io::Result<&DirTree>;

    /// Finds what may have changed since the last `mark_clean`. It only looks, so that it may be asked again.
    ///
    /// It may name too much, never too little. Look at what it names afterwards, not before.
    fn dirty(&mut self) -> io::Result<Vec<DirtyPath>>;

    /// Gives the last `dirty`, until it is settled, so that it takes up what its caller is shown.
    fn pending(&mut self) -> Option<&mut PendingScan>;

    /// Takes what `dirty` saw for known. What came after that will be seen by the next.
    fn mark_clean(&mut self) -> io::Result<()>;

    /// Takes what is there for known, though nobody has looked at what would have been named.
    fn adopt(&mut self) -> io::Result<()>;

    /// Applies changes and knows them afterwards, so that the next `dirty` does not name them.
    ///
    /// # Errors
    /// As [`DirTree::apply`].
    fn apply(&mut self, changes: &[FileChange]) -> Result<(), BackendError>;

    /// The same where nobody else uses the files meanwhile.
    ///
    /// # Errors
    /// As [`DirTree::populate`].
    fn populate(&mut self, changes: &[FileChange]) -> Result<(), BackendError>;

    /// Tells whether a scan takes microseconds when nothing has changed.
    fn is_quick(&self) -> bool {
        false
    }

    /// Shows the files at `at` in the mount namespace of a running process, on top of what is there, where they are not
    /// there already.
    ///
    /// # Errors
    /// When there is no such process or directory, or the process may not be reached.
    fn attach(&mut self, pid: i32, at: &Path) -> io::Result<()> {
        let _ = (pid, at);
        Ok(())
    }

    /// Takes the files away from everywhere that `attach` has shown them for this process.
    fn detach(&mut self, pid: i32) -> io::Result<()> {
        let _ = pid;
        Ok(())
    }

    /// Keeps a scan fast where much has changed. No command may run meanwhile.
    ///
    /// # Errors
    /// [`SealError`].
    fn seal_if_large(&mut self) -> Result<(), SealError> {
        Ok(())
    }

    /// Makes the files, as they are now, those of the disk of that name beside this one, which is none yet. What either
    /// changes from now on the other does not see. No command may run meanwhile, nor may anybody else have that disk.
    ///
    /// Gives false, and has changed nothing, where that can't be done.
    ///
    /// # Errors
    /// [`SealError`]; the other one is none then.
    fn share(&mut self, name: &str) -> Result<bool, SealError> {
        let _ = name;
        Ok(false)
    }
}

/// The reason for which files could not be sealed, or shared.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SealError {
    /// Something could not be made. All is as it was.
    #[error(transparent)]
    Unmade(#[from] io::Error),
    /// The files could not be put where they are attached. That container still shows the old ones and has to be given
    /// up.
    #[error(transparent)]
    Misplaced(io::Error),
}
