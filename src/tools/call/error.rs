//! Errors of tool calls.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::backends::{BackendError, ShellError};
use crate::engine::commit::CommitError;
use crate::engine::error::{Diagnostic, ErrorKind, ValueError};
use crate::engine::event::CallReason;
use crate::engine::session::error::SessionError;
use crate::engine::store::StoreError;

/// Limit that a call exceeded, with its use before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UsedLimit {
    /// Its name: `calls`, `wall_millis` or `bytes_written` of a session or an agent; `processes`, running in the
    /// session; `budget`, the units of a [`WorkBudget`](super::work_budget::WorkBudget).
    pub name: LimitName,
    /// The most that is allowed.
    pub limit: u64,
    /// The use before the call.
    pub used: u64,
}

/// Name of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum LimitName {
    /// The number of calls.
    Calls,
    /// Milliseconds for calls.
    WallMillis,
    /// Bytes of written files.
    BytesWritten,
    /// Running processes.
    Processes,
    /// Units of a budget.
    Budget,
}

/// Failure of a call, with a message that the caller can act on.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ToolError {
    /// The request was refused.
    #[error("{0}")]
    Refused(String),
    /// A named entry does not exist.
    #[error("{0}")]
    Missing(String),
    /// The parameters are too large to be recorded.
    #[error("the parameters have {0} bytes; at most {1} are allowed")]
    TooLarge(usize, usize),
    /// A limit of the session or the agent is used up.
    #[error("{0}")]
    OverLimit(String, UsedLimit),
    /// A parameter is invalid.
    #[error(transparent)]
    Invalid(#[from] ValueError),
    /// The session or its store failed.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// A command was not run.
    #[error(transparent)]
    Shell(#[from] ShellError),
    /// The workspace's backend failed.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// The call exceeded its time limit.
    #[error("the call was stopped after {} ms, its time limit", .0.as_millis())]
    TimedOut(std::time::Duration),
    /// The caller cancelled the call.
    #[error("the call was cancelled")]
    Cancelled,
}

impl Diagnostic for ToolError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Refused(_) | Self::OverLimit(..) => ErrorKind::Refused,
            Self::Missing(_) => ErrorKind::NotFound,
            Self::TooLarge(..) | Self::Invalid(_) => ErrorKind::Invalid,
            Self::Session(error) => error.kind(),
            Self::Shell(error) => error.kind(),
            Self::Backend(error) => error.kind(),
            Self::TimedOut(_) => ErrorKind::TimedOut,
            Self::Cancelled => ErrorKind::Cancelled,
        }
    }

    fn inner(&self) -> Option<&dyn Diagnostic> {
        match self {
            Self::Invalid(error) => Some(error),
            Self::Session(error) => Some(error),
            Self::Shell(error) => Some(error),
            Self::Backend(error) => Some(error),
            _ => None,
        }
    }
}

impl ToolError {
    /// Creates a refusal with this message.
    pub fn new(message: impl Into<String>) -> Self {
        Self::Refused(message.into())
    }

    pub(crate) fn reason(&self) -> CallReason {
        match self {
            Self::TooLarge(..) => CallReason::TooLarge,
            Self::OverLimit(..) => CallReason::OverLimit,
            other => other.kind().into(),
        }
    }
}

impl From<CommitError> for ToolError {
    fn from(error: CommitError) -> Self {
        Self::Refused(error.to_string())
    }
}

impl From<StoreError> for ToolError {
    fn from(error: StoreError) -> Self {
        Self::Session(error.into())
    }
}
