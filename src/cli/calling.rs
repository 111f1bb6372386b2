//! One call through the owner's API: streams its output, asks its questions, and cancels it.

use std::collections::BTreeMap;
use std::time::Duration;

use foldspace::event::CommandLine;
use foldspace::http::{CallEvent, CallRequest, CallStream, ClientError, HttpClient, TerminalRequest};
use foldspace::tools::{ApprovalAnswer, CommandQuestion, ShellRules, nobody_to_ask};
use foldspace::{Seq, ToolOutcome};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Fuse, FusedFuture};
use serde_json::{Map, Value};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::live::LiveOutput;
use super::local_terminal::LocalInput;
use super::{Exit, Failure};

/// The time limit for a cancelled call to end.
const LAST: Duration = Duration::from_secs(15);

/// A call to make.
pub(super) struct Calling<'a> {
    pub(super) client: &'a HttpClient,
    /// The session, by name or by the beginning of its id.
    pub(super) session: &'a str,
    /// The session's name, for the person who is asked.
    pub(super) name: &'a str,
    pub(super) request: CallRequest,
    pub(super) rules: &'a ShellRules,
    pub(super) cancel: CancellationToken,
}

/// Returns a request with the settings of the rules.
pub(super) fn request(tool: &str, params: Value, agent: Option<&str>, rules: &ShellRules) -> CallRequest {
    let params = match params {
        Value::Object(params) => params,
        _ => Map::new(),
    };
    CallRequest {
        tool: tool.to_owned(),
        params,
        agent: agent.map(str::to_owned),
        allow: rules.policy.allow.clone(),
        deny: rules.policy.denied_words(),
        auto_confirm: rules.policy.auto_confirm,
        max_timeout_seconds: Some(rules.time.most().as_secs_f64()),
        no_time_limit: rules.time.is_unlimited(),
        start_docker: rules.start_docker.as_deref().map(str::to_owned),
        python: rules.python.place,
        command_chars: Some(rules.policy.max_chars),
        python_chars: Some(rules.python.code_chars),
        text_chars: rules.text_chars,
        keep_file_bytes: Some(rules.budget.file_bytes),
        keep_step_bytes: Some(rules.budget.step_bytes),
        ..CallRequest::default()
    }
}

#[derive(serde::Deserialize)]
struct Asked {
    call: Seq,
    #[serde(default)]
    agent: String,
    command: CommandLine,
    #[serde(default)]
    programs: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    stdin: String,
}

