//! The memory backend: the files are only in the journal.

use super::{BackendError, FileChange, Workspace};

/// A workspace without a disk: the fold of the events has all files, so there is nothing to project.
///
/// ```
/// # use foldspace_backends as foldspace;
/// use foldspace::{MemoryWorkspace, Workspace};
/// assert_eq!(MemoryWorkspace.backend_name(), "memory");
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct MemoryWorkspace;

impl Workspace for MemoryWorkspace {
    fn backend_name(&self) -> &'static str {
        "memory"
    }

    fn apply(&self, _: &[FileChange]) -> Result<(), BackendError> {
        Ok(())
    }
}
