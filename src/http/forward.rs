//! Calls for sessions that other processes have, over those processes' unix sockets.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{Fuse, FusedFuture};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::{SetOnce, mpsc};
use tokio::time::Instant;

use super::calls::{CallRequest, KEPT_MAX, SECONDS};
use super::client::{CallEvent, ClientError, HttpClient};
use super::problem::{HttpProblem, ProblemKind};
use crate::engine::event::CommandLine;
use crate::engine::id::Seq;
use crate::engine::session::Session;
use crate::engine::session::output_stream::CommandOutput;
use crate::engine::store::LeaseHolder;
use crate::hub::operations::operations;
use crate::hub::{Forward, Forwarding, HubError};
use crate::tools::{ApprovalAnswer, CommandQuestion, ShellRules, ToolCall, ToolOutcome, nobody_to_ask};

/// Time that a cancelled call may take to end.
const LAST: Duration = Duration::from_secs(15);

/// Has work done by the process that has a session's workspace, through the API on its unix socket.
#[derive(Debug, Clone, Copy, Default)]
pub struct OverHttp;

impl Forward for OverHttp {
    fn call<'a>(
        &'a self,
        holder: &'a LeaseHolder,
        session: &'a Session,
        call: ToolCall,
        rules: &'a ShellRules,
        begun: &'a (dyn Fn(Seq) + Send + Sync),
    ) -> Forwarding<'a, ToolOutcome> {
        Box::pin(async move {
            let (client, name, cancel) = (client_of(holder)?, session.id().to_string(), call.cancel.clone());
            let client = client.in_trace(call.trace.clone());
            let request = request_of(session, call, rules);
            let (questions, mut asked) = mpsc::unbounded_channel();
            let known = SetOnce::new();
            let seen = |event| match event {
                CallEvent::Begun(call) => {
                    // It begins once.
                    let _ = known.set(call);
                    begun(call);
                }
                CallEvent::Output { stream, bytes } => {
                    let Some(&call) = known.get() else { return };
                    session.show_output(|| CommandOutput { call, stream, bytes });
                }
                // The call's end withdraws questions.
                CallEvent::Question(question) => drop(questions.send(question)),
                CallEvent::Missed(bytes) => tracing::debug!(bytes, "output of a call elsewhere was not shown"),
            };
            let mut calling = std::pin::pin!(client.call(&name, &request, seen));
            let mut last = None;
            // A message to the other process while its call goes on: an answer, or a cancellation.
            let mut errand = Fuse::terminated();
            let outcome = loop {
                tokio::select! {
                    outcome = &mut calling => break outcome,
                    Some(question) = asked.recv(), if errand.is_terminated() && last.is_none() => {
                        errand = answer(&client, session, question, rules).boxed().fuse();
                    }
                    () = &mut errand => {}
                    () = cancel.cancelled(), if last.is_none() => {
                        last = Some(Instant::now() + LAST);
                        // An open question goes with the call.
                        errand = cancel_call(&client, &name, &known).boxed().fuse();
                    }
                    () = tokio::time::sleep_until(last.unwrap_or_else(Instant::now)), if last.is_some() => {
                        return Err(lost(holder, "it did not end the call in time"));
                    }
                }
            };
            outcome.map_err(|error| match (known.get(), error_of(holder, error)) {
                (Some(_), HubError::Gone(_) | HubError::OwnerEnding(_)) => lost(holder, "it ended"),
                (_, error) => error,
            })
        })
    }

    fn verb<'a>(
        &'a self,
        holder: &'a LeaseHolder,
        session: &'a Session,
        name: &'static str,
        params: Value,
    ) -> Forwarding<'a, Value> {
        Box::pin(async move {
            let client = client_of(holder)?;
            let route = operations().iter().find(|entry| entry.name == name).and_then(|entry| entry.route);
            let route = route.ok_or_else(|| lost(holder, "the API has no such verb"))?;
            let path = route.path.replace("{session}", &session.id().to_string());
            let done = match route.method {
                "POST" => client.post(&path, &params).await,
                _ => client.get(&path).await,
            };
            done.map_err(|error| error_of(holder, error))
        })
    }
}

