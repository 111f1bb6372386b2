//! A slice of a state.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::show_state::{known_slice, state_at};
use super::{Operation, OperationContext, OperationError, OperationRoute, reading};
use crate::view::{Position, slice};

/// Returns a slice of the state at a position.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ShowSlice {
    /// The slice's name.
    pub slice: String,
    /// The position; the last one by default.
    pub at: Option<Position>,
}

impl Operation for ShowSlice {
    const NAME: &'static str = "show_slice";
    const ROUTE: Option<OperationRoute> = OperationRoute::get("states", "/v1/sessions/{session}/state/{slice}");
    type Output = Value;

    async fn run(self, context: &OperationContext<'_>) -> Result<Value, OperationError> {
        let session = context.session().await?;
        reading(move || {
            let state = state_at(&session, self.at)?;
            Ok(slice(&state, &known_slice(&state, &self.slice)?)?)
        })
        .await
    }
}
