//! The difference between two positions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Operation, OperationContext, OperationEffect, OperationError, OperationRoute, OperationTool, TooLong};
use super::{position, reading};
use crate::engine::id::{Seq, SessionId};
use crate::engine::path::EntryPath;
use crate::view::{self, ChangeDocument, Position, file_changes};

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
}

impl Operation for Diff {
    const NAME: &'static str = "diff";
    const ROUTE: Option<OperationRoute> = OperationRoute::get("states", "/v1/sessions/{session}/diff");
    const TOOL: Option<OperationTool> = Some(OperationTool::new(
        "session_diff",
        OperationEffect::Looks,
        TooLong::Refuse("narrow the result with path, or with positions closer together"),
    ));
    type Output = DiffDocument;

    async fn run(self, context: &OperationContext<'_>) -> Result<DiffDocument, OperationError> {
        let path = self.path.as_deref().map(EntryPath::lookup).transpose()?;
        let (session, bytes_max) = (context.session().await?, context.bytes_max);
        reading(move || {
            let from = position(&session, self.from, 0)?;
            let to = self.to.unwrap_or(Position::Back(0)).resolve(&session)?;
            let (mut changes, mut bytes) = (Vec::new(), 0);
            for change in &file_changes(&session, from, to, path.as_ref())? {
                let document = view::change(&session, change)?;
                bytes += document.patch.len();
                changes.push(document);
                if bytes > bytes_max {
                    break;
                }
            }
            Ok(DiffDocument { session: session.id(), name: session.name().to_owned(), from, to, changes })
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
