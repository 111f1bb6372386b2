//! Transition of a disk between two states with its record: both happen, or neither.

use bytes::Bytes;

use super::borrowed::{borrows, replaced};
use super::hard_links::{apart, join_names};
use super::intent::Intent;
use super::managed::files_of;
use super::plan::{ChangePlan, NewContents, PlannedChange, after};
use super::populate::pieces;
use crate::backends::{BackendError, Workspace};
use crate::engine::commit::Commit;
use crate::engine::event::{Node, WriteFile, WriteMode};
use crate::engine::id::Digest;
use crate::engine::path::EntryPath;
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::engine::store::{Committed, StoreError};
use crate::reducers::{VirtualFileSystem, can_be_made};
use crate::tools::error::WorkspaceError;

/// Limits of one piece: bytes and steps.
const PIECE: (u64, usize) = (64 << 20, 4096);

/// Steps to write to a disk and record. The caller holds the workspace lock.
pub(in crate::tools) struct Landing<'a> {
    pub(in crate::tools) session: &'a Session,
    pub(in crate::tools) workspace: &'a dyn Workspace,
    pub(in crate::tools) now: &'a VirtualFileSystem,
    pub(in crate::tools) steps: &'a [PlannedChange],
    pub(in crate::tools) fresh: &'a NewContents,
}

fn is_unsettled(failure: &WorkspaceError) -> bool {
    matches!(failure, WorkspaceError::Session(SessionError::Store(StoreError::Unsettled)))
}

impl Landing<'_> {
    /// Writes the intent, changes the disk, then records the commit. If either fails, the disk is restored; if the
    /// process dies, the next process restores it from the intent.
    ///
    /// Also returns the hard links that became separate files: the file system can't link them.
    pub(in crate::tools) fn land(&self, commit: Commit) -> Result<(Committed, Vec<EntryPath>), WorkspaceError> {
        if self.steps.is_empty() {
            return Ok((self.session.record(commit)?, Vec::new()));
        }
        self.check()?;
        let mut commit = commit;
        if borrows(self.session) {
            let lost = self.steps.iter().flat_map(|step| replaced(self.session, self.now, step));
            lost.for_each(|content| commit.keep(content));
        }
        join_names(self.workspace, self.now);
        self.workspace.unsettled(&Intent::of(self.session, self.now, self.steps).encode()?)?;
        let mut landed = 0;
        let projected = project(self.session, self.workspace, self.steps, self.fresh, &mut landed);
        let recorded = projected.and_then(|()| Ok(self.session.record(commit)?));
        let failure = match recorded {
            Ok(committed) => {
                // The landing is complete without clearing the intent: the next process finds all recorded.
                if let Err(error) = self.workspace.filled() {
                    tracing::warn!(%error, "the next opening will treat the disk as unsettled");
                }
                let apart = self.record_apart().unwrap_or_else(|error| {
                    tracing::warn!(%error, "failed to record the hard links that could not be made");
                    Vec::new()
                });
                return Ok((committed, apart));
            }
            Err(failure) if is_unsettled(&failure) => {
                // The next opening uses the intent to match the disk with the record.
                self.workspace.filling()?;
                let reason = "it is unknown if the commit was recorded".to_owned();
                return Err(WorkspaceError::NotPutBack { failure: failure.to_string(), reason });
            }
            Err(failure) => failure,
        };
        match self.put_back(landed) {
            Ok(()) => Err(failure),
            Err(error) => {
                // Marks the disk for this process, too, so that it is repaired before the next call.
                if let Err(error) = self.workspace.filling() {
                    tracing::warn!(%error, "failed to mark the disk as unsettled for a later process");
                }
                Err(WorkspaceError::NotPutBack { failure: failure.to_string(), reason: error.to_string() })
            }
        }
    }

    /// Records names that could not be linked as separate files.
    fn record_apart(&self) -> Result<Vec<EntryPath>, WorkspaceError> {
        let links = self.steps.iter().filter_map(PlannedChange::link);
        let apart = apart(self.workspace, links)?;
        let files = files_of(self.session)?;
        let mut commit = self.session.commit();
        for path in &apart {
            if let Some(node) = files.node(path).cloned() {
                let path = path.clone();
                commit.push(&WriteFile { path, mode: WriteMode::Overwrite, node })?;
            }
        }
        if !apart.is_empty() {
            self.session.record(commit)?;
        }
        Ok(apart)
    }

    /// Checks that every content exists, before any change.
    fn check(&self) -> Result<(), WorkspaceError> {
        let contents = self.steps.iter().filter_map(|step| match step {
            PlannedChange::Write(event) if can_be_made(&event.node) => event.node.content(),
            PlannedChange::Write(_) | PlannedChange::Delete(_) | PlannedChange::Link(_) => None,
        });
        let kept: Vec<&Digest> = contents.filter(|digest| !self.fresh.contains_key(*digest)).collect();
        self.session.read_ahead(kept.iter().copied());
        for digest in kept {
            self.session.content_to_restore(digest)?;
        }
        Ok(())
    }

    fn put_back(&self, landed: usize) -> Result<(), WorkspaceError> {
        let reached = after(self.steps, self.now, landed, self.session.now());
        let back = ChangePlan::between(&reached, self.now);
        project(self.session, self.workspace, &back.steps, self.fresh, &mut 0)?;
        // A special file has no contents to lose. The next call records its removal.
        let is_special = |path: &&EntryPath| matches!(self.now.node(path), Some(Node::Special { .. }));
        match back.left.iter().find(|path| !is_special(path)) {
            None => Ok(self.workspace.filled()?),
            Some(path) => {
                let reason = format!("{} was never stored and is gone", path.rooted());
                Err(BackendError { backend: self.workspace.backend_name(), reason }.into())
            }
        }
    }
}

/// Applies steps to a workspace and counts the applied steps. An error may leave its files half-way.
pub(in crate::tools) fn project(
    session: &Session,
    workspace: &dyn Workspace,
    steps: &[PlannedChange],
    fresh: &NewContents,
    landed: &mut usize,
) -> Result<(), WorkspaceError> {
    let load = |step: &PlannedChange| step.file_change(|digest| content(session, digest, fresh)).map(Some);
    for piece in pieces(PIECE, steps.iter(), load) {
        let changes = piece?;
        workspace.apply(&changes)?;
        *landed += changes.len();
    }
    Ok(())
}

fn content(session: &Session, digest: &Digest, fresh: &NewContents) -> Result<Bytes, SessionError> {
    fresh.get(digest).cloned().map_or_else(|| session.content_to_restore(digest), Ok)
}
