//! The events of a session, page by page.

use std::ops::ControlFlow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::log::{LogDocument, LogPage, events};
use super::{Operation, OperationContext, OperationError, OperationRoute, reading};
use crate::engine::id::Seq;
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::view::{self, EventDocument, EventSelection, Position};

/// Limit for the events of a page.
const LIMIT: usize = 1000;
/// Limit for the events that are searched for a page of a selection.
const SEARCHED: u64 = 200_000;
/// Limit for a page in bytes, unless its only event is larger.
const BYTES: usize = 4 << 20;

/// Returns a page of a session's log: all events, or a selection of them. A page of a selection may be short or empty
/// before the end; `next` is where to continue.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListEvents {
    /// The start position; 1 by default.
    pub from: Option<Position>,
    /// Limit for the events of the page, from 1 to 1000.
    #[serde(default = "usual")]
    #[schemars(range(min = 1, max = 1000))]
    pub limit: usize,
    /// Only events of these kinds, separated by commas; case is ignored.
    pub kind: Option<String>,
    /// Only events of this agent.
    pub agent: Option<String>,
    /// Only events of calls of this tool.
    pub tool: Option<String>,
    /// Only changes of entries whose path matches this glob.
    pub path: Option<String>,
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
        let Self { from, limit, kind, agent, tool, path } = self;
        if !(1..=LIMIT).contains(&limit) {
            return Err(OperationError::invalid(format!("limit is {limit}; it must be from 1 to {LIMIT}")));
        }
        let mut selection = EventSelection::new(kind.as_deref(), agent, tool, path.as_deref())?;
        let session = context.session().await?;
        reading(move || {
            let from = from.map_or(Ok(1), |from| from.first_read(&session))?;
            if !selection.is_all() {
                return Ok(selected(&session, from.max(1), limit, &mut selection)?);
            }
            let LogDocument { head, next, events, .. } = events(&session, Some(from), (limit, BYTES))?;
            let events = events.unwrap_or_default();
            let head = head.max(events.last().map_or(0, |event| event.seq));
            Ok(EventsPage { events, next, head })
        })
        .await
    }
}

fn selected(
    session: &Session,
    from: Seq,
    limit: usize,
    selection: &mut EventSelection,
) -> Result<EventsPage, SessionError> {
    let head = session.head()?;
    let until = from.saturating_add(SEARCHED - 1);
    let (mut page, mut next) = (LogPage::new((limit, BYTES), false), (until < head).then(|| until + 1));
    session.visit_between(from, until.min(head), &mut |event| {
        if !selection.holds(session, event) || page.take(view::event(session, event)) {
            return ControlFlow::Continue(());
        }
        next = Some(event.seq);
        ControlFlow::Break(())
    })?;
    Ok(EventsPage { events: page.documents(), next, head })
}
