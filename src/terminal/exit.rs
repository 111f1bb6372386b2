//! Exit codes and failures of commands.

use std::{fmt, io};

use foldspace::event::Diagnostic;
use foldspace::history::HistoryError;
use foldspace::http::ClientError;
use foldspace::hub::HubError;
use foldspace::store::CommitError;
use foldspace::tools::{MountError, WorkspaceError};
use foldspace::{ErrorKind, SessionError, StoreError};

use super::{advice, text};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Ok,
    Failed,
    Usage,
    NotFound,
    Busy,
    Damaged,
    Io,
    Interrupted,
    Command(u8),
}

impl From<()> for Exit {
    fn from((): ()) -> Self {
        Self::Ok
    }
}

impl Exit {
    /// The exit codes and their meanings.
    const TABLE: [(Self, u8, &'static str); 8] = [
        (Self::Ok, 0, "success"),
        (
            Self::Failed,
            1,
            "a call failed; verify, fsck, doctor or materialise found a problem; rerun found differences; merge conflicted; grep or bisect found nothing",
        ),
        (Self::Usage, 2, "usage error: invalid command, script or position"),
        (Self::NotFound, 3, "no such session, path, event or store"),
        (Self::Busy, 4, "another process owns the store"),
        (Self::Damaged, 5, "the store or the file to import is damaged"),
        (Self::Io, 6, "the operating system or the container engine refused"),
        (Self::Interrupted, 130, "stopped by Ctrl-C or SIGTERM"),
    ];

    pub(crate) fn code(self) -> u8 {
        if let Self::Command(code) = self {
            return code;
        }
        let row = Self::TABLE.iter().find(|(exit, ..)| *exit == self);
        row.map_or(1, |(_, code, _)| *code)
    }

    /// Returns the exit of a code: from the table, else a command's.
    pub(crate) fn of_code(code: u8) -> Self {
        let row = Self::TABLE.iter().find(|(_, known, _)| *known == code);
        row.map_or(Self::Command(code), |(exit, ..)| *exit)
    }

    pub(crate) fn table() -> String {
        let line = |(_, code, meaning): &(Self, u8, &str)| format!("  {code:>3}  {meaning}\n");
        Self::TABLE.iter().map(line).collect()
    }
}

#[derive(Debug)]
pub(crate) enum Failure {
    Told { exit: Exit, message: String, hint: Option<String> },
    Closed,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self::Told { exit, message: message.into(), hint: None }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    pub(crate) fn pattern(what: &str, error: impl fmt::Display) -> Self {
        Self::usage(format!("the {what} can't be understood: {error}"))
    }

    /// Returns the failure of a background task that was stopped because its result became useless.
    pub(crate) fn stopped() -> Self {
        Self::new(Exit::Interrupted, "stopped")
    }

    pub(crate) fn missing(message: impl Into<String>) -> Self {
        Self::new(Exit::NotFound, message)
    }

    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::new(Exit::Failed, message)
    }

    #[must_use]
    pub(crate) fn with_hint(mut self, words: impl Into<String>) -> Self {
        if let Self::Told { hint, .. } = &mut self {
            *hint = Some(words.into());
        }
        self
    }

    #[must_use]
    pub(crate) fn at(mut self, place: &str) -> Self {
        if let Self::Told { message, .. } = &mut self {
            *message = format!("{place}: {message}");
        }
        self
    }

    /// Returns the failure of an operation on `place`, or [`Closed`](Self::Closed) if the output's reader is gone.
    pub(crate) fn io(action: &str, place: impl fmt::Display, error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::Closed;
        }
        Self::new(Exit::Io, format!("can't {action} {}: {error}", text::one_line(&place.to_string(), 300)))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Told { message, hint: Some(hint), .. } => write!(f, "{message}; {hint}"),
            Self::Told { message, .. } => f.write_str(message),
            Self::Closed => f.write_str("the output is closed"),
        }
    }
}

