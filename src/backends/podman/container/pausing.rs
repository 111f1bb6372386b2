//! Pause and resume of a container's processes.

use super::{ContainerState, SessionContainer};
use crate::backends::podman::engine::EngineError;
use crate::backends::podman::launch::LiveContainer;
use crate::backends::shell::ShellError;
use crate::engine::lock::lock;

impl SessionContainer {
    pub(super) fn pause_running(&self) -> Result<bool, ShellError> {
        match &mut *lock(&self.state) {
            ContainerState::Running(live) if !self.in_flight.is_empty() && !live.is_paused => {
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

/// Resumes the processes of a paused container.
pub(super) fn resume(live: &mut LiveContainer) -> Result<(), EngineError> {
    if live.is_paused {
        let resumed = live.engine.set_paused(&live.id, false);
        // Another program may have resumed or ended it. Then it is as if it had never been paused.
        if let Err(error) = resumed
            && live.engine.inspect(&live.id).is_ok_and(|seen| seen.paused)
        {
            return Err(error);
        }
        live.is_paused = false;
    }
    Ok(())
}
