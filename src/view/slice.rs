//! Slices by their names.

use serde_json::Value;

use crate::engine::slice::SliceError;
use crate::engine::state::State;

/// Returns the exact name of a slice, found case-insensitively; `None` for an unknown slice.
pub fn slice_named(state: &State, wanted: &str) -> Option<&'static str> {
    state.registry().slices().into_iter().map(|slice| slice.name).find(|name| name.eq_ignore_ascii_case(wanted))
}

/// Returns a slice as JSON, by its exact name; null for an unknown slice.
pub fn slice(state: &State, name: &str) -> Result<Value, SliceError> {
    Ok(state.slice_json(name).transpose()?.unwrap_or_default())
}
