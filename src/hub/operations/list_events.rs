//! The events of a session, page by page.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::log::{LogDocument, events};
use super::{Operation, OperationContext, OperationError, OperationRoute, reading};
use crate::engine::id::Seq;
use crate::view::{EventDocument, Position};

/// Limit for the events of a page.
const LIMIT: usize = 1000;
/// Limit for a page in bytes, unless its only event is larger.
const BYTES: usize = 4 << 20;

/// Returns a page of a session's log.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListEvents {
    /// The start position; 1 by default.
    pub from: Option<Position>,
    /// Limit for the events of the page, from 1 to 1000.
    #[serde(default = "usual")]
    #[schemars(range(min = 1, max = 1000))]
    pub limit: usize,
}

fn usual() -> usize {
    100
}

/// A page of the log.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(rename = "Page")]
pub struct EventsPage {
    /// The events, in order. Large events may make a page shorter than its limit.
    pub events: Vec<EventDocument>,
    /// The start of the next page; null at the end.
    pub next: Option<Seq>,
    /// The position of the session's last event.
    pub head: Seq,
}

impl Operation for ListEvents {
    const NAME: &'static str = "list_events";
    const ROUTE: Option<OperationRoute> = OperationRoute::get("events", "/v1/sessions/{session}/events");
    type Output = EventsPage;

    async fn run(self, context: &OperationContext<'_>) -> Result<EventsPage, OperationError> {
        let Self { from, limit } = self;
        if !(1..=LIMIT).contains(&limit) {
            return Err(OperationError::invalid(format!("limit is {limit}; it must be from 1 to {LIMIT}")));
        }
        let session = context.session().await?;
        reading(move || {
            let from = from.map_or(Ok(1), |from| from.first_read(&session))?;
            let LogDocument { head, next, events, .. } = events(&session, Some(from), (limit, BYTES))?;
            let events = events.unwrap_or_default();
            let head = head.max(events.last().map_or(0, |event| event.seq));
            Ok(EventsPage { events, next, head })
        })
        .await
    }
}
