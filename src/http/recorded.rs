//! The stored output of a call's command, which is more than its result shows.

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use schemars::{JsonSchema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::files::attachment;
use super::problem::{HttpProblem, ProblemKind};
use super::request::RequestHead;
use super::screen::{EmulatedScreen, FRAME, ScreenFrame};
use super::verb::{HttpVerb, Media};
use super::{HttpFace, blocking};
use crate::backends::{OutputStream, WindowSize};
use crate::engine::event::{CommandResult, EvalResult, TerminalRecorded};
use crate::engine::id::{Digest, Seq};
use crate::engine::recorded::Recorded;
use crate::engine::session::Session;
use crate::hub::operations::OperationRoute;
use crate::view;

/// Bytes of frames, as JSON, that end a page.
const PAGE: usize = 2 << 20;
/// The most resizes that a recording may have: each may cost as much as the whole screen.
const RESIZES: usize = 1000;
/// Bytes to feed between two checks of the clock.
const FED: usize = 16 << 10;
/// Time limit to build a page of frames: a hostile recording could take much longer.
const PLAYING: Duration = Duration::from_secs(20);

/// Returns a command's stored output as bytes; of long output, the beginning and the end. A result shows less.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadRecorded {
    /// The position of the call's intent.
    call: Seq,
    /// The stream: `stdout`, `stderr`, or `terminal`, the recording as asciicast version 2.
    #[schemars(with = "String", extend("enum" = ["stdout", "stderr", "terminal"]))]
    stream: RecordedStream,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RecordedStream {
    Stdout,
    Stderr,
    Terminal,
}

impl HttpVerb for ReadRecorded {
    const NAME: &'static str = "read_recorded";
    const ROUTE: OperationRoute =
        OperationRoute::at("GET", "calls", "/v1/sessions/{session}/calls/{call}/recorded/{stream}", 200);
    const GIVES: Media = &[("application/octet-stream", None)];

    async fn answer(self, face: HttpFace, head: RequestHead) -> Result<Response, HttpProblem> {
        let session = face.session(&head.session).await?;
        let answer = blocking(move || {
            let events = events_of(&session, self.call)?;
            let digest = match self.stream {
                RecordedStream::Terminal => terminal_of(&events).map(|recorded| recorded.cast),
                stream => events.iter().find_map(|event| output_of(event, stream)),
            };
            let nothing = || HttpProblem::new(ProblemKind::NotFound, "the call has no such output");
            let digest = digest.ok_or_else(nothing)?;
            Ok(attachment(session.content(&digest)?, &digest))
        });
        answer.await?
    }
}

/// Returns the stored output of a call's command; empty for a call without a command.
pub(super) fn outputs(session: &Session, call: Seq) -> Result<Vec<(OutputStream, Bytes)>, HttpProblem> {
    let events = events_of(session, call)?;
    let streams = [(OutputStream::Stdout, RecordedStream::Stdout), (OutputStream::Stderr, RecordedStream::Stderr)];
    let stored = streams.into_iter().filter_map(|(shown, stream)| {
        let digest = events.iter().find_map(|event| output_of(event, stream))?;
        Some(session.content(&digest).map(|bytes| (shown, bytes)))
    });
    Ok(stored.collect::<Result<_, _>>()?)
}

fn events_of(session: &Session, call: Seq) -> Result<Vec<Recorded>, HttpProblem> {
    let unknown = || HttpProblem::new(ProblemKind::NotFound, format!("no call began at position {call}"));
    Ok(view::call_at(session, call)?.ok_or_else(unknown)?.1)
}

fn output_of(event: &Recorded, stream: RecordedStream) -> Option<Digest> {
    let command = event.typed::<CommandResult>().and_then(Result::ok).map(|of| (of.event.stdout, of.event.stderr));
    let code = || event.typed::<EvalResult>().and_then(Result::ok).map(|of| (of.event.stdout, of.event.stderr));
    let (stdout, stderr) = command.or_else(code)?;
    Some(if matches!(stream, RecordedStream::Stderr) { stderr.content } else { stdout.content })
}

fn terminal_of(events: &[Recorded]) -> Option<TerminalRecorded> {
    events.iter().find_map(|event| Some(event.typed::<TerminalRecorded>()?.ok()?.event))
}

/// Returns a command's terminal recording as frames of the screen, at most 30 a second: each has the lines that
/// changed. A page ends after about 2 MiB; `next` is the `from` of the next page.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TerminalFrames {
    /// The position of the call's intent.
    call: Seq,
    /// The number of the first frame; 0 by default.
    from: Option<usize>,
}

