//! Calls of a workspace's tools, with progress, questions and cancellation.

use std::sync::Arc;

use rmcp::RoleServer;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData, InputRequiredResult, JsonObject,
    ProtocolVersion,
};
use rmcp::service::RequestContext;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::ToolGroup;
use super::approver::{AsksClient, Question, can_ask};
use super::client::McpClient;
use super::error::words;
use super::pending_questions::{PARKED_MAX, PendingQuestion, RunningCall};
use super::progress::ProgressReporter;
use crate::hub::operations::OperationError;
use crate::hub::{HubError, OpenSession};
use crate::tools::{ApprovalAnswer, ToolCall, ToolOutcome, TraceContext};

/// The parameter of workspace tools that selects a session other than the client's own.
pub(super) const SESSION: &str = "session";

pub(super) async fn call(
    client: &McpClient,
    request: CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    if let Some(handle) = &request.request_state {
        let Some(waiting) = client.parked.take(handle, &request.name) else {
            let what = "the call that waited for this answer has ended; make it again without requestState";
            return Err(ErrorData::invalid_params(what, None));
        };
        waiting.question.answer_with(request.input_responses);
        return follow(client, waiting.running, context).await;
    }
    let (mut params, group) = (request.arguments.unwrap_or_default(), ToolGroup::of(&request.name));
    let open = match session_of(client, group, &mut params) {
        Ok(wanted) => match client.elsewhere(wanted.as_deref()).await {
            Some(session) => {
                let outcome = client.call_elsewhere(session, (&request.name, params), context).await;
                return Ok(outcome.map_or_else(|error| failed(&words(&error)), |outcome| told(Ok(outcome))).into());
            }
            None => client.open(wanted.as_deref(), context).await,
        },
        Err(error) => Err(error),
    };
    let (open, params) = match open {
        Ok(open) => (open, Value::Object(params)),
        Err(error) => return Ok(failed(&words(&error)).into()),
    };
    match group {
        Some(ToolGroup::Files | ToolGroup::Sessions) => look(&open, &request.name, params, context).await,
        Some(ToolGroup::Shell | ToolGroup::Python | ToolGroup::PodmanShell) | None => {
            match begin(client, &open, &request.name, params, context) {
                Ok(running) => follow(client, running, context).await,
                Err(error) => Ok(failed(&error).into()),
            }
        }
    }
}

/// Removes the session from a call's parameters, if the client may reach sessions other than its own.
fn session_of(
    client: &McpClient,
    group: Option<ToolGroup>,
    params: &mut JsonObject,
) -> Result<Option<String>, OperationError> {
    if group.is_none() || !client.reaches_all() {
        return Ok(None);
    }
    match params.shift_remove(SESSION) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(session)) => Ok(Some(session)),
        Some(_) => Err(OperationError::invalid(format!("{SESSION} must be a string"))),
    }
}

/// Calls a tool that runs no command. Completes soon, even if the client is gone.
async fn look(
    open: &OpenSession,
    tool: &str,
    params: Value,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let call = call_of(tool, params, context);
    let cancel = call.cancel.clone();
    Ok(told(to_the_end(open.call(call), &cancel, context).await).into())
}

/// Waits for work to complete. A cancelled request cancels the work, and still waits for it.
pub(super) async fn to_the_end<T>(
    work: impl Future<Output = T>,
    cancel: &CancellationToken,
    context: &RequestContext<RoleServer>,
) -> T {
    let mut work = std::pin::pin!(work);
    tokio::select! {
        done = &mut work => done,
        () = context.ct.cancelled() => {
            cancel.cancel();
            work.await
        }
    }
}

fn begin(
    client: &McpClient,
    open: &OpenSession,
    tool: &str,
    params: Value,
    context: &RequestContext<RoleServer>,
) -> Result<RunningCall, HubError> {
    let (rules, cancel) = (&client.options().rules, client.gone.child_token());
    let call = call_of(tool, params, context);
    let (to_client, questions) = mpsc::channel(1);
    let mut rules = rules.clone();
    if can_ask(context) {
        rules.asker = Some(Arc::new(AsksClient { to_client, cancelled: cancel.clone() }));
    }
    Ok(RunningCall::begin(cancel, open.with_shell_rules(rules), call, questions))
}

