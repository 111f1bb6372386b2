//! Slices by their names.

use serde_json::Value;

use crate::engine::slice::SliceError;
use crate::engine::state::State;

/// Returns a slice as JSON, by its exact name; null for an unknown slice.
pub fn slice(state: &State, name: &str) -> Result<Value, SliceError> {
    Ok(state.slice_json(name).transpose()?.unwrap_or_default())
}
