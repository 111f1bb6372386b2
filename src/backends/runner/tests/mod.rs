//! The runner as seen by its callers: a real one on the host, and one in a namespace as in a container.
#![expect(clippy::disallowed_methods, reason = "the tests read files and processes directly")]

mod contained;
mod frames;
mod hostile;
mod processes;
mod terminal;

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use super::*;
use crate::testing::{eventually, skip};

impl Runner {
    /// The runner's process on the host; in a container the one given to [`Runner::connect`].
    pub(super) fn process(&self) -> Option<u32> {
        match &self.shared.origin {
            RunnerOrigin::Host(child) => Some(lock(&child.child).id()),
            RunnerOrigin::Container(address) => address.process,
        }
    }
}

impl Cancel {
    /// A cancellation that never comes.
    pub(super) fn never() -> Self {
        Self::new().unwrap()
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        let mut fds = [rustix::event::PollFd::from_borrowed_fd(self.descriptor(), rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut fds, Some(&Default::default())).is_ok_and(|ready| ready > 0)
    }
}

/// A runner on the host, and its root directory.
pub(super) struct World {
    pub(super) runner: Runner,
    pub(super) directory: tempfile::TempDir,
}

impl World {
    pub(super) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let runner = Runner::spawn_on_host(directory.path()).unwrap();
        Self { runner, directory }
    }

    pub(super) fn root(&self) -> &Path {
        self.directory.path()
    }
}

/// The output of a command, and its end.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ran {
    pub(super) stdout: String,
    pub(super) stderr: String,
    pub(super) ended: Ended,
}

pub(super) fn spec(argv: &[&str]) -> RunSpec {
    RunSpec {
        argv: argv.iter().map(OsString::from).collect(),
        directory: PathBuf::new(),
        env: vec![("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())],
        stdin: Vec::new(),
        timeout: Some(Duration::from_secs(60)),
        grace: Duration::from_secs(5),
        discard_output: false,
        merge_output: false,
        terminal: None,
        input: None,
        caller: None,
    }
}

pub(super) fn shell(script: &str) -> RunSpec {
    spec(&["sh", "-c", script])
}

pub(super) fn run(runner: &Runner, spec: &RunSpec) -> Result<Ran, RunnerError> {
    let mut written = [Vec::new(), Vec::new()];
    let ended =
        runner.run(spec, &mut |stream, bytes| written[stream as usize].extend_from_slice(bytes), &Cancel::never())?;
    let [stdout, stderr] = written.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    Ok(Ran { stdout, stderr, ended })
}

/// A child process that is killed at the end of a test, even if the test panics.
pub(super) struct Killed(pub(super) std::process::Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns true if a process, or a thread of it, lives; zombies do not.
pub(super) fn lives(pid: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads.into_iter().any(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, fields)| !fields.starts_with(['Z', 'X']))
    })
}
