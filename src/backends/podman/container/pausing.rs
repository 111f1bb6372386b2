//! A container whose processes are frozen while nobody needs them.

use super::{ContainerState, SessionContainer};
use crate::backends::podman::engine::EngineError;
use crate::backends::podman::launch::LiveContainer;
use crate::backends::shell::ShellError;
use crate::engine::lock::lock;

impl SessionContainer {
    pub(super) fn pause_running(&self) -> Result<bool, ShellError> {
        match &mut *lock(&self.state) {
            ContainerState::Running(live) if !self.in_flight.is_empty() => {
                let paused = live.engine.set_paused(&live.id, true);
                paused.map_err(|error| self.unavailable(error.to_string()))?;
                live.is_paused = true;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    pub(super) fn resume_paused(&self) -> Result<(), ShellError> {
        match &mut *lock(&self.state) {
            ContainerState::Running(live) => resume(live).map_err(|error| self.unavailable(error.to_string())),
            _ => Ok(()),
        }
    }
}

/// Lets the processes of a paused container go on.
pub(super) fn resume(live: &mut LiveContainer) -> Result<(), EngineError> {
    if live.is_paused {
        live.engine.set_paused(&live.id, false)?;
        live.is_paused = false;
    }
    Ok(())
}
