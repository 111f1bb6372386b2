//! Errors of queries.

use std::time::Duration;

use crate::engine::advice::Advice;
use crate::engine::error::{Diagnostic, ErrorKind};
use crate::engine::session::error::SessionError;

/// A failure of a query. Nothing has changed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SqlError {
    /// A session or its store failed.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The query is invalid, or compares values that can't be compared.
    #[error("{reason}")]
    Invalid {
        /// The reason, mostly from SQLite.
        reason: String,
        /// The advice.
        hint: Option<String>,
    },
    /// The statement would do something else than read.
    #[error("a query is a single SELECT: nothing can be written, attached or configured")]
    NotReading,
    /// The query ran longer than its limit.
    #[error("the query took longer than {} s", limit.as_secs_f64())]
    TimedOut {
        /// The limit.
        limit: Duration,
    },
    /// The caller cancelled the query.
    #[error("the query was cancelled")]
    Cancelled,
    /// The queries of this process need more memory than their limit.
    #[error("the query needs more than {bytes} bytes of memory")]
    Memory {
        /// The limit.
        bytes: usize,
    },
    /// A text, a blob or a row is larger than its limit.
    #[error("a value or row of the query has more than {bytes} bytes")]
    TooLong {
        /// The limit.
        bytes: usize,
    },
}

impl SqlError {
    pub(super) fn invalid(reason: impl Into<String>) -> Self {
        Self::Invalid { reason: reason.into(), hint: None }
    }
}

impl Diagnostic for SqlError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Session(error) => error.kind(),
            Self::Invalid { .. } => ErrorKind::Invalid,
            Self::NotReading => ErrorKind::Refused,
            Self::TimedOut { .. } => ErrorKind::TimedOut,
            Self::Cancelled => ErrorKind::Cancelled,
            Self::Memory { .. } | Self::TooLong { .. } => ErrorKind::Refused,
        }
    }

    fn advice(&self) -> Option<Advice> {
        match self {
            Self::Session(error) => error.advice(),
            Self::Invalid { hint, .. } => hint.clone().map(Advice::text),
            Self::TimedOut { .. } => {
                Some(Advice::text("name a session, a position, a kind or a path; or raise the limit"))
            }
            Self::Memory { .. } => Some(Advice::text("sort and group fewer rows, and select fewer long columns")),
            Self::TooLong { .. } => Some(Advice::text("select a part, such as substr(text, 1, 1000)")),
            Self::NotReading | Self::Cancelled => None,
        }
    }

    fn inner(&self) -> Option<&dyn Diagnostic> {
        match self {
            Self::Session(error) => Some(error),
            _ => None,
        }
    }
}
