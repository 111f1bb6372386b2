//! Calls with interactive input over a websocket, at a terminal or not.

use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use futures_util::future::OptionFuture;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use hyper_util::rt::TokioIo;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_util::sync::CancellationToken;

use super::HttpFace;
use super::calls::CallRequest;
use super::frames::{ALIVE, Gone, PIECE};
use super::guard;
use super::problem::{HttpProblem, ProblemKind};
use super::request::RequestHead;
use super::screen::{EmulatedScreen, FRAME, ScreenFrame};
use super::stream::{self, CallTelling, Ending, freed, output_value, stopped};
use super::terminal_copy::run_in_copy;
use super::terminal_keys::{PressedKey, TypingModes};
use super::upgrade::UpgradedStream;
use super::verb::{Headers, HttpVerb, Media};
use crate::backends::{CommandInput, OutputStream, WindowSize};
use crate::engine::id::Seq;
use crate::hub::operations::OperationRoute;
use crate::tools::{CommandOutput, OutputSubscription, TraceContext};

/// The most bytes of a client's message.
const MESSAGE_MAX: usize = 4 << 20;
/// Time limit for the first message of a client.
const FIRST: Duration = Duration::from_secs(10);

/// The most terminal replies that wait for the command to read them.
const REPLIES: usize = 64;
/// The subprotocol to agree on if the client offers it.
const PROTOCOL: &str = "foldspace.terminal";

pub(super) type Socket = WebSocketStream<UpgradedStream>;

/// Makes a tool call with interactive input: request an upgrade to a websocket. The first message is text, `{call,
/// window}`: `call` has the fields of `make_call`, and `window` `{rows, columns}` is the size of the terminal, for a
/// command with `tty`. Later binary messages are input, and text is `{resize: {rows, columns}}` or `{end_input: true}`.
/// The server sends standard output, or all terminal output, as binary messages; as text it sends an object with one of
/// the events of `make_call`: `begun`, `output` (of standard error), `progress`, `question`, and at last `outcome` or
/// `problem`. A client that disconnects hangs the command up. Input is not recorded. With `screen` in the first
/// message, the server sends the terminal's screen instead of its output, as `screen` events like the frames of
/// `terminal_frames`, at most 30 a second. Text may then also be `{key: {name, shift, alt, ctrl}}`, with a browser's
/// name of the key, or `{paste}`: the server sends what a terminal would. With `copy_at`, a position, `shell_execute`
/// runs in a throw-away copy of the workspace at that position: nothing is recorded, so `call` has the position 0, and
/// the policy can't ask for approval. A page in a browser sends its token as the subprotocol `foldspace.bearer.` and
/// the token in base64url, next to `foldspace.terminal`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct OpenTerminal {}

/// The first message of a client.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TerminalRequest {
    /// The call.
    pub call: CallRequest,
    /// The size of its terminal, for a command with `tty`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<WindowSize>,
    /// True to receive frames of the terminal's screen instead of its output.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub screen: bool,
    /// The position to copy the workspace at, for a command in a throw-away copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy_at: Option<Seq>,
}

/// A later text message of a client.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum TerminalOrder {
    Resize(WindowSize),
    EndInput(bool),
    Key(PressedKey),
    Paste(String),
}

impl HttpVerb for OpenTerminal {
    const NAME: &'static str = "open_terminal";
    const ROUTE: OperationRoute = OperationRoute::at("GET", "calls", "/v1/sessions/{session}/terminal", 101);
    const GIVES: Media = &[];
    const READS: Headers = &[
        ("traceparent", "string", "The parent span of the call's span, as in W3C Trace Context"),
        ("tracestate", "string", "The vendor data of that trace"),
    ];

