//! One entry of a workspace.

use schemars::JsonSchema;
use serde::Deserialize;

use super::show_state::state_at;
use super::{Operation, OperationContext, OperationError, OperationRoute, reading};
use crate::engine::path::EntryPath;
use crate::reducers::VirtualFileSystem;
use crate::view::{self, EntryDocument, Position};

/// Shows an entry of a workspace at a position. Does not follow symbolic links.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StatEntry {
    /// The path from the workspace root, with unescaped slashes
    pub path: String,
    /// The position; the last one by default.
    pub at: Option<Position>,
}

impl Operation for StatEntry {
    const NAME: &'static str = "stat_entry";
    const ROUTE: Option<OperationRoute> = OperationRoute::get("files", "/v1/sessions/{session}/stat/{*path}");
    type Output = EntryDocument;

    async fn run(self, context: &OperationContext<'_>) -> Result<EntryDocument, OperationError> {
        let path = EntryPath::lookup(&self.path)?;
        let session = context.session_now(self.at.is_none()).await?;
        reading(move || {
            let files = VirtualFileSystem::of(&state_at(&session, self.at)?);
            let entry = files.get(&path);
            entry
                .map(|entry| view::entry(&path, entry))
                .ok_or_else(|| OperationError::not_found(format!("{} does not exist", path.rooted())))
        })
        .await
    }
}
