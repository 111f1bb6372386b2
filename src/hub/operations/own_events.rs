//! Own events: recorded by programs in any language.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    Operation, OperationContext, OperationEffect, OperationError, OperationRoute, OperationTool, TooLong, check_agent,
    reading, request_id,
};
use crate::engine::event::{CallStarted, Event, check_own_kind};
use crate::engine::id::Seq;
use crate::engine::store::Committed;
use crate::tools::{OwnEvent, record_own};

/// Limit for the events of a request.
const EVENTS_MAX: usize = 10_000;

/// Records events of your own kinds, in one commit: one event (`kind` and `data`), or several (`events`).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "NewEvents")]
#[serde(deny_unknown_fields)]
pub struct RecordEvents {
    /// The kind of the only event: 1 to 100 letters, digits, `.`, `_`, `-` or `/`. The first is a lower-case letter:
    /// built-in kinds begin with an upper-case one.
    pub kind: Option<String>,
    /// The data of the only event: JSON of at most 1 MiB, not counting strings of more than 16 KiB, which are stored
    /// as contents.
    #[serde(default)]
    pub data: Value,
    /// Several events, at most 10,000.
    #[serde(default)]
    pub events: Vec<NewEvent>,
    /// The call that the events belong to; none by default.
    pub call: Option<Seq>,
    /// The agent or program that records them; none by default.
    pub agent: Option<String>,
    /// An id for retries, 1 to 200 bytes. A second request with the same id returns the positions of the first one.
    pub call_id: Option<String>,
}

/// An event to record.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewEvent {
    /// The kind.
    pub kind: String,
    /// The data.
    #[serde(default)]
    pub data: Value,
}

/// The positions of recorded events.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct RecordedRange {
    /// The position of the first event.
    pub first: Seq,
    /// The position of the last event.
    pub last: Seq,
    /// True if an earlier request with the same `call_id` recorded them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repeated: bool,
}

impl Operation for RecordEvents {
    const NAME: &'static str = "record_events";
    const ROUTE: Option<OperationRoute> = OperationRoute::post("events", "/v1/sessions/{session}/events", 200);
    const TOOL: Option<OperationTool> = Some(
        OperationTool::new("session_emit", OperationEffect::Adds, TooLong::Cut("session_log shows the events"))
            .hiding(&["agent", "call_id"]),
    );
    type Output = RecordedRange;

    async fn run(self, context: &OperationContext<'_>) -> Result<RecordedRange, OperationError> {
        let Self { kind, data, events, call, agent, call_id } = self;
        let id = request_id(call_id.as_deref())?;
        let agent = agent.unwrap_or_default();
        check_agent(&agent)?;
        let events: Vec<OwnEvent> = match (kind, events) {
            (Some(kind), events) if events.is_empty() => vec![OwnEvent { kind, data }],
            (None, events) if data.is_null() => {
                events.into_iter().map(|NewEvent { kind, data }| OwnEvent { kind, data }).collect()
            }
            _ => return Err(OperationError::invalid("give either `kind` with `data`, or `events`")),
        };
        events.iter().try_for_each(|event| check_own_kind(&event.kind))?;
        if !(1..=EVENTS_MAX).contains(&events.len()) {
            let what = format!("{} events; give 1 to {EVENTS_MAX}", events.len());
            return Err(OperationError::invalid(what));
        }
        let session = context.session().await?.as_agent(agent);
        reading(move || {
            if let Some(call) = call
                && session.event(call).ok().is_none_or(|event| *event.event.kind != *CallStarted::KIND)
            {
                return Err(OperationError::not_found(format!("event {call} is not the beginning of a call")));
            }
            let recorded = record_own(&session, events, call, id)?;
            let Committed { first, last, repeated } = recorded;
            Ok(RecordedRange { first, last, repeated })
        })
        .await
    }

    fn text(recorded: &RecordedRange) -> String {
        match recorded.last - recorded.first {
            0 => format!("recorded as event {}", recorded.first),
            _ => format!("recorded as events {} to {}", recorded.first, recorded.last),
        }
    }
}
