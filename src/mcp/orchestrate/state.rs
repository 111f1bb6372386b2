//! `session_state`: what is known of a session at a position.

use rmcp::model::Tool;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{OperationContext, OperationEffect, OperationError, OperationOutcome};
use crate::engine::session::Session;
use crate::engine::state::State;
use crate::mcp::names::shown;
use crate::view::{self, Position, StateDocument};

pub(super) const NAME: &str = "session_state";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct StateParams {
    /// The session, by name or by the beginning of its id; this client's own by default.
    session: Option<String>,
    /// The slice to show; without one all are listed.
    slice: Option<String>,
    /// A JSON pointer to a part of the slice, such as "/src~1main.rs" in VirtualFileSystem.
    pointer: Option<String>,
    /// Shows the state as it was at this position; as it is now by default.
    at: Option<Position>,
}

/// A state, and of one slice what it says.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ShownState {
    #[serde(flatten)]
    state: StateDocument,
    /// The slice that was asked for, or the part of it; left out where none was.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Value>,
}

pub(super) fn tool() -> Tool {
    let words = "Shows the slices of a session's state at any position, such as VirtualFileSystem (its files), ToolCalls, \
                 Commands, Usage, Mounts or Children; or one of them, or a part of one.";
    super::tool::<StateParams, ShownState>(NAME, words, OperationEffect::Looks)
}

pub(super) async fn call(
    request: OperationContext<'_>,
    params: StateParams,
) -> Result<OperationOutcome, OperationError> {
    let session = request.session(params.session.as_deref()).await?;
    super::reading(move || {
        let head = session.head()?;
        let at = super::position(&session, params.at, head)?;
        let state = if at == head { session.state()? } else { session.state_at(at)? };
        show(&session, &state, &params)
    })
    .await
}

fn show(session: &Session, state: &State, params: &StateParams) -> Result<OperationOutcome, OperationError> {
    let Some(wanted) = &params.slice else {
        let document = view::state(session.name(), state)?;
        let line = |slice: &view::SliceDocument| format!("\n  {} ({} bytes as JSON)", slice.slice, slice.json_bytes);
        let slices: String = document.slices.iter().map(line).collect();
        let text = format!("{} at {}:{slices}", session.name(), state.seq());
        return OperationOutcome::new(text, &ShownState { state: document, value: None });
    };
    let Some(name) = view::slice_named(state, wanted) else {
        let known: Vec<_> = state.registry().slices().into_iter().map(|slice| slice.name).collect();
        return Err(OperationError(format!("there is no slice {}; there are {}", shown(wanted, 80), known.join(", "))));
    };
    let slice = view::slice(state, name)?;
    let document = view::state_with(session.name(), state, (name, &slice))?;
    let pointer = params.pointer.as_deref().unwrap_or_default();
    let Some(value) = slice.pointer(pointer) else {
        return Err(OperationError(format!("there is nothing at {} in {name}", shown(pointer, 300))));
    };
    let text = serde_json::to_string_pretty(value)?;
    OperationOutcome::new(text, &ShownState { state: document, value: Some(value.clone()) })?
        .fitting("ask for a part of it with pointer")
}
