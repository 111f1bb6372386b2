//! Containers whose process ended without removing them.

use serde::Serialize;

use super::container_plan::WARM;
use super::engine::{Engine, EngineError, Ours};
use super::paths;
use super::process_label::{Owner, PidNamespace};
use crate::backends::BackendError;

/// A container of foldspace's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Leftover {
    /// Its name.
    pub name: String,
    /// The session that it was made for; `warm` of one that was made for whichever needs one.
    pub session: String,
    /// It runs.
    pub running: bool,
}

/// The containers of an engine that were looked through.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Leftovers {
    /// Their process has ended, and they are removed, or would be.
    pub removed: Vec<Leftover>,
    /// Their process can't be seen from here: it is one of another machine, or of another
    /// container. They are left.
    pub elsewhere: Vec<Leftover>,
    /// The containers that could not be removed, and the reasons.
    pub failed: Vec<String>,
    /// The reason that no engine was asked.
    pub unasked: Option<String>,
}

/// Returns the session that a container is for: one that was made before a session needed it is noted by its session.
fn session_of(container: &Ours) -> String {
    let noted = || paths::noted_by(&container.id);
    let noted = if container.session == WARM { noted() } else { None };
    noted.unwrap_or_else(|| container.session.clone())
}

/// Removes the containers of processes that have ended, and what interrupted ones have left of files that sessions
/// share. The containers are those of the engine at `connection`, or of the one that the surroundings name; with
/// `dry_run` only finds them.
///
/// # Errors
/// [`BackendError`] when the engine answers and can't list them.
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
                // Somebody else has removed it meanwhile.
                Err(EngineError::NoContainer) => {}
                Err(error) => found.failed.push(format!("container {}: {error}", leftover.name)),
            },
        }
    }
    Ok(found)
}
