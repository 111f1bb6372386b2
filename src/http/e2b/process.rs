//! The service `process.Process` of `envd`: commands and terminals.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use super::connect::{self, Messages, Wrong, answered, streamed, unary};
use super::outside::OutsideFiles;
use super::place::SandboxPath;
use super::sandbox::Sandbox;
use super::{Api, E2bAnswer, E2bApi, Within};
use crate::backends::{OutputStream, WindowSize};
use crate::engine::event::CommandLine;
use crate::http::admission::Admission;
use crate::http::calls::CallRequest;
use crate::http::frames::{self, ALIVE, EventFrames, Gone};
use crate::http::processes::launch;
use crate::hub::operations::{Operation, StatEntry};
use crate::tools::process_output::{OutputPart, ProcessReader};
use crate::tools::processes::{Process, ProcessDocument};

const KILL: u8 = 9;
/// The longest pause between the messages of an input stream; the SDKs send one every 50 s.
const INPUT_PAUSE: Duration = Duration::from_secs(180);

pub(super) async fn serve(
    State(api): Api,
    Extension(sandbox): Within,
    admission: Option<Extension<Arc<Admission>>>,
    Path(method): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let call = ProcessCall { api, sandbox, admission, headers };
    let path = format!("/process.Process/{method}");
    let answer = match method.as_str() {
        "Start" => return call.start(body).await.unwrap_or_else(|wrong| wrong.streamed()),
        "Connect" => return call.connect(body).await.unwrap_or_else(|wrong| wrong.streamed()),
        "StreamInput" => return call.stream_input(body).await.unwrap_or_else(|wrong| wrong.streamed()),
        "List" => call.list(body).await,
        "SendInput" | "SendSignal" | "CloseStdin" | "Update" => call.tell(&method, body).await,
        _ => Err(Wrong::missing(format_args!("{path:.200}"))),
    };
    answer.unwrap_or_else(|wrong| wrong.answer(&path))
}

struct ProcessCall {
    api: E2bApi,
    sandbox: Sandbox,
    /// The admission of the client's connection, if this package serves it.
    admission: Option<Extension<Arc<Admission>>>,
    headers: HeaderMap,
}

#[derive(Deserialize)]
struct StartMessage {
    process: Config,
    pty: Option<Pty>,
    /// Old clients leave it out, and mean true.
    stdin: Option<bool>,
}

#[derive(Deserialize)]
struct Config {
    cmd: String,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    envs: BTreeMap<String, String>,
    cwd: Option<String>,
}

#[derive(Deserialize, Default)]
struct Pty {
    #[serde(default)]
    size: Size,
}

#[derive(Deserialize, Default)]
struct Size {
    #[serde(default)]
    cols: u16,
    #[serde(default)]
    rows: u16,
}

#[derive(Deserialize)]
struct Selected {
    process: Selector,
    #[serde(default)]
    input: EnvdInput,
    #[serde(default)]
    signal: Value,
    pty: Option<Pty>,
}

#[derive(Deserialize)]
struct Selector {
    pid: Option<u64>,
}

#[derive(Deserialize, Default)]
struct EnvdInput {
    stdin: Option<String>,
    pty: Option<String>,
}

/// A message of an input stream.
#[derive(Deserialize)]
struct InputMessage {
    start: Option<InputStart>,
    data: Option<InputData>,
}

#[derive(Deserialize)]
struct InputStart {
    process: Selector,
}

#[derive(Deserialize)]
struct InputData {
    #[serde(default)]
    input: EnvdInput,
}

impl Pty {
    fn window(&self) -> WindowSize {
        let usual = WindowSize::default();
        let or = |said: u16, usual| if said == 0 { usual } else { said };
        WindowSize { rows: or(self.size.rows, usual.rows), columns: or(self.size.cols, usual.columns) }
    }
}

impl EnvdInput {
    fn bytes(self) -> Result<Vec<u8>, Wrong> {
        let text = self.stdin.or(self.pty).unwrap_or_default();
        STANDARD.decode(text).map_err(|error| Wrong::invalid(format!("the input is not base64: {error}")))
    }
}

