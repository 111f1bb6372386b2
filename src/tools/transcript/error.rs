//! Errors of reading transcripts.

use std::path::PathBuf;

use crate::engine::commit::CommitError;
use crate::engine::error::{Diagnostic, ErrorKind};
use crate::engine::history::error::HistoryError;
use crate::engine::session::error::SessionError;
use crate::engine::store::StoreError;

/// Error of an import of transcripts.
#[derive(Debug, thiserror::Error)]
pub enum TranscriptError {
    /// A file can't be read.
    #[error("can't read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The format is unknown.
    #[error("can't import {}: {reason}", path.display())]
    Unknown {
        /// The file or directory.
        path: PathBuf,
        /// Explanation for a person.
        reason: String,
    },
    /// The transcript exceeds a limit of an import.
    #[error("can't import {}: {reason}", path.display())]
    Limit {
        /// The file or directory.
        path: PathBuf,
        /// The limit, and what to do.
        reason: String,
    },
    /// The temporary store of the import can't be created.
    #[error("can't create a temporary directory: {0}")]
    Temporary(std::io::Error),
    /// The history can't be recorded.
    #[error(transparent)]
    History(#[from] HistoryError),
    /// A session can't be read or recorded.
    #[error(transparent)]
    Session(#[from] SessionError),
}

impl From<StoreError> for TranscriptError {
    fn from(error: StoreError) -> Self {
        Self::Session(error.into())
    }
}

impl From<CommitError> for TranscriptError {
    fn from(error: CommitError) -> Self {
        Self::Session(error.into())
    }
}

impl Diagnostic for TranscriptError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Read { .. } | Self::Temporary(_) => ErrorKind::Io,
            Self::Unknown { .. } => ErrorKind::Damaged,
            Self::Limit { .. } => ErrorKind::Refused,
            Self::History(error) => error.kind(),
            Self::Session(error) => error.kind(),
        }
    }

    fn inner(&self) -> Option<&dyn Diagnostic> {
        match self {
            Self::History(error) => Some(error),
            Self::Session(error) => Some(error),
            _ => None,
        }
    }
}
