//! Exit codes, and what stops a command.

use foldspace::view::PositionError;
use foldspace::{
    BackendError, CommitError, DispatchError, PathError, PortableError, SessionError, SliceError, StoreError,
};

use super::text;

/// How the program ends.
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
    /// As a command that was run did.
    Command(u8),
}

impl Exit {
    /// Every way to end: its code and what it means. The only table of them.
    const TABLE: [(Self, u8, &'static str); 8] = [
        (Self::Ok, 0, "all went well"),
        (
            Self::Failed,
            1,
            "a call failed; verify, fsck, doctor or materialise has a fault to tell, rerun a difference, merge a conflict; grep or bisect found nothing",
        ),
        (Self::Usage, 2, "the command, the script or the position is not right"),
        (Self::NotFound, 3, "no such session, path, event or store"),
        (Self::Busy, 4, "another process has the store"),
        (Self::Damaged, 5, "the store or the file to import is damaged"),
        (Self::Io, 6, "the operating system or the container engine refused"),
        (Self::Interrupted, 130, "stopped by Ctrl-C, or told to end"),
    ];

    pub(super) fn code(self) -> u8 {
        if let Self::Command(code) = self {
            return code;
        }
        let row = Self::TABLE.iter().find(|(exit, ..)| *exit == self);
        row.map_or(1, |(_, code, _)| *code)
    }

    /// The table as text for the help.
    pub(super) fn table() -> String {
        let line = |(_, code, meaning): &(Self, u8, &str)| format!("  {code:>3}  {meaning}\n");
        Self::TABLE.iter().map(line).collect()
    }
}

/// What stops a command.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Something to tell, and how to end.
    Told { exit: Exit, message: String, hint: Option<String> },
    /// Nobody reads the output any more, which is nobody's fault.
    Closed,
}

impl Failure {
    pub(super) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self::Told { exit, message: message.into(), hint: None }
    }

    #[must_use]
    pub(super) fn with_hint(mut self, words: impl Into<String>) -> Self {
        if let Self::Told { hint, .. } = &mut self {
            *hint = Some(words.into());
        }
        self
    }

    /// The same, with where it happened before it.
    #[must_use]
    pub(super) fn at(mut self, place: &str) -> Self {
        if let Self::Told { message, .. } = &mut self {
            *message = format!("{place}: {message}");
        }
        self
    }

    /// An I/O error with what was tried on what.
    pub(super) fn io(action: &str, place: impl std::fmt::Display, error: &std::io::Error) -> Self {
        Self::new(Exit::Io, format!("can't {action} {}: {error}", text::one_line(&place.to_string(), 300)))
    }

    fn of(exit: Exit, error: &dyn std::error::Error, hint: Option<String>) -> Self {
        Self::Told { exit, message: error.to_string(), hint }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let exit = match &error {
            StoreError::NoSession(_) => Exit::NotFound,
            StoreError::Locked { .. }
            | StoreError::InUse { .. }
            | StoreError::Foreign { .. }
            | StoreError::ReadOnly => Exit::Busy,
            StoreError::Damaged { .. } | StoreError::Lost(_) | StoreError::Format { .. } => Exit::Damaged,
            StoreError::Index(_) | StoreError::NoContent(_) => Exit::Damaged,
            StoreError::Io { .. }
            | StoreError::Poisoned(_)
            | StoreError::Elsewhere { .. }
            | StoreError::Unsettled(_) => Exit::Io,
            StoreError::Conflict { .. } | StoreError::Buried(_) | StoreError::Commit(_) => Exit::Failed,
        };
        Self::of(exit, &error, error.hint())
    }
}

impl From<PositionError> for Failure {
    fn from(error: PositionError) -> Self {
        match error {
            PositionError::NothingBack { .. } => Self::new(Exit::NotFound, error.to_string()),
            PositionError::Session(error) => error.into(),
        }
    }
}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Self {
        let exit = match error {
            SessionError::Store(error) => return error.into(),
            SessionError::Slice(_) => Exit::Damaged,
            SessionError::NotFound { .. } | SessionError::Ambiguous { .. } | SessionError::NoPosition { .. } => {
                Exit::NotFound
            }
            SessionError::NameTaken { .. } | SessionError::BadName { .. } => Exit::Usage,
            SessionError::TooDeep { .. } | SessionError::NoAgent { .. } => Exit::Usage,
            SessionError::Unreadable { .. } => Exit::Damaged,
        };
        Self::of(exit, &error, error.hint())
    }
}

impl From<BackendError> for Failure {
    fn from(error: BackendError) -> Self {
        Self::of(Exit::Io, &error, Some("`foldspace doctor` tells what works here".to_owned()))
    }
}

impl From<DispatchError> for Failure {
    fn from(error: DispatchError) -> Self {
        match error {
            DispatchError::Session(error) => error.into(),
            DispatchError::Workspace(_) => {
                Self::of(Exit::Io, &error, Some("`foldspace doctor` tells what works here".to_owned()))
            }
            DispatchError::NotEmpty(_) => Self::of(Exit::Usage, &error, None),
            DispatchError::SecondContainer(_) => Self::of(Exit::Busy, &error, None),
        }
    }
}

impl From<PortableError> for Failure {
    fn from(error: PortableError) -> Self {
        let exit = match error {
            PortableError::Session(SessionError::NameTaken { .. } | SessionError::BadName { .. }) => {
                return Self::of(Exit::Usage, &error, Some("give it another name with --name".to_owned()));
            }
            PortableError::Session(error) => return error.into(),
            PortableError::Io { ref source, .. } if source.kind() == std::io::ErrorKind::BrokenPipe => {
                return Self::Closed;
            }
            PortableError::Io { .. } => Exit::Io,
            PortableError::Refused(_) => Exit::Usage,
            PortableError::Damaged(_) => Exit::Damaged,
            PortableError::Differs { .. } => {
                let hint =
                    "nothing was changed; `foldspace remove` what is here, or import into another store (--data)";
                return Self::of(Exit::Failed, &error, Some(hint.to_owned()));
            }
        };
        Self::of(exit, &error, None)
    }
}

impl From<PathError> for Failure {
    fn from(error: PathError) -> Self {
        Self::of(Exit::Usage, &error, None)
    }
}

impl From<SliceError> for Failure {
    fn from(error: SliceError) -> Self {
        Self::of(Exit::Damaged, &error, None)
    }
}

impl From<CommitError> for Failure {
    fn from(error: CommitError) -> Self {
        SessionError::from(error).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_unique() {
        let codes: Vec<u8> = Exit::TABLE.iter().map(|(exit, ..)| exit.code()).collect();
        assert_eq!(codes, [0, 1, 2, 3, 4, 5, 6, 130]);
        assert!(Exit::table().contains("  130  stopped by Ctrl-C, or told to end"));
    }
}
