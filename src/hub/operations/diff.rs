//! The difference between two positions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Operation, OperationContext, OperationEffect, OperationError, OperationRoute, OperationTool, TooLong};
use super::{reading, seen_files::SeenChanges};
use crate::engine::id::{Seq, SessionId};
use crate::engine::path::EntryPath;
use crate::view::{self, ChangeDocument, Position};

/// Shows the difference between a session's files at two positions, as patches for `git apply`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Diff {
    /// The start position; by default 0, before the first event.
    pub from: Option<Position>,
    /// The end position, which may be before the start; the last one by default.
    pub to: Option<Position>,
    /// Only changes at or below this path.
    pub path: Option<String>,
    /// True to end with the files on the workspace's disk now, also while a command runs. The start is then by default
    /// the last position: the changes are the unrecorded ones.
    #[serde(default)]
    pub live: bool,
}

/// The difference in the files between two positions.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(rename = "Diff")]
pub struct DiffDocument {
    /// The session: 32 hexadecimal digits.
    #[schemars(with = "String")]
    pub session: SessionId,
    /// Its name.
    pub name: String,
    /// The start position.
    pub from: Seq,
    /// The end position.
    pub to: Seq,
    /// The changes from start to end, sorted by path, with patches.
    pub changes: Vec<ChangeDocument>,
    /// If the end is the disk: the last recorded position when it was read, as in `to`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live_at: Option<Seq>,
}

impl Operation for Diff {
    const NAME: &'static str = "diff";
    const ROUTE: Option<OperationRoute> = OperationRoute::get("states", "/v1/sessions/{session}/diff");
    const TOOL: Option<OperationTool> = Some(
        OperationTool::new(
            "session_diff",
            OperationEffect::Looks,
            TooLong::Refuse("narrow the result with path, or with positions closer together"),
        )
        .hiding(&["live"]),
    );
    type Output = DiffDocument;

    async fn run(self, context: &OperationContext<'_>) -> Result<DiffDocument, OperationError> {
        let path = self.path.as_deref().map(EntryPath::lookup).transpose()?;
        let bytes_max = context.bytes_max;
        let found = SeenChanges::between(context, (self.from, self.to, self.live), path).await?;
        reading(move || {
            let SeenChanges { seen, from, to, changes: found } = found;
            let (mut changes, mut bytes) = (Vec::new(), 0);
            for change in &found {
                let document = view::change_with(&|digest| seen.content(digest), change)?;
                bytes += document.patch.len();
                changes.push(document);
                if bytes > bytes_max {
                    break;
                }
            }
            let (session, name, live_at) = (seen.session.id(), seen.session.name().to_owned(), seen.live_at());
            Ok(DiffDocument { session, name, from, to, changes, live_at })
        })
        .await
    }

    fn text(diff: &DiffDocument) -> String {
        match diff.changes.is_empty() {
            true => format!("nothing differs between {} and {}", diff.from, diff.to),
            false => diff.changes.iter().map(|change| change.patch.as_str()).collect(),
        }
    }
}
