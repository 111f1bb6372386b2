//! A session's files on a disk of this machine: safe operations beneath a directory, and finding out
//! what has changed there.

mod apply;
pub(crate) mod beneath;
mod copying;
mod entries;
pub(crate) mod file_stat;
mod index;
mod lay_out;
mod listing;
pub(crate) mod locked;
mod making;
mod overlay;
mod plain;
pub(crate) mod populate_marker;
pub(crate) mod root_check;
mod scan;
mod seen;
pub(crate) mod staging_dir;
#[cfg(test)]
mod tests;
mod tree;

use std::io;

use crate::backends::{BackendError, DirtyPath, FileChange};
use crate::engine::path::EntryPath;

pub(crate) use file_stat::FileStat;
pub(crate) use overlay::{LayerUser, LazyOverlay, OverlayDisk, OverlayOptions, SealError};
pub(crate) use plain::PlainDisk;
pub(crate) use root_check::Anchor;
pub(crate) use staging_dir::{StagingDir, WITHIN};
pub(crate) use tree::{DirTree, TreeEntry};

/// Bytes of a directory's path beyond which nobody looks into it, as into one that may not be read. No program can name
/// a path of more than 4 KiB, but steps lead further down, and a look takes time and memory with the depth's square.
const PATH_BYTES_MAX: usize = 16 << 10;
/// Bytes that the paths have together which one look holds: those of eight million files, where a path has 64.
const LOOK_BYTES_MAX: usize = 512 << 20;

/// What is said where a look would hold more than that, and below which directory it came to it.
fn too_much(path: &[u8]) -> io::Error {
    let shown = String::from_utf8_lossy(&path[..path.len().min(200)]).into_owned();
    let more = if path.len() > 200 { "..." } else { "" };
    let words = format!("there are too many entries with too long paths, the last below /{shown}{more}; remove some");
    io::Error::other(words)
}

/// A session's files on a disk, and what has changed there.
pub(crate) trait WorkspaceDisk: Send {
    /// The files.
    ///
    /// # Errors
    /// When they can't be reached.
    fn tree(&self) -> io::Result<&DirTree>;

    /// What may have changed since the last `settle`; looks only, so that it may be asked again.
    ///
    /// It may name too much, never too little. Look at what it names afterwards, not before.
    fn touched(&mut self) -> io::Result<Vec<DirtyPath>>;

    /// Takes up what was found at a path that `touched` named, or none where nothing was. What is not as that look saw
    /// it is named by the next: it may be by then as it was, and known otherwise.
    fn found(&mut self, path: &EntryPath, found: Option<&FileStat>);

    /// The same of everything that was found below a directory, but for what is in those that are `closed`.
    fn found_below(&mut self, path: &EntryPath, found: &[(EntryPath, TreeEntry)], closed: &[EntryPath]);

    /// What `touched` saw is known from now on. What came after that look will be seen by the next.
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
