//! The entries that differ between two positions, without their contents.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::seen_files::SeenChanges;
use super::{Operation, OperationContext, OperationError, OperationRoute};
use crate::engine::event::Node;
use crate::engine::id::Seq;
use crate::reducers::{Change, Entry};
use crate::view::{ChangeShape, Position};

/// Limit for the listed changes.
const LIMIT: usize = 10_000;

/// Lists the entries that differ between two positions of a session, without contents.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListChanges {
    /// The start position; by default 0, before the first event.
    pub from: Option<Position>,
    /// The end position, which may be before the start; the last one by default.
    pub to: Option<Position>,
    /// True to end with the files on the workspace's disk now, also while a command runs. The start is then by default
    /// the last position: the changes are the unrecorded ones.
    #[serde(default)]
    pub live: bool,
}

/// The entries that differ between two positions.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ChangeList {
    /// The start position.
    pub from: Seq,
    /// The end position.
    pub to: Seq,
    /// At most 10,000 changes, sorted by path.
    pub changes: Vec<ListedChange>,
    /// True if there are more changes.
    pub more: bool,
    /// If the end is the disk: the last recorded position when it was read, as in `to`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live_at: Option<Seq>,
}

/// A changed entry.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ListedChange {
    /// `added`, `removed` or `changed`, the path, and the entries: `before` unless it was added, `after` unless it was
    /// removed.
    #[serde(flatten)]
    #[schemars(with = "ChangeShape")]
    pub change: Change,
    /// The kind of the entry after the change, or before it if removed: `file`, `symlink`, `directory` or `special`.
    pub kind: &'static str,
    /// Its size in bytes.
    pub size: u64,
}

impl Operation for ListChanges {
    const NAME: &'static str = "list_changes";
    const ROUTE: Option<OperationRoute> = OperationRoute::get("states", "/v1/sessions/{session}/changes");
    type Output = ChangeList;

    async fn run(self, context: &OperationContext<'_>) -> Result<ChangeList, OperationError> {
        let found = SeenChanges::between(context, (self.from, self.to, self.live), None).await?;
        let SeenChanges { seen, from, to, changes } = found;
        let more = changes.len() > LIMIT;
        let changes = changes.into_iter().take(LIMIT).map(listed).collect();
        Ok(ChangeList { from, to, changes, more, live_at: seen.live_at() })
    }
}

fn listed(change: Change) -> ListedChange {
    let (before, after) = change.sides();
    let entry = after.or(before);
    let kind = entry.map_or("", |entry| match entry.node {
        Node::File { .. } => "file",
        Node::Symlink { .. } => "symlink",
        Node::Directory { .. } => "directory",
        Node::Special { .. } => "special",
    });
    let size = entry.map_or(0, Entry::size);
    ListedChange { change, kind, size }
}
