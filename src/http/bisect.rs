//! Bisection: the first change after which a command fails, or a predicate holds.

use std::ops::RangeInclusive;
use std::time::Duration;

use axum::extract::State;
use schemars::JsonSchema;
use serde::Deserialize;
use utoipa::ToSchema;

use super::extract::{Body, Path};
use super::problem::{HttpProblem, ProblemKind};
use super::{HttpFace, blocking};
use crate::backends::ShellCommand;
use crate::engine::session::Session;
use crate::tools::{Bisection, CommandPolicy, Predicate, ShellRules, bisect, bisect_slices};
use crate::view::{self, BisectDocument, Position};

/// Probes at once at most.
const JOBS: usize = 64;
/// Seconds that a command may run.
const SECONDS: RangeInclusive<f64> = 0.1..=600.0;

/// A bisection that is to be made: by `command` or by `slice`.
#[derive(Debug, Clone, Deserialize, JsonSchema, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BisectRequest {
    /// A predicate over slices, such as `Usage.calls > 9`: the first position at which it holds is looked for.
    #[serde(default)]
    slice: Option<String>,
    /// A shell command that fails at the bad position and not at the good one. It runs in throw-away workspaces like the
    /// session's, those of a session in memory on the server's machine, where nothing is sandboxed; the server's policy
    /// must allow it.
    #[serde(default)]
    command: Option<String>,
    /// A good position; before the first call, with `slice` before the first event, when nothing is said.
    #[serde(default)]
    good: Option<Position>,
    /// A bad position after it; the last one when nothing is said.
    #[serde(default)]
    bad: Option<Position>,
    /// How many probes run at once, from 1 to 64.
    #[serde(default = "one")]
    jobs: usize,
    /// How long the command may run each time, from 0.1 to 600 seconds.
    #[serde(default = "long")]
    timeout_seconds: f64,
    /// Programs that the command may run without a question.
    #[serde(default)]
    allow: Vec<String>,
    /// Answers every question about the command with yes.
    #[serde(default)]
    auto_confirm: bool,
}

fn one() -> usize {
    1
}

fn long() -> f64 {
    600.0
}

/// Finds the first change of a session after which a command fails, or a predicate over slices holds.
#[utoipa::path(post, path = "/v1/sessions/{session}/bisect", tag = "states", request_body = BisectRequest,
    params(("session" = String, Path, description = "The session, by name or by the beginning of its id")),
    responses((status = 200, body = BisectDocument), (status = "4XX", body = HttpProblem, content_type = "application/problem+json")))]
pub(super) async fn run(
    State(face): State<HttpFace>,
    Path(wanted): Path<String>,
    Body(request): Body<BisectRequest>,
) -> Result<axum::Json<BisectDocument>, HttpProblem> {
    let session = face.session(wanted).await?;
    let document = match (request.slice.clone(), request.command.clone()) {
        (Some(predicate), None) => by_slice(&face, session, predicate, &request).await?,
        (None, Some(command)) => by_command(&face, session, command, request).await?,
        _ => return Err(HttpProblem::new(ProblemKind::Unusable, "give either `slice` or `command`")),
    };
    Ok(axum::Json(document))
}

async fn by_slice(
    face: &HttpFace,
    session: Session,
    predicate: String,
    request: &BisectRequest,
) -> Result<BisectDocument, HttpProblem> {
    let predicate = Predicate::parse(&predicate, face.hub().sessions().registry())?;
    let (good, bad) = (request.good, request.bad);
    let looked = blocking(move || {
        let good = good.map_or(Ok(0), |good| good.resolve(&session))?;
        let bad = bad.unwrap_or(Position::Back(0)).resolve(&session)?;
        let found = bisect_slices(&session, &predicate, good, bad)?;
        Ok::<_, HttpProblem>(view::bisected_by_slice(&session, &predicate, (good, bad), &found)?)
    });
    looked.await?
}

async fn by_command(
    face: &HttpFace,
    session: Session,
    command: String,
    request: BisectRequest,
) -> Result<BisectDocument, HttpProblem> {
    let unusable = |detail: String| HttpProblem::new(ProblemKind::Unusable, detail);
    if !(1..=JOBS).contains(&request.jobs) {
        return Err(unusable(format!("jobs is {}; it must be from 1 to {JOBS}", request.jobs)));
    }
    let seconds = request.timeout_seconds;
    let timeout = Duration::try_from_secs_f64(seconds).ok().filter(|_| SECONDS.contains(&seconds));
    let Some(timeout) = timeout else {
        return Err(unusable(format!("timeout_seconds is {seconds}; it must be from 0.1 to 600")));
    };
    let mut command = ShellCommand::shell(command);
    command.timeout = Some(timeout);
    command.check().map_err(|error| unusable(error.to_string()))?;
    let policy = policy_of(face.rules(), &request);
    let (home, jobs, ends) = (face.hub().options().home.clone(), request.jobs, (request.good, request.bad));
    let bisection = blocking(move || {
        let end = |end: Option<Position>| end.map(|end| end.resolve(&session)).transpose();
        let ends = (end(ends.0)?, end(ends.1)?);
        Ok::<_, HttpProblem>(Bisection::of_session(session, command, policy, ends, home, jobs)?)
    });
    let bisection = bisection.await??;
    // Dropped with the request, it takes the probes back; so it does when the server ends.
    let cancel = face.shared.ending.child_token();
    let _stop = cancel.clone().drop_guard();
    let report = bisect(&bisection, &|_| (), &cancel).await?;
    blocking(move || Ok(view::bisected(&bisection.session, &report)?)).await?
}

fn policy_of(rules: &ShellRules, request: &BisectRequest) -> CommandPolicy {
    let mut policy = rules.policy.clone();
    policy.allow.extend(request.allow.iter().cloned());
    policy.auto_confirm |= request.auto_confirm;
    policy
}
