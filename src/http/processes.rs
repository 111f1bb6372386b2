//! Commands that run in the background, and their output.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::{JsonSchema, SchemaGenerator};
use serde::Deserialize;
use serde_json::{Value, json};

use super::HttpFace;
use super::calls::CallRequest;
use super::file_changes::problem_of;
use super::frames::{self, ALIVE, EVENTS, EventFrames, Gone, PIECE, STILL_HERE};
use super::problem::HttpProblem;
use super::request::RequestHead;
use super::stream::output_value;
use super::verb::{Headers, HttpVerb, Media};
use crate::backends::WindowSize;
use crate::engine::id::Seq;
use crate::hub::operations::{OperationRoute, no_process};
use crate::tools::ServiceParams;
use crate::tools::process_output::{OutputPart, ProcessReader};
use crate::tools::processes::{Process, ProcessDocument};

/// Starts a command in the background, while other calls run. Its changes are recorded with those calls, and the rest
/// when it ends. It ends with the server.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "NewProcess")]
#[serde(deny_unknown_fields)]
pub(super) struct StartProcess {
    /// A script for `/bin/sh -c`, or a list of a program and its arguments. Each has at most 131,071 bytes.
    command: Value,
    /// The directory to run it in, as for `shell_execute`.
    #[serde(default)]
    cwd: String,
    /// Additional environment variables.
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// Standard input, at most 48,000 characters; more may come with `input`.
    #[serde(default)]
    stdin: String,
    /// True to keep standard input open for `send_input`. By default it ends after `stdin`.
    #[serde(default)]
    input: bool,
    /// The size of its terminal; its input stays open. No terminal by default.
    window: Option<WindowSize>,
    /// Its time limit in seconds, from 1 to 86,400; none by default.
    timeout_seconds: Option<f64>,
    /// Makes it a service. The answer comes when it is ready, or after `ready_seconds`.
    service: Option<ServiceParams>,
    /// The agent that starts it; none by default.
    agent: Option<String>,
    /// Programs, or programs with their first arguments, that it may run without a question.
    #[serde(default)]
    allow: Vec<String>,
    /// Programs, or programs with their first arguments, that it may not run, whatever allows them.
    #[serde(default)]
    deny: Vec<String>,
    /// Approves every question about it.
    #[serde(default)]
    auto_confirm: bool,
}

impl HttpVerb for StartProcess {
    const NAME: &'static str = "start_process";
    const ROUTE: OperationRoute = OperationRoute::at("POST", "processes", "/v1/sessions/{session}/processes", 201);
    const GIVES: Media = &[("application/json", Some(SchemaGenerator::subschema_for::<ProcessDocument>))];

    async fn answer(self, face: HttpFace, head: RequestHead) -> Result<Response, HttpProblem> {
        let face = face.for_client(head.caller.as_ref());
        let session = head.session.clone();
        let started = self.start(&face, &head.session).await?.document();
        let place = format!("/v1/sessions/{session}/processes/{}", started.process);
        Ok((StatusCode::CREATED, [(header::LOCATION, place)], axum::Json(started)).into_response())
    }
}

impl StartProcess {
    async fn start(self, face: &HttpFace, session: &str) -> Result<Arc<Process>, HttpProblem> {
        let Self { command, cwd, env, stdin, input, window, timeout_seconds, service, .. } = self;
        let params = json!({
            "command": command, "cwd": cwd, "env": env, "stdin": stdin, "input": input, "window": window,
            "timeout_seconds": timeout_seconds, "service": service,
        });
        let rules = CallRequest {
            agent: self.agent,
            allow: self.allow,
            deny: self.deny,
            auto_confirm: self.auto_confirm,
            ..CallRequest::default()
        };
        launch(face, session, params, rules).await
    }
}

/// Starts a process under the rules of a request.
pub(super) async fn launch(
    face: &HttpFace,
    session: &str,
    params: Value,
    rules: CallRequest,
) -> Result<Arc<Process>, HttpProblem> {
    rules.clone().call()?;
    let rules = CallRequest { no_time_limit: true, ..rules };
    let open = rules.caller(face.open(session).await?, face, None)?;
    face.hub().start_process(open, params).await?.map_err(problem_of)
}

/// Follows a process's output as server-sent events: first the retained output (the last MiB), then new output. The
/// `id` of `output` `{stream, text | base64}` is the number of bytes up to its end; `missed` `{bytes}` counts output
/// that is no longer retained; at last comes `ended`, the process. The process waits up to 30 seconds for a slow
/// reader.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FollowProcess {
    /// Its number.
    process: Seq,
    /// The number of bytes to skip; 0 by default. `Last-Event-ID` overrides it.
    from: Option<u64>,
}

impl HttpVerb for FollowProcess {
    const NAME: &'static str = "follow_process";
    const ROUTE: OperationRoute =
        OperationRoute::at("GET", "processes", "/v1/sessions/{session}/processes/{process}/output", 200);
    const GIVES: Media = &[(EVENTS, None)];
    const READS: Headers = &[("Last-Event-ID", "integer", "The number of bytes that the client received")];

    async fn answer(self, face: HttpFace, head: RequestHead) -> Result<Response, HttpProblem> {
        let seen = head.last_seen()?;
        let session = face.session(&head.session).await?;
        let process = face.hub().process(session.id(), self.process);
        let process = process.ok_or_else(|| no_process(session.name(), self.process))?;
        let reader = process.read_from(seen.or(self.from).unwrap_or_default());
        let (frames, response) = frames::open(head.caller.is_some());
        // The client may go away.
        tokio::spawn(async move { follow(&process, reader, &frames).await });
        Ok(response)
    }
}

async fn follow(process: &Process, mut reader: ProcessReader, frames: &EventFrames) -> Result<(), Gone> {
    loop {
        let part = tokio::select! {
            part = reader.next() => part,
            () = frames.gone() => return Err(Gone),
            () = tokio::time::sleep(ALIVE) => {
                frames.send(STILL_HERE).await?;
                continue;
            }
        };
        match part {
            Some(OutputPart::Piece(piece)) => {
                let mut at = piece.at;
                for bytes in piece.bytes.chunks(PIECE) {
                    at += bytes.len() as u64;
                    let mut text = Vec::new();
                    frames::write(&mut text, Some("output"), Some(at), &output_value(piece.stream, bytes));
                    frames.send(text).await?;
                }
            }
            Some(OutputPart::Missed(bytes)) => frames.event("missed", &json!({ "bytes": bytes })).await?,
            None => break,
        }
    }
    tokio::select! {
        () = process.ended() => {}
        () = frames.gone() => return Err(Gone),
    }
    frames.event("ended", &process.document()).await
}
