//! The entries of a workspace.

use schemars::JsonSchema;
use serde::Deserialize;

use super::seen_files::SeenFiles;
use super::{Operation, OperationContext, OperationError, OperationRoute, reading};
use crate::engine::path::EntryPath;
use crate::reducers::Entry;
use crate::view::{EntryDocument, Position};

/// Lists the entries of a workspace at a position.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListFiles {
    /// The position; the last one by default.
    pub at: Option<Position>,
    /// True to read the files from the workspace's disk now, also while a command runs, instead of from the record. It
    /// reads at most 64 MiB of unrecorded contents; larger files are `incomplete`.
    #[serde(default)]
    pub live: bool,
    /// Only entries below this directory; the root by default.
    pub below: Option<String>,
    /// True (the default) to include entries of subdirectories.
    #[serde(default = "yes")]
    pub recursive: bool,
    /// Limit for the levels below the directory; 1 lists only its own entries.
    pub depth: Option<u32>,
}

fn yes() -> bool {
    true
}

impl Operation for ListFiles {
    const NAME: &'static str = "list_files";
    const ROUTE: Option<OperationRoute> = OperationRoute::get("files", "/v1/sessions/{session}/files");
    type Output = Vec<EntryDocument>;

    async fn run(self, context: &OperationContext<'_>) -> Result<Vec<EntryDocument>, OperationError> {
        let directory = EntryPath::lookup(self.below.as_deref().unwrap_or("/"))?;
        let session = context.session().await?;
        let seen = SeenFiles::read(context.hub, session, self.at, (self.live, &directory)).await?;
        reading(move || {
            let files = seen.files();
            if !files.is_directory(&directory) {
                return Err(OperationError::not_found(format!("{} is not a directory", directory.rooted())));
            }
            let document = |(path, entry): (&EntryPath, &Entry)| seen.entry(path, entry);
            let is_near = |(path, _): &(&EntryPath, &Entry)| {
                let levels = path.segments().count() - directory.segments().count();
                self.depth.is_none_or(|depth| levels <= depth as usize)
            };
            Ok(match self.recursive {
                true => files.below(&directory).filter(is_near).map(document).collect(),
                false => files.children(&directory).map(document).collect(),
            })
        })
        .await
    }
}
