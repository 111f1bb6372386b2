//! What the runner could not do.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::wire::{Malformed, RunFailure};

/// Why the runner did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunnerError {
    /// The host's runner could not be started.
    #[error("the runner could not be started with {program}: {source}")]
    Start {
        /// What was executed.
        program: PathBuf,
        /// Why it was not.
        source: io::Error,
    },
    /// A container's runner could not be reached in time.
    #[error("no runner answers at {socket}: {source}")]
    Connect {
        /// Where it was to listen.
        socket: PathBuf,
        /// What the last attempt met.
        source: io::Error,
    },
    /// The socket is served by another process than the container's first.
    #[error("{socket} is served by process {actual}, not by the container's runner, process {expected}")]
    Stranger {
        /// The socket.
        socket: PathBuf,
        /// The container's first process.
        expected: u32,
        /// Who listens.
        actual: i32,
    },
    /// The runner has ended, or closed the connection.
    #[error("the runner is gone: {0}")]
    Gone(io::Error),
    /// The runner does not answer, although its own clock should have ended the request.
    #[error("the runner has not answered for {waited:?}; restart what it runs in")]
    Silent {
        /// How long it was waited for.
        waited: Duration,
    },
    /// The runner is of another version of foldspace.
    #[error("the runner is of another version of foldspace: {0}; restart what it runs in")]
    Version(String),
    /// The runner does not take the token.
    #[error("the runner refuses the token: {0}")]
    Token(String),
    /// As many requests run as can.
    #[error("the runner is busy: {0}; wait until a command has ended")]
    Busy(String),
    /// One side does not keep to the protocol.
    #[error("the runner and foldspace misunderstand each other: {0}")]
    Protocol(String),
    /// The request cannot be, whatever runs.
    #[error("{0}")]
    Invalid(String),
    /// The command's directory is missing or leads out of the root.
    #[error("{0}")]
    Directory(String),
    /// There was no process to be had.
    #[error("{0}")]
    Spawn(String),
    /// A path leads out of the root.
    #[error("{0}")]
    Outside(String),
    /// A file or directory is larger than what may be asked for.
    #[error("{0}")]
    TooLarge(String),
    /// The system refused a file operation.
    #[error("{message}")]
    Io {
        /// What and why.
        message: String,
        /// The kind of error, to be matched.
        kind: io::ErrorKind,
    },
}

impl RunnerError {
    pub(super) fn failed(kind: RunFailure, errno: i32, message: &[u8]) -> Self {
        let message = String::from_utf8_lossy(message).into_owned();
        match kind {
            RunFailure::Version => Self::Version(message),
            RunFailure::Token => Self::Token(message),
            RunFailure::Protocol => Self::Protocol(message),
            RunFailure::Invalid => Self::Invalid(message),
            RunFailure::Busy => Self::Busy(message),
            RunFailure::Cwd => Self::Directory(message),
            RunFailure::Spawn => Self::Spawn(message),
            RunFailure::Outside => Self::Outside(message),
            RunFailure::TooLarge => Self::TooLarge(message),
            RunFailure::Io => Self::Io { message, kind: io::Error::from_raw_os_error(errno).kind() },
        }
    }

    /// Tells whether the runner is gone or does not answer.
    pub(crate) fn is_lost(&self) -> bool {
        use RunnerError::{Connect, Gone, Protocol, Silent, Stranger};
        matches!(self, Gone(_) | Silent { .. } | Protocol(_) | Connect { .. } | Stranger { .. })
    }

    pub(super) fn connect(socket: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        move |source| Self::Connect { socket: socket.to_owned(), source }
    }
}

impl From<Malformed> for RunnerError {
    fn from(Malformed(why): Malformed) -> Self {
        Self::Protocol(why.to_owned())
    }
}
