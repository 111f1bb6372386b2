//! The change that wrote each line of a file.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Operation, OperationContext, OperationError, OperationRoute, reading};
use crate::engine::error::Diagnostic;
use crate::engine::history::HistoryError;
use crate::engine::path::EntryPath;
use crate::view::{BlameDocument, Position, blamed};

/// Shows the change that wrote each line of a text file at a position. Follows moves and merges.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BlameFile {
    /// The path from the workspace root, with unescaped slashes
    pub path: String,
    /// The position; the last one by default.
    pub at: Option<Position>,
}

impl Operation for BlameFile {
    const NAME: &'static str = "blame_file";
    const ROUTE: Option<OperationRoute> = OperationRoute::get("files", "/v1/sessions/{session}/blame/{*path}");
    type Output = BlameDocument;

    async fn run(self, context: &OperationContext<'_>) -> Result<BlameDocument, OperationError> {
        let path = EntryPath::lookup(&self.path)?;
        let session = context.session().await?;
        reading(move || {
            let at = self.at.unwrap_or(Position::Back(0)).resolve(&session)?;
            blamed(&session, &path, at).map_err(|error| match error {
                HistoryError::Session(error) => error.into(),
                error => OperationError::Told { kind: error.kind(), detail: error.to_string(), advice: error.advice() },
            })
        })
        .await
    }
}
