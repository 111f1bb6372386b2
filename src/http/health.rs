//! The health and the figures of the server.

use axum::extract::State;
use axum::http::{Method, Uri, header};
use axum::response::IntoResponse;
use schemars::JsonSchema;
use serde::Serialize;

use super::problem::{HttpProblem, ProblemKind};
use super::{HttpFace, blocking};
use crate::engine::event::{Isolation, SessionStarted};
use crate::engine::store::SessionEntry;

/// That the server answers.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(rename = "Health")]
pub(super) struct HealthBody {
    /// `ok`, or `ending` while it waits for its last calls.
    status: &'static str,
    /// The program's version.
    version: &'static str,
}

/// Tells that the server answers. It needs no token.
pub(super) async fn healthz(State(face): State<HttpFace>) -> axum::Json<HealthBody> {
    let status = if face.shared.ending.is_cancelled() { "ending" } else { "ok" };
    axum::Json(HealthBody { status, version: env!("CARGO_PKG_VERSION") })
}

/// The server's figures, as Prometheus reads them.
pub(super) async fn metrics(State(face): State<HttpFace>) -> Result<impl IntoResponse, HttpProblem> {
    let asked = face.clone();
    let entries = blocking(move || asked.hub().sessions().list()).await??;
    let events = entries.iter().map(own_events).sum();
    let text = face.metrics().text(face.hub(), entries.len(), events);
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text))
}

/// The events that are not its parent's.
fn own_events(entry: &SessionEntry) -> u64 {
    let started = entry.origin.typed::<SessionStarted>().and_then(Result::ok);
    let fork = started.and_then(|started| started.event.origin).filter(|origin| origin.isolation == Isolation::Fork);
    entry.head.saturating_sub(fork.map_or(0, |origin| origin.at))
}

/// There is nothing at that path.
pub(super) async fn no_route(uri: Uri) -> HttpProblem {
    let path: String = uri.path().chars().take(200).collect();
    HttpProblem::new(ProblemKind::NoRoute, format!("there is nothing at {path:?}"))
        .with_hint("GET /openapi.json says what there is")
}

/// The path does not take that method.
pub(super) async fn wrong_method(method: Method, uri: Uri) -> HttpProblem {
    let path: String = uri.path().chars().take(200).collect();
    let method: String = method.as_str().chars().take(20).collect();
    HttpProblem::new(ProblemKind::Method, format!("{path:?} does not take {method}"))
}
