//! Files on a disk brought from one state to another, with the record of it: both, or neither.

use bytes::Bytes;

use super::RewindError;
use super::plan::{Plan, Planned};
use crate::backends::{BackendError, FileChange, Workspace};
use crate::engine::commit::Commit;
use crate::engine::event::Node;
use crate::engine::session::Session;
use crate::engine::sessions::SessionError;
use crate::engine::store::Committed;
use crate::reducers::VirtualFileSystem;

/// Bytes of files that are in memory at once.
const PIECE_BYTES: u64 = 64 << 20;
/// Steps that are taken at once.
const PIECE_STEPS: usize = 4096;

/// A plan on its way to the disk.
pub(super) struct Landing<'a> {
    pub(super) session: &'a Session,
    pub(super) workspace: &'a dyn Workspace,
    pub(super) now: &'a VirtualFileSystem,
    pub(super) plan: &'a Plan,
}

impl Landing<'_> {
    /// Puts the plan's files onto the disk, then records the commit. When either fails, the disk is put back; when
    /// this process dies meanwhile, the next one fills the disk from what is recorded.
    pub(super) fn land(&self, commit: Commit) -> Result<Committed, RewindError> {
        if self.plan.is_empty() {
            return Ok(self.session.record(commit)?);
        }
        self.check()?;
        self.workspace.unsettled()?;
        let mut landed = 0;
        let projected = project(self.session, self.workspace, &self.plan.steps, &mut landed);
        let recorded = projected.and_then(|()| Ok(self.session.record(commit)?));
        let failure = match recorded {
            Ok(committed) => {
                // It went back, whatever becomes of the note: with it the next process fills the disk once more.
                if let Err(error) = self.workspace.filled() {
                    tracing::warn!(%error, "the disk is taken for unsettled when it is opened again");
                }
                return Ok(committed);
            }
            Err(failure) => failure,
        };
        match self.put_back(landed) {
            Ok(()) => Err(failure),
            Err(error) => {
                // Now also for this process: before the next call the disk is filled anew.
                if let Err(error) = self.workspace.filling() {
                    tracing::warn!(%error, "a later process does not know that the disk is unsettled");
                }
                Err(RewindError::NotPutBack { failure: failure.to_string(), reason: error.to_string() })
            }
        }
    }

    /// Every content is there before anything is changed.
    fn check(&self) -> Result<(), RewindError> {
        for step in &self.plan.steps {
            if let Planned::Write(event) = step {
                content_of(self.session, &event.node)?;
            }
        }
        Ok(())
    }

    fn put_back(&self, landed: usize) -> Result<(), RewindError> {
        let reached = self.plan.after(self.now, landed, self.session.now());
        let back = Plan::between(&reached, self.now);
        project(self.session, self.workspace, &back.steps, &mut 0)?;
        match back.left.first() {
            None => Ok(self.workspace.filled()?),
            Some(path) => {
                let reason = format!("{} was never kept and is gone", path.rooted());
                Err(BackendError { backend: self.workspace.backend_name(), reason }.into())
            }
        }
    }
}

impl Plan {
    /// Makes a workspace's files those that it leads to. An error leaves them anywhere between.
    pub(in crate::tools) fn project(&self, session: &Session, workspace: &dyn Workspace) -> Result<(), RewindError> {
        project(session, workspace, &self.steps, &mut 0)
    }
}

/// Takes the steps, a piece at a time; counts those that are on the disk.
fn project(
    session: &Session,
    workspace: &dyn Workspace,
    steps: &[Planned],
    landed: &mut usize,
) -> Result<(), RewindError> {
    let (mut changes, mut bytes) = (Vec::new(), 0);
    for (at, step) in steps.iter().enumerate() {
        let change = match step {
            Planned::Delete(event) => FileChange::Delete { path: event.path.clone() },
            Planned::Write(event) => {
                let content = content_of(session, &event.node)?;
                bytes += content.len() as u64;
                FileChange::Write { path: event.path.clone(), node: event.node.clone(), bytes: content }
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

fn content_of(session: &Session, node: &Node) -> Result<Bytes, SessionError> {
    match node {
        Node::File { content, .. } => session.content(content),
        Node::Symlink { .. } | Node::Directory | Node::Special { .. } => Ok(Bytes::new()),
    }
}
