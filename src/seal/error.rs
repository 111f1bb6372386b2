//! Errors of seals and proofs.

use std::io;
use std::path::PathBuf;

use crate::engine::advice::Advice;
use crate::engine::error::{Diagnostic, ErrorKind};
use crate::engine::history::HistoryError;
use crate::engine::session::error::SessionError;
use crate::engine::store::StoreError;

use super::SealProblem;

/// Failure of a seal, of a proof or of their verification.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// A session or its store failed.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The export can't be read.
    #[error(transparent)]
    Export(HistoryError),
    /// A file of the seals can't be accessed.
    #[error("failed to {what} {}: {source}", path.display())]
    Io {
        /// The attempted action.
        what: &'static str,
        /// The path.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A key is invalid.
    #[error("invalid key: {0}")]
    Key(&'static str),
    /// A checkpoint, a proof, an export or a leaf is malformed.
    #[error("the {what} is malformed: {problem}")]
    Malformed {
        /// The checkpoint, proof, export or leaf.
        what: &'static str,
        /// The problem.
        problem: String,
    },
    /// The checkpoint has no signature of a key that must have signed it.
    #[error("no signature of {0} with this key")]
    Unsigned(String),
    /// A signature of a known key is wrong.
    #[error("the signature of {0} is wrong: the text was changed, or another key signed it")]
    BadSignature(String),
    /// The file with the leaves does not have the leaves of a checkpoint.
    #[error("the store's log of seals does not have the {0} leaves that the checkpoint covers")]
    LeavesDiffer(u64),
    /// Sessions differ from their last seal.
    #[error("{} differ from their last seal: {}", counted(.0.len()), first(.0))]
    Differs(Vec<SealProblem>),
    /// No seal covers the event.
    #[error("no seal covers event {0} of the session")]
    NotSealed(u64),
    /// An export of the fork lacks the event.
    #[error("an export of this fork has the fork's own start in place of event {0}")]
    NotExported(u64),
    /// The last checkpoint is smaller than the one that a witness signed.
    #[error("the last checkpoint has {size} leaves; no witness signed {old} of them")]
    Smaller {
        /// Number of leaves of the last checkpoint.
        size: usize,
        /// Number of leaves that the witness signed.
        old: u64,
    },
    /// The proof and the export, or the proof and its checkpoint, don't agree.
    #[error("the proof does not hold: {0}")]
    NotProven(String),
}

fn counted(sessions: usize) -> String {
    if sessions == 1 { "1 session".to_owned() } else { format!("{sessions} sessions") }
}

fn first(problems: &[SealProblem]) -> String {
    problems.first().map(SealProblem::to_string).unwrap_or_default()
}

impl SealError {
    pub(super) fn io(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { what, path, source }
    }

    pub(super) fn malformed(what: &'static str, problem: impl Into<String>) -> Self {
        Self::Malformed { what, problem: problem.into() }
    }
}

impl From<HistoryError> for SealError {
    fn from(error: HistoryError) -> Self {
        match error {
            HistoryError::Damaged(problem) => Self::malformed("export", problem),
            other => Self::Export(other),
        }
    }
}

impl From<StoreError> for SealError {
    fn from(error: StoreError) -> Self {
        Self::Session(error.into())
    }
}

impl Diagnostic for SealError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Session(error) => error.kind(),
            Self::Export(error) => error.kind(),
            Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => ErrorKind::NotFound,
            Self::Io { .. } => ErrorKind::Io,
            Self::Key(_) | Self::Smaller { .. } => ErrorKind::Invalid,
            Self::Malformed { .. } => ErrorKind::Damaged,
            Self::NotSealed(_) | Self::NotExported(_) => ErrorKind::NotFound,
            Self::Unsigned(_)
            | Self::BadSignature(_)
            | Self::LeavesDiffer(_)
            | Self::Differs(_)
            | Self::NotProven(_) => ErrorKind::Refused,
        }
    }

    fn advice(&self) -> Option<Advice> {
        match self {
            Self::Session(error) => error.advice(),
            Self::Export(error) => error.advice(),
            Self::NotSealed(_) => Some(Advice::text("seal the store first")),
            Self::NotExported(_) => Some(Advice::text("prove the event of its parent")),
            Self::LeavesDiffer(_) => {
                Some(Advice::text("the file seals/leaves of the data directory that was sealed has them"))
            }
            _ => None,
        }
    }
}
