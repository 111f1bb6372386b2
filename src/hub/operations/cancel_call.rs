//! Cancellation of calls in flight.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Operation, OperationContext, OperationEffect, OperationError, OperationRoute, OperationTool, TooLong};
use crate::engine::advice::Advice;
use crate::engine::id::Seq;

/// Cancels calls in flight, including background processes. Kills what they run and records them as interrupted.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CancelCall {
    /// The position of the call's intent; all calls of the session by default.
    pub call: Option<Seq>,
}

/// The cancelled calls.
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
    OperationError::not_found(format!("call {call} is not in flight on this server")).with_advice(Advice::ListCalls)
}
