//! States at any position, their slices, what differs between two of them.

use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::extract::{Path, StrictQuery};
use super::problem::{HttpProblem, ProblemKind};
use super::{HttpFace, blocking};
use crate::engine::id::Seq;
use crate::engine::session::Session;
use crate::engine::state::State as Folded;
use crate::engine::verify::VerifyReport;
use crate::view::{self, ChangeDocument, Position, StateDocument};

/// At which position.
#[derive(Debug, Clone, Copy, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct AtQuery {
    /// The position; the last one when nothing is said.
    #[serde(default)]
    #[param(value_type = Option<String>, example = "42")]
    pub(super) at: Option<Position>,
}

/// Between which positions.
#[derive(Debug, Clone, Copy, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Between {
    /// The position to start from; 0, before everything, when nothing is said.
    #[serde(default)]
    #[param(value_type = Option<String>, example = "0")]
    from: Option<Position>,
    /// The position to come to, which may be an earlier one; the last one when nothing is said.
    #[serde(default)]
    #[param(value_type = Option<String>, example = "42")]
    to: Option<Position>,
}

/// The state at a position, or now.
pub(super) fn state_at(session: &Session, at: Option<Position>) -> Result<Folded, HttpProblem> {
    Ok(match at {
        Some(at) => session.state_at(at.resolve(session)?)?,
        None => session.state()?,
    })
}

/// Tells which slices the state at a position has.
#[utoipa::path(get, path = "/v1/sessions/{session}/state", tag = "states",
    params(("session" = String, Path, description = "The session, by name or by the beginning of its id"), AtQuery),
    responses((status = 200, body = StateDocument), (status = "4XX", body = HttpProblem, content_type = "application/problem+json")))]
pub(super) async fn state(
    State(face): State<HttpFace>,
    Path(wanted): Path<String>,
    StrictQuery(AtQuery { at }): StrictQuery<AtQuery>,
) -> Result<axum::Json<StateDocument>, HttpProblem> {
    let session = face.session(wanted).await?;
    let document = blocking(move || {
        let state = state_at(&session, at)?;
        Ok::<_, HttpProblem>(view::state(session.name(), &state)?)
    });
    Ok(axum::Json(document.await??))
}

/// Gives a slice of the state at a position.
#[utoipa::path(get, path = "/v1/sessions/{session}/state/{slice}", tag = "states",
    params(("session" = String, Path, description = "The session, by name or by the beginning of its id"),
        ("slice" = String, Path, description = "The slice's name"), AtQuery),
    responses((status = 200, body = Value), (status = "4XX", body = HttpProblem, content_type = "application/problem+json")))]
pub(super) async fn slice(
    State(face): State<HttpFace>,
    Path((wanted, slice)): Path<(String, String)>,
    StrictQuery(AtQuery { at }): StrictQuery<AtQuery>,
) -> Result<axum::Json<Value>, HttpProblem> {
    let session = face.session(wanted).await?;
    let value = blocking(move || {
        let state = state_at(&session, at)?;
        let Some(name) = view::slice_named(&state, &slice) else {
            let names: Vec<_> = state.registry().slices().iter().map(|slice| slice.name).collect();
            let shown: String = slice.chars().take(100).collect();
            let problem = HttpProblem::new(ProblemKind::NotFound, format!("there is no slice {shown:?}"));
            return Err(problem.with_hint(format!("there are {}", names.join(", "))));
        };
        Ok(view::slice(&state, name)?)
    });
    Ok(axum::Json(value.await??))
}

/// What differs in the files between two positions.
#[derive(Debug, Clone, Serialize, JsonSchema, ToSchema)]
pub(super) struct DiffQuery {
    /// The position to start from.
    from: Seq,
    /// The position to come to.
    to: Seq,
    /// What leads from the one to the other, with patches.
    changes: Vec<ChangeDocument>,
}

/// Tells what differs in the files between two positions, as patches.
#[utoipa::path(get, path = "/v1/sessions/{session}/diff", tag = "states",
    params(("session" = String, Path, description = "The session, by name or by the beginning of its id"), Between),
    responses((status = 200, body = DiffQuery), (status = "4XX", body = HttpProblem, content_type = "application/problem+json")))]
pub(super) async fn diff(
    State(face): State<HttpFace>,
    Path(wanted): Path<String>,
    StrictQuery(Between { from, to }): StrictQuery<Between>,
) -> Result<axum::Json<DiffQuery>, HttpProblem> {
    let session = face.session(wanted).await?;
    let diff = blocking(move || {
        let from = from.map_or(Ok(0), |from| from.resolve(&session))?;
        let to = to.unwrap_or(Position::Back(0)).resolve(&session)?;
        Ok::<_, HttpProblem>(DiffQuery { from, to, changes: view::changes_between(&session, from, to)? })
    });
    Ok(axum::Json(diff.await??))
}

/// What a verification found.
#[derive(Debug, Clone, Serialize, JsonSchema, ToSchema)]
pub(super) struct Verification {
    sessions: u64,
    events: u64,
    snapshots: u64,
    contents: u64,
    /// Events that the program can't read.
    unreadable: u64,
    /// Events that were lost, and gone on without.
    lost: u64,
    /// What is otherwise than the events say: `session`, `seq`, `slice`, `what`.
    #[schema(value_type = Vec<Object>)]
    differences: Value,
}

impl From<VerifyReport> for Verification {
    fn from(report: VerifyReport) -> Self {
        let VerifyReport { sessions, events, snapshots, contents, unreadable, lost, differences } = report;
        let differences = serde_json::to_value(differences).unwrap_or_default();
        Self { sessions, events, snapshots, contents, unreadable, lost, differences }
    }
}

/// Folds a session again from its events, and compares with everything that is stored.
#[utoipa::path(post, path = "/v1/sessions/{session}/verify", tag = "states",
    params(("session" = String, Path, description = "The session, by name or by the beginning of its id")),
    responses((status = 200, body = Verification), (status = "4XX", body = HttpProblem, content_type = "application/problem+json")))]
pub(super) async fn verify(
    State(face): State<HttpFace>,
    Path(wanted): Path<String>,
) -> Result<axum::Json<Verification>, HttpProblem> {
    let id = face.session(wanted).await?.id();
    let report = blocking(move || face.hub().sessions().verify(Some(id))).await??;
    Ok(axum::Json(report.into()))
}