/// Frames of a terminal's recording.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub(super) struct RecordedFrames {
    /// The frames. Frame 0 has the size and every line that is not blank.
    frames: Vec<ScreenFrame>,
    /// The number of the next frame; null at the end.
    next: Option<usize>,
    /// True if the recording was cut short.
    truncated: bool,
}

impl HttpVerb for TerminalFrames {
    const NAME: &'static str = "terminal_frames";
    const ROUTE: OperationRoute = OperationRoute::at("GET", "calls", "/v1/sessions/{session}/calls/{call}/frames", 200);
    const GIVES: Media = &[("application/json", Some(SchemaGenerator::subschema_for::<RecordedFrames>))];

    async fn answer(self, face: HttpFace, head: RequestHead) -> Result<Response, HttpProblem> {
        let session = face.session(&head.session).await?;
        let from = self.from.unwrap_or_default();
        let answer = blocking(move || {
            let nothing = || HttpProblem::new(ProblemKind::NotFound, "the call's command had no terminal");
            let recorded = terminal_of(&events_of(&session, self.call)?).ok_or_else(nothing)?;
            let window = WindowSize { rows: recorded.rows, columns: recorded.columns };
            let mut frames = FramePage::begin(window, from).read(&session.content(&recorded.cast)?)?;
            frames.truncated = recorded.truncated;
            Ok::<_, HttpProblem>(frames)
        });
        Ok(axum::Json(answer.await??).into_response())
    }
}

/// A line of an asciicast: the seconds since its beginning, its kind, and its text.
type CastPart = (f64, String, String);

struct FramePage {
    screen: EmulatedScreen,
    from: usize,
    /// Frames so far, including frames before the page.
    count: usize,
    bytes: usize,
    resizes: usize,
    end: Instant,
    page: RecordedFrames,
}

impl FramePage {
    fn begin(window: WindowSize, from: usize) -> Self {
        let (screen, end) = (EmulatedScreen::new(window), Instant::now() + PLAYING);
        Self { screen, from, count: 0, bytes: 0, resizes: 0, end, page: RecordedFrames::default() }
    }

    fn read(mut self, cast: &Bytes) -> Result<RecordedFrames, HttpProblem> {
        // The span of the open frame: output within `FRAME` is shown as one frame.
        let (mut open, mut latest): (Option<(u64, u64)>, u64) = (None, 0);
        for line in cast.split(|byte| *byte == b'\n').skip(1).filter(|line| !line.is_empty()) {
            let broken = |error| HttpProblem::new(ProblemKind::Broken, format!("the recording is damaged: {error}"));
            let (seconds, kind, text): CastPart = serde_json::from_slice(line).map_err(broken)?;
            // A recording by another program may go back in time.
            latest = latest.max((seconds * 1e6) as u64);
            let micros = latest;
            if let Some((first, last)) = open
                && micros.saturating_sub(first) >= FRAME.as_micros() as u64
            {
                open = None;
                if self.is_full_after(last) {
                    return Ok(self.page);
                }
            }
            let first = open.map_or(micros, |(first, _)| first);
            open = Some((first, micros));
            self.take(&kind, &text)?;
        }
        if let Some((_, last)) = open {
            self.is_full_after(last);
        }
        Ok(RecordedFrames { next: None, ..self.page })
    }

    fn take(&mut self, kind: &str, text: &str) -> Result<(), HttpProblem> {
        if kind == "r" && self.resizes < RESIZES {
            self.resizes += 1;
            let size =
                text.split_once('x').and_then(|(columns, rows)| Some((columns.parse().ok()?, rows.parse().ok()?)));
            if let Some((columns, rows)) = size {
                self.screen.resize(WindowSize { rows, columns });
            }
        }
        for part in text.as_bytes().chunks(FED).filter(|_| kind == "o") {
            self.screen.feed(part);
            if Instant::now() > self.end {
                let problem = HttpProblem::new(ProblemKind::Refused, "the recording takes too long to render");
                return Err(problem.with_hint("get its bytes from `recorded/terminal`, for an asciicast player"));
            }
        }
        Ok(())
    }

    /// Adds a frame, and returns true if the page is full.
    fn is_full_after(&mut self, micros: u64) -> bool {
        let Some(frame) = self.screen.frame(micros) else { return false };
        self.count += 1;
        if self.count > self.from {
            self.bytes += serde_json::to_vec(&frame).map_or(0, |json| json.len());
            self.page.frames.push(frame);
            self.page.next = Some(self.count);
        }
        self.bytes >= PAGE
    }
}
