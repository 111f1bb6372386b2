//! Files on a disk brought from one state to another, with the record of it: both, or neither.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::intent::Intent;
use super::plan::{ChangePlan, PlannedChange, after};
use crate::backends::{BackendError, FileChange, Workspace};
use crate::engine::commit::Commit;
use crate::engine::event::Node;
use crate::engine::id::Digest;
use crate::engine::session::Session;
use crate::engine::session::sessions::SessionError;
use crate::engine::store::{Committed, StoreError};
use crate::reducers::VirtualFileSystem;
use crate::tools::error::WorkspaceError;

/// Bytes of files that are in memory at once.
const PIECE_BYTES: u64 = 64 << 20;
/// Steps that are taken at once.
const PIECE_STEPS: usize = 4096;

/// Steps on their way to the disk. Who has them lands keeps others from the workspace meanwhile.
pub(in crate::tools) struct Landing<'a> {
    pub(in crate::tools) session: &'a Session,
    pub(in crate::tools) workspace: &'a dyn Workspace,
    /// The files as they are on the disk.
    pub(in crate::tools) now: &'a VirtualFileSystem,
    pub(in crate::tools) steps: &'a [PlannedChange],
    /// Contents that the store gets with the commit.
    pub(in crate::tools) fresh: &'a NewContents,
}

/// Contents that are in no store yet.
pub(in crate::tools) type NewContents = BTreeMap<Digest, Bytes>;

fn is_unsettled(failure: &WorkspaceError) -> bool {
    matches!(failure, WorkspaceError::Session(SessionError::Store(StoreError::Unsettled(_))))
}

impl Landing<'_> {
    /// Notes what it is about to do, puts the files onto the disk, then records the commit. When either fails, the
    /// disk is put back; when this process dies meanwhile, the next one does that by the note.
    pub(in crate::tools) fn land(&self, commit: Commit) -> Result<Committed, WorkspaceError> {
        if self.steps.is_empty() {
            return Ok(self.session.record(commit)?);
        }
        self.check()?;
        self.workspace.unsettled(&Intent::of(self.session, self.now, self.steps).encode()?)?;
        let mut landed = 0;
        let projected = project(self.session, self.workspace, self.steps, self.fresh, &mut landed);
        let recorded = projected.and_then(|()| Ok(self.session.record(commit)?));
        let failure = match recorded {
            Ok(committed) => {
                // It is done, whatever becomes of the note: by it the next process finds that all is as recorded.
                if let Err(error) = self.workspace.filled() {
                    tracing::warn!(%error, "the disk is taken for unsettled when it is opened again");
                }
                return Ok(committed);
            }
            Err(failure) if is_unsettled(&failure) => {
                // By the note the next opening makes the disk what is recorded then.
                self.workspace.filling()?;
                let reason = "the next opening finds out".to_owned();
                return Err(WorkspaceError::NotPutBack { failure: failure.to_string(), reason });
            }
            Err(failure) => failure,
        };
        match self.put_back(landed) {
            Ok(()) => Err(failure),
            Err(error) => {
                // Now also for this process: before the next call the disk is put right.
                if let Err(error) = self.workspace.filling() {
                    tracing::warn!(%error, "a later process does not know that the disk is unsettled");
                }
                Err(WorkspaceError::NotPutBack { failure: failure.to_string(), reason: error.to_string() })
            }
        }
    }

    /// Every content is there before anything is changed.
    fn check(&self) -> Result<(), WorkspaceError> {
        for step in self.steps {
            if let PlannedChange::Write(event, _) = step {
                content_of(self.session, &event.node, self.fresh)?;
            }
        }
        Ok(())
    }

    fn put_back(&self, landed: usize) -> Result<(), WorkspaceError> {
        let reached = after(self.steps, self.now, landed, self.session.now());
        let back = ChangePlan::between(&reached, self.now);
        project(self.session, self.workspace, &back.steps, self.fresh, &mut 0)?;
        match back.left.first() {
            None => Ok(self.workspace.filled()?),
            Some(path) => {
                let reason = format!("{} was never kept and is gone", path.rooted());
                Err(BackendError { backend: self.workspace.backend_name(), reason }.into())
            }
        }
    }
}

impl ChangePlan {
    /// Makes a workspace's files those that it leads to. An error leaves them anywhere between.
    pub(in crate::tools) fn project(&self, session: &Session, workspace: &dyn Workspace) -> Result<(), WorkspaceError> {
        project(session, workspace, &self.steps, &NewContents::new(), &mut 0)
    }
}

/// Takes the steps, a piece at a time; counts those that are on the disk.
fn project(
    session: &Session,
    workspace: &dyn Workspace,
    steps: &[PlannedChange],
    fresh: &NewContents,
    landed: &mut usize,
) -> Result<(), WorkspaceError> {
    let (mut changes, mut bytes) = (Vec::new(), 0);
    for (at, step) in steps.iter().enumerate() {
        let change = match step {
            PlannedChange::Delete(event) => FileChange::Delete { path: event.path.clone() },
            PlannedChange::Write(event, modified) => {
                let content = content_of(session, &event.node, fresh)?;
                bytes += content.len() as u64;
                FileChange::Write {
                    path: event.path.clone(),
                    node: event.node.clone(),
                    bytes: content,
                    modified: *modified,
                }
            }
        };
        changes.push(change);
        if bytes >= PIECE_BYTES || changes.len() >= PIECE_STEPS || at + 1 == steps.len() {
            workspace.project(&changes)?;
            *landed = at + 1;
            (changes, bytes) = (Vec::new(), 0);
        }
    }
    Ok(())
}

fn content_of(session: &Session, node: &Node, fresh: &NewContents) -> Result<Bytes, SessionError> {
    match node {
        Node::File { content, .. } => fresh.get(content).cloned().map_or_else(|| session.content(content), Ok),
        Node::Symlink { .. } | Node::Directory | Node::Special { .. } => Ok(Bytes::new()),
    }
}
