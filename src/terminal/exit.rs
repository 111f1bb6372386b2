//! Exit codes and failures of commands.

use std::{fmt, io};

use foldspace::ErrorKind;
use foldspace::event::Diagnostic;
use foldspace::history::HistoryError;

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
            "a call failed; check, verify, seal, doctor or materialise found a problem; rerun or what-if found differences; merge or apply conflicted; rewind was refused; undo or revert left changes; grep, bisect, replay or rescue found nothing",
        ),
        (Self::Usage, 2, "usage error: invalid command, script or position"),
        (Self::NotFound, 3, "no such session, path, event or store"),
        (Self::Busy, 4, "another process owns the store"),
        (Self::Damaged, 5, "the store or the file to import is damaged"),
        (Self::Io, 6, "the operating system or the container engine refused"),
        (Self::Interrupted, 130, "stopped by Ctrl-C, SIGTERM or SIGHUP"),
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
                let hint = error.advice().map(|advice| advice::hint(&advice));
                Self::Told { exit: error.kind().into(), message: error.to_string(), hint }
            }
        }
    }
}

impl From<ErrorKind> for Exit {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::NotFound | ErrorKind::Ambiguous => Self::NotFound,
            ErrorKind::Invalid | ErrorKind::Conflict | ErrorKind::Forbidden => Self::Usage,
            ErrorKind::Refused | ErrorKind::TimedOut | ErrorKind::Broken => Self::Failed,
            ErrorKind::Busy | ErrorKind::OtherHost | ErrorKind::Unavailable => Self::Busy,
            ErrorKind::Damaged | ErrorKind::Newer | ErrorKind::ContentMissing => Self::Damaged,
            ErrorKind::Io | ErrorKind::Full | ErrorKind::Backend => Self::Io,
            ErrorKind::Cancelled => Self::Interrupted,
        }
    }
}

#[cfg(test)]
mod tests {
    use foldspace::hub::HubError;
    use foldspace::store::CommitError;
    use foldspace::tools::WorkspaceError;
    use foldspace::{SessionError, StoreError};

    use super::*;

    #[test]
    fn every_exit_has_its_code() {
        let codes: Vec<u8> = Exit::TABLE.iter().map(|(exit, ..)| exit.code()).collect();
        assert_eq!(codes, [0, 1, 2, 3, 4, 5, 6, 130]);
        assert!(Exit::table().contains("  130  stopped by Ctrl-C, SIGTERM or SIGHUP"));
    }

    #[test]
    fn errors_exit_by_their_kind() {
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
            code(StoreError::ReadOnly.into()),
            code(WorkspaceError::NotEmpty("/x".into()).into()),
            code(WorkspaceError::Cancelled.into()),
            code(HubError::Panicked.into()),
        ];
        assert_eq!(codes, [3, 2, 1, 5, 5, 2, 4, 2, 130, 1]);
    }
}