    async fn answer(self, face: HttpFace, mut head: RequestHead) -> Result<Response, HttpProblem> {
        let unasked = || HttpProblem::new(ProblemKind::BadRequest, "ask for an upgrade to a websocket, version 13");
        let accepted = accepted(&head.headers).ok_or_else(unasked)?;
        let upgrade = head.upgrade.take().ok_or_else(unasked)?;
        let face = face.for_client(head.caller.as_ref());
        // A missing session is reported over HTTP, before the upgrade.
        face.session(&head.session).await?;
        let trace = head.trace();
        tokio::spawn(async move {
            match upgrade.await {
                Ok(stream) => serve(face, head.session, trace, TokioIo::new(stream)).await,
                Err(error) => tracing::debug!(%error, "failed to upgrade a connection"),
            }
        });
        let headers = [
            (header::CONNECTION, HeaderValue::from_static("upgrade")),
            (header::UPGRADE, HeaderValue::from_static("websocket")),
            (header::SEC_WEBSOCKET_ACCEPT, accepted),
        ];
        let named = guard::protocols(&head.headers).any(|name| name == PROTOCOL);
        let named = named.then_some([(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(PROTOCOL))]);
        Ok((StatusCode::SWITCHING_PROTOCOLS, headers, named.into_iter().flatten().collect::<HeaderMap>())
            .into_response())
    }
}

/// Returns the answer to a client's key; `None` if it does not request a websocket.
fn accepted(headers: &HeaderMap) -> Option<HeaderValue> {
    let text = |name: header::HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let is_asked = text(header::UPGRADE).is_some_and(|wanted| wanted.eq_ignore_ascii_case("websocket"));
    let is_known = text(header::SEC_WEBSOCKET_VERSION) == Some("13");
    let key = text(header::SEC_WEBSOCKET_KEY).filter(|_| is_asked && is_known)?;
    HeaderValue::try_from(accept_key(key)).ok()
}

/// Returns the answer to a client's websocket key (RFC 6455, 4.2.2).
pub(super) fn accept_key(key: &str) -> String {
    const PROTOCOL: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    BASE64_STANDARD.encode(sha1_smol::Sha1::from(format!("{key}{PROTOCOL}")).digest().bytes())
}

async fn serve(face: HttpFace, session: String, trace: Option<TraceContext>, stream: UpgradedStream) {
    let config = WebSocketConfig::default().max_message_size(Some(MESSAGE_MAX)).max_frame_size(Some(MESSAGE_MAX));
    let (sink, mut messages) = WebSocketStream::from_raw_socket(stream, Role::Server, Some(config)).await.split();
    let mut screen = TerminalScreen { sink, cancel: CancellationToken::new(), output: None, live: None };
    let (mut wanted, (resized, sizes), modes) = (None, mpsc::unbounded_channel(), Arc::new(TypingModes::default()));
    let begun = match first(&mut messages).await {
        Ok(request) => {
            wanted = request.screen.then(|| request.window.unwrap_or_default());
            begin(face, session, trace, request)
        }
        Err(problem) => Err(problem),
    };
    // The client may be gone.
    let _ = match begun {
        Ok((ending, telling, input, cancel)) => {
            screen.cancel = cancel.clone();
            screen.live = wanted.map(|window| LiveScreen::begin(window, sizes, input.clone(), Arc::clone(&modes)));
            let typing = tokio::spawn(take_input(messages, input, (resized, modes), cancel));
            let shown = screen.run(ending, telling).await;
            typing.abort();
            shown
        }
        Err(problem) => screen.event("problem", &json!(problem)).await,
    };
    drop(screen.sink.close().await);
}

async fn first(messages: &mut SplitStream<Socket>) -> Result<TerminalRequest, HttpProblem> {
    let wrong = |detail: String| HttpProblem::new(ProblemKind::Unusable, detail);
    match tokio::time::timeout(FIRST, messages.next()).await {
        Ok(Some(Ok(Message::Text(text)))) => serde_json::from_str(&text)
            .map_err(|error| wrong(format!("the first message is not an object with a `call`: {error}"))),
        Ok(_) => Err(wrong("the first message must be text: {\"call\": {...}}".to_owned())),
        Err(_) => Err(wrong(format!("the first message took more than {} s", FIRST.as_secs()))),
    }
}

type TerminalCall = (Ending, CallTelling, CommandInput, CancellationToken);

