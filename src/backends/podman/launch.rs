//! Creating a container, starting it and connecting to its runner.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::network::NetworkProxy;
use rustix::fs::StatVfsMountFlags;

use super::confinement::Confinement;
use super::container_plan::ContainerPlan;
use super::engine::{Engine, EngineError};
use super::paths::{self, Paths, SOCKET};
use crate::backends::containers::PodmanOptions;
use crate::backends::runner::{RUNNER, Runner, RunnerError, now};

const READY: Duration = Duration::from_secs(20);
const ATTEMPT: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(5);

pub(super) struct LiveContainer {
    pub(super) engine: Arc<Engine>,
    pub(super) id: String,
    pub(super) pid: i32,
    pub(super) image_digest: String,
    pub(super) runner: Runner,
    /// The proxy of a recorded network.
    pub(super) network: Option<NetworkProxy>,
    /// True while its processes are frozen.
    pub(super) is_paused: bool,
    /// True if it was made before a session needed it, so that it can't be started again.
    pub(super) was_warm: bool,
    /// The time of its start, or of its adoption.
    pub(super) since: Instant,
    pub(super) used: Instant,
}

impl LiveContainer {
    pub(super) fn new(engine: Arc<Engine>, id: String, (pid, runner): (i32, Runner), image_digest: String) -> Self {
        let (since, network) = (now(), None);
        Self { engine, id, pid, image_digest, runner, network, is_paused: false, was_warm: false, since, used: since }
    }
}

/// Checks that the image is present and that the runner can run in it.
pub(super) fn check_image(engine: &Engine, image: &str) -> Result<(), EngineError> {
    match engine.architecture(image)? {
        Some(other) if other != own_architecture() => {
            let own = own_architecture();
            Err(EngineError::NoRunner(format!("{image} is for {other}, this machine is {own}; use an image for {own}")))
        }
        _ => Ok(()),
    }
}

/// Writes the runner and creates a container with it. Returns its id.
pub(super) fn create(engine: &Engine, plan: &ContainerPlan<'_>) -> Result<String, EngineError> {
    plan.paths.prepare_run(RUNNER).map_err(failed("prepare the container"))?;
    let run = &plan.paths.run;
    if rustix::fs::statvfs(run).is_ok_and(|stat| stat.f_flag.contains(StatVfsMountFlags::NOEXEC)) {
        let shown = run.display();
        return Err(EngineError::NoRunner(format!(
            "{shown} is on a file system mounted noexec; set FOLDSPACE_CACHE to a directory on another one"
        )));
    }
    engine.create(plan)
}

/// Starts a created or stopped container. Returns its first process, and the digest of its image.
pub(super) fn start(
    engine: &Engine,
    id: &str,
    paths: &Paths,
    token: &[u8],
    options: &PodmanOptions,
) -> Result<(i32, String), EngineError> {
    paths.prepare_door(token, paths::owner(options)).map_err(failed("prepare the container"))?;
    engine.start(id)?;
    let seen = engine.inspect(id)?;
    match seen.running && seen.pid != 0 {
        true => Ok((seen.pid, seen.image_digest())),
        false => Err(EngineError::NoRunner(format!("it ended immediately, with exit code {}", seen.exit_code))),
    }
}

/// Connects to a container's runner and checks the confinement. Also returns true if the limits are in force.
pub(super) fn reach(
    first: i32,
    paths: &Paths,
    token: &[u8],
    options: &PodmanOptions,
) -> Result<(Runner, bool), EngineError> {
    let runner = runner(&paths.door.join(SOCKET), first, token)?;
    let confinement = Confinement::of(first);
    let mut faults = confinement.faults(Engine::user_outside(options), options);
    if !runner.has_few_sockets() {
        let fault = "it can open sockets that bypass its network, such as AF_VSOCK to the hypervisor";
        faults.push(fault.to_owned());
    }
    match faults.is_empty() {
        true => Ok((runner, confinement.has_limits(options))),
        false => Err(EngineError::Failed { action: "confine the container", reason: faults.join(", ") }),
    }
}

/// Removes the container that another process has recorded for a session.
pub(super) fn remove_noted(engine: &Engine, paths: &Paths) -> Result<(), EngineError> {
    let failed = failed("find the session's last container");
    let Some(id) = paths.noted_container().map_err(&failed)? else { return Ok(()) };
    engine.remove_if_there(&id)?;
    paths.forget_container().map_err(failed)
}

pub(super) fn failed(action: &'static str) -> impl Fn(std::io::Error) -> EngineError {
    move |error| EngineError::Failed { action, reason: error.to_string() }
}

/// Waits for the runner of a container, as long as the container lives.
fn runner(socket: &Path, first: i32, token: &[u8]) -> Result<Runner, EngineError> {
    let process = u32::try_from(first).ok();
    let until = now() + READY;
    loop {
        match Runner::connect(socket, token, process, ATTEMPT) {
            Ok(runner) => return Ok(runner),
            Err(error) if !lives(first) => {
                return Err(EngineError::NoRunner(format!("it ended immediately ({error})")));
            }
            // A slow start is not a failure.
            Err(RunnerError::Connect { .. } | RunnerError::Gone(_) | RunnerError::Silent { .. }) if now() < until => {
                std::thread::sleep(PAUSE);
            }
            Err(error) => return Err(EngineError::NoRunner(error.to_string())),
        }
    }
}

fn lives(process: i32) -> bool {
    let process = rustix::process::Pid::from_raw(process);
    process.is_some_and(|process| rustix::process::test_kill_process(process) != Err(rustix::io::Errno::SRCH))
}

fn own_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "x86" => "386",
        "aarch64" => "arm64",
        "loongarch64" => "loong64",
        "powerpc64" => "ppc64le",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runner_that_has_ended_is_not_waited_for() {
        // No process has that id.
        let reached = runner(Path::new("/nowhere/socket"), i32::MAX, b"token");
        assert!(
            matches!(&reached, Err(EngineError::NoRunner(why)) if why.contains("ended immediately")),
            "{reached:?}"
        );
        assert!(lives(std::process::id().cast_signed()));
    }
}
