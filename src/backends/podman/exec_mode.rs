//! How commands run in a container: by the resident runner, or through the engine where that can't run.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::confinement::Confinement;
use super::engine::{DOOR, Engine, EngineError, RUN, USER, WORKSPACE};
use super::exec::{EngineExec, FIRST_PROCESS};
use super::options::{PodmanOptions, RunnerUse};
use super::paths::Paths;
use crate::backends::executor::Executor;
use crate::backends::runner::{Runner, RunnerError};

/// How long a container's runner may take to answer first.
const READY: Duration = Duration::from_secs(20);
/// How long one attempt to reach it takes.
const ATTEMPT: Duration = Duration::from_millis(500);
/// The runner's socket and its token, in a directory of their own.
pub(super) const SOCKET: &str = "socket";
pub(super) const TOKEN: &str = "socket.token";

/// How commands run in a session's container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ExecMode {
    /// By the resident runner.
    Runner,
    /// Through the engine, and why.
    Exec(String),
}

impl ExecMode {
    /// What is to be tried first. The image must be there.
    pub(super) fn choose(engine: &Engine, options: &PodmanOptions) -> Result<Self, EngineError> {
        if options.runner == RunnerUse::Never {
            return Ok(Self::Exec("it was not wanted".to_owned()));
        }
        let image = engine.architecture(&options.image)?;
        let own = own_architecture();
        Ok(match image {
            Some(image) if image != own => Self::Exec(format!("the image is for {image}, the runner for {own}")),
            _ => Self::Runner,
        })
    }

    /// Why the runner does not run commands; none when it does.
    pub(super) fn reason(&self) -> Option<&str> {
        match self {
            Self::Runner => None,
            Self::Exec(reason) => Some(reason),
        }
    }

    /// The first process of the container.
    pub(super) fn command(&self) -> Vec<String> {
        match self {
            Self::Runner => {
                let socket = format!("{RUN}/{DOOR}/{SOCKET}");
                vec![format!("{RUN}/runner"), "serve".to_owned(), socket, WORKSPACE.to_owned()]
            }
            Self::Exec(_) => FIRST_PROCESS.map(str::to_owned).to_vec(),
        }
    }

    /// Reaches what runs commands in a container that runs, and looks whether it is confined as it must be. Gives
    /// whether its limits are in force, too.
    pub(super) fn reach(
        &self,
        engine: &Engine,
        id: &str,
        first: i32,
        paths: &Paths,
        token: &[u8],
        options: &PodmanOptions,
    ) -> Result<(Arc<dyn Executor>, bool), EngineError> {
        let failed = |reason: String| EngineError::Failed { action: "start the container", reason };
        let executor: Arc<dyn Executor> = match self {
            Self::Runner => {
                let runner = runner(&paths.door.join(SOCKET), first, token)?;
                network_confined(runner.has_few_sockets())?;
                Arc::new(runner)
            }
            Self::Exec(_) => {
                let inputs = (paths.run.join("scripts"), format!("{RUN}/scripts").into());
                let exec = EngineExec::new(engine.requests(), id, first, inputs);
                let exec = exec.map_err(|error| failed(format!("its processes can't be seen from here: {error}")))?;
                let status = exec.status().map_err(|error| failed(error.to_string()))?;
                // A command is no child of the first process, so it is looked at itself. It sees its own user.
                confined(&Confinement::read(&status).faults(USER.0))?;
                network_confined(!exec.makes_other_sockets())?;
                Arc::new(exec)
            }
        };
        let confinement = Confinement::of(first);
        confined(&confinement.faults(engine.user_outside()))?;
        Ok((executor, confinement.has_limits(options)))
    }
}

fn confined(faults: &[String]) -> Result<(), EngineError> {
    match faults {
        [] => Ok(()),
        faults => Err(EngineError::Failed { action: "confine the container", reason: faults.join(", ") }),
    }
}

fn network_confined(has_few_sockets: bool) -> Result<(), EngineError> {
    let fault = "sockets can be made that lead past its network, such as AF_VSOCK to the hypervisor";
    if has_few_sockets { Ok(()) } else { confined(&[fault.to_owned()]) }
}

/// Waits for the runner of a container, for as long as the container lives.
fn runner(socket: &Path, first: i32, token: &[u8]) -> Result<Runner, EngineError> {
    let process = u32::try_from(first).ok();
    let until = now() + READY;
    loop {
        match Runner::connect(socket, token, process, ATTEMPT) {
            Ok(runner) => return Ok(runner),
            Err(error) if !lives(first) => {
                return Err(EngineError::NoRunner(format!("it has ended at once ({error})")));
            }
            // Slow is not broken.
            Err(RunnerError::Connect { .. } | RunnerError::Gone(_) | RunnerError::Silent { .. }) if now() < until => {}
            Err(error) => return Err(EngineError::NoRunner(error.to_string())),
        }
    }
}

fn lives(process: i32) -> bool {
    let process = rustix::process::Pid::from_raw(process);
    process.is_some_and(|process| rustix::process::test_kill_process(process) != Err(rustix::io::Errno::SRCH))
}

/// This program's architecture, as images name it.
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

#[expect(clippy::disallowed_methods, reason = "how long a container is waited for is nobody's history")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exec_mode_ended_runner_is_not_awaited() {
        // No process has that number.
        let reached = runner(Path::new("/nowhere/socket"), i32::MAX, b"token");
        assert!(matches!(&reached, Err(EngineError::NoRunner(why)) if why.contains("ended at once")), "{reached:?}");
        assert!(lives(std::process::id().cast_signed()));
    }

    #[test]
    fn exec_mode_names_reason_without_runner() {
        assert_eq!(ExecMode::Runner.reason(), None);
        assert_eq!(ExecMode::Exec("because".to_owned()).reason(), Some("because"));
        assert_eq!(ExecMode::Runner.command()[1], "serve");
        assert_eq!(ExecMode::Exec(String::new()).command(), FIRST_PROCESS);
    }
}
