//! What workspaces need of a disk.

use std::io;

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

    /// Finds what may have changed since the last `settle`. It only looks, so that it may be asked again.
    ///
    /// It may name too much, never too little. Look at what it names afterwards, not before.
    fn touched(&mut self) -> io::Result<Vec<DirtyPath>>;

    /// Gives the last `touched`, until it is settled, so that it takes up what its caller is shown.
    fn pending(&mut self) -> Option<&mut PendingScan>;

    /// What `touched` saw is known from now on. What came after that will be seen by the next.
    fn settle(&mut self) -> io::Result<()>;

    /// What is there is known from now on, and nobody has looked at what would have been named.
    fn adopt(&mut self) -> io::Result<()>;

    /// Applies changes and knows them afterwards, so that the next `touched` does not name them.
    ///
    /// # Errors
    /// As [`DirTree::apply`].
    fn apply(&mut self, changes: &[FileChange]) -> Result<(), BackendError>;

    /// The same where nobody else uses the files meanwhile.
    ///
    /// # Errors
    /// As [`DirTree::lay_out`].
    fn lay_out(&mut self, changes: &[FileChange]) -> Result<(), BackendError>;
}
