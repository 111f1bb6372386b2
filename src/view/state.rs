//! States and their slices.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::engine::clock::Timestamp;
use crate::engine::id::{Digest, Seq, SessionId};
use crate::engine::registry::SliceSummary;
use crate::engine::slice::{OnRewind, SliceError};
use crate::engine::state::State;

/// A state: which slices it has.
#[derive(Debug, Clone, Serialize, JsonSchema, ToSchema)]
#[schemars(rename = "State")]
#[schema(as = State)]
pub struct StateDocument {
    /// The session: 32 hexadecimal digits.
    #[schemars(with = "String")]
    #[schema(value_type = String)]
    pub session: SessionId,
    /// The session's name.
    pub name: String,
    /// The position of which it is the state; 0 is before the first event.
    pub seq: Seq,
    /// When the event at that position was recorded, in UTC.
    #[schemars(with = "Option<String>")]
    #[schema(value_type = Option<String>)]
    pub time: Option<Timestamp>,
    /// How many events the program can't read. They changed nothing.
    pub unreadable: u64,
    /// Its slices.
    pub slices: Vec<SliceDocument>,
}

/// What is told of one slice.
#[derive(Debug, Clone, Serialize, JsonSchema, ToSchema)]
#[schemars(rename = "SliceSummary")]
#[schema(as = SliceSummary)]
pub struct SliceDocument {
    /// Its name.
    pub slice: &'static str,
    /// The version of its encoding.
    pub version: u32,
    /// What becomes of it in a rewind: `restore` or `keep`.
    #[schemars(with = "String")]
    #[schema(value_type = String)]
    pub on_rewind: OnRewind,
    /// How long it is as JSON.
    pub json_bytes: usize,
    /// Its digest: 64 hexadecimal digits of BLAKE3.
    #[schemars(with = "String")]
    #[schema(value_type = String)]
    pub digest: Digest,
}

impl SliceDocument {
    fn of(known: &SliceSummary, digest: Digest, json: &Value) -> Self {
        let (slice, version, on_rewind) = (known.name, known.version, known.on_rewind);
        Self { slice, version, on_rewind, json_bytes: json.to_string().len(), digest }
    }
}

/// A state as a document.
///
/// # Errors
/// [`SliceError`] where a slice has no JSON form.
pub fn state(name: &str, state: &State) -> Result<StateDocument, SliceError> {
    let mut slices = Vec::new();
    for (known, (_, digest)) in state.registry().slices().into_iter().zip(state.digests()?) {
        let json = slice(state, known.name)?;
        slices.push(SliceDocument::of(&known, digest, &json));
    }
    Ok(document(name, state, slices))
}

/// The same with one of its slices only, which has that JSON form.
///
/// # Errors
/// As [`state`].
pub fn state_with(name: &str, state: &State, (wanted, json): (&str, &Value)) -> Result<StateDocument, SliceError> {
    let all = state.registry().slices().into_iter().zip(state.digests()?);
    let slices = all.filter(|(known, _)| known.name == wanted);
    let slices = slices.map(|(known, (_, digest))| SliceDocument::of(&known, digest, json));
    Ok(document(name, state, slices.collect()))
}

fn document(name: &str, state: &State, slices: Vec<SliceDocument>) -> StateDocument {
    StateDocument {
        session: state.session(),
        name: name.to_owned(),
        seq: state.seq(),
        time: (state.seq() > 0).then(|| state.time()),
        unreadable: state.unreadable(),
        slices,
    }
}

/// The name of the slice that somebody means, whatever letters are large; none where there is no such slice.
pub fn slice_named(state: &State, wanted: &str) -> Option<&'static str> {
    state.registry().slices().into_iter().map(|slice| slice.name).find(|name| name.eq_ignore_ascii_case(wanted))
}

/// A slice itself, by its exact name; null where there is none.
///
/// # Errors
/// [`SliceError`] where it has no JSON form.
pub fn slice(state: &State, name: &str) -> Result<Value, SliceError> {
    Ok(state.slice_json(name).transpose()?.unwrap_or_default())
}
