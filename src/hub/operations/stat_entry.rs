//! One entry of a workspace.

use schemars::JsonSchema;
use serde::Deserialize;

use super::seen_files::SeenFiles;
use super::{Operation, OperationContext, OperationError, OperationRoute};
use crate::engine::path::EntryPath;
use crate::view::{EntryDocument, Position};

/// Shows an entry of a workspace at a position. Does not follow symbolic links.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StatEntry {
    /// The path from the workspace root, with unescaped slashes
    pub path: String,
    /// The position; the last one by default.
    pub at: Option<Position>,
    /// True to read the files from the workspace's disk now, also while a command runs, instead of from the record. It
    /// reads at most 64 MiB of unrecorded contents; larger files are `incomplete`.
    #[serde(default)]
    pub live: bool,
}

impl Operation for StatEntry {
    const NAME: &'static str = "stat_entry";
    const ROUTE: Option<OperationRoute> = OperationRoute::get("files", "/v1/sessions/{session}/stat/{*path}");
    type Output = EntryDocument;

    async fn run(self, context: &OperationContext<'_>) -> Result<EntryDocument, OperationError> {
        let path = EntryPath::lookup(&self.path)?;
        let session = context.session().await?;
        let seen = SeenFiles::read(context.hub, session, self.at, (self.live, &path)).await?;
        let entry = seen.files().get(&path).map(|entry| seen.entry(&path, entry));
        entry.ok_or_else(|| OperationError::not_found(format!("{} does not exist", path.rooted())))
    }
}
