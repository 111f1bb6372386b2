//! A session's files on a disk of this machine: safe operations beneath a directory, and finding out
//! what has changed there.

mod apply;
pub(crate) mod beneath;
mod index;
mod listing;
mod overlay;
mod plain;
mod scan;
mod stamp;
#[cfg(test)]
mod tests;
mod tree;

use std::io;

use crate::backends::{BackendError, FileChange, Touched};

pub(crate) use overlay::{OverlayDisk, OverlayOptions};
pub(crate) use plain::PlainDisk;
pub(crate) use tree::Tree;

/// A session's files on a disk, and what has changed there.
pub(crate) trait Disk: Send {
    /// The files.
    fn tree(&self) -> &Tree;

    /// What may have changed since the last `settle`; looks only, so that it may be asked again.
    ///
    /// It may name too much, never too little. Look at what it names afterwards, not before.
    fn touched(&mut self) -> io::Result<Vec<Touched>>;

    /// What `touched` saw is known from now on. What came after that look will be seen by the next.
    fn settle(&mut self) -> io::Result<()>;

    /// Applies changes and knows them afterwards, so that the next `touched` does not name them.
    ///
    /// # Errors
    /// As [`Tree::apply`].
    fn apply(&mut self, changes: &[FileChange]) -> Result<(), BackendError>;
}
