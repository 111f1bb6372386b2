//! Tool calls.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::extract::{Body, Path, accepts, trace_of};
use super::frames::EVENTS;
use super::in_flight::InFlightGuard;
use super::problem::{HttpProblem, ProblemKind};
use super::{HttpFace, blocking, stream};
use crate::engine::commit::MAX_AGENT_BYTES;
use crate::engine::id::Seq;
use crate::engine::session::error::SessionError;
use crate::hub::{HubError, OpenSession};
use crate::tools::{Asker, ToolCall, ToolOutcome};
use crate::view::{self, EventDocument};

/// Seconds that a call may take: the least and the most.
pub(super) const SECONDS: std::ops::RangeInclusive<f64> = 0.1..=3600.0;

/// Bytes that a call may ask to have kept: they are in memory together.
pub(super) const KEPT_MAX: u64 = 4 << 30;

/// A tool call that is to be made.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CallRequest {
    /// The tool.
    pub tool: String,
    /// Its parameters.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub params: Map<String, Value>,
    /// Who makes the call; nobody in particular when nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// How long it may take, from 0.1 to 3600 seconds; 120 when nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<f64>,
    /// Programs, or programs with their first words, that this call's command may run without a question.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    /// Answers every question about a command with yes.
    #[serde(default)]
    pub auto_confirm: bool,
    /// Bytes that are kept of a file which its command wrote, at most 4 GiB. A server keeps no more than it keeps when
    /// nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 4_294_967_296_u64)]
    pub keep_file_bytes: Option<u64>,
    /// Bytes that are kept of all files which its command wrote, at most 4 GiB. A server keeps no more than it keeps when
    /// nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 4_294_967_296_u64)]
    pub keep_step_bytes: Option<u64>,
    /// Of a call that is streamed: its commands wait for a client that is behind, so that it misses no output. One that
    /// takes nothing for 30 seconds is taken for gone, as ever.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all_output: bool,
}

/// How a call ended. A tool's own failure is an outcome, too.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, ToSchema)]
pub struct CallResponse {
    /// The position of the call's intent, which is its name.
    pub call: Seq,
    /// The position of its outcome.
    pub finished: Seq,
    /// `ok`, `error` or `interrupted`.
    pub status: String,
    /// The result of a success, else null.
    pub result: Value,
    /// The result, or what was wrong, as text for a model.
    pub text: String,
    /// How long it took, in microseconds.
    pub micros: u64,
}

impl From<ToolOutcome> for CallResponse {
    fn from(outcome: ToolOutcome) -> Self {
        let ToolOutcome { call, finished, status, result, text, micros } = outcome;
        Self { call, finished, status: status.word().to_owned(), result, text, micros }
    }
}

impl CallRequest {
    /// The call, or what is wrong with it.
    pub(super) fn call(&mut self) -> Result<ToolCall, HttpProblem> {
        let unusable = |detail: String| Err(HttpProblem::new(ProblemKind::Unusable, detail));
        let seconds = self.timeout_seconds;
        if let Some(seconds) = seconds.filter(|seconds| !SECONDS.contains(seconds)) {
            return unusable(format!("timeout_seconds is {seconds}; it must be from 0.1 to 3600"));
        }
        if let Some(agent) = self.agent.as_ref().filter(|agent| agent.len() > MAX_AGENT_BYTES) {
            return unusable(format!("agent has {} bytes; at most {MAX_AGENT_BYTES} are allowed", agent.len()));
        }
        for (name, kept) in [("keep_file_bytes", self.keep_file_bytes), ("keep_step_bytes", self.keep_step_bytes)] {
            if let Some(bytes) = kept.filter(|bytes| *bytes > KEPT_MAX) {
                return unusable(format!("{name} is {bytes}; at most {KEPT_MAX} are allowed"));
            }
        }
        let mut call = ToolCall::new(std::mem::take(&mut self.tool), Value::Object(std::mem::take(&mut self.params)));
        call.limit = seconds.map(Duration::from_secs_f64);
        Ok(call)
    }

    /// Who makes the call, under which rules.
    pub(super) fn caller(
        &self,
        open: OpenSession,
        face: &HttpFace,
        asker: Option<std::sync::Arc<dyn Asker>>,
    ) -> Result<OpenSession, HubError> {
        let open = match &self.agent {
            Some(agent) => open.by(agent),
            None => open,
        };
        let keeps_usual = self.keep_file_bytes.or(self.keep_step_bytes).is_none();
        let has_no_rules = asker.is_none() && self.allow.is_empty() && !self.auto_confirm && keeps_usual;
        if has_no_rules && face.shared.are_hubs_rules {
            return Ok(open);
        }
        let mut rules = face.rules().clone();
        rules.policy.allow.extend(self.allow.iter().cloned());
        rules.policy.auto_confirm |= self.auto_confirm;
        // Rules that somebody gave the server bound what a request may ask for.
        let most = |usual: u64| if face.shared.are_hubs_rules { usual } else { KEPT_MAX };
        let kept = |wanted: Option<u64>, usual| wanted.map_or(usual, |wanted| wanted.min(most(usual)));
        rules.budget.file_bytes = kept(self.keep_file_bytes, rules.budget.file_bytes);
        rules.budget.step_bytes = kept(self.keep_step_bytes, rules.budget.step_bytes);
        rules.asker = asker.or(rules.asker);
        open.ruled(rules)
    }
}

