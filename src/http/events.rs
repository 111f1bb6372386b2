//! The log, page by page.

use std::ops::ControlFlow;

use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::extract::{Path, StrictQuery};
use super::problem::{HttpProblem, ProblemKind};
use super::{HttpFace, blocking};
use crate::engine::id::Seq;
use crate::view::{self, EventDocument, Position};

/// Events of a page at most.
const LIMIT: usize = 1000;
/// Bytes of a page's payloads, after which it ends early.
const BYTES: usize = 4 << 20;

/// Which page.
#[derive(Debug, Clone, Copy, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct PageQuery {
    /// The first position; 1 when nothing is said.
    #[serde(default)]
    #[param(value_type = Option<String>, example = "1")]
    from: Option<Position>,
    /// How many events at most, from 1 to 1000; 100 when nothing is said.
    #[serde(default)]
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// A page of the log.
#[derive(Debug, Clone, Serialize, JsonSchema, ToSchema)]
pub(super) struct EventsPage {
    /// The events, in order. A page may have fewer than it could where they are large.
    events: Vec<EventDocument>,
    /// Where the next page begins; null at the end.
    next: Option<Seq>,
    /// The position of the session's last event.
    head: Seq,
}

/// Gives a page of a session's log.
#[utoipa::path(get, path = "/v1/sessions/{session}/events", tag = "events",
    params(("session" = String, Path, description = "The session, by name or by the beginning of its id"), PageQuery),
    responses((status = 200, body = EventsPage), (status = "4XX", body = HttpProblem, content_type = "application/problem+json")))]
pub(super) async fn page(
    State(face): State<HttpFace>,
    Path(wanted): Path<String>,
    StrictQuery(PageQuery { from, limit }): StrictQuery<PageQuery>,
) -> Result<axum::Json<EventsPage>, HttpProblem> {
    let limit = limit.unwrap_or(100);
    if !(1..=LIMIT).contains(&limit) {
        return Err(HttpProblem::new(ProblemKind::Unusable, format!("limit is {limit}; it must be from 1 to {LIMIT}")));
    }
    let session = face.session(wanted).await?;
    let page = blocking(move || {
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
        Ok::<_, HttpProblem>(EventsPage { events, next, head: head.max(last.unwrap_or(0)) })
    });
    Ok(axum::Json(page.await??))
}