fn begin(
    face: HttpFace,
    session: String,
    trace: Option<TraceContext>,
    TerminalRequest { call: mut request, window, copy_at, .. }: TerminalRequest,
) -> Result<TerminalCall, HttpProblem> {
    let mut call = request.call()?;
    let unable = |error| HttpProblem::new(ProblemKind::Broken, format!("failed to set up the input: {error}"));
    let input = CommandInput::new().map_err(unable)?;
    if let Some(window) = window {
        input.resize(window);
    }
    (call.trace, call.input) = (trace, Some(input.clone()));
    // A terminal that misses output shows garbage from then on.
    (request.all_output, request.no_output) = (true, false);
    let cancel = call.cancel.clone();
    let (teller, telling) = stream::telling();
    let ending = tokio::spawn(async move {
        let face = face.telling(&teller.progress);
        if let Some(at) = copy_at {
            return run_in_copy(&face, (session, at), request, (call, window.unwrap_or_default()), teller).await;
        }
        let open = face.open(&session).await?;
        stream::make(request, call, open, &face, teller).await
    });
    Ok((ending, telling, input, cancel))
}

/// Passes on a client's input. Cancels the call when the client disconnects or sends an invalid message.
async fn take_input(
    mut messages: SplitStream<Socket>,
    input: CommandInput,
    (resized, modes): (mpsc::UnboundedSender<WindowSize>, Arc<TypingModes>),
    cancel: CancellationToken,
) {
    while let Some(Ok(message)) = messages.next().await {
        match message {
            Message::Binary(bytes) => {
                // Input after the end of the input or of the command is discarded.
                input.send(&bytes).await;
            }
            Message::Text(text) => match serde_json::from_str(&text) {
                Ok(TerminalOrder::Resize(window)) => {
                    input.resize(window);
                    // Only an emulated screen receives it.
                    let _ = resized.send(window);
                }
                Ok(TerminalOrder::Key(key)) => drop(input.send(&modes.pressed(&key)).await),
                Ok(TerminalOrder::Paste(text)) => drop(input.send(&modes.pasted(&text)).await),
                Ok(TerminalOrder::EndInput(true)) => input.end(),
                Ok(TerminalOrder::EndInput(false)) => {}
                Err(error) => {
                    tracing::debug!(%error, "invalid message from a client at a terminal");
                    break;
                }
            },
            Message::Close(_) => break,
            Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
        }
    }
    cancel.cancel();
}

/// The client's side of a call.
struct TerminalScreen {
    sink: SplitSink<Socket, Message>,
    cancel: CancellationToken,
    output: Option<OutputSubscription>,
    live: Option<LiveScreen>,
}

/// The emulated screen for a client that requested frames.
struct LiveScreen {
    screen: EmulatedScreen,
    replies: mpsc::Sender<String>,
    modes: Arc<TypingModes>,
    sizes: mpsc::UnboundedReceiver<WindowSize>,
    since: Instant,
    sent: Option<Instant>,
    /// The time of the next frame, if something has changed.
    due: Option<Instant>,
}

impl LiveScreen {
    fn begin(
        window: WindowSize,
        sizes: mpsc::UnboundedReceiver<WindowSize>,
        input: CommandInput,
        modes: Arc<TypingModes>,
    ) -> Self {
        let (screen, (replies, mut waiting)) = (EmulatedScreen::new(window), mpsc::channel::<String>(REPLIES));
        // A command that does not read its input must not block its own output.
        tokio::spawn(async move {
            while let Some(reply) = waiting.recv().await {
                input.send(reply.as_bytes()).await;
            }
        });
        Self { screen, replies, modes, sizes, since: Instant::now(), sent: None, due: None }
    }

    /// Makes a change; the next frame shows it together with the changes that follow soon.
    fn change(&mut self, change: impl FnOnce(&mut EmulatedScreen)) {
        change(&mut self.screen);
        self.screen.note_modes(&self.modes);
        let reply = self.screen.take_reply();
        if !reply.is_empty() {
            // A command that sends queries without reading gets no more replies.
            let _ = self.replies.try_send(reply);
        }
        let now = Instant::now();
        let next = self.sent.map_or(now, |sent| now.max(sent + FRAME));
        self.due.get_or_insert(next);
    }

