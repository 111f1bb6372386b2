//! Workspaces: where files and processes are. They know nothing of events.

mod memory;

use bytes::Bytes;

use crate::engine::event::Node;
use crate::engine::path::EntryPath;

pub use memory::MemoryWorkspace;

/// The place where a session's files are, besides the journal.
///
/// The journal is the truth and the workspace a projection of it: a change is first decided, then
/// projected here, then recorded.
pub trait Workspace: Send + Sync + 'static {
    /// The backend's name: `memory`, `host`, ...
    fn backend_name(&self) -> &'static str;

    /// Makes the changes, in order, all or none.
    ///
    /// # Errors
    /// [`BackendError`]; the files are then as before.
    fn project(&self, changes: &[FileChange]) -> Result<(), BackendError>;
}

/// One change of a workspace's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileChange {
    /// An entry is put at a path.
    Write {
        /// Where.
        path: EntryPath,
        /// What.
        node: Node,
        /// A file's contents; empty for anything else.
        bytes: Bytes,
    },
    /// An entry and everything below it is removed.
    Delete {
        /// Which.
        path: EntryPath,
    },
}

/// What a backend could not do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the {backend} workspace failed: {reason}")]
pub struct BackendError {
    /// The backend's name.
    pub backend: &'static str,
    /// What went wrong, for a person.
    pub reason: String,
}
