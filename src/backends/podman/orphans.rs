//! Containers whose process ended without removing them.

use super::container_plan::WARM;
use super::engine::{Engine, EngineError, Ours};
use super::paths;
use super::process_label::{Owner, PidNamespace};
use crate::backends::BackendError;
use crate::backends::containers::{Leftover, Leftovers};

/// Returns the session that a container is for: one that was made before a session needed it is noted by its session.
fn session_of(container: &Ours) -> String {
    let noted = || paths::noted_by(&container.id);
    let noted = if container.session == WARM { noted() } else { None };
    noted.unwrap_or_else(|| container.session.clone())
}

/// Removes the containers of processes that have ended, and what interrupted ones left of shared files. Asks the engine
/// at `connection`, or the one that the environment names; with `dry_run` only finds them.
pub fn remove_leftovers(connection: Option<&str>, dry_run: bool) -> Result<Leftovers, BackendError> {
    let mut found = Leftovers::default();
    if !dry_run {
        found.failed.extend(paths::sweep());
    }
    let engine = match Engine::connect(connection) {
        Ok(engine) => engine,
        Err(error) => {
            found.unasked = Some(error.to_string());
            return Ok(found);
        }
    };
    let here = PidNamespace::here();
    let ours = engine.ours().map_err(|error| BackendError { backend: "podman", reason: error.to_string() })?;
    for container in ours {
        let owner = here.owner(&container.owner, container.running);
        let session = session_of(&container);
        let leftover = Leftover { name: container.name, session, running: container.running };
        match owner {
            Owner::Lives => {}
            Owner::Elsewhere => found.elsewhere.push(leftover),
            Owner::Ended if dry_run => found.removed.push(leftover),
            Owner::Ended => match engine.remove(&container.id) {
                Ok(()) => found.removed.push(leftover),
                // Another process has removed it meanwhile.
                Err(EngineError::NoContainer) => {}
                Err(error) => found.failed.push(format!("container {}: {error}", leftover.name)),
            },
        }
    }
    Ok(found)
}
