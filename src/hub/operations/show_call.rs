//! A recorded call.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Operation, OperationContext, OperationError, OperationRoute, reading};
use crate::engine::id::Seq;
use crate::view::{self, Call, EventDocument};

/// Shows a recorded call, with its events and with long texts in full.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ShowCall {
    /// The position of its intent.
    pub call: Seq,
}

/// A call with its result and events.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct WholeCall {
    /// The call; its `events` are positions.
    #[serde(flatten)]
    call: Call,
    /// The result if it succeeded; otherwise null.
    result: Option<Value>,
    /// The events, by position.
    recorded: BTreeMap<String, EventDocument>,
}

impl Operation for ShowCall {
    const NAME: &'static str = "show_call";
    const ROUTE: Option<OperationRoute> = OperationRoute::get("calls", "/v1/sessions/{session}/calls/{call}");
    type Output = WholeCall;

    async fn run(self, context: &OperationContext<'_>) -> Result<WholeCall, OperationError> {
        let session = context.session().await?;
        reading(move || {
            let Some((mut call, events)) = view::call_at(&session, self.call)? else {
                return Err(OperationError::not_found(format!("no call began at position {}", self.call)));
            };
            call.make_whole(&session);
            let result = call.end.take().map(|end| end.result);
            let recorded = events.iter().map(|event| (event.seq.to_string(), view::event(&session, &event.view())));
            Ok(WholeCall { call, result, recorded: recorded.collect() })
        })
        .await
    }
}
