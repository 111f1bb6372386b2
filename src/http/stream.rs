//! Making tool calls, with or without a stream of their output.

use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::OptionFuture;
use schemars::SchemaGenerator;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinHandle};
use tokio_util::sync::CancellationToken;

use super::calls::CallRequest;
use super::frames::{self, ALIVE, EVENTS, EventFrames, Gone, PIECE, STILL_HERE};
use super::problem::{HttpProblem, ProblemKind};
use super::recorded::outputs;
use super::request::RequestHead;
use super::verb::{Headers, HttpVerb, Media};
use super::{HttpFace, blocking};
use crate::backends::OutputStream;
use crate::engine::id::{Seq, SessionId};
use crate::hub::operations::OperationRoute;
use crate::hub::{Hub, HubError, OpenSession};
use crate::tools::{
    ApprovalAnswer, Asker, Asking, CommandOutput, CommandQuestion, OutputOptions, OutputSubscription, SessionRuntime,
    ToolCall, ToolOutcome,
};

pub(super) type Ending = JoinHandle<Result<ToolOutcome, HttpProblem>>;

impl HttpVerb for CallRequest {
    const NAME: &'static str = "make_call";
    const ROUTE: OperationRoute = OperationRoute::at("POST", "calls", "/v1/sessions/{session}/calls", 200);
    const GIVES: Media = &[("application/json", Some(SchemaGenerator::subschema_for::<ToolOutcome>)), (EVENTS, None)];
    const READS: Headers = &[
        ("traceparent", "string", "The parent span of the call's span, as in W3C Trace Context"),
        ("tracestate", "string", "The vendor data of that trace"),
    ];

    async fn answer(mut self, face: HttpFace, head: RequestHead) -> Result<Response, HttpProblem> {
        let mut call = self.call()?;
        call.trace = head.trace();
        let face = face.for_client(head.caller.as_ref());
        if head.accepts(EVENTS) {
            return streamed(face, head.caller.is_some(), head.session, self, call).await;
        }
        let open = face.open(&head.session).await?;
        let open = self.caller(open, &face, None)?;
        Ok(axum::Json(open.call(call).await?).into_response())
    }
}

/// Streams a call, from the first progress message of its workspace if there is one, else from its start.
async fn streamed(
    face: HttpFace,
    is_local: bool,
    session: String,
    request: CallRequest,
    call: ToolCall,
) -> Result<Response, HttpProblem> {
    let (teller, mut telling) = self::telling();
    let progress = teller.progress.clone();
    let mut opening = async move {
        let face = face.telling(&progress);
        Ok::<_, HubError>((face.open(&session).await?, face))
    }
    .boxed();
    let (first, opened) = tokio::select! {
        biased;
        opened = &mut opening => (None, Some(opened?)),
        first = telling.progress.recv() => (first, None),
    };
    let (frames, response) = frames::open(is_local);
    let cancel = call.cancel.clone();
    let ending: Ending = tokio::spawn(async move {
        let (open, face) = match opened {
            Some(opened) => opened,
            None => opening.await?,
        };
        make(request, call, open, &face, teller).await
    });
    let show = StreamItem { frames, cancel, telling, output: None, shown: OutputText::default() };
    tokio::spawn(show.run(first, ending));
    Ok(response)
}

/// Returns the problem of a call after its task was aborted or panicked.
pub(super) fn stopped(_: JoinError) -> Result<ToolOutcome, HttpProblem> {
    Err(HttpProblem::new(ProblemKind::Broken, "the call's task was stopped"))
}

/// Reports the events of a call to its client.
pub(super) struct CallTeller {
    pub(super) progress: mpsc::UnboundedSender<String>,
    pub(super) begun: mpsc::UnboundedSender<(Seq, Option<OutputSubscription>)>,
    questions: mpsc::UnboundedSender<Value>,
    recorded: mpsc::UnboundedSender<(OutputStream, Bytes)>,
}

/// The client's side of a [`CallTeller`].
pub(super) struct CallTelling {
    pub(super) progress: mpsc::UnboundedReceiver<String>,
    pub(super) begun: mpsc::UnboundedReceiver<(Seq, Option<OutputSubscription>)>,
    pub(super) questions: mpsc::UnboundedReceiver<Value>,
    /// The stored output of a call that an earlier request made.
    recorded: mpsc::UnboundedReceiver<(OutputStream, Bytes)>,
}

pub(super) fn telling() -> (CallTeller, CallTelling) {
    let ((progress, told), (begun, known)) = (mpsc::unbounded_channel(), mpsc::unbounded_channel());
    let ((questions, asked), (recorded, stored)) = (mpsc::unbounded_channel(), mpsc::unbounded_channel());
    let telling = CallTelling { progress: told, begun: known, questions: asked, recorded: stored };
    (CallTeller { progress, begun, questions, recorded }, telling)
}