    fn frame(&mut self) -> Option<ScreenFrame> {
        (self.due, self.sent) = (None, Some(Instant::now()));
        self.screen.frame(u64::try_from(self.since.elapsed().as_micros()).unwrap_or(u64::MAX))
    }
}

impl TerminalScreen {
    async fn run(&mut self, mut ending: Ending, mut telling: CallTelling) -> Result<(), Gone> {
        let ended = loop {
            let due = OptionFuture::from(self.live.as_ref().and_then(|live| live.due).map(tokio::time::sleep_until));
            let size = OptionFuture::from(self.live.as_mut().map(|live| live.sizes.recv()));
            let next = OptionFuture::from(self.output.as_ref().map(OutputSubscription::next));
            let shown = tokio::select! {
                biased;
                Some(text) = telling.progress.recv() => self.event("progress", &json!({ "text": text })).await,
                Some((call, output)) = telling.begun.recv() => self.begun(call, output).await,
                Some(()) = due => self.frame().await,
                Some(Some(window)) = size => {
                    self.live.iter_mut().for_each(|live| live.change(|screen| screen.resize(window)));
                    Ok(())
                }
                Some(piece) = next => self.show(piece).await,
                Some(question) = telling.questions.recv() => self.event("question", &question).await,
                ended = &mut ending => break ended.unwrap_or_else(stopped),
                () = tokio::time::sleep(ALIVE) => self.send(Message::Ping(bytes::Bytes::new())).await,
            };
            if shown.is_err() {
                // The call ends as interrupted.
                self.cancel.cancel();
                return shown;
            }
        };
        while let Ok((call, output)) = telling.begun.try_recv() {
            self.begun(call, output).await?;
        }
        while let Some(piece) = self.output.as_ref().and_then(OutputSubscription::try_next) {
            self.show(piece).await?;
        }
        self.frame().await?;
        match ended {
            Ok(outcome) => self.event("outcome", &json!(outcome)).await,
            Err(problem) => self.event("problem", &json!(problem)).await,
        }
    }

    async fn begun(&mut self, call: Seq, output: Option<OutputSubscription>) -> Result<(), Gone> {
        self.output = output;
        self.event("begun", &json!({ "call": call })).await
    }

    /// Shows a piece of output, joined with the pieces after it on the same stream.
    async fn show(&mut self, first: CommandOutput) -> Result<(), Gone> {
        let mut next = Some(first);
        while let Some(CommandOutput { stream, bytes, .. }) = next.take() {
            let mut all = bytes.to_vec();
            while all.len() < PIECE
                && let Some(more) = self.output.as_ref().and_then(OutputSubscription::try_next)
            {
                if more.stream != stream {
                    next = Some(more);
                    break;
                }
                all.extend_from_slice(&more.bytes);
            }
            match (stream, &mut self.live) {
                (OutputStream::Stdout, Some(live)) => live.change(|screen| screen.feed(&all)),
                (OutputStream::Stdout, None) => self.send(Message::Binary(all.into())).await?,
                (OutputStream::Stderr, _) => self.event("output", &output_value(stream, &all)).await?,
            }
        }
        Ok(())
    }

    async fn frame(&mut self) -> Result<(), Gone> {
        match self.live.as_mut().and_then(LiveScreen::frame) {
            Some(frame) => self.event("screen", &json!(frame)).await,
            None => Ok(()),
        }
    }

    async fn event(&mut self, name: &str, value: &Value) -> Result<(), Gone> {
        self.send(Message::text(json!({ name: value }).to_string())).await
    }

    /// Sends a message. Cancelling the call frees a command that waits for this client.
    async fn send(&mut self, message: Message) -> Result<(), Gone> {
        freed(self.sink.send(message), &self.cancel, self.output.as_ref()).await.map_err(|_| Gone)
    }
}