async fn cancel_call(client: &HttpClient, session: &str, call: &SetOnce<Seq>) {
    if let Err(error) = client.cancel(session, *call.wait().await).await {
        tracing::debug!(%error, "a call elsewhere could not be cancelled");
    }
}

fn client_of(holder: &LeaseHolder) -> Result<HttpClient, HubError> {
    match &holder.address {
        Some(address) => Ok(HttpClient::at(address)),
        None => Err(HubError::Gone(holder.to_string())),
    }
}

fn request_of(session: &Session, call: ToolCall, rules: &ShellRules) -> CallRequest {
    let params = match call.params {
        Value::Object(params) => params,
        _ => Default::default(),
    };
    CallRequest {
        tool: call.tool,
        params,
        agent: Some(session.agent().to_string()).filter(|agent| !agent.is_empty()),
        timeout_seconds: call.limit.map(|limit| limit.as_secs_f64().clamp(*SECONDS.start(), *SECONDS.end())),
        allow: rules.policy.allow.clone(),
        auto_confirm: rules.policy.auto_confirm,
        keep_file_bytes: Some(rules.budget.file_bytes.min(KEPT_MAX)),
        keep_step_bytes: Some(rules.budget.step_bytes.min(KEPT_MAX)),
        all_output: true,
    }
}

fn lost(holder: &LeaseHolder, reason: &str) -> HubError {
    HubError::Lost { holder: holder.to_string(), reason: reason.to_owned() }
}

fn error_of(holder: &LeaseHolder, error: ClientError) -> HubError {
    match error {
        ClientError::Unreachable { .. } => HubError::Gone(holder.to_string()),
        ClientError::Refused(problem) if ProblemKind::of(&problem.kind) == ProblemKind::Ending => {
            HubError::OwnerEnding(holder.to_string())
        }
        ClientError::Refused(problem) => {
            let HttpProblem { kind: problem, detail: message, hint, .. } = *problem;
            HubError::Elsewhere { kind: ProblemKind::of(&problem).into(), problem, message, hint }
        }
        other => lost(holder, &other.to_string()),
    }
}

#[derive(Deserialize)]
struct ForwardedQuestion {
    call: Seq,
    #[serde(default)]
    agent: String,
    command: CommandLine,
    #[serde(default)]
    programs: Vec<String>,
    #[serde(default)]
    env: std::collections::BTreeMap<String, String>,
    #[serde(default)]
    stdin: String,
}

/// Asks the approver of this process. Without one the command is refused.
async fn answer(client: &HttpClient, session: &Session, question: Value, rules: &ShellRules) {
    let Ok(asked) = serde_json::from_value::<ForwardedQuestion>(question) else {
        tracing::warn!("a question of a call elsewhere can't be understood");
        return;
    };
    let call = asked.call;
    let answer = match &rules.asker {
        None => ApprovalAnswer::Refuse(nobody_to_ask(&asked.programs, rules.advice.as_deref())),
        Some(asker) => {
            let question = CommandQuestion {
                session: session.name().to_owned(),
                call,
                agent: asked.agent,
                command: asked.command,
                env: asked.env,
                stdin: asked.stdin.into_bytes().into(),
                programs: asked.programs,
                copies: None,
            };
            asker.ask(question).await
        }
    };
    let (word, reason) = match &answer {
        ApprovalAnswer::Once => ("once", None),
        ApprovalAnswer::Session => ("session", None),
        ApprovalAnswer::Refuse(reason) => ("refuse", Some(reason.as_str())),
    };
    if let Err(error) = client.answer(&session.id().to_string(), call, word, reason).await {
        tracing::warn!(%error, "an answer did not reach the call that waits for it");
    }
}
