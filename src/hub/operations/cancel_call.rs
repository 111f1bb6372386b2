//! Cancellation of a call in flight.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Operation, OperationContext, OperationError, OperationRoute};
use crate::engine::error::ErrorKind;
use crate::engine::id::Seq;

/// Cancels a call in flight: what it runs is killed, and it is recorded as interrupted.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CancelCall {
    /// The position of its intent.
    pub call: Seq,
}

impl Operation for CancelCall {
    const NAME: &'static str = "cancel_call";
    const ROUTE: Option<OperationRoute> = OperationRoute::delete("calls", "/v1/sessions/{session}/calls/{call}", 202);
    type Output = ();

    async fn run(self, context: &OperationContext<'_>) -> Result<(), OperationError> {
        match context.hub.in_flight().cancel_call(context.session().await?.id(), self.call) {
            true => Ok(()),
            false => Err(not_in_flight(self.call)),
        }
    }
}

pub(super) fn not_in_flight(call: Seq) -> OperationError {
    let hint = Some("GET .../calls/{call} tells of calls that have ended".to_owned());
    let detail = format!("no call {call} is in flight through this server");
    OperationError::Told { kind: ErrorKind::NotFound, detail, hint }
}
