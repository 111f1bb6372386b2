//! Calls and verbs in sessions of other hosts, through this host's own API.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::Value;

use super::client::{CallEvent, ClientError, HttpClient};
use super::path_names::encoded;
use super::{CallRequest, HttpFace, HttpOptions};
use crate::engine::error::Diagnostic;
use crate::hub::Hub;
use crate::hub::hosts::{CallElsewhere, OtherHosts, VerbElsewhere};
use crate::hub::operations::OperationError;
use crate::tools::{ShellRules, ToolOutcome};

const NOBODY: &str = "the session is on another host, which can't ask for approval; allow the command beforehand";

/// Reaches other hosts through the API, which forwards requests.
pub(super) struct ThroughApi;

fn api(hub: &Hub) -> HttpClient {
    HttpClient::within(HttpFace::new(hub.clone()).router(HttpOptions::default()))
}

impl OtherHosts for ThroughApi {
    fn call<'a>(&'a self, hub: &'a Hub, call: CallElsewhere<'a>) -> BoxFuture<'a, Result<ToolOutcome, OperationError>> {
        async move { made(&api(hub), call).await.map_err(|error| refused(&error)) }.boxed()
    }

    fn run<'a>(&'a self, hub: &'a Hub, verb: VerbElsewhere) -> BoxFuture<'a, Result<Value, OperationError>> {
        async move { done(&api(hub), verb).await.map_err(|error| refused(&error)) }.boxed()
    }
}

fn refused(error: &ClientError) -> OperationError {
    let refused = OperationError::refused(error.to_string());
    match error.advice() {
        Some(advice) => refused.with_advice(advice),
        None => refused,
    }
}

async fn made(api: &HttpClient, call: CallElsewhere<'_>) -> Result<ToolOutcome, ClientError> {
    let ShellRules { policy, budget, time, start_docker, python, text_chars, .. } = call.rules;
    let request = CallRequest {
        tool: call.tool.to_owned(),
        params: call.params,
        agent: Some(call.agent),
        allow: policy.allow.clone(),
        deny: policy.denied_words(),
        auto_confirm: policy.auto_confirm,
        max_timeout_seconds: Some(time.most().as_secs_f64()),
        start_docker: start_docker.as_deref().map(str::to_owned),
        python: python.place,
        command_chars: Some(policy.max_chars),
        python_chars: Some(python.code_chars),
        text_chars: *text_chars,
        keep_file_bytes: Some(budget.file_bytes),
        keep_step_bytes: Some(budget.step_bytes),
        no_output: true,
        ..CallRequest::default()
    };
    let session = call.session.to_string();
    let (mut stream, mut begun) = (api.begin_call(&session, &request).await?, 0);
    loop {
        match stream.next().await? {
            CallEvent::Begun(seq) => begun = seq,
            CallEvent::Question(_) => match api.answer(&session, begun, "refuse", Some(NOBODY)).await {
                Err(error) if !error.is_late() => return Err(error),
                _ => {}
            },
            CallEvent::Ended(outcome) => return Ok(*outcome),
            _ => {}
        }
    }
}

async fn done(
    api: &HttpClient,
    VerbElsewhere { session, route, mut params }: VerbElsewhere,
) -> Result<Value, ClientError> {
    let mut path = String::new();
    for part in route.path.split('/').filter(|part| !part.is_empty()) {
        let value = match part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) {
            Some("session") => session.to_string(),
            Some(name) => text_of(&params.remove(name).unwrap_or_default()),
            None => part.to_owned(),
        };
        path = format!("{path}/{}", encoded(&value));
    }
    if route.method == "POST" {
        return api.work(&path, &params, |_| ()).await;
    }
    let given = params.iter().filter(|(_, value)| !value.is_null());
    let query: Vec<_> = given.map(|(name, value)| format!("{name}={}", encoded(&text_of(value)))).collect();
    let path = if query.is_empty() { path } else { format!("{path}?{}", query.join("&")) };
    match route.method {
        "DELETE" => api.delete(&path).await.map(|()| Value::Null),
        _ => api.get(&path).await,
    }
}

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
