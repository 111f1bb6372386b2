//! The errors of reading, exporting and importing histories.

use std::io;

use crate::engine::error::{Diagnostic, ErrorKind};
use crate::engine::id::{Seq, SessionId};
use crate::engine::path::EntryPath;
use crate::engine::session::sessions::SessionError;
use crate::engine::store::StoreError;

/// Bytes of a file whose lines can be asked about.
pub const BLAME_BYTES_MAX: u64 = 16 << 20;

/// A failure to tell who wrote a file's lines, or to export or import a session.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// The session or its store failed.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// There is nothing at that path.
    #[error("there is no {} at position {seq}", path.rooted())]
    NotThere {
        /// The path.
        path: EntryPath,
        /// The position.
        seq: Seq,
    },
    /// The entry has no lines.
    #[error("{} is {what}; only text files have lines", path.rooted())]
    NotText {
        /// The path.
        path: EntryPath,
        /// The kind of entry.
        what: &'static str,
    },
    /// The contents were not recorded.
    #[error("the contents of {} were not kept: they were over a budget", path.rooted())]
    NotKept {
        /// The path.
        path: EntryPath,
    },
    /// The file is over the limit.
    #[error("{} has {size} bytes; lines of files of at most {BLAME_BYTES_MAX} can be asked about", path.rooted())]
    TooLarge {
        /// The path.
        path: EntryPath,
        /// Its size.
        size: u64,
    },
    /// The exported file can't be read or written.
    #[error("can't {action} the file: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The exported file is not whole and right.
    #[error("the file can't be imported: {0}")]
    Damaged(String),
    /// The caller does not accept the session.
    #[error("the session was not imported: {0}")]
    Refused(String),
    /// The session is here already, and went on otherwise.
    #[error("session {session} is here already and has another history from event {seq} on")]
    Differs {
        /// The session.
        session: SessionId,
        /// The first event that differs.
        seq: Seq,
    },
}

impl Diagnostic for HistoryError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Session(error) => error.kind(),
            Self::NotThere { .. } | Self::NotText { .. } | Self::NotKept { .. } => ErrorKind::NotFound,
            Self::TooLarge { .. } => ErrorKind::Refused,
            Self::Io { .. } => ErrorKind::Io,
            Self::Damaged(_) => ErrorKind::Damaged,
            Self::Refused(_) => ErrorKind::Invalid,
            Self::Differs { .. } => ErrorKind::Conflict,
        }
    }

    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Session(SessionError::NameTaken { .. } | SessionError::BadName { .. }) => {
                "give it another name with --name"
            }
            Self::Session(error) => return error.hint(),
            Self::NotThere { .. } => "`foldspace history` shows what became of it; --at shows another moment",
            Self::NotKept { .. } => "`foldspace history` shows who changed it; --keep-file-bytes raises the budget",
            Self::NotText { .. } | Self::TooLarge { .. } => "`foldspace history` shows who changed it",
            Self::Differs { .. } => {
                "nothing was changed; `foldspace remove` what is here, or import into another store (--data)"
            }
            Self::Io { .. } | Self::Damaged(_) | Self::Refused(_) => return None,
        };
        Some(hint.to_owned())
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
