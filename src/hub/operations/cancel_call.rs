//! Cancellation of calls in flight.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Operation, OperationContext, OperationEffect, OperationError, OperationRoute, OperationTool, TooLong};
use crate::engine::error::ErrorKind;
use crate::engine::id::Seq;

/// Cancels calls in flight, processes in the background among them: what they run is killed, and they are recorded as
/// interrupted.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CancelCall {
    /// The call, by the position of its intent; by default all calls of the session.
    pub call: Option<Seq>,
}

/// Calls that were cancelled.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct CancelledCalls {
    /// The positions of their intents.
    pub calls: Vec<Seq>,
}

impl Operation for CancelCall {
    const NAME: &'static str = "cancel_call";
    const ROUTE: Option<OperationRoute> = OperationRoute::delete("calls", "/v1/sessions/{session}/calls/{call}", 202);
    const TOOL: Option<OperationTool> =
        Some(OperationTool::new("session_cancel", OperationEffect::Runs, TooLong::Cut("session_log shows the calls")));
    type Output = CancelledCalls;

    async fn run(self, context: &OperationContext<'_>) -> Result<CancelledCalls, OperationError> {
        let calls = context.hub.in_flight().cancel_calls(context.session().await?.id(), self.call);
        match (calls.is_empty(), self.call) {
            (true, Some(call)) => Err(not_in_flight(call)),
            _ => Ok(CancelledCalls { calls }),
        }
    }

    fn text(cancelled: &CancelledCalls) -> String {
        if cancelled.calls.is_empty() {
            return "no call was in flight".to_owned();
        }
        let calls: Vec<String> = cancelled.calls.iter().map(ToString::to_string).collect();
        format!("cancelled {}", calls.join(", "))
    }
}

pub(super) fn not_in_flight(call: Seq) -> OperationError {
    let hint = Some("GET .../calls/{call} tells of calls that have ended".to_owned());
    let detail = format!("no call {call} is in flight through this server");
    OperationError::Told { kind: ErrorKind::NotFound, detail, hint }
}
