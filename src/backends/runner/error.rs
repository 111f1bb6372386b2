//! Errors of the runner and its connections.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::wire::{Ended, Malformed, RunFailure};

#[derive(Debug, thiserror::Error)]
pub(crate) enum RunnerError {
    #[error("failed to start the runner from memory or from a file in {directory}: {source}")]
    Start { directory: PathBuf, source: io::Error },
    #[error("no runner answers at {socket}: {source}")]
    Connect { socket: PathBuf, source: io::Error },
    #[error("{socket} is served by process {actual}, not by the container's runner, process {expected}")]
    Stranger { socket: PathBuf, expected: u32, actual: i32 },
    #[error("the runner is gone: {0}")]
    Gone(io::Error),
    /// The runner does not respond, although its own clock should have ended the request.
    #[error("the runner has not responded for {waited:?}; restart its container or process")]
    Silent { waited: Duration },
    /// The runner ended, or became silent, after it had started a command.
    #[error("the runner was lost during a command")]
    LostUnderCommand(Ended),
    #[error("the runner is of another version of foldspace: {0}; restart its container or process")]
    Version(String),
    #[error("the runner rejected the token: {0}")]
    Token(String),
    #[error("the runner is busy: {0}; wait until a command ends")]
    Busy(String),
    #[error("runner protocol error: {0}")]
    Protocol(String),
    #[error("{0}")]
    Invalid(String),
    #[error("{0}")]
    Directory(String),
    /// No process could be started, a path leads out of the root, or an answer is too large.
    #[error("{0}")]
    Failed(String),
    /// The system refused a lookup or a socket.
    #[error("{message}")]
    Io { errno: i32, message: String },
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
            RunFailure::Io => Self::Io { errno, message },
            RunFailure::Spawn | RunFailure::Outside | RunFailure::TooLarge => Self::Failed(message),
        }
    }

    pub(crate) fn is_lost(&self) -> bool {
        use RunnerError::{Connect, Gone, LostUnderCommand, Protocol, Silent, Stranger};
        matches!(self, Gone(_) | Silent { .. } | LostUnderCommand(_) | Protocol(_) | Connect { .. } | Stranger { .. })
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

impl From<RunnerError> for io::Error {
    fn from(error: RunnerError) -> Self {
        match error {
            RunnerError::Io { errno, .. } => Self::from_raw_os_error(errno),
            error => Self::other(error),
        }
    }
}
