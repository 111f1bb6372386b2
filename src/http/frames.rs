//! Sending server-sent events to a client that may be slow.

use std::io::Write;
use std::time::Duration;

use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::Serialize;
use tokio::sync::mpsc;

/// The media type of a stream of events.
pub(super) const EVENTS: &str = "text/event-stream";
/// The most pieces that wait for a client.
const WAITING: usize = 8;
/// The most bytes of a piece, unless a single event has more.
pub(super) const PIECE: usize = 64 << 10;
/// Interval of keep-alive comments while nothing else is sent.
pub(super) const ALIVE: Duration = Duration::from_secs(15);
/// Time that a TCP client may take to make room.
pub(super) const CLIENT_STALL_LIMIT: Duration = Duration::from_secs(30);

type FramePiece = Result<Bytes, std::convert::Infallible>;

pub(super) struct EventFrames {
    pieces: mpsc::Sender<FramePiece>,
    /// Time that the client may take to make room; `None` for a client on the unix socket.
    patience: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gone;

/// Opens a stream to a client; `is_local` if it is on the unix socket.
pub(super) fn open(is_local: bool) -> (EventFrames, Response) {
    open_as(EVENTS, is_local)
}

/// Opens a stream of another media type.
pub(super) fn open_as(media: &'static str, is_local: bool) -> (EventFrames, Response) {
    let (sender, mut receiver) = mpsc::channel(WAITING);
    let body = Body::from_stream(futures_util::stream::poll_fn(move |context| receiver.poll_recv(context)));
    let headers = [
        (header::CONTENT_TYPE, media),
        (header::CACHE_CONTROL, "no-store"),
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    let patience = (!is_local).then_some(CLIENT_STALL_LIMIT);
    (EventFrames { pieces: sender, patience }, (headers, body).into_response())
}

impl EventFrames {
    pub(super) async fn send(&self, piece: impl Into<Bytes>) -> Result<(), Gone> {
        match self.patience {
            Some(patience) => self.send_within(patience, piece).await,
            None => self.pieces.send(Ok(piece.into())).await.map_err(|_| Gone),
        }
    }

    /// Sends a piece; fails if the client makes no room for it in time.
    pub(super) async fn send_within(&self, patience: Duration, piece: impl Into<Bytes>) -> Result<(), Gone> {
        let sent = tokio::time::timeout(patience, self.pieces.send(Ok(piece.into()))).await;
        sent.ok().and_then(Result::ok).ok_or(Gone)
    }

    pub(super) async fn event(&self, name: &str, value: &impl Serialize) -> Result<(), Gone> {
        let mut text = Vec::new();
        write(&mut text, Some(name), None, value);
        self.send(text).await
    }

    pub(super) async fn gone(&self) {
        self.pieces.closed().await;
    }
}

/// Writes an event. Compact JSON contains no line breaks, which would end it.
pub(super) fn write(text: &mut Vec<u8>, name: Option<&str>, id: Option<u64>, value: &impl Serialize) {
    if let Some(id) = id {
        // Writing to memory does not fail.
        let _ = writeln!(text, "id: {id}");
    }
    if let Some(name) = name {
        let _ = writeln!(text, "event: {name}");
    }
    text.extend_from_slice(b"data: ");
    let before = text.len();
    if serde_json::to_writer(&mut *text, value).is_err() {
        text.truncate(before);
        text.extend_from_slice(b"null");
    }
    text.extend_from_slice(b"\n\n");
}

/// A keep-alive comment.
pub(super) const STILL_HERE: &[u8] = b": still here\n\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sse_event_is_three_lines() {
        let mut text = Vec::new();
        write(&mut text, Some("output"), Some(7), &serde_json::json!({ "text": "a\nb\r\u{2028}" }));
        assert_eq!(String::from_utf8(text).unwrap(), "id: 7\nevent: output\ndata: {\"text\":\"a\\nb\\r\u{2028}\"}\n\n");
    }

    #[tokio::test]
    async fn sse_reader_that_reads_nothing_is_dropped() {
        let (frames, response) = open(false);
        for _ in 0..WAITING {
            frames.send("x").await.unwrap();
        }
        assert!(frames.send_within(Duration::from_millis(1), "x").await.is_err());
        drop(response);
        frames.gone().await;
        assert_eq!(frames.send("x").await, Err(Gone));
    }
}
