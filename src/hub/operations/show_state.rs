//! The slices of a state.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::reading;
use super::{Operation, OperationContext, OperationEffect, OperationError, OperationRoute, OperationTool, TooLong};
use crate::engine::advice::Advice;
use crate::engine::clock::Timestamp;
use crate::engine::counted::counted;
use crate::engine::id::{Digest, Seq, SessionId};
use crate::engine::nearest::nearest;
use crate::engine::session::Session;
use crate::engine::slice::{OnRewind, SliceError};
use crate::engine::state::State;
use crate::view::{Position, slice};

/// Shows the slices of a session's state at any position, such as VirtualFileSystem (its files), ToolCalls, Commands,
/// Usage, Mounts or Children; or one slice, or part of it.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ShowState {
    /// The slice to show; lists all slices by default.
    pub slice: Option<String>,
    /// A JSON pointer to a part of the slice, such as `/src~1main.rs` in VirtualFileSystem.
    pub pointer: Option<String>,
    /// The position; the current state by default.
    pub at: Option<Position>,
}

/// A state, with the value of one slice if requested.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(rename = "State")]
pub struct ShownState {
    /// The state.
    #[serde(flatten)]
    pub state: StateDocument,
    /// The requested slice or part of it; omitted if none was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
}

impl Operation for ShowState {
    const NAME: &'static str = "show_state";
    const ROUTE: Option<OperationRoute> = OperationRoute::get("states", "/v1/sessions/{session}/state");
    const TOOL: Option<OperationTool> = Some(OperationTool::new(
        "session_state",
        OperationEffect::Looks,
        TooLong::Refuse("select part of it with pointer"),
    ));
    type Output = ShownState;

    async fn run(self, context: &OperationContext<'_>) -> Result<ShownState, OperationError> {
        let session = context.session().await?;
        reading(move || {
            let state = state_at(&session, self.at)?;
            let Some(wanted) = &self.slice else {
                return Ok(ShownState { state: self::state(session.name(), &state)?, value: None });
            };
            let name = known_slice(&state, wanted)?;
            let slice = slice(&state, &name)?;
            let document = state_with(session.name(), &state, Some((&name, &slice)))?;
            let pointer = self.pointer.as_deref().unwrap_or_default();
            let Some(value) = slice.pointer(pointer) else {
                let shown: String = pointer.chars().take(300).collect();
                return Err(OperationError::not_found(format!("no value at {shown} in {name}")));
            };
            Ok(ShownState { state: document, value: Some(value.clone()) })
        })
        .await
    }

    fn text(shown: &ShownState) -> String {
        if let Some(value) = &shown.value {
            return serde_json::to_string_pretty(value).unwrap_or_default();
        }
        let StateDocument { name, seq, slices, .. } = &shown.state;
        let line =
            |slice: &SliceDocument| format!("\n  {} ({} as JSON)", slice.slice, counted(slice.json_bytes, "byte"));
        format!("{name} at {seq}:{}", slices.iter().map(line).collect::<String>())
    }
}

pub fn state_at(session: &Session, at: Option<Position>) -> Result<State, OperationError> {
    Ok(match at {
        Some(at) => session.state_at(at.resolve(session)?)?,
        None => session.state()?,
    })
}

pub fn known_slice(state: &State, wanted: &str) -> Result<String, OperationError> {
    let names: Vec<String> = state.slices().into_iter().map(|slice| slice.name).collect();
    let known = names.iter().find(|name| name.eq_ignore_ascii_case(wanted)).cloned();
    known.ok_or_else(|| {
        let meant = nearest(wanted, names.iter().map(String::as_str));
        let meant = meant.map_or(String::new(), |meant| format!("did you mean {meant}? "));
        let shown: String = wanted.chars().take(80).collect();
        OperationError::not_found(format!("unknown slice {shown:?}"))
            .with_advice(Advice::text(format!("{meant}there are {}", names.join(", "))))
    })
}

/// A summary of a state and its slices.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(rename = "StateSummary")]
pub struct StateDocument {
    /// The session: 32 hexadecimal digits.
    #[schemars(with = "String")]
    pub session: SessionId,
    /// The session's name.
    pub name: String,
    /// The position of the state; 0 is before the first event.
    pub seq: Seq,
    /// The time of the event at that position, in UTC.
    #[schemars(with = "Option<String>")]
    pub time: Option<Timestamp>,
    /// The number of lost or unreadable events. The state lacks their changes.
    pub unreadable: u64,
    /// Its slices.
    pub slices: Vec<SliceDocument>,
}

/// The summary of one slice.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(rename = "SliceSummary")]
pub struct SliceDocument {
    /// Its name.
    pub slice: String,
    /// The version of its encoding.
    pub version: u32,
    /// Its handling on rewind: `restore` or `keep`.
    #[schemars(with = "String")]
    pub on_rewind: OnRewind,
    /// Its size as JSON, in bytes.
    pub json_bytes: usize,
    /// Its digest: 64 hexadecimal digits of BLAKE3.
    #[schemars(with = "String")]
    pub digest: Digest,
}

/// Returns a state as a document.
pub fn state(name: &str, state: &State) -> Result<StateDocument, SliceError> {
    state_with(name, state, None)
}

/// Returns a state with all of its slices, or only with the slice of this name and JSON form.
fn state_with(name: &str, state: &State, only: Option<(&str, &Value)>) -> Result<StateDocument, SliceError> {
    let mut slices = Vec::new();
    for known in state.slices() {
        let json_bytes = match only {
            None => slice(state, &known.name)?.to_string().len(),
            Some((wanted, json)) if wanted == known.name => json.to_string().len(),
            Some(_) => continue,
        };
        let digest = state.digest(&known.name).unwrap_or_else(|| Digest::of(b""));
        let (slice, version, on_rewind) = (known.name, known.version, known.on_rewind);
        slices.push(SliceDocument { slice, version, on_rewind, json_bytes, digest });
    }
    Ok(StateDocument {
        session: state.session(),
        name: name.to_owned(),
        seq: state.seq(),
        time: (state.seq() > 0).then(|| state.time()),
        unreadable: state.unreadable(),
        slices,
    })
}
