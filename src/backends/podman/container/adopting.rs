//! What a session's container has from elsewhere and gives: a container that is there already, files for another session.

use super::{Live, Machine, SessionContainer};
use crate::backends::podman::way::Way;
use crate::backends::podman::{paths, warm};
use crate::engine::event::ContainerStarted;
use crate::engine::id::SessionId;

impl SessionContainer {
    /// Takes a container that is there already, with nobody's files in it.
    pub(super) fn adopt(&self, machine: &mut Machine) -> Option<(Live, ContainerStarted)> {
        if machine.stopped.is_some() || !matches!(machine.way, None | Some(Way::Runner)) {
            return None;
        }
        let adopted = warm::adopt(&self.options, &self.name, &self.paths, &self.files)?;
        let event = self.started(&adopted.engine, &adopted.id, true, adopted.limits_enforced, &Way::Runner);
        (machine.engine, machine.way, machine.tried) = (Some(adopted.engine), Some(Way::Runner), true);
        machine.naming = adopted.naming;
        let (id, pid, executor) = (adopted.id, adopted.pid, adopted.executor);
        Some((Live { id, pid, executor, was_warm: true }, event))
    }

    /// Shares the files as they are with a session that has none yet. Gives false where they can't be, or a command runs.
    pub(in crate::backends::podman) fn share_files(&self, child: SessionId) -> std::io::Result<bool> {
        let mut machine = self.lock();
        let (own, child) = (self.paths.kin.home(), paths::kin(child)?);
        if !self.under_way.is_empty() || !self.files.is_overlay() || own.parent() != child.home().parent() {
            return Ok(false);
        }
        if machine.way.is_none() && self.paths.run.exists() {
            // A container that a killed process has left may write to these files yet.
            let engine = self.engine(&mut machine);
            let removed = engine.and_then(|engine| engine.remove_other(&self.name, None));
            if let Err(error) = removed {
                tracing::debug!(%error, "no container of the session was looked for");
            }
        }
        let _held = paths::hold(&child.home())?;
        // One that is there already, and plain.
        if child.home().join("files").exists() {
            return Ok(false);
        }
        let shared = self.files.share(child.name());
        if shared.is_err() {
            self.tear_down_held(&mut machine, "its files could not be shown");
        }
        shared
    }
}