impl<E: Diagnostic> From<E> for Failure {
    fn from(error: E) -> Self {
        let error: &dyn Diagnostic = &error;
        match error.downcast_ref() {
            Some(HistoryError::Io { source, .. }) if source.kind() == io::ErrorKind::BrokenPipe => Self::Closed,
            _ => {
                let exit = error.chain().find_map(finer).unwrap_or_else(|| error.kind().into());
                let hint = error.advice().map(|advice| advice::hint(&advice));
                Self::Told { exit, message: error.to_string(), hint }
            }
        }
    }
}

/// Maps kinds of errors; [`finer`] has the exceptions.
impl From<ErrorKind> for Exit {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::NotFound => Self::NotFound,
            ErrorKind::Invalid => Self::Usage,
            ErrorKind::Conflict | ErrorKind::Refused | ErrorKind::TimedOut => Self::Failed,
            ErrorKind::Busy | ErrorKind::Unavailable => Self::Busy,
            ErrorKind::Damaged => Self::Damaged,
            ErrorKind::Io => Self::Io,
            ErrorKind::Cancelled => Self::Interrupted,
        }
    }
}

/// Returns the exit of an error if its kind is too coarse.
fn finer(error: &dyn Diagnostic) -> Option<Exit> {
    let store = |error: &StoreError| matches!(error, StoreError::NoContent(_)).then_some(Exit::Damaged);
    let session = |error: &SessionError| match error {
        SessionError::NameTaken { .. } | SessionError::TooDeep { .. } => Some(Exit::Usage),
        _ => None,
    };
    let workspace = |error: &WorkspaceError| match error {
        WorkspaceError::NotEmpty(_) => Some(Exit::Usage),
        WorkspaceError::InsideCommit { .. } => Some(Exit::NotFound),
        WorkspaceError::Stopped => Some(Exit::Failed),
        _ => None,
    };
    let mount = |error: &MountError| match error {
        MountError::Outside { .. } => Some(Exit::Usage),
        MountError::Backend(_) | MountError::Stopped => Some(Exit::Failed),
        _ => None,
    };
    let hub = |error: &HubError| matches!(error, HubError::Panicked).then_some(Exit::Failed);
    let owner = |error: &ClientError| match error {
        ClientError::Refused(problem) => match &*problem.kind {
            "conflict" | "forbidden" => Some(Exit::Usage),
            _ => None,
        },
        _ => Some(Exit::Failed),
    };
    let found = error.downcast_ref().and_then(store).or_else(|| error.downcast_ref().and_then(session));
    let found = found.or_else(|| error.downcast_ref().and_then(workspace));
    let found = found.or_else(|| error.downcast_ref().and_then(mount));
    let found = found.or_else(|| error.downcast_ref().and_then(hub));
    let found = found.or_else(|| error.downcast_ref().and_then(owner));
    found.or_else(|| error.downcast_ref().map(|_: &CommitError| Exit::Failed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_exit_has_its_code() {
        let codes: Vec<u8> = Exit::TABLE.iter().map(|(exit, ..)| exit.code()).collect();
        assert_eq!(codes, [0, 1, 2, 3, 4, 5, 6, 130]);
        assert!(Exit::table().contains("  130  stopped by Ctrl-C or SIGTERM"));
    }

    #[test]
    fn every_exception_has_its_exit() {
        let code = |failure: Failure| match failure {
            Failure::Told { exit, .. } => exit.code(),
            Failure::Closed => panic!("it is closed"),
        };
        let name = || "s".to_owned();
        let codes = [
            code(SessionError::Ambiguous { wanted: name(), candidates: Vec::new() }.into()),
            code(SessionError::NameTaken { name: name() }.into()),
            code(SessionError::TooDeep { name: name() }.into()),
            code(SessionError::Unreadable { name: name() }.into()),
            code(SessionError::from(StoreError::NoContent(foldspace::event::Digest::of(b""))).into()),
            code(SessionError::from(CommitError::Empty).into()),
            code(CommitError::Empty.into()),
            code(StoreError::ReadOnly.into()),
            code(WorkspaceError::NotEmpty("/x".into()).into()),
            code(WorkspaceError::InsideCommit { to: 2, before: 1, after: 3 }.into()),
            code(WorkspaceError::Cancelled.into()),
            code(HubError::Panicked.into()),
        ];
        assert_eq!(codes, [3, 2, 2, 5, 5, 1, 1, 4, 2, 3, 130, 1]);
    }
}
