//! Shares a session's files with another session.

use super::{ContainerState, SessionContainer};
use crate::backends::BackendError;
use crate::backends::disk::SealError;
use crate::backends::podman::{owners, paths};
use crate::engine::id::SessionId;
use crate::engine::lock::lock;
use crate::engine::path::EntryPath;

impl SessionContainer {
    /// Shares the files with a new session. Returns false if that is impossible, or a command may run.
    pub(in crate::backends::podman) fn share_files(&self, child: SessionId) -> std::io::Result<bool> {
        let mut state = lock(&self.state);
        let (own, child) = (self.paths.overlay.home(), paths::overlay(child)?);
        if !self.in_flight.is_empty() || !self.files.is_overlay() || own.parent() != child.home().parent() {
            return Ok(false);
        }
        if !self.is_left_alone(&mut state) {
            return Ok(false);
        }
        let _held = paths::hold(&child)?;
        // An existing plain directory.
        if child.home().join("files").exists() {
            return Ok(false);
        }
        owners::note_same(&child, &self.paths.overlay);
        match self.files.lock().share(child.name()) {
            Ok(shared) => Ok(shared),
            Err(SealError::Unmade(error)) => Err(error),
            Err(SealError::Misplaced(error)) => {
                self.tear_down_held(&mut state, "its files could not be shown");
                Err(error)
            }
        }
    }

    /// Joins the names of files, unless a command runs, which may be about to write through one of them.
    pub(in crate::backends::podman) fn join_names(
        &self,
        names: &dyn Fn() -> Vec<Vec<EntryPath>>,
    ) -> Result<(), BackendError> {
        if self.in_flight.is_empty() { self.files.lock().join_names(names) } else { Ok(()) }
    }

    /// Ensures that only containers with known commands can write to the files. Returns false if it can't.
    fn is_left_alone(&self, state: &mut ContainerState) -> bool {
        match state {
            ContainerState::Running(live) if live.runner.is_alive() => return true,
            ContainerState::Stopped { .. } => return true,
            ContainerState::None(_) if !self.paths.run.exists() => return true,
            ContainerState::None(_) => {}
            _ => return self.tear_down_held(state, "vanished"),
        }
        let removed = self.engine(state).and_then(|engine| self.remove_others(&engine));
        if let Err(error) = &removed {
            tracing::debug!(%error, "failed to rule out that a killed process's container writes to the files");
        }
        removed.is_ok()
    }
}
