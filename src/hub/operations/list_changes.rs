//! The entries that differ between two positions, without their contents.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::diff::file_changes;
use super::{Operation, OperationContext, OperationError, OperationRoute, position, reading};
use crate::engine::event::Node;
use crate::engine::id::Seq;
use crate::reducers::{Change, Entry};
use crate::view::{ChangeShape, Position};

/// Changes that are given at most.
const LIMIT: usize = 10_000;

/// Lists what differs in a session's files between two positions, without contents.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListChanges {
    /// The position to start from; by default 0, before the first event.
    pub from: Option<Position>,
    /// The position to come to, which may be an earlier one; by default the last one.
    pub to: Option<Position>,
}

/// The entries that differ between two positions.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ChangeList {
    /// The position to start from.
    pub from: Seq,
    /// The position to come to.
    pub to: Seq,
    /// The changes, sorted by path: 10,000 at most.
    pub changes: Vec<ListedChange>,
    /// True where there are more.
    pub more: bool,
}

/// The change of a path.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ListedChange {
    /// `added`, `removed` or `changed`, the path, and the entries: `before` unless it was added, `after` unless it was
    /// removed.
    #[serde(flatten)]
    #[schemars(with = "ChangeShape")]
    pub change: Change,
    /// The kind of the entry, the later one if there is one: `file`, `symlink`, `directory` or `special`.
    pub kind: &'static str,
    /// Its bytes.
    pub size: u64,
}

impl Operation for ListChanges {
    const NAME: &'static str = "list_changes";
    const ROUTE: Option<OperationRoute> = OperationRoute::get("states", "/v1/sessions/{session}/changes");
    type Output = ChangeList;

    async fn run(self, context: &OperationContext<'_>) -> Result<ChangeList, OperationError> {
        let session = context.session().await?;
        reading(move || {
            let from = position(&session, self.from, 0)?;
            let to = self.to.unwrap_or(Position::Back(0)).resolve(&session)?;
            let changes = file_changes(&session, from, to, None)?;
            let more = changes.len() > LIMIT;
            Ok(ChangeList { from, to, changes: changes.into_iter().take(LIMIT).map(listed).collect(), more })
        })
        .await
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