fn call_of(tool: &str, params: Value, context: &RequestContext<RoleServer>) -> ToolCall {
    let (parent, state) = (context.meta.get_traceparent(), context.meta.get_tracestate());
    let mut call = ToolCall::new(tool, params);
    call.trace = parent.and_then(|parent| TraceContext::read(parent, state));
    call
}

async fn follow(
    client: &McpClient,
    mut running: RunningCall,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let token = context.meta.get_progress_token();
    let progress = token.map(|token| ProgressReporter::new(&context.peer, token, &running.session, &running.position));
    let ended = CancellationToken::new();
    let mut progress = std::pin::pin!(async {
        match progress {
            Some(progress) => progress.run(ended.clone()).await,
            None => ended.cancelled().await,
        }
    });
    let outcome = loop {
        tokio::select! {
            biased;
            () = context.ct.cancelled(), if !running.cancel.is_cancelled() => running.cancel.cancel(),
            outcome = &mut running.outcome => break outcome,
            Some(question) = running.questions.recv() => {
                if comes_back(context) {
                    match park(client, running, question) {
                        Ok(asked) => return Ok(asked.into()),
                        Err(refused) => running = *refused,
                    }
                } else {
                    put(client, &running, question, context).await;
                }
            }
            () = &mut progress => {}
        }
    };
    ended.cancel();
    tokio::select! {
        () = progress => {}
        // A client that cancelled no longer waits for the result.
        () = context.ct.cancelled() => {}
    }
    Ok(match outcome {
        Ok(outcome) => told(outcome),
        Err(_) => failed(&"foldspace is shutting down; the call was stopped"),
    }
    .into())
}

/// Asks the person. A cancelled question cancels the call.
async fn put(client: &McpClient, running: &RunningCall, mut question: Question, context: &RequestContext<RoleServer>) {
    let answer = tokio::select! {
        answer = question.ask(&context.peer) => answer,
        () = context.ct.cancelled() => None,
        () = client.gone.cancelled() => None,
    };
    match answer {
        Some(answer) => question.answer(answer),
        None => running.cancel.cancel(),
    }
}

/// Returns true if the client asks the person itself and then repeats the request, as it does since that version.
pub(super) fn comes_back(context: &RequestContext<RoleServer>) -> bool {
    context
        .protocol_version()
        .is_some_and(|version| !version.has_initialize() && version >= ProtocolVersion::V_2026_07_28)
}

/// Parks a call until its client returns with the answer. If too many are parked, refuses the command.
fn park(client: &McpClient, running: RunningCall, question: Question) -> Result<InputRequiredResult, Box<RunningCall>> {
    let requests = question.as_input();
    let clock = client.hub().sessions().clock();
    match client.parked.keep(PendingQuestion { running, question }, clock.as_ref()) {
        Ok(handle) => Ok(InputRequiredResult::new(Some(requests), Some(handle))),
        Err(waiting) => {
            let PendingQuestion { running, question } = *waiting;
            question
                .answer(ApprovalAnswer::Refuse(format!("{PARKED_MAX} calls of the client already wait for an answer")));
            Err(Box::new(running))
        }
    }
}

fn told(outcome: Result<ToolOutcome, HubError>) -> CallToolResult {
    match outcome {
        Ok(outcome) if outcome.is_ok() => succeeded(outcome.text, outcome.result),
        Ok(outcome) => failed(&outcome.text),
        Err(error) => failed(&error),
    }
}

pub(super) fn succeeded(text: String, result: Value) -> CallToolResult {
    let mut told = CallToolResult::success(vec![ContentBlock::text(text)]);
    told.structured_content = Some(result);
    told
}

pub(super) fn failed(what: &impl std::fmt::Display) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(what.to_string())])
}
