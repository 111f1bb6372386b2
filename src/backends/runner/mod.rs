//! The resident runner's client: commands in a container, or on the host, without a client process each.
//!
//! `docs/RUNNER.md` describes the runner and its protocol. All calls block; they may come from any number of threads,
//! and each has a connection of its own while it lasts, so that no slow one holds up another.

mod cancel;
mod child;
mod connection;
mod error;
mod run;
mod socket;
#[cfg(test)]
mod tests;
#[cfg_attr(
    not(test),
    expect(dead_code, reason = "the runner's half: requests are only read there, answers only written")
)]
#[path = "../../../runner/wire/mod.rs"]
mod wire;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

pub(crate) use cancel::Cancel;
pub(crate) use error::RunnerError;

pub(crate) use connection::now;
pub(crate) use run::RunSpec;
pub(crate) use wire::{Ended, OutputStreamKind};

use child::HostRunner;
use connection::{MARGIN, RunnerConnection};
use socket::RunnerAddress;
use wire::{FEW_SOCKETS, RunnerReply, RunnerRequest};

use crate::engine::lock::lock;

pub(crate) static RUNNER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/runner"));

const IDLE_MAX: usize = 8;

/// A runner. Clones are the same one; with the last, a runner on the host ends.
#[derive(Debug, Clone)]
pub(crate) struct Runner {
    shared: Arc<RunnerInner>,
}

#[derive(Debug)]
struct RunnerInner {
    // Before `origin`: the connections close before the runner is waited for.
    idle: Mutex<Vec<RunnerConnection>>,
    origin: RunnerOrigin,
    features: u32,
    /// They do not change while it runs.
    variables: OnceLock<Vec<OsString>>,
}

#[derive(Debug)]
enum RunnerOrigin {
    Container(RunnerAddress),
    Host(HostRunner),
}

impl Runner {
    /// Reaches a container's runner. With its first process as the host sees it, `process`, no one inside can pose as
    /// the runner.
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

    /// Starts a runner on the host. Commands start, and files are, below `root`.
    pub(crate) fn spawn_on_host(root: &Path) -> Result<Self, RunnerError> {
        let origin = RunnerOrigin::Host(HostRunner::start(root)?);
        let shared = RunnerInner { idle: Mutex::default(), origin, features: 0, variables: OnceLock::new() };
        let runner = Self { shared: Arc::new(shared) };
        // The first call would pay for it, and a runner that cannot work is better known now.
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

    /// Returns the runner's own variables, `NAME=value` each. Commands do not have them unless they are given them.
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

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Tells whether a container's runner was refused all sockets that lead past its network.
    pub(crate) fn has_few_sockets(&self) -> bool {
        self.shared.features & FEW_SOCKETS != 0
    }

    pub(crate) fn ping(&self) -> Result<(), RunnerError> {
        self.ask(&RunnerRequest::Ping, |reply| matches!(reply, RunnerReply::Done { .. }).then_some(()))
    }

    /// Tells whether the runner lives: on the host its process, in a container by asking it.
    pub(crate) fn is_alive(&self) -> bool {
        match &self.shared.origin {
            RunnerOrigin::Host(child) => child.is_alive(),
            // One that has too much to do lives.
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
        let unexpected = || RunnerError::Protocol("the request got another request's answer".to_owned());
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
    matches!(error, RunnerError::Directory(_) | RunnerError::Invalid(_) | RunnerError::Failed(_))
}