impl Calling<'_> {
    /// Makes the call; with `live`, streams its output.
    pub(super) async fn make(
        &self,
        live: Option<&mut LiveOutput>,
        progress: impl FnMut(&str),
    ) -> Result<ToolOutcome, Failure> {
        let (all_output, no_output) = (live.is_some(), live.is_none());
        let request = CallRequest { all_output, no_output, ..self.request.clone() };
        let begun = tokio::select! {
            begun = self.client.begin_call(self.session, &request) => begun,
            () = self.cancel.cancelled() => return Err(taken_back()),
        };
        self.follow(begun?, live, progress, || Ok(())).await
    }

    /// Makes the call, and forwards typed input to its command.
    pub(super) async fn make_typed(
        &self,
        input: &mut LocalInput,
        live: Option<&mut LiveOutput>,
        progress: impl FnMut(&str),
    ) -> Result<ToolOutcome, Failure> {
        let request =
            TerminalRequest { call: self.request.clone(), window: input.window(), ..TerminalRequest::default() };
        let begun = tokio::select! {
            begun = self.client.begin_terminal(self.session, &request) => begun,
            () = self.cancel.cancelled() => return Err(taken_back()),
        };
        let (stream, keys) = begun?;
        let mut keys = Some(keys);
        let begin = || match keys.take() {
            Some(keys) => input.begin(keys).map_err(|error| Failure::io("read", "standard input", &error)),
            None => Ok(()),
        };
        self.follow(stream, live, progress, begin).await
    }

    /// Follows the call to its end. Calls `begin` once the call has started.
    async fn follow(
        &self,
        mut stream: CallStream,
        mut live: Option<&mut LiveOutput>,
        mut progress: impl FnMut(&str),
        mut begin: impl FnMut() -> Result<(), Failure>,
    ) -> Result<ToolOutcome, Failure> {
        let (mut known, mut last, mut failed) = (None, None, None);
        // A request to the owner while the call runs: an answer or the cancellation.
        let mut errand: Fuse<BoxFuture<'_, Result<(), Failure>>> = Fuse::terminated();
        let mut questions = Vec::new();
        loop {
            if errand.is_terminated()
                && last.is_none()
                && let Some(question) = questions.pop()
            {
                errand = self.answer(question).boxed().fuse();
            }
            let event = tokio::select! {
                event = stream.next() => event?,
                done = &mut errand => {
                    // The call waits for an answer that did not arrive, so it is cancelled.
                    let Err(failure) = done else { continue };
                    let (Some(call), None) = (known, last) else { return Err(failed.unwrap_or(failure)) };
                    (last, failed) = (Some(Instant::now() + LAST), Some(failure));
                    errand = self.cancel_call(call).boxed().fuse();
                    continue;
                }
                () = self.cancel.cancelled(), if last.is_none() => {
                    let Some(call) = known else { return Err(taken_back()) };
                    last = Some(Instant::now() + LAST);
                    // This also drops an open question.
                    errand = self.cancel_call(call).boxed().fuse();
                    continue;
                }
                () = tokio::time::sleep_until(last.unwrap_or_else(Instant::now)), if last.is_some() => {
                    return Err(failed.unwrap_or_else(does_not_end));
                }
            };
            match event {
                CallEvent::Begun(call) => {
                    known = Some(call);
                    begin()?;
                }
                CallEvent::Progress(text) => progress(&text),
                CallEvent::Output { stream, bytes } => {
                    if let Some(live) = &mut live {
                        live.show(stream, bytes).await;
                    }
                }
                CallEvent::Missed(bytes) => {
                    if let Some(live) = &mut live {
                        live.missed += bytes;
                    }
                }
                CallEvent::Question(question) => questions.push(question),
                CallEvent::Ended(outcome) => return failed.map_or(Ok(*outcome), Err),
            }
        }
    }

    async fn cancel_call(&self, call: Seq) -> Result<(), Failure> {
        arrived(self.client.cancel(self.session, call).await)
            .map_err(|error| Failure::from(error).at(&format!("failed to cancel call {call}")))
    }

    /// Asks the person at the terminal. Without a terminal, refuses the command.
    async fn answer(&self, question: Value) -> Result<(), Failure> {
        let asked = serde_json::from_value::<Asked>(question)
            .map_err(|error| Failure::failed(format!("invalid question about a command: {error}")))?;
        let call = asked.call;
        let answer = match &self.rules.asker {
            None => ApprovalAnswer::Refuse(nobody_to_ask(&asked.programs, self.rules.advice.as_deref())),
            Some(asker) => {
                let question = CommandQuestion {
                    session: self.name.to_owned(),
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
            ApprovalAnswer::Everything => ("everything", None),
            ApprovalAnswer::Refuse(reason) => ("refuse", Some(reason.as_str())),
        };
        arrived(self.client.answer(self.session, call, word, reason).await).map_err(|error| {
            let what = format!("cancelled call {call}, because the answer to its question was rejected");
            Failure::from(error).at(&what)
        })
    }
}

/// Ignores the error of a message that came too late, since nothing waits for it.
fn arrived(sent: Result<(), ClientError>) -> Result<(), ClientError> {
    sent.or_else(|error| if error.is_late() { Ok(()) } else { Err(error) })
}

fn taken_back() -> Failure {
    Failure::new(Exit::Interrupted, "interrupted before the call started")
}

fn does_not_end() -> Failure {
    Failure::new(Exit::Interrupted, "the call did not end in time; it is being cancelled")
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::body::{Body, Bytes};
    use axum::http::StatusCode;
    use axum::routing::{delete, post};
    use futures_util::stream::{self, StreamExt};
    use serde_json::json;

    use super::*;

    const WAIT_LIMIT: Duration = Duration::from_secs(60);

    /// A server with one call that asks, and ends when it is cancelled or when `answered` is a conflict.
    fn server(question: Value, answered: (StatusCode, Value)) -> (HttpClient, CancellationToken) {
        let (over, cancelled) = (CancellationToken::new(), CancellationToken::new());
        let (ends, cancels) = (over.clone(), cancelled.clone());
        let calls = async move || {
            let begun = format!("event: begun\ndata: {{\"call\": 2}}\n\nevent: question\ndata: {question}\n\n");
            let outcome = json!({
                "call": 2, "finished": 3, "status": "interrupted", "text": "it has ended", "result": null, "micros": 1,
            });
            let end = async move {
                ends.cancelled().await;
                Ok::<_, std::convert::Infallible>(Bytes::from(format!("event: outcome\ndata: {outcome}\n\n")))
            };
            Body::from_stream(stream::iter([Ok(Bytes::from(begun))]).chain(stream::once(end)))
        };
        let ends = over.clone();
        let answer = async move || {
            if answered.1["kind"] == "conflict" {
                ends.cancel();
            }
            (answered.0, axum::Json(answered.1))
        };
        let cancel = async move || {
            cancels.cancel();
            over.cancel();
            StatusCode::ACCEPTED
        };
        let router = Router::new()
            .route("/v1/sessions/s/calls", post(calls))
            .route("/v1/sessions/s/calls/2/answer", post(answer))
            .route("/v1/sessions/s/calls/2", delete(cancel));
        (HttpClient::within(router), cancelled)
    }

    async fn made(client: &HttpClient) -> Result<ToolOutcome, Failure> {
        let (rules, cancel) = (ShellRules::default(), CancellationToken::new());
        let request = request("shell_execute", json!({ "command": "x" }), None, &rules);
        let call = Calling { client, session: "s", name: "s", request, rules: &rules, cancel };
        tokio::time::timeout(WAIT_LIMIT, call.make(None, |_| {})).await.expect("the call has not ended")
    }

    fn problem(kind: &str) -> Value {
        let reference = format!("urn:foldspace:problem:{kind}");
        json!({ "type": reference, "kind": kind, "title": "no", "status": 422, "detail": "it is not taken" })
    }

    #[tokio::test]
    async fn calling_answer_that_is_not_taken_ends_the_call() {
        let asked = json!({ "call": 2, "command": "x", "programs": ["x"] });
        let (client, cancelled) = server(asked.clone(), (StatusCode::UNPROCESSABLE_ENTITY, problem("unusable")));
        let failure = made(&client).await.unwrap_err().to_string();
        assert!(failure.contains("the answer to its question was rejected: it is not taken"), "{failure}");
        assert!(cancelled.is_cancelled());
        // Another client was faster.
        let (client, cancelled) = server(asked, (StatusCode::CONFLICT, problem("conflict")));
        assert_eq!(made(&client).await.unwrap().text, "it has ended");
        assert!(!cancelled.is_cancelled());
    }

    #[tokio::test]
    async fn calling_question_that_is_not_understood_ends_the_call() {
        let (client, cancelled) = server(json!({ "call": 2, "command": 7 }), (StatusCode::NO_CONTENT, Value::Null));
        let failure = made(&client).await.unwrap_err().to_string();
        assert!(failure.contains("invalid question about a command"), "{failure}");
        assert!(cancelled.is_cancelled());
    }
}
