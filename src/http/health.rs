//! The health check and the metrics of the server.

use axum::http::{Method, Uri, header};
use axum::response::{AppendHeaders, IntoResponse, Response};
use schemars::{JsonSchema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::peers::ANSWER;
use super::problem::{HttpProblem, ProblemKind};
use super::request::RequestHead;
use super::verb::{HttpVerb, Media};
use super::{HttpFace, blocking};
use crate::hub::operations::OperationRoute;

/// The health of the server.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(rename = "Health")]
pub(super) struct HealthBody {
    /// `ok`, or `ending` while it shuts down.
    status: &'static str,
    /// The program's version.
    version: &'static str,
}

/// Reports that the server answers. It needs no token.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Healthz {}

impl HttpVerb for Healthz {
    const NAME: &'static str = "healthz";
    const ROUTE: OperationRoute = OperationRoute::at("GET", "server", "/healthz", 200);
    const GIVES: Media = &[("application/json", Some(SchemaGenerator::subschema_for::<HealthBody>))];

    async fn answer(self, face: HttpFace, head: RequestHead) -> Result<Response, HttpProblem> {
        let status = if face.shared.ending.is_cancelled() { "ending" } else { "ok" };
        let body = axum::Json(HealthBody { status, version: env!("CARGO_PKG_VERSION") });
        let proof = face.answer_host(&head.headers, &head.options.access)?;
        Ok((AppendHeaders(proof.map(|proof| (ANSWER, proof))), body).into_response())
    }
}

/// The readiness of the server.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(rename = "Readiness")]
pub(super) struct ReadinessBody {
    /// `ready`.
    status: &'static str,
    /// The program's version.
    version: &'static str,
}

/// Reports that the server can work. If not, it answers 503 with the problem `ending`, `store_failed` or
/// `cluster_lost`. No token is required.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Readyz {}

impl HttpVerb for Readyz {
    const NAME: &'static str = "readyz";
    const ROUTE: OperationRoute = OperationRoute::at("GET", "server", "/readyz", 200);
    const GIVES: Media = &[("application/json", Some(SchemaGenerator::subschema_for::<ReadinessBody>))];

    async fn answer(self, face: HttpFace, _: RequestHead) -> Result<Response, HttpProblem> {
        // A custom store may block.
        blocking(move || face.check_ready()).await??;
        Ok(axum::Json(ReadinessBody { status: "ready", version: env!("CARGO_PKG_VERSION") }).into_response())
    }
}

impl HttpFace {
    /// Checks from memory that the server can record events.
    pub(super) fn check_ready(&self) -> Result<(), HttpProblem> {
        let store = self.hub().sessions().store();
        if let Err(error) = store.check_own() {
            return Err(HttpProblem::new(ProblemKind::StoreFailed, error.to_string()));
        }
        if self.shared.ending.is_cancelled() {
            return Err(HttpProblem::new(ProblemKind::Ending, "foldspace is shutting down"));
        }
        let waits = store.hosts().and_then(|hosts| Some((hosts.waited()?, hosts.lease())));
        match waits.filter(|(waited, lease)| waited >= lease) {
            Some((waited, lease)) => {
                let (waited, lease) = (waited.as_secs_f64(), lease.as_secs_f64());
                let detail = format!("this host has waited {waited:.1} s for the cluster; its lease is {lease} s");
                Err(HttpProblem::new(ProblemKind::ClusterLost, detail))
            }
            None => Ok(()),
        }
    }
}

/// Returns the server's metrics in the Prometheus text format.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ServerFigures {}

impl HttpVerb for ServerFigures {
    const NAME: &'static str = "metrics";
    const ROUTE: OperationRoute = OperationRoute::at("GET", "server", "/metrics", 200);
    const GIVES: Media = &[("text/plain", None)];

    async fn answer(self, face: HttpFace, _: RequestHead) -> Result<Response, HttpProblem> {
        let disk = face.shared.disk.read(&face.hub().options().home).await;
        let asked = face.clone();
        let figures = move || Ok::<_, HttpProblem>(asked.figures(disk, asked.hub().sessions().totals()?));
        let text = blocking(figures).await??;
        Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response())
    }
}

pub(super) async fn no_route(uri: Uri) -> HttpProblem {
    let path: String = uri.path().chars().take(200).collect();
    HttpProblem::new(ProblemKind::NoRoute, format!("no route at {path:?}"))
        .with_hint("GET /openapi.json lists the routes")
}

pub(super) async fn wrong_method(method: Method, uri: Uri) -> HttpProblem {
    let path: String = uri.path().chars().take(200).collect();
    let method: String = method.as_str().chars().take(20).collect();
    HttpProblem::new(ProblemKind::Method, format!("{path:?} does not take {method}"))
}
