//! Giving a container another name.

use std::time::Duration;

use super::engine::{Engine, EngineError};
use super::paths::Paths;

/// How long that may take.
const LIMIT: Duration = Duration::from_secs(30);

impl Engine {
    /// Gives a container the name of a session's. Another one that has it was left by another process and is removed:
    /// nobody else has the session now.
    pub(super) fn rename(&self, id: &str, name: &str) -> Result<(), EngineError> {
        self.remove_other(name, Some(id))?;
        let container = self.podman.containers().get(id);
        self.ask("rename the container", LIMIT, container.rename(name))
    }

    /// Removes the container of that name, unless it is this one.
    pub(super) fn remove_other(&self, name: &str, own: Option<&str>) -> Result<(), EngineError> {
        match self.inspect(name) {
            Ok(other) if Some(other.id.as_str()) != own => match self.remove(&other.id) {
                Err(EngineError::NoContainer) => Ok(()),
                other => other,
            },
            Ok(_) | Err(EngineError::NoContainer) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Removes the container that another process has noted for a session: it may not have the session's name.
    pub(super) fn remove_noted(&self, paths: &Paths) -> Result<(), EngineError> {
        let failed = |error: std::io::Error| EngineError::Failed {
            action: "look for the session's last container",
            reason: error.to_string(),
        };
        let Some(id) = paths.noted_container().map_err(failed)? else { return Ok(()) };
        match self.remove(&id) {
            Ok(()) | Err(EngineError::NoContainer) => paths.forget_container().map_err(failed),
            Err(error) => Err(error),
        }
    }
}