/// Makes a call and reports its events through the [`CallTeller`].
pub(super) async fn make(
    request: CallRequest,
    call: ToolCall,
    open: OpenSession,
    face: &HttpFace,
    CallTeller { begun: tell, questions, recorded, .. }: CallTeller,
) -> Result<ToolOutcome, HttpProblem> {
    if call.cancel.is_cancelled() {
        return Err(HubError::Ending.into());
    }
    let (all, none) = (request.all_output, request.no_output);
    let session = open.session().clone();
    let asker = OverStream { hub: face.hub().clone(), session: session.id(), questions };
    let open = request.caller(open, face, Some(std::sync::Arc::new(asker)))?;
    let of = session.clone();
    let begun = move |call| {
        // Subscribe before the command can print anything.
        let output =
            (!none).then(|| SessionRuntime::of(&session).output(OutputOptions { call: Some(call), whole: all }));
        // The client may be gone.
        drop(tell.send((call, output)));
    };
    let outcome = open.call_telling(call, begun).await?;
    if outcome.repeated && !none {
        let call = outcome.call;
        let stored = blocking(move || outputs(&of, call)).await??;
        // The client may be gone.
        stored.into_iter().for_each(|output| drop(recorded.send(output)));
    }
    Ok(outcome)
}

struct OverStream {
    hub: Hub,
    session: SessionId,
    questions: mpsc::UnboundedSender<Value>,
}

impl Asker for OverStream {
    fn ask(&self, question: CommandQuestion) -> Asking {
        let told = shown(&question);
        let answer = self.hub.in_flight().ask(self.session, question);
        // If the stream has ended, the call and this question are cancelled.
        let _ = self.questions.send(told);
        Box::pin(async move {
            let refused = || ApprovalAnswer::Refuse("the client that had to answer has disconnected".to_owned());
            answer.await.unwrap_or_else(|_| refused())
        })
    }
}

pub(super) fn shown(question: &CommandQuestion) -> Value {
    json!({
        "call": question.call,
        "agent": question.agent,
        "command": question.command,
        "programs": question.programs,
        "env": question.env,
        // Whole: a forwarding client has nothing else to show.
        "stdin": String::from_utf8_lossy(&question.stdin),
        "answers": ["once", "session", "everything", "refuse"],
    })
}

struct StreamItem {
    frames: EventFrames,
    cancel: CancellationToken,
    telling: CallTelling,
    output: Option<OutputSubscription>,
    shown: OutputText,
}

impl StreamItem {
    async fn run(mut self, first: Option<String>, mut ending: Ending) {
        let mut shown = match first {
            Some(text) => self.progress(&text).await,
            None => Ok(()),
        };
        let ended = loop {
            if shown.is_err() {
                // The call ends as interrupted.
                return self.cancel.cancel();
            }
            let next = OptionFuture::from(self.output.as_ref().map(OutputSubscription::next));
            shown = tokio::select! {
                biased;
                () = self.frames.gone() => Err(Gone),
                Some(text) = self.telling.progress.recv() => self.progress(&text).await,
                Some((call, output)) = self.telling.begun.recv() => self.begun(call, output).await,
                Some(piece) = next => self.show(piece).await,
                Some(question) = self.telling.questions.recv() => self.event("question", &question).await,
                ended = &mut ending => break ended.unwrap_or_else(stopped),
                () = tokio::time::sleep(ALIVE) => self.send(STILL_HERE).await,
            };
        };
        // The client may be gone.
        let _ = self.end(ended).await;
    }

    async fn progress(&self, text: &str) -> Result<(), Gone> {
        self.event("progress", &json!({ "text": text })).await
    }

    async fn begun(&mut self, call: Seq, output: Option<OutputSubscription>) -> Result<(), Gone> {
        self.output = output;
        self.event("begun", &json!({ "call": call })).await
    }

    async fn show(&mut self, first: CommandOutput) -> Result<(), Gone> {
        let Some(output) = &self.output else { return Ok(()) };
        let text = self.shown.of(output, first);
        if text.is_empty() { Ok(()) } else { self.send(text).await }
    }

    async fn end(mut self, ended: Result<ToolOutcome, HttpProblem>) -> Result<(), Gone> {
        while let Ok((call, output)) = self.telling.begun.try_recv() {
            self.begun(call, output).await?;
        }
        while let Some(piece) = self.output.as_ref().and_then(OutputSubscription::try_next) {
            self.show(piece).await?;
        }
        while let Ok((stream, bytes)) = self.telling.recorded.try_recv() {
            for piece in bytes.chunks(PIECE) {
                let mut text = Vec::new();
                self.shown.halves.write(&mut text, stream, &bytes.slice_ref(piece));
                self.send(text).await?;
            }
        }
        let mut text = Vec::new();
        self.shown.halves.end(&mut text);
        match ended {
            Ok(outcome) => frames::write(&mut text, Some("outcome"), None, &outcome),
            Err(problem) => frames::write(&mut text, Some("problem"), None, &problem),
        }
        self.send(text).await
    }

