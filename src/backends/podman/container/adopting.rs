//! What a session's container has from elsewhere and gives: a container that is there already, files for another session.

use super::{ContainerState, LiveContainer, SessionContainer};
use crate::backends::disk::SealError;
use crate::backends::podman::exec_mode::ExecMode;
use crate::backends::podman::{owners, paths, warm};
use crate::engine::event::ContainerStarted;
use crate::engine::id::SessionId;

impl SessionContainer {
    /// Takes a container that is there already, with nobody's files in it.
    pub(super) fn adopt(&self, machine: &mut ContainerState) -> Option<(LiveContainer, ContainerStarted)> {
        if machine.stopped.is_some() || !matches!(machine.way, None | Some(ExecMode::Runner)) {
            return None;
        }
        let adopted = warm::adopt(&self.options, &self.name, &self.paths, &self.files)?;
        let event = self.started(&adopted.engine, &adopted.id, true, adopted.limits_enforced, &ExecMode::Runner);
        (machine.engine, machine.way, machine.tried) = (Some(adopted.engine), Some(ExecMode::Runner), true);
        machine.naming = adopted.naming;
        let (id, pid, executor) = (adopted.id, adopted.pid, adopted.executor);
        Some((LiveContainer { id, pid, executor, was_warm: true }, event))
    }

    /// Shares the files as they are with a session that has none yet. Gives false where they can't be, or where a command
    /// runs or may run.
    pub(in crate::backends::podman) fn share_files(&self, child: SessionId) -> std::io::Result<bool> {
        let mut machine = self.lock();
        let (own, child) = (self.paths.overlay.home(), paths::overlay(child)?);
        if !self.under_way.is_empty() || !self.files.is_overlay() || own.parent() != child.home().parent() {
            return Ok(false);
        }
        if !self.is_left_alone(&mut machine) {
            return Ok(false);
        }
        let _held = paths::hold(&child)?;
        // One that is there already, and plain.
        if child.home().join("files").exists() {
            return Ok(false);
        }
        owners::note_same(&child, &self.paths.overlay);
        match self.files.share(child.name()) {
            Ok(shared) => Ok(shared),
            Err(SealError::Unmade(error)) => Err(error),
            Err(SealError::Misplaced(error)) => {
                self.tear_down_held(&mut machine, "its files could not be shown");
                Err(error)
            }
        }
    }

    /// Whether no container can write to the files but one whose commands are known.
    fn is_left_alone(&self, machine: &mut ContainerState) -> bool {
        let can_ask = machine.engine.is_some() || machine.unreachable.is_some();
        let is_known = match &machine.container {
            Some(container) if container.executor.is_alive() => true,
            None if machine.stopped.is_some() || !machine.tried => true,
            _ => can_ask && self.tear_down_held(machine, "vanished"),
        };
        // Who has brought one up since has removed what a killed process has left.
        if !is_known || machine.way.is_some() || !self.paths.run.exists() {
            return is_known;
        }
        let removed = self.engine(machine).and_then(|engine| {
            engine.remove_noted(&self.paths)?;
            engine.remove_other(&self.name, None)
        });
        if let Err(error) = &removed {
            tracing::debug!(%error, "a killed process may have left a container that writes to the files");
        }
        removed.is_ok()
    }
}
