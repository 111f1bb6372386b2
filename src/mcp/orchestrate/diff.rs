//! `session_diff`: what differs between two positions.

use rmcp::model::Tool;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{OperationContext, OperationEffect, OperationError, OperationOutcome};
use crate::engine::id::{Seq, SessionId};
use crate::engine::path::EntryPath;
use crate::engine::session::Session;
use crate::reducers::{Change, VirtualFileSystem};
use crate::view::{self, ChangeDocument, Position};

pub(super) const NAME: &str = "session_diff";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DiffParams {
    /// The session, by name or by the beginning of its id; this client's own by default.
    session: Option<String>,
    /// The earlier position; by default 0, before the first event.
    from: Option<Position>,
    /// The later position; by default the last one.
    to: Option<Position>,
    /// Only what is there or below it.
    path: Option<String>,
}

/// What differs in the files between two positions.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct DiffDocument {
    /// The session: 32 hexadecimal digits.
    #[schemars(with = "String")]
    session: SessionId,
    /// Its name.
    name: String,
    /// The earlier position.
    from: Seq,
    /// The later position.
    to: Seq,
    /// The changes, sorted by path.
    changes: Vec<ChangeDocument>,
}

pub(super) fn tool() -> Tool {
    let words = "Shows what differs in a session's files between two positions, as patches that git apply understands.";
    super::tool::<DiffParams, DiffDocument>(NAME, words, OperationEffect::Looks)
}

pub(super) async fn call(
    request: OperationContext<'_>,
    params: DiffParams,
) -> Result<OperationOutcome, OperationError> {
    let session = request.session(params.session.as_deref()).await?;
    super::reading(move || diff(&session, &params)).await
}

fn diff(session: &Session, params: &DiffParams) -> Result<OperationOutcome, OperationError> {
    let path = params.path.as_deref().map(EntryPath::lookup).transpose()?;
    let from = super::position(session, params.from, 0)?;
    let to = super::position(session, params.to, session.head()?)?;
    let files = |at| session.state_at(at).map(|state| VirtualFileSystem::of(&state));
    let mut changes = files(from)?.diff(&files(to)?);
    let concerns = |path: &EntryPath, change: &Change| change.path() == path || change.path().is_below(path);
    changes.retain(|change| path.as_ref().is_none_or(|path| concerns(path, change)));
    let (mut documents, mut bytes) = (Vec::new(), 0);
    for change in &changes {
        let document = view::change(session, change)?;
        bytes += document.patch.len();
        documents.push(document);
        if bytes > super::RESULT_MAX {
            break;
        }
    }
    let text: String = documents.iter().map(|change| change.patch.as_str()).collect();
    let text = if text.is_empty() { format!("nothing differs between {from} and {to}") } else { text };
    let (name, session) = (session.name().to_owned(), session.id());
    let done = OperationOutcome::new(text, &DiffDocument { session, name, from, to, changes: documents })?;
    done.fitting("ask for less with path, or for positions that are nearer to each other")
}
