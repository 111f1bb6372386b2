//! The errors of the server, and their codes in the protocol.

use rmcp::model::ErrorData;
use serde_json::json;

use super::names::shown;
use super::watching::{SESSIONS_MAX, WATCHED_MAX};
use crate::engine::error::{Diagnostic, ErrorKind};
use crate::engine::session::error::SessionError;
use crate::hub::HubError;
use crate::hub::operations::OperationError;

/// A failure of the server or of a request to it.
#[derive(Debug, thiserror::Error)]
pub enum McpError {
    /// The client does not speak the protocol.
    #[error("the client could not be served: {0}")]
    Connection(String),
    /// A session can't be begun, opened or read.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// The session began with another workspace than the one asked for.
    #[error(
        "session {name} began with another workspace, on {backend}; go on with it without --backend and what belongs to it, or name another session"
    )]
    OtherWorkspace {
        /// The session.
        name: String,
        /// The backend of its workspace.
        backend: String,
    },
    /// The client watches too much.
    #[error("at most {WATCHED_MAX} addresses in {SESSIONS_MAX} sessions can be watched at once")]
    TooManyWatched,
    /// The address names nothing.
    #[error("{0}")]
    NotFound(String),
    /// The resource exists, and can't be read like that.
    #[error("{0}")]
    Refused(String),
}

impl Diagnostic for McpError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Connection(_) => ErrorKind::Io,
            Self::Hub(error) => error.kind(),
            Self::NotFound(_) => ErrorKind::NotFound,
            Self::OtherWorkspace { .. } | Self::TooManyWatched | Self::Refused(_) => ErrorKind::Refused,
        }
    }

    fn inner(&self) -> Option<&dyn Diagnostic> {
        match self {
            Self::Hub(error) => Some(error),
            _ => None,
        }
    }
}

impl From<McpError> for OperationError {
    fn from(error: McpError) -> Self {
        match error {
            McpError::Hub(error) => error.into(),
            other => Self::new(other.kind(), other.to_string()),
        }
    }
}

impl From<SessionError> for McpError {
    fn from(error: SessionError) -> Self {
        Self::Hub(error.into())
    }
}

impl McpError {
    /// Returns the answer to a request, perhaps for what is at `uri`. The only table from kinds of errors to codes.
    pub(super) fn answer(&self, uri: Option<&str>) -> ErrorData {
        let message = self.to_string();
        match (self.kind(), uri) {
            (ErrorKind::NotFound, Some(uri)) => {
                ErrorData::resource_not_found(message, Some(json!({ "uri": shown(uri, 300) })))
            }
            (ErrorKind::Invalid | ErrorKind::Refused, _) => ErrorData::invalid_params(message, None),
            _ => ErrorData::internal_error(message, None),
        }
    }
}
