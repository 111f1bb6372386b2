//! Containers whose process ended without removing them.

use super::container_plan::WARM;
use super::engine::{Engine, EngineError, Ours};
use super::paths;
use super::process_label::{Owner, PidNamespace};
use crate::backends::BackendError;
use crate::backends::containers::{EngineKind, Leftover, Leftovers};

/// Returns the session of a container: a container made before a session needed it is recorded by its session.
fn session_of(container: &Ours) -> String {
    let noted = || paths::noted_by(&container.id);
    let noted = if container.session == WARM { noted() } else { None };
    noted.unwrap_or_else(|| container.session.clone())
}

/// Removes the containers of ended processes, and the shared files that interrupted processes have left behind.
/// Queries the engine at `connection`, or the environment's engines; with `dry_run` only finds them.
pub fn remove_leftovers(connection: Option<&str>, dry_run: bool) -> Result<Leftovers, BackendError> {
    let mut found = Leftovers::default();
    if !dry_run {
        found.failed.extend(paths::sweep());
    }
    let (engines, errors) = Engine::all(connection);
    if engines.is_empty() {
        found.unasked = Some(told(&errors));
    }
    for engine in &engines {
        remove_ended(engine, dry_run, &mut found)?;
    }
    Ok(found)
}

/// Finds an engine that works for this process, at `connection` or detected: Podman before Docker.
pub fn find_engine(connection: Option<&str>) -> Result<EngineKind, BackendError> {
    let mut errors = Vec::new();
    for kind in EngineKind::ALL {
        match Engine::connect(kind, connection).and_then(|engine| engine.check_user()) {
            Ok(()) => return Ok(kind),
            Err(error) => errors.push(error),
        }
    }
    Err(BackendError { backend: "container", reason: told(&errors) })
}

fn told(errors: &[EngineError]) -> String {
    errors.iter().map(EngineError::to_string).collect::<Vec<_>>().join("; ")
}

fn remove_ended(engine: &Engine, dry_run: bool, found: &mut Leftovers) -> Result<(), BackendError> {
    let here = PidNamespace::here();
    let failed = |error: EngineError| BackendError { backend: engine.kind.name(), reason: error.to_string() };
    for container in engine.ours().map_err(failed)? {
        let owner = here.owner(&container.owner, container.running);
        let session = session_of(&container);
        let leftover = Leftover { name: container.name, session, running: container.running };
        match owner {
            Owner::Lives => {}
            Owner::Elsewhere => found.elsewhere.push(leftover),
            Owner::Ended if dry_run => found.removed.push(leftover),
            Owner::Ended => match engine.remove(&container.id) {
                Ok(()) => found.removed.push(leftover),
                // Another process has removed it in the meantime.
                Err(EngineError::NoContainer) => {}
                Err(error) => found.failed.push(format!("container {}: {error}", leftover.name)),
            },
        }
    }
    Ok(())
}
