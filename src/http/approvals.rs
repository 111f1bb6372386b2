//! Questions of the command policy, and their answers.

use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use utoipa::ToSchema;

use super::HttpFace;
use super::calls::not_under_way;
use super::extract::{Body, Path};
use super::in_flight::{InFlightCalls, TakenBack};
use super::problem::{HttpProblem, ProblemKind};
use crate::engine::id::{Seq, SessionId};
use crate::tools::{ApprovalAnswer, Asker, Asking, CommandQuestion};

/// Characters of a reason.
const REASON_MAX: usize = 1000;

/// An answer to a question about a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewAnswer {
    /// Whether the command may run.
    answer: Choice,
    /// Why not, for whoever wrote the command.
    #[serde(default)]
    reason: Option<String>,
}

/// Whether a command may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Choice {
    /// This once.
    Once,
    /// Its programs may run for the rest of the session.
    Session,
    /// No.
    Refuse,
}

/// Answers the question that a call waits for. Who streams the call is told of it by a `question` event.
#[utoipa::path(post, path = "/v1/sessions/{session}/calls/{call}/answer", tag = "calls", request_body = NewAnswer,
    params(("session" = String, Path, description = "The session, by name or by the beginning of its id"),
        ("call" = u64, Path, description = "The position of its intent")),
    responses((status = 204), (status = "4XX", body = HttpProblem, content_type = "application/problem+json")))]
pub(super) async fn answer(
    State(face): State<HttpFace>,
    Path((wanted, call)): Path<(String, Seq)>,
    Body(given): Body<NewAnswer>,
) -> Result<StatusCode, HttpProblem> {
    let reason = given.reason.unwrap_or_else(|| "the answer was no".to_owned());
    if reason.chars().count() > REASON_MAX {
        return Err(HttpProblem::new(ProblemKind::Unusable, format!("a reason has at most {REASON_MAX} characters")));
    }
    let id = face.session(wanted).await?.id();
    let answer = match given.answer {
        Choice::Once => ApprovalAnswer::Once,
        Choice::Session => ApprovalAnswer::Session,
        Choice::Refuse => ApprovalAnswer::Refuse(reason),
    };
    match face.running().answer(id, call, answer) {
        TakenBack::Yes => Ok(StatusCode::NO_CONTENT),
        TakenBack::NoCall => Err(not_under_way(call)),
        TakenBack::NoQuestion => {
            Err(HttpProblem::new(ProblemKind::Refused, format!("call {call} waits for no answer")))
        }
    }
}

/// Asks whoever streams a call.
pub(super) struct OverStream {
    pub(super) running: InFlightCalls,
    pub(super) session: SessionId,
    pub(super) questions: mpsc::UnboundedSender<Value>,
}

impl Asker for OverStream {
    fn ask(&self, question: CommandQuestion) -> Asking {
        let answer = self.running.ask(self.session, question.call);
        // The stream's end takes the call back, and this with it.
        let _ = self.questions.send(shown(&question));
        Box::pin(async move {
            let refused = || ApprovalAnswer::Refuse("nobody is left to answer".to_owned());
            answer.await.unwrap_or_else(|_| refused())
        })
    }
}

fn shown(question: &CommandQuestion) -> Value {
    json!({
        "call": question.call,
        "agent": question.agent,
        "command": question.command,
        "programs": question.programs,
        "env": question.env,
        // All of it: who asks elsewhere has nothing else to show.
        "stdin": String::from_utf8_lossy(&question.stdin),
        "answers": ["once", "session", "refuse"],
    })
}
