//! Containers whose process ended without removing them.

use serde::Serialize;

use super::engine::Engine;
use crate::backends::BackendError;

/// A container that nobody needs any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Leftover {
    /// Its name.
    pub name: String,
    /// The session that it was made for.
    pub session: String,
    /// Whether it runs.
    pub running: bool,
}

/// This process, told apart from a later one with its number.
pub(crate) fn owner_of_this_process() -> String {
    let pid = std::process::id();
    format!("{pid}:{}", start_of(pid).unwrap_or_default())
}

/// When a process of this machine was started, in the kernel's ticks; none when there is none.
#[expect(clippy::disallowed_methods, reason = "the kernel tells in files")]
fn start_of(pid: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold anything, a closing parenthesis too.
    let (_, after) = stat.rsplit_once(')')?;
    after.split_whitespace().nth(19).map(str::to_owned)
}

fn is_alive(owner: &str) -> bool {
    let Some((pid, start)) = owner.split_once(':') else { return false };
    let alive = pid.parse().ok().and_then(start_of);
    alive.is_some_and(|began| began == start)
}

/// Removes the containers of processes that have ended; with `dry_run` only finds them. Where no engine
/// answers there are none.
///
/// # Errors
/// [`BackendError`] when the engine answers and can't list or remove them.
pub fn remove_leftovers(dry_run: bool) -> Result<Vec<Leftover>, BackendError> {
    let Ok(engine) = Engine::connect(None) else { return Ok(Vec::new()) };
    let failed = |error: super::engine::EngineError| BackendError { backend: "podman", reason: error.to_string() };
    let mut removed = Vec::new();
    for container in engine.ours().map_err(failed)? {
        if is_alive(&container.owner) {
            continue;
        }
        if !dry_run {
            engine.remove(&container.id).map_err(failed)?;
        }
        removed.push(Leftover { name: container.name, session: container.session, running: container.running });
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_alive_and_others_are_not() {
        assert!(is_alive(&owner_of_this_process()));
        assert!(!is_alive(&format!("{}:1", std::process::id())));
        assert!(!is_alive("4194305:1"));
        assert!(!is_alive("") && !is_alive("x:y"));
    }
}