impl ProcessCall {
    async fn start(self, body: Body) -> E2bAnswer {
        let asked: StartMessage = streamed(&self.headers, body).await?;
        let cwd = SandboxPath::of(asked.process.cwd.as_deref().unwrap_or_default())?;
        let (cwd, words) = self.begun_in(&cwd, asked.process.cmd, asked.process.args).await?;
        let mut env = self.sandbox.envs.clone();
        env.extend(asked.process.envs);
        let params = json!({
            "command": words,
            "cwd": cwd,
            "env": env,
            "input": asked.stdin != Some(false),
            "window": asked.pty.as_ref().map(Pty::window),
        });
        let rules = CallRequest { auto_confirm: true, ..CallRequest::default() };
        let process = launch(&self.api.face, self.sandbox.name(), params, rules).await?;
        let limit = connect::time_limit(&self.headers);
        if let Some(limit) = limit {
            let process = Arc::clone(&process);
            // The limit holds even after the client has disconnected.
            tokio::spawn(async move {
                if tokio::time::timeout(limit, process.ended()).await.is_err() {
                    process.input.signal(KILL);
                }
            });
        }
        let reader = process.read_from(0);
        Ok(self.follow(process, reader))
    }

    /// Returns the directory of a command, and its arguments. A shell changes to a directory outside of the workspace.
    async fn begun_in(
        &self,
        cwd: &SandboxPath,
        cmd: String,
        mut args: Vec<String>,
    ) -> Result<(String, Vec<String>), Wrong> {
        args.insert(0, cmd);
        let missing = || Wrong::invalid(format!("cwd '{:.200}' does not exist", cwd.name()));
        match cwd {
            SandboxPath::Workspace(place) if place.path.is_root() => Ok((String::new(), args)),
            SandboxPath::Workspace(place) => {
                let asked = StatEntry { path: place.rooted(), at: None, live: false };
                match asked.run(&self.api.context(self.sandbox.name())).await.map_err(Wrong::from) {
                    Err(wrong) if wrong.status == StatusCode::NOT_FOUND => Err(missing()),
                    other => other.map(|_| (place.rooted(), args)),
                }
            }
            SandboxPath::Outside(path) => {
                // Without a container, the shell reports a missing directory.
                if let Ok(files) = OutsideFiles::of(&self.api, &self.sandbox, path) {
                    let found = files.entry(path).await;
                    found.map_err(|wrong| if wrong.status == StatusCode::NOT_FOUND { missing() } else { wrong })?;
                }
                let enter = ["/bin/sh", "-c", r#"cd -- "$0" && exec "$@""#, path].map(str::to_owned);
                Ok((String::new(), [enter.to_vec(), args].concat()))
            }
        }
    }

    /// Follows the further output of a process.
    async fn connect(self, body: Body) -> E2bAnswer {
        let asked: Selected = streamed(&self.headers, body).await?;
        let process = self.process(&asked.process)?;
        let reader = process.read_from(u64::MAX);
        Ok(self.follow(process, reader))
    }

    fn follow(self, process: Arc<Process>, reader: ProcessReader) -> Response {
        let (frames, response) = frames::open_as(connect::STREAM, false);
        let keepalive = connect::keepalive(&self.headers, ALIVE);
        let late = connect::over_limit(&self.headers);
        tokio::spawn(async move {
            tokio::select! {
                biased;
                // The SDKs report a lost connection to an ended sandbox as such.
                () = self.sandbox.over.cancelled() => if let Some(admission) = &self.admission {
                    admission.reset();
                    // The end of the stream must not arrive before.
                    frames.gone().await;
                },
                _ = follow(&process, reader, &frames, keepalive) => {}
                // The client may be gone.
                () = late => drop(frames.send(Wrong::late().end_of_stream()).await),
                () = frames.gone() => {}
            }
        });
        response
    }

    fn process(&self, selector: &Selector) -> Result<Arc<Process>, Wrong> {
        let Some(pid) = selector.pid else { return Err(Wrong::missing("selection of processes other than by pid")) };
        let all = self.api.face.hub().processes(self.sandbox.session);
        let is_meant = |process: &Arc<Process>| process.input.pid().map(u64::from) == Some(pid) && process.is_running();
        all.into_iter().find(is_meant).ok_or_else(|| Wrong::not_found(format!("process with pid {pid} not found")))
    }

    async fn list(self, body: Body) -> E2bAnswer {
        let _: Value = unary(&self.headers, body).await?;
        let all = self.api.face.hub().processes(self.sandbox.session);
        let running = all.iter().filter(|process| process.is_running());
        let shown: Vec<Value> = running
            .filter_map(|process| Some((process.input.pid()?, process.document())))
            .map(|(pid, process)| {
                let mut words = match process.command {
                    CommandLine::Args(words) => words,
                    other => vec!["/bin/sh".to_owned(), "-c".to_owned(), other.to_string()],
                }
                .into_iter();
                let cmd = words.next().unwrap_or_default();
                let args: Vec<String> = words.collect();
                json!({ "pid": pid, "config": { "cmd": cmd, "args": args, "cwd": process.cwd } })
            })
            .collect();
        answered(json!({ "processes": shown }))
    }

    /// Passes on a message to a process.
    async fn tell(self, method: &str, body: Body) -> E2bAnswer {
        let asked: Selected = unary(&self.headers, body).await?;
        let process = self.process(&asked.process)?;
        match method {
            "SendInput" => send(&process, &asked.input.bytes()?).await?,
            "SendSignal" => process.signal(number_of(&asked.signal)?),
            "CloseStdin" => process.input.end(),
            _ => asked.pty.iter().for_each(|pty| process.input.resize(pty.window())),
        }
        answered(json!({}))
    }

    /// Passes on input in order.
    async fn stream_input(self, body: Body) -> E2bAnswer {
        let mut messages = Messages::of(&self.headers, body)?;
        let mut process = None;
        while let Some(message) = messages.next(INPUT_PAUSE).await? {
            let message: InputMessage = connect::parsed(&message)?;
            if let Some(start) = message.start {
                process = Some(self.process(&start.process)?);
            }
            if let Some(data) = message.data {
                let process = process.as_ref().ok_or_else(|| Wrong::invalid("the stream begins without a process"))?;
                send(process, &data.input.bytes()?).await?;
            }
        }
        let text = [connect::message(&json!({})), connect::end_of_stream()].concat();
        let media = [(header::CONTENT_TYPE, connect::STREAM)];
        Ok((media, text).into_response())
    }
}

fn number_of(signal: &Value) -> Result<u8, Wrong> {
    match (signal.as_str(), signal.as_u64()) {
        (Some("SIGNAL_SIGTERM"), _) | (_, Some(15)) => Ok(15),
        (Some("SIGNAL_SIGKILL"), _) | (_, Some(9)) => Ok(KILL),
        _ => Err(Wrong::invalid("the signal is SIGNAL_SIGTERM or SIGNAL_SIGKILL")),
    }
}

async fn send(process: &Process, bytes: &[u8]) -> Result<(), Wrong> {
    let sent = tokio::select! {
        sent = async { bytes.is_empty() || process.input.send(bytes).await } => sent,
        () = process.ended() => false,
    };
    if sent { Ok(()) } else { Err(Wrong::not_found("the process no longer accepts input")) }
}

async fn follow(
    process: &Process,
    mut reader: ProcessReader,
    frames: &EventFrames,
    keepalive: Duration,
) -> Result<(), Gone> {
    let has_terminal = process.input.window().is_some();
    // 0 if it could not be started.
    let pid = process.input.started().await.unwrap_or_default();
    frames.send(event(json!({ "start": { "pid": pid } }))).await?;
    loop {
        let part = tokio::select! {
            part = reader.next() => part,
            () = tokio::time::sleep(keepalive) => {
                frames.send(event(json!({ "keepalive": {} }))).await?;
                continue;
            }
        };
        match part {
            Some(OutputPart::Piece(piece)) => {
                let stream = match piece.stream {
                    _ if has_terminal => "pty",
                    OutputStream::Stdout => "stdout",
                    OutputStream::Stderr => "stderr",
                };
                for bytes in piece.bytes.chunks(frames::PIECE) {
                    frames.send(event(json!({ "data": { stream: STANDARD.encode(bytes) } }))).await?;
                }
            }
            // The client was too slow; `envd` does not report that either.
            Some(OutputPart::Missed(_)) => {}
            None => break,
        }
    }
    process.ended().await;
    match ended(process.document()) {
        Ok(end) => {
            frames.send(event(json!({ "end": end }))).await?;
            frames.send(connect::end_of_stream()).await
        }
        Err(wrong) => frames.send(wrong.end_of_stream()).await,
    }
}

fn event(event: Value) -> Bytes {
    connect::message(&json!({ "event": event }))
}

/// Returns the end of a process as `envd` reports it; an error if it could not be run.
fn ended(process: ProcessDocument) -> Result<Value, Wrong> {
    if let Some(problem) = process.problem {
        return Err(Wrong::new(StatusCode::FAILED_DEPENDENCY, problem));
    }
    let status = match (process.signal, process.exit_code) {
        (Some(KILLED), _) => "signal: killed".to_owned(),
        (Some(signal), _) => format!("signal: {signal}"),
        (None, code) => format!("exit status {}", code.unwrap_or_default()),
    };
    let code = if process.signal.is_some() { -1 } else { process.exit_code.unwrap_or_default() };
    let mut end = json!({ "exitCode": code, "exited": process.signal.is_none(), "status": status });
    if code != 0 {
        end["error"] = status.into();
    }
    Ok(end)
}

const KILLED: i32 = KILL as i32;
