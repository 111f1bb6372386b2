//! Copies of a session's files at any position on a disk.

use std::collections::BTreeSet;
use std::path::Path;

use super::populate::{can_be_written, fill};
use crate::backends::{FileChange, HostOptions, HostWorkspace, Workspace};
use crate::engine::path::EntryPath;
use crate::engine::session::Session;
use crate::engine::state::State;
use crate::reducers::VirtualFileSystem;
use crate::tools::error::WorkspaceError;

/// Result of a copy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Materialised {
    /// Number of entries, directories included.
    pub entries: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Entries that could not be written: files whose contents were never kept, and special files.
    pub left_out: Vec<EntryPath>,
}

/// Writes the files of a state into a directory that is empty or does not exist.
///
/// ```
/// use foldspace::{ToolRunner, MemoryWorkspace, NewSession, Registry, Sessions, ToolCall, Tools, materialise};
/// # let directory = tempfile::tempdir()?;
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
/// let sessions = Sessions::open(directory.path().join("data"), Registry::standard())?;
/// let session = sessions.create(NewSession::default())?;
/// let tools = ToolRunner::new(session.clone(), Tools::standard(), std::sync::Arc::new(MemoryWorkspace))?;
/// let params = serde_json::json!({ "file_path": "src/a.txt", "content": "hello" });
/// runtime.block_on(tools.call(ToolCall::new("write_file", params)))?;
///
/// let written = materialise(&session, &session.state()?, &directory.path().join("copy"))?;
/// assert_eq!((written.entries, written.bytes), (2, 5));
/// assert_eq!(std::fs::read(directory.path().join("copy/src/a.txt"))?, b"hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`WorkspaceError::NotEmpty`], and errors of the session and the disk. The directory is then emptied as far as
/// possible.
pub fn materialise(session: &Session, state: &State, directory: &Path) -> Result<Materialised, WorkspaceError> {
    let workspace = HostWorkspace::open(directory, &HostOptions::default())?;
    if !workspace.is_blank() {
        return Err(WorkspaceError::NotEmpty(directory.to_owned()));
    }
    materialise_into(session, state, &workspace).inspect_err(|_| clear(state, &workspace))
}

/// Removes the written entries; external ones stay.
fn clear(state: &State, workspace: &dyn Workspace) {
    let tree = VirtualFileSystem::of(state);
    let top: BTreeSet<&[u8]> = tree.iter().filter_map(|(path, _)| path.segments().next()).collect();
    for name in top {
        let cleared = EntryPath::root().join(name).map(|path| workspace.populate(&[FileChange::Delete { path }]));
        if let Ok(Err(error)) = cleared {
            tracing::warn!(%error, "what was written before an error stays");
        }
    }
}

/// Writes the files of a state into an empty workspace, such as a fresh container's.
///
/// # Errors
/// Errors of the session and the workspace.
pub fn materialise_into(
    session: &Session,
    state: &State,
    workspace: &dyn Workspace,
) -> Result<Materialised, WorkspaceError> {
    let tree = VirtualFileSystem::of(state);
    fill(session, &tree, workspace)?;
    let left_out: Vec<EntryPath> =
        tree.iter().filter(|(_, entry)| !can_be_written(entry)).map(|(path, _)| path.clone()).collect();
    let bytes = tree.iter().filter(|(_, entry)| can_be_written(entry)).map(|(_, entry)| entry.size()).sum();
    Ok(Materialised { entries: (tree.len() - left_out.len()) as u64, bytes, left_out })
}
