//! The errors of reading, exporting and importing histories.

use std::io;

use crate::engine::store::StoreError;
use crate::engine::{Advice, Diagnostic, EntryPath, ErrorKind, Seq, SessionError, SessionId};

/// Maximum bytes of a file for blame.
pub(crate) const BLAME_BYTES_MAX: u64 = 16 << 20;

/// Failure of blame, an export or an import.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// The session or its store failed.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The path does not exist at that position.
    #[error("{} does not exist at position {seq}", path.rooted())]
    NotThere {
        /// Path of the entry.
        path: EntryPath,
        /// Position of the state.
        seq: Seq,
    },
    /// The entry has no lines.
    #[error("{} is {what}; only text files have lines", path.rooted())]
    NotText {
        /// Path of the entry.
        path: EntryPath,
        /// Kind of the entry.
        what: &'static str,
    },
    /// The contents were not stored.
    #[error("the contents of {} were not stored: they were over a budget", path.rooted())]
    NotKept {
        /// Path of the file.
        path: EntryPath,
    },
    /// The file is over the limit.
    #[error("{} has {size} bytes; blame reads at most {BLAME_BYTES_MAX}", path.rooted())]
    TooLarge {
        /// Path of the file.
        path: EntryPath,
        /// Size in bytes.
        size: u64,
    },
    /// The exported file can't be read or written.
    #[error("can't {action} the file: {source}")]
    Io {
        /// Attempted action.
        action: &'static str,
        /// Error of the system.
        source: io::Error,
    },
    /// The exported file is damaged or invalid.
    #[error("the file can't be imported: {0}")]
    Damaged(String),
    /// The caller does not accept the session.
    #[error("the session was not imported: {0}")]
    Refused(String),
    /// The session exists here and has diverged.
    #[error("session {session} exists already, with another history from event {seq} on")]
    Differs {
        /// Existing session.
        session: SessionId,
        /// First event that differs.
        seq: Seq,
    },
}

impl Diagnostic for HistoryError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Session(error) => error.kind(),
            Self::NotThere { .. } | Self::NotText { .. } | Self::NotKept { .. } => ErrorKind::NotFound,
            Self::TooLarge { .. } | Self::Differs { .. } => ErrorKind::Refused,
            Self::Io { .. } => ErrorKind::Io,
            Self::Damaged(_) => ErrorKind::Damaged,
            Self::Refused(_) => ErrorKind::Invalid,
        }
    }

    fn advice(&self) -> Option<Advice> {
        match self {
            Self::Session(SessionError::NameTaken { .. } | SessionError::BadName { .. }) => {
                Some(Advice::ImportUnderOtherName)
            }
            Self::Session(error) => error.advice(),
            Self::NotThere { .. } => Some(Advice::ShowHistory),
            Self::NotKept { .. } => Some(Advice::RaiseFileBudget),
            Self::NotText { .. } | Self::TooLarge { .. } => Some(Advice::ShowAuthors),
            Self::Differs { .. } => Some(Advice::ReplaceSession),
            Self::Io { .. } | Self::Damaged(_) | Self::Refused(_) => None,
        }
    }

    fn inner(&self) -> Option<&dyn Diagnostic> {
        match self {
            Self::Session(error) => Some(error),
            _ => None,
        }
    }
}

impl From<StoreError> for HistoryError {
    fn from(error: StoreError) -> Self {
        Self::Session(error.into())
    }
}