/// Makes a tool call and waits for its outcome. With `Accept: text/event-stream` it comes as server-sent events:
/// `begun` `{call}`, `output` `{stream, text | base64}`, `missed` `{bytes}` (with `all_output` only of a call that was
/// taken back), `question` `{call, command, programs, ...}` (answer it with `POST .../calls/{call}/answer`), at last
/// `outcome`, or `problem`. A client that goes away takes its call back.
#[utoipa::path(post, path = "/v1/sessions/{session}/calls", tag = "calls", request_body = CallRequest,
    params(("session" = String, Path, description = "The session, by name or by the beginning of its id"),
        ("traceparent" = Option<String>, Header, description = "The span that is the parent of the call's, as W3C Trace Context has it"),
        ("tracestate" = Option<String>, Header, description = "What belongs to it")),
    responses((status = 200, content((CallResponse = "application/json"), (String = "text/event-stream"))),
        (status = "4XX", body = HttpProblem, content_type = "application/problem+json")))]
pub(super) async fn make(
    State(face): State<HttpFace>,
    Path(wanted): Path<String>,
    headers: HeaderMap,
    Body(mut request): Body<CallRequest>,
) -> Result<Response, HttpProblem> {
    let mut call = request.call()?;
    call.trace = trace_of(&headers);
    let open = face.open(wanted).await?;
    if accepts(&headers, EVENTS) {
        return stream::make(face, open, &request, call);
    }
    let open = request.caller(open, &face, None)?;
    let outcome = call_noted(&face, &open, call, |_| ()).await?;
    Ok(axum::Json(CallResponse::from(outcome)).into_response())
}

/// Makes a call that can be taken back by its name meanwhile, which is told.
pub(super) async fn call_noted(
    face: &HttpFace,
    open: &OpenSession,
    call: ToolCall,
    tell: impl FnOnce(Seq) + Send,
) -> Result<ToolOutcome, HubError> {
    let (session, cancel) = (open.session().id(), call.cancel.clone());
    let mut begun: Option<InFlightGuard> = None;
    let calling = open.call_telling(call, |seq| {
        begun = Some(face.running().begin(session, seq, cancel));
        tell(seq);
    });
    let outcome = calling.await;
    drop(begun);
    outcome
}

/// A call with all that belongs to it.
#[derive(Debug, Clone, Serialize, JsonSchema, ToSchema)]
pub(super) struct WholeCall {
    /// The call; its `events` are positions.
    #[serde(flatten)]
    #[schema(inline)]
    call: view::CallDocument,
    /// The result of a success, else null.
    result: Option<Value>,
    /// The events themselves, by their positions.
    recorded: BTreeMap<String, EventDocument>,
}

/// Tells of a call that was made, long texts whole, with its events.
#[utoipa::path(get, path = "/v1/sessions/{session}/calls/{call}", tag = "calls",
    params(("session" = String, Path, description = "The session, by name or by the beginning of its id"),
        ("call" = u64, Path, description = "The position of its intent")),
    responses((status = 200, body = WholeCall), (status = "4XX", body = HttpProblem, content_type = "application/problem+json")))]
pub(super) async fn one(
    State(face): State<HttpFace>,
    Path((wanted, call)): Path<(String, Seq)>,
) -> Result<axum::Json<WholeCall>, HttpProblem> {
    let session = face.session(wanted).await?;
    let found = blocking(move || {
        let Some((known, events)) = view::call_at(&session, call)? else { return Ok(None) };
        let mut document = known.document(session.lease_holder().is_some());
        document.params = view::whole(&session, &document.params);
        let result = known.outcome.as_ref().map(|outcome| view::whole(&session, &outcome.end.result));
        let recorded = events.iter().map(|event| (event.seq.to_string(), view::event(&session, &event.view())));
        Ok::<_, SessionError>(Some(WholeCall { call: document, result, recorded: recorded.collect() }))
    });
    match found.await?? {
        Some(whole) => Ok(axum::Json(whole)),
        None => Err(HttpProblem::new(ProblemKind::NotFound, format!("no call began at position {call}"))),
    }
}

/// Takes a call back that is under way: what it runs is killed, and it is recorded as interrupted.
#[utoipa::path(delete, path = "/v1/sessions/{session}/calls/{call}", tag = "calls",
    params(("session" = String, Path, description = "The session, by name or by the beginning of its id"),
        ("call" = u64, Path, description = "The position of its intent")),
    responses((status = 202), (status = "4XX", body = HttpProblem, content_type = "application/problem+json")))]
pub(super) async fn cancel(
    State(face): State<HttpFace>,
    Path((wanted, call)): Path<(String, Seq)>,
) -> Result<StatusCode, HttpProblem> {
    let id = face.session(wanted).await?.id();
    match face.running().cancel(id, call) {
        true => Ok(StatusCode::ACCEPTED),
        false => Err(not_under_way(call)),
    }
}

pub(super) fn not_under_way(call: Seq) -> HttpProblem {
    HttpProblem::new(ProblemKind::NotFound, format!("no call {call} is under way through this server"))
        .with_hint("GET .../calls/{call} tells of calls that have ended")
}
