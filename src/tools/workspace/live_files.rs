//! The files on a workspace's disk while commands run.

use bytes::Bytes;

use super::capture::{CaptureBudget, compare};
use super::managed::ManagedWorkspace;
use super::plan::NewContents;
use crate::backends::{BackendError, DirtyPath};
use crate::engine::id::{Digest, Seq};
use crate::engine::path::EntryPath;
use crate::engine::session::Session;
use crate::reducers::VirtualFileSystem;
use crate::tools::error::WorkspaceError;

/// Limit for the contents that are read at once. Files beyond it are `incomplete`, with a digest of zeros.
const BYTES_MAX: u64 = 64 << 20;

/// The files on a workspace's disk now. They may not be recorded yet, and may change again before they are.
#[derive(Debug)]
pub struct LiveFiles {
    /// The files. Unrecorded changes have the time of the reading.
    pub files: VirtualFileSystem,
    /// The last recorded position when they were read.
    pub at: Seq,
    contents: NewContents,
}

impl LiveFiles {
    /// Returns the contents of an unrecorded file.
    pub fn content(&self, digest: &Digest) -> Option<Bytes> {
        self.contents.get(digest).cloned()
    }
}

impl ManagedWorkspace {
    /// Reads the files at and below `path` without waiting for calls; others are as recorded. It records nothing, and
    /// the scan after the command finds the same changes as without it.
    pub(crate) fn live_files(&self, session: &Session, path: &EntryPath) -> Result<LiveFiles, WorkspaceError> {
        let disk = self.workspace.capture().and_then(|disk| disk.live());
        if self.workspace.is_blank() {
            let reason = "its files are being replaced; try again".to_owned();
            return Err(BackendError { backend: self.workspace.backend_name(), reason }.into());
        }
        // Scanned before the state is read: a change that is recorded in between is compared with its record.
        let mut dirty = disk.as_ref().map_or(Ok(Vec::new()), |disk| disk.dirty())?;
        dirty.retain(|dirty| {
            let (DirtyPath::Entry(found) | DirtyPath::Subtree(found)) = dirty;
            found == path || found.is_below(path) || path.is_below(found)
        });
        let (state, now) = (session.state()?, session.now());
        let (mut files, mut contents) = (VirtualFileSystem::of(&state), NewContents::new());
        self.held.add_to((&mut files, &mut contents), now);
        if let Some(disk) = disk {
            let most = |bytes: u64| bytes.min(BYTES_MAX);
            let CaptureBudget { file_bytes, step_bytes, .. } = self.rules.budget;
            let budget =
                CaptureBudget { file_bytes: most(file_bytes), step_bytes: most(step_bytes), digest_bytes: BYTES_MAX };
            let captured = compare(disk.as_ref(), dirty, &files, budget)?;
            captured.changes.iter().for_each(|change| change.apply_to(&mut files, now));
            contents.extend(captured.contents.into_iter().chain(captured.withheld));
        }
        Ok(LiveFiles { files, at: state.seq(), contents })
    }
}
