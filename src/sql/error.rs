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
    /// SQLite or a table can't run the query.
    #[error("{reason}")]
    Invalid {
        /// The reason.
        reason: String,
        /// The advice.
        hint: Option<String>,
    },
    /// The statement would not only read.
    #[error("a query is a single SELECT: nothing can be written, attached or configured")]
    NotReading,
    /// The query ran longer than its limit.
    #[error("the query took longer than {} s", .0.as_secs_f64())]
    TimedOut(Duration),
    /// The caller cancelled the query.
    #[error("the query was cancelled")]
    Cancelled,
    /// The query exceeds a limit of bytes.
    #[error("{what} of the query is over the limit of {limit} bytes")]
    TooLarge {
        /// The memory, or a value or row.
        what: &'static str,
        /// The limit.
        limit: usize,
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
            Self::NotReading | Self::TooLarge { .. } => ErrorKind::Refused,
            Self::TimedOut(_) => ErrorKind::TimedOut,
            Self::Cancelled => ErrorKind::Cancelled,
        }
    }

    fn advice(&self) -> Option<Advice> {
        match self {
            Self::Session(error) => error.advice(),
            Self::Invalid { hint, .. } => hint.clone().map(Advice::text),
            Self::TimedOut(_) => Some(Advice::text("name a session, positions, a kind or a path; or raise the limit")),
            Self::TooLarge { .. } => {
                Some(Advice::text("sort and group fewer rows; select parts: substr(text, 1, 1000)"))
            }
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
