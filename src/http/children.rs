//! Children: their beginning, and what comes back of them; and the way back.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::extract::{Body, Path};
use super::problem::{HttpProblem, ProblemKind};
use super::{HttpFace, blocking};
use crate::engine::commit::MAX_AGENT_BYTES;
use crate::engine::event::{ChildLimits, Isolation};
use crate::engine::session::children::ForkOptions;
use crate::reducers::MergeChoices;
use crate::tools::RewindOptions;
use crate::view::{self, ChildDocument, MergeDocument, Position, RewoundDocument};

/// A child that is to begin.
#[derive(Debug, Clone, Deserialize, JsonSchema, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ChildRequest {
    /// How much of the session it has: `shared`, everything, under an agent's name; `fork`, the default, the past up to
    /// a position; `full`, nothing but the mounts, copied afresh.
    #[serde(default = "fork")]
    #[schemars(with = "String")]
    #[schema(value_type = String)]
    isolation: Isolation,
    /// Up to where a fork has the session's history; to its end when nothing is said.
    #[serde(default)]
    at: Option<Position>,
    /// Its name; the session's with a number when nothing is said.
    #[serde(default)]
    name: Option<String>,
    /// Who acts in it.
    #[serde(default)]
    agent: String,
    /// What it may do: `calls`, `wall_millis`, `bytes_written`, `depth`, `tools`, `deny`. It never may more than the
    /// session.
    #[serde(default)]
    #[schemars(with = "Value")]
    #[schema(value_type = Object)]
    limits: ChildLimits,
}

fn fork() -> Isolation {
    Isolation::Fork
}

/// A merge that is to be made.
#[derive(Debug, Clone, Deserialize, JsonSchema, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct MergeRequest {
    /// The child, by name or by the beginning of its id.
    child: String,
    /// Paths at or below which conflicts are decided for the child.
    #[serde(default)]
    theirs: Vec<String>,
    /// Paths at or below which conflicts are decided for the session.
    #[serde(default)]
    ours: Vec<String>,
    /// Only tells what would be merged.
    #[serde(default)]
    dry_run: bool,
    /// Who merges.
    #[serde(default)]
    agent: Option<String>,
}

/// A rewind that is to be made.
#[derive(Debug, Clone, Deserialize, JsonSchema, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RewindRequest {
    /// The position to go back to.
    to: Position,
    /// Goes on where something was changed from outside, which is recorded first, or was never kept, which is left, or
    /// was in a person's own directory before the session began, which is removed.
    #[serde(default)]
    force: bool,
    /// Keeps what was in a person's own directory before the session began, whatever `force` says: where that would be
    /// removed the rewind is refused.
    #[serde(default)]
    keep_earlier: bool,
    /// Only tells what would change.
    #[serde(default)]
    dry_run: bool,
}

fn check_agent(agent: &str) -> Result<(), HttpProblem> {
    match agent.len() <= MAX_AGENT_BYTES {
        true => Ok(()),
        false => Err(HttpProblem::new(ProblemKind::Unusable, format!("agent has more than {MAX_AGENT_BYTES} bytes"))),
    }
}

/// Begins a child of a session with a workspace of its own.
#[utoipa::path(post, path = "/v1/sessions/{session}/children", tag = "children", request_body = ChildRequest,
    params(("session" = String, Path, description = "The parent, by name or by the beginning of its id")),
    responses((status = 201, body = ChildDocument), (status = "4XX", body = HttpProblem, content_type = "application/problem+json")))]
pub(super) async fn begin(
    State(face): State<HttpFace>,
    Path(wanted): Path<String>,
    Body(request): Body<ChildRequest>,
) -> Result<impl IntoResponse, HttpProblem> {
    let ChildRequest { isolation, at, name, agent, limits } = request;
    check_agent(&agent)?;
    let unusable = |detail: &str| Err(HttpProblem::new(ProblemKind::Unusable, detail));
    match isolation {
        Isolation::Shared if agent.is_empty() => {
            return unusable("a shared child needs an agent, under whose name it works");
        }
        Isolation::Shared if name.is_some() => {
            return unusable("a shared child has the session's name: leave out `name`");
        }
        Isolation::Shared | Isolation::Full if at.is_some() => {
            return unusable("only a fork begins in the past: `at` is for `\"isolation\": \"fork\"`");
        }
        _ => {}
    }
    let parent = face.session(wanted).await?;
    let looked = parent.clone();
    let at = blocking(move || at.map(|at| at.resolve(&looked)).transpose()).await??;
    let new = ForkOptions { at, name, agent, limits, ..ForkOptions::new(isolation) };
    let child = face.hub().start_child(parent.id(), new).await?;
    let document = view::child(&parent, child.session(), isolation, at);
    let place = [(header::LOCATION, format!("/v1/sessions/{}", child.session().id()))];
    Ok((StatusCode::CREATED, place, axum::Json(document)))
}

/// Merges what a child changed into a session further up. With an open conflict nothing is merged, and `outcome` says
/// so.
#[utoipa::path(post, path = "/v1/sessions/{session}/merge", tag = "children", request_body = MergeRequest,
    params(("session" = String, Path, description = "The session to merge into, by name or by the beginning of its id")),
    responses((status = 200, body = MergeDocument), (status = "4XX", body = HttpProblem, content_type = "application/problem+json")))]
pub(super) async fn merge(
    State(face): State<HttpFace>,
    Path(wanted): Path<String>,
    Body(request): Body<MergeRequest>,
) -> Result<axum::Json<MergeDocument>, HttpProblem> {
    let choices = MergeChoices::of_texts(&request.ours, &request.theirs)
        .map_err(|error| HttpProblem::new(ProblemKind::Unusable, error.to_string()))?;
    let agent = request.agent.as_deref().unwrap_or_default();
    check_agent(agent)?;
    let child = face.session(request.child).await?.id();
    let into = face.open(wanted).await?;
    let into = if agent.is_empty() { into } else { into.by(agent) };
    let report = face.hub().merge(child, &into, &choices, request.dry_run).await?;
    Ok(axum::Json(view::merged(&report, into.session(), request.dry_run)))
}

/// Takes a session back to an earlier position, files and state.
#[utoipa::path(post, path = "/v1/sessions/{session}/rewind", tag = "children", request_body = RewindRequest,
    params(("session" = String, Path, description = "The session, by name or by the beginning of its id")),
    responses((status = 200, body = RewoundDocument), (status = "4XX", body = HttpProblem, content_type = "application/problem+json")))]
pub(super) async fn rewind(
    State(face): State<HttpFace>,
    Path(wanted): Path<String>,
    Body(request): Body<RewindRequest>,
) -> Result<axum::Json<RewoundDocument>, HttpProblem> {
    let session = face.session(wanted).await?;
    let looked = session.clone();
    let to = blocking(move || request.to.resolve(&looked)).await??;
    let RewindRequest { force, keep_earlier, dry_run, .. } = request;
    let options = RewindOptions { force, keep_earlier, dry_run };
    let rewound = face.hub().rewind(session.id(), to, options).await?;
    Ok(axum::Json(view::rewound(&session, &rewound, dry_run)))
}
