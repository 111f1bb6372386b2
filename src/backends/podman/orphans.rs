//! Containers whose process ended without removing them.

use std::os::unix::fs::MetadataExt;

use serde::Serialize;

use super::engine::{Engine, EngineError, Ours};
use super::paths;
use super::warm::WARM;
use crate::backends::BackendError;
use crate::engine::id::SessionId;

/// A container of foldspace's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Leftover {
    /// Its name.
    pub name: String,
    /// The session that it was made for; `warm` of one that was made for whichever needs one.
    pub session: String,
    /// Whether it runs.
    pub running: bool,
}

/// What became of the containers of an engine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Leftovers {
    /// Their process has ended, and they are removed, or would be.
    pub removed: Vec<Leftover>,
    /// Whether their process lives can't be seen from here: it is one of another machine, or of another
    /// container. They are left.
    pub elsewhere: Vec<Leftover>,
    /// What could not be removed, and why.
    pub failed: Vec<String>,
    /// Why no engine was asked.
    pub unasked: Option<String>,
}

/// What can be said of the process that made a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    Lives,
    Ended,
    Elsewhere,
}

/// Where processes are counted: numbers of others mean nothing here.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PidNamespace {
    boot: String,
    pid_namespace: u64,
}

impl PidNamespace {
    #[expect(clippy::disallowed_methods, reason = "the kernel tells in files")]
    fn here() -> Self {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let pid_namespace = std::fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino());
        Self { boot: boot.trim().to_owned(), pid_namespace }
    }

    /// Labels of older programs have no place; they are taken for ones of here.
    fn owner(&self, label: &str, running: bool) -> Owner {
        let mut fields = label.split(':');
        let (pid, start) = (fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
        if let (Some(boot), Some(pid_namespace)) = (fields.next(), fields.next()) {
            match (boot == self.boot, pid_namespace == self.pid_namespace.to_string()) {
                (true, true) => {}
                // It was made before this machine started last, or on another one; either way nothing runs in it.
                (false, _) if !running => return Owner::Ended,
                _ => return Owner::Elsewhere,
            }
        }
        let began = pid.parse().ok().and_then(start_of);
        if began.is_some_and(|began| began == start) { Owner::Lives } else { Owner::Ended }
    }
}

/// This process, told apart from a later one with its number, and from those of other places.
pub(crate) fn owner_of_this_process() -> String {
    let (pid, PidNamespace { boot, pid_namespace }) = (std::process::id(), PidNamespace::here());
    format!("{pid}:{}:{boot}:{pid_namespace}", start_of(pid).unwrap_or_default())
}

/// When a process of this machine was started, in the kernel's ticks; none when there is none.
#[expect(clippy::disallowed_methods, reason = "the kernel tells in files")]
fn start_of(pid: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold anything, a closing parenthesis too.
    let (_, after) = stat.rsplit_once(')')?;
    after.split_whitespace().nth(19).map(str::to_owned)
}

/// The session that a container is for. One that was made before its session needed it has only the name of that.
fn session_of(container: &Ours) -> String {
    let named = container.name.strip_prefix("foldspace-").filter(|_| container.session == WARM);
    match named.and_then(|name| name.parse::<SessionId>().ok()) {
        Some(session) => session.to_string(),
        None => container.session.clone(),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orphan_owner_alive_is_this_process() {
        let here = PidNamespace::here();
        assert!(!here.boot.is_empty() && here.pid_namespace > 0);
        assert_eq!(here.owner(&owner_of_this_process(), true), Owner::Lives);
        for ended in [&format!("{}:1", std::process::id()), "4194305:1", "", "x:y", "x"] {
            assert_eq!(here.owner(ended, true), Owner::Ended, "{ended}");
        }
    }

    #[test]
    fn orphan_label_without_machine_is_local() {
        let (pid, start) = (std::process::id(), start_of(std::process::id()).unwrap());
        assert_eq!(PidNamespace::here().owner(&format!("{pid}:{start}"), true), Owner::Lives);
    }

    #[test]
    fn orphan_owner_elsewhere_is_unknown() {
        let here = PidNamespace::here();
        let label = owner_of_this_process();
        let other_container = PidNamespace { pid_namespace: here.pid_namespace + 1, ..here.clone() };
        assert_eq!(other_container.owner(&label, true), Owner::Elsewhere);
        assert_eq!(other_container.owner(&label, false), Owner::Elsewhere, "it may be stopped for a while");
        let other_machine = PidNamespace { boot: "another".to_owned(), ..here };
        assert_eq!(other_machine.owner(&label, true), Owner::Elsewhere);
        assert_eq!(other_machine.owner(&label, false), Owner::Ended, "this machine may have started anew");
    }
}
