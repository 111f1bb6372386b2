//! The events of a session, page by page.

use std::ops::ControlFlow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Operation, OperationContext, OperationError, OperationRoute, reading};
use crate::engine::id::Seq;
use crate::view::{self, EventDocument, Position};

/// Events of a page at most.
const LIMIT: usize = 1000;
/// Bytes of a page's payloads, after which it ends early.
const BYTES: usize = 4 << 20;

/// Gives a page of a session's log.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListEvents {
    /// The first position; 1 by default.
    pub from: Option<Position>,
    /// The most events that are given, from 1 to 1000.
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
    /// The events, in order. A page may have fewer than it could where they are large.
    pub events: Vec<EventDocument>,
    /// The beginning of the next page; null at the end.
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
            let head = session.head()?;
            let (mut events, mut bytes) = (Vec::new(), 0);
            let from = from.map_or(Ok(1), |from| from.first_read(&session))?;
            session.visit(from, &mut |event| {
                events.push(view::event(&session, event));
                bytes += event.payload.len();
                match events.len() < limit && bytes < BYTES {
                    true => ControlFlow::Continue(()),
                    false => ControlFlow::Break(()),
                }
            })?;
            let last = events.last().map(|event| event.seq);
            let next = last.filter(|last| *last < head).map(|last| last + 1);
            Ok(EventsPage { events, next, head: head.max(last.unwrap_or(0)) })
        })
        .await
    }
}