    async fn event(&self, name: &str, value: &Value) -> Result<(), Gone> {
        let mut text = Vec::new();
        frames::write(&mut text, Some(name), None, value);
        self.send(text).await
    }

    /// Sends a piece. Cancelling the call frees a command that waits for this client.
    async fn send(&self, piece: impl Into<Bytes>) -> Result<(), Gone> {
        freed(self.frames.send(piece), &self.cancel, self.output.as_ref()).await
    }
}

/// Waits for a send to a client. Once the call is cancelled, its command no longer waits for the client.
pub(super) async fn freed<T>(
    sending: impl Future<Output = T>,
    cancel: &CancellationToken,
    output: Option<&OutputSubscription>,
) -> T {
    let mut sending = std::pin::pin!(sending);
    tokio::select! {
        biased;
        sent = &mut sending => return sent,
        () = cancel.cancelled() => {}
    }
    output.iter().for_each(|output| output.let_go());
    sending.await
}

/// Renders the output of commands as events.
#[derive(Default)]
pub(super) struct OutputText {
    halves: Halves,
    missed: u64,
}

impl OutputText {
    /// Returns the events of a piece and of the output queued after it.
    pub(super) fn of(&mut self, output: &OutputSubscription, first: CommandOutput) -> Vec<u8> {
        let mut text = Vec::new();
        let mut next = Some(first);
        while let Some(piece) = next {
            self.halves.write(&mut text, piece.stream, &piece.bytes);
            next = if text.len() < PIECE { output.try_next() } else { None };
        }
        let missed = output.missed_bytes();
        if missed > self.missed {
            frames::write(&mut text, Some("missed"), None, &json!({ "bytes": missed - self.missed }));
            self.missed = missed;
        }
        text
    }

    /// Returns the events of the remaining output at the end.
    pub(super) fn rest(&mut self, output: &OutputSubscription) -> Vec<u8> {
        let mut text = Vec::new();
        while let Some(piece) = output.try_next() {
            text.append(&mut self.of(output, piece));
        }
        self.halves.end(&mut text);
        text
    }
}

/// Incomplete characters at the end of a piece, by stream.
#[derive(Default)]
struct Halves {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Halves {
    fn write(&mut self, text: &mut Vec<u8>, stream: OutputStream, piece: &Bytes) {
        let half = match stream {
            OutputStream::Stdout => &mut self.stdout,
            OutputStream::Stderr => &mut self.stderr,
        };
        let mut bytes = std::mem::take(half);
        bytes.extend_from_slice(piece);
        if let Err(error) = std::str::from_utf8(&bytes)
            && error.error_len().is_none()
        {
            *half = bytes.split_off(error.valid_up_to());
        }
        write_output(text, stream, &bytes);
    }

    fn end(&mut self, text: &mut Vec<u8>) {
        write_output(text, OutputStream::Stdout, &std::mem::take(&mut self.stdout));
        write_output(text, OutputStream::Stderr, &std::mem::take(&mut self.stderr));
    }
}

fn write_output(text: &mut Vec<u8>, stream: OutputStream, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    frames::write(text, Some("output"), None, &output_value(stream, bytes));
}

pub(super) fn output_value(stream: OutputStream, bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(said) => json!({ "stream": stream, "text": said }),
        Err(_) => json!({ "stream": stream, "base64": STANDARD.encode(bytes) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_joins_split_character() {
        let (mut halves, mut text) = (Halves::default(), Vec::new());
        halves.write(&mut text, OutputStream::Stdout, &Bytes::from_static(b"a\xc3"));
        halves.write(&mut text, OutputStream::Stderr, &Bytes::from_static(b"!"));
        halves.write(&mut text, OutputStream::Stdout, &Bytes::from_static(b"\xa9\xe2\x82"));
        halves.write(&mut text, OutputStream::Stderr, &Bytes::from_static(b"\xff"));
        halves.end(&mut text);
        let text = String::from_utf8(text).unwrap();
        let shown: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
        assert_eq!(
            shown,
            [
                r#"{"stream":"stdout","text":"a"}"#,
                r#"{"stream":"stderr","text":"!"}"#,
                r#"{"stream":"stdout","text":"é"}"#,
                r#"{"stream":"stderr","base64":"/w=="}"#,
                r#"{"stream":"stdout","base64":"4oI="}"#,
            ]
        );
    }
}
