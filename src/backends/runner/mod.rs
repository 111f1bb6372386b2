//! The runner's client: commands in a container or on the host, without a client process for each.
//!
//! `docs/RUNNER.md` describes the runner and its protocol. All calls block. They may come from any number of threads,
//! and each uses a separate connection, so that a slow call does not block another.

mod cancel;
mod child;
mod connection;
mod error;
mod run;
mod socket;
#[cfg(test)]
mod tests;
#[cfg_attr(not(test), expect(dead_code, reason = "only the runner reads requests and writes answers"))]
#[path = "../../../runner/wire/mod.rs"]
mod wire;

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

pub(crate) use cancel::Cancel;
pub(crate) use error::RunnerError;

pub(crate) use connection::now;
pub(crate) use run::RunSpec;
pub(crate) use wire::{Ended, OutputStreamKind, SocketKind, SocketRequest};

use child::HostRunner;
use connection::{MARGIN, RunnerConnection};
use socket::RunnerAddress;
use wire::{FEW_SOCKETS, RunnerReply, RunnerRequest};

use crate::engine::lock::lock;

pub(crate) static RUNNER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/runner"));

const IDLE_MAX: usize = 8;

/// A runner. Clones share it; dropping the last one ends a runner on the host.
#[derive(Debug, Clone)]
pub(crate) struct Runner {
    shared: Arc<RunnerInner>,
}

#[derive(Debug)]
struct RunnerInner {
    // Before `origin`: connections must close before the wait for the runner.
    idle: Mutex<Vec<RunnerConnection>>,
    origin: RunnerOrigin,
    features: u32,
    /// Constant while it runs.
    variables: OnceLock<Vec<OsString>>,
}

#[derive(Debug)]
enum RunnerOrigin {
    Container(RunnerAddress),
    Host(HostRunner),
}

impl Runner {
    /// Connects to a container's runner. `process` is its first process as seen by the host, which prevents other
    /// processes in the container from posing as the runner.
    pub(crate) fn connect(
        socket: &Path,
        token: &[u8],
        process: Option<u32>,
        patience: Duration,
    ) -> Result<Self, RunnerError> {
        let address = RunnerAddress { socket: socket.to_owned(), token: token.to_vec(), process };
        let (connection, features) = address.connect(patience)?;
        let (idle, origin) = (Mutex::new(vec![connection]), RunnerOrigin::Container(address));
        Ok(Self { shared: Arc::new(RunnerInner { idle, origin, features, variables: OnceLock::new() }) })
    }

    /// Starts a runner on the host. Files are, and commands start, below `root`.
    pub(crate) fn spawn_on_host(root: &Path) -> Result<Self, RunnerError> {
        let origin = RunnerOrigin::Host(HostRunner::start(root)?);
        let shared = RunnerInner { idle: Mutex::default(), origin, features: 0, variables: OnceLock::new() };
        let runner = Self { shared: Arc::new(shared) };
        // Saves the first call this time, and detects a broken runner now.
        let connection = runner.open()?;
        runner.put_back(connection);
        Ok(runner)
    }

    pub(crate) fn which(&self, program: &OsStr, path: &OsStr) -> Result<Option<PathBuf>, RunnerError> {
        let request = RunnerRequest::Which { program: program.as_bytes(), path: path.as_bytes() };
        self.ask(&request, |reply| match reply {
            RunnerReply::Found { path } => Some(path.map(|path| PathBuf::from(OsString::from_vec(path.to_vec())))),
            _ => None,
        })
    }

    /// Returns the runner's own variables, each as `NAME=value`. Commands do not inherit them.
    pub(crate) fn variables(&self) -> Result<&[OsString], RunnerError> {
        if let Some(known) = self.shared.variables.get() {
            return Ok(known);
        }
        let owned = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
        let asked = self.ask(&RunnerRequest::Env, |reply| match reply {
            RunnerReply::Env { variables } => Some(variables.into_iter().map(owned).collect()),
            _ => None,
        })?;
        Ok(self.shared.variables.get_or_init(|| asked))
    }

    /// Opens a socket in the network of the runner's container.
    pub(crate) fn socket(&self, asked: SocketRequest) -> Result<OwnedFd, RunnerError> {
        let mut connection = self.take()?;
        connection.send(&RunnerRequest::Socket(asked))?;
        let answered = connection.answer(MARGIN).map(drop);
        let passed = connection.passed.take();
        if answered.as_ref().err().is_none_or(keeps_connection) {
            self.put_back(connection);
        }
        answered?;
        passed.ok_or_else(|| RunnerError::Protocol("an answer came without its descriptor".to_owned()))
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Returns true if a container's runner can't open sockets that bypass its network.
    pub(crate) fn has_few_sockets(&self) -> bool {
        self.shared.features & FEW_SOCKETS != 0
    }

    pub(crate) fn ping(&self) -> Result<(), RunnerError> {
        self.ask(&RunnerRequest::Ping, |reply| matches!(reply, RunnerReply::Done { .. }).then_some(()))
    }

    /// Returns true if the runner is alive: on the host its process, in a container by a ping.
    pub(crate) fn is_alive(&self) -> bool {
        match &self.shared.origin {
            RunnerOrigin::Host(child) => child.is_alive(),
            // An overloaded runner is alive.
            RunnerOrigin::Container(_) => matches!(self.ping(), Ok(()) | Err(RunnerError::Busy(_))),
        }
    }

    fn ask<T>(
        &self,
        request: &RunnerRequest<'_>,
        read: impl FnOnce(RunnerReply<'_>) -> Option<T>,
    ) -> Result<T, RunnerError> {
        let mut connection = self.take()?;
        connection.send(request)?;
        let unexpected = || RunnerError::Protocol("the request got the answer of another one".to_owned());
        let answered = connection.answer(MARGIN).and_then(|reply| read(reply).ok_or_else(unexpected));
        if answered.as_ref().err().is_none_or(keeps_connection) {
            self.put_back(connection);
        }
        answered
    }

    fn take(&self) -> Result<RunnerConnection, RunnerError> {
        let idle = lock(&self.shared.idle).pop();
        idle.map_or_else(|| self.open(), Ok)
    }

    fn open(&self) -> Result<RunnerConnection, RunnerError> {
        let greeted = match &self.shared.origin {
            RunnerOrigin::Container(address) => address.connect(MARGIN),
            RunnerOrigin::Host(child) => {
                let stream = child.connect().map_err(RunnerError::Gone)?;
                RunnerConnection::greet(stream, b"", MARGIN)
            }
        };
        greeted.map(|(connection, _)| connection)
    }

    fn put_back(&self, connection: RunnerConnection) {
        let mut idle = lock(&self.shared.idle);
        if idle.len() < IDLE_MAX && connection.is_quiet() {
            idle.push(connection);
        }
    }
}

fn keeps_connection(error: &RunnerError) -> bool {
    matches!(
        error,
        RunnerError::Directory(_) | RunnerError::Invalid(_) | RunnerError::Failed(_) | RunnerError::Io { .. }
    )
}
