//! Errors of the server, and their protocol codes.

use rmcp::model::ErrorData;
use serde_json::json;

use super::advice::for_model;
use super::names::shown;
use crate::engine::error::{Diagnostic, ErrorKind};
use crate::hub::operations::OperationError;

/// A failure of the connection to a client.
#[derive(Debug, thiserror::Error)]
pub enum McpError {
    /// The client violated the protocol.
    #[error("failed to serve the client: {0}")]
    Connection(String),
}

impl Diagnostic for McpError {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Io
    }
}

/// Returns the text of an error with its advice, for a model.
pub(super) fn words(error: &OperationError) -> String {
    match error.advice().as_ref().and_then(for_model) {
        Some(advice) => format!("{error}; {advice}"),
        None => error.to_string(),
    }
}

/// Returns the error answer to a request, for a resource with its URI. The only mapping from error kinds to codes.
pub(super) fn answer(error: &OperationError, uri: Option<&str>) -> ErrorData {
    let message = words(error);
    match (error.kind(), uri) {
        (ErrorKind::NotFound | ErrorKind::Ambiguous | ErrorKind::ContentMissing, Some(uri)) => {
            ErrorData::resource_not_found(message, Some(json!({ "uri": shown(uri, 300) })))
        }
        (ErrorKind::Invalid | ErrorKind::Refused | ErrorKind::Forbidden, _) => ErrorData::invalid_params(message, None),
        _ => ErrorData::internal_error(message, None),
    }
}
