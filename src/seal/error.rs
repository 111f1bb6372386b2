//! Errors of seals and proofs.

use std::io;
use std::path::PathBuf;

use crate::engine::advice::Advice;
use crate::engine::error::{Diagnostic, ErrorKind};
use crate::engine::history::HistoryError;
use crate::engine::session::error::SessionError;
use crate::engine::store::StoreError;

/// Failure of a seal, of a proof or of their verification.
#[derive(Debug, thiserror::Error)]
pub enum IntegrityError {
    /// A session or its store failed.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The export can't be read.
    #[error(transparent)]
    Export(#[from] HistoryError),
    /// A file of the seals can't be accessed.
    #[error("failed to access {}: {source}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A key or a size is invalid.
    #[error("invalid {0}")]
    Invalid(String),
    /// A checkpoint, a proof or the log is malformed.
    #[error("malformed {0}")]
    Malformed(String),
    /// The checkpoint lacks a required signature.
    #[error("no signature of {0} with this key")]
    Unsigned(String),
    /// A signature, a proof or a history is not as sealed.
    #[error("{0}")]
    Differs(String),
    /// No seal covers the event, or exports do not contain it.
    #[error("event {0} of the session can't be proven: {1}")]
    NotProvable(u64, &'static str),
}

impl IntegrityError {
    pub(super) fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }
}

impl From<StoreError> for IntegrityError {
    fn from(error: StoreError) -> Self {
        Self::Session(error.into())
    }
}

impl Diagnostic for IntegrityError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Session(error) => error.kind(),
            Self::Export(error) => error.kind(),
            Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => ErrorKind::NotFound,
            Self::Io { .. } => ErrorKind::Io,
            Self::Invalid(_) => ErrorKind::Invalid,
            Self::Malformed(_) => ErrorKind::Damaged,
            Self::Unsigned(_) | Self::Differs(_) => ErrorKind::Refused,
            Self::NotProvable(..) => ErrorKind::NotFound,
        }
    }

    fn advice(&self) -> Option<Advice> {
        match self {
            Self::Session(error) => error.advice(),
            _ => None,
        }
    }
}
