//! The Connect protocol with its JSON codec: bodies, envelopes, and errors in both of E2B's forms.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::{Buf, Bytes, BytesMut};
use http_body_util::{BodyExt, Limited};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::engine::error::Diagnostic;
use crate::http::problem::HttpProblem;

pub(super) const STREAM: &str = "application/connect+json";
const UNARY: &str = "application/json";
/// The most bytes of a message. Base64 makes 4 MiB of input longer.
const MESSAGE_MAX: usize = 8 << 20;
/// Time limit for a client to send a message.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(30);
/// The header of an envelope: flags, and the length of the message.
const ENVELOPE: usize = 5;
const END: u8 = 2;
/// Header with the time limit of a call in milliseconds.
const TIMEOUT: &str = "connect-timeout-ms";
/// Header with the interval of keep-alive messages in seconds.
const KEEPALIVE: &str = "keepalive-ping-interval";

/// A problem with a request.
#[derive(Debug, Clone)]
pub(super) struct Wrong {
    pub(super) status: StatusCode,
    pub(super) message: String,
}

impl Wrong {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    pub(super) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }

    /// Returns the problem of a feature that this API does not have.
    pub(super) fn missing(what: impl std::fmt::Display) -> Self {
        Self::new(StatusCode::NOT_IMPLEMENTED, format!("foldspace has no {what}; docs/e2b.md lists what it supports"))
    }

    /// Returns the problem of a call that exceeded its time limit.
    pub(super) fn late() -> Self {
        Self::new(StatusCode::GATEWAY_TIMEOUT, "the call took longer than its limit")
    }

    fn code(&self) -> &'static str {
        match self.status.as_u16() {
            400 | 415 | 422 | 431 => "invalid_argument",
            401 => "unauthenticated",
            403 => "permission_denied",
            404 => "not_found",
            405 | 501 => "unimplemented",
            408 | 504 => "deadline_exceeded",
            409 => "already_exists",
            413 | 429 | 507 => "resource_exhausted",
            424 => "failed_precondition",
            502 | 503 => "unavailable",
            _ => "internal",
        }
    }

    fn of_rpc(&self) -> Value {
        json!({ "code": self.code(), "message": self.message })
    }

    /// Answers in the form of the path's part of the API.
    pub(super) fn answer(&self, path: &str) -> Response {
        let body = match is_rpc(path) {
            true => self.of_rpc(),
            false => json!({ "code": self.status.as_u16(), "message": self.message }),
        };
        (self.status, axum::Json(body)).into_response()
    }

    /// Answers a streaming call.
    pub(super) fn streamed(&self) -> Response {
        ([(header::CONTENT_TYPE, STREAM)], self.end_of_stream()).into_response()
    }

    pub(super) fn end_of_stream(&self) -> Bytes {
        envelope(END, &json!({ "error": self.of_rpc() }))
    }
}

impl IntoResponse for Wrong {
    fn into_response(self) -> Response {
        self.answer("")
    }
}

impl From<HttpProblem> for Wrong {
    fn from(problem: HttpProblem) -> Self {
        let status = match problem.status {
            // The SDKs don't know 422.
            422 => StatusCode::BAD_REQUEST,
            status => StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
        };
        Self::new(status, problem.detail)
    }
}

impl<E: Diagnostic> From<E> for Wrong {
    fn from(error: E) -> Self {
        HttpProblem::from(error).into()
    }
}

pub(super) fn is_rpc(path: &str) -> bool {
    path.starts_with("/process.Process/") || path.starts_with("/filesystem.Filesystem/")
}

fn envelope(flags: u8, message: &Value) -> Bytes {
    let text = message.to_string();
    // The server's messages are far below 4 GiB.
    let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
    [&[flags][..], &length.to_be_bytes(), text.as_bytes()].concat().into()
}

pub(super) fn message(message: &Value) -> Bytes {
    envelope(0, message)
}

pub(super) fn end_of_stream() -> Bytes {
    envelope(END, &json!({}))
}

/// Returns a header's value, if it is a positive number.
fn number(headers: &HeaderMap, name: &str) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.trim().parse().ok().filter(|number| *number > 0)
}

/// Returns the time limit of a call.
pub(super) fn time_limit(headers: &HeaderMap) -> Option<Duration> {
    number(headers, TIMEOUT).map(Duration::from_millis)
}

/// Waits for the time limit of a call to pass, counted from now.
pub(super) fn over_limit(headers: &HeaderMap) -> impl Future<Output = ()> + use<> {
    let until = time_limit(headers).map(|limit| Instant::now() + limit);
    async move {
        match until {
            Some(until) => tokio::time::sleep_until(until).await,
            None => std::future::pending().await,
        }
    }
}

/// Returns the interval of keep-alive messages.
pub(super) fn keepalive(headers: &HeaderMap, usual: Duration) -> Duration {
    number(headers, KEEPALIVE).map_or(usual, |seconds| Duration::from_secs(seconds.min(3600)))
}

fn check_media(headers: &HeaderMap, wanted: &str, encoding: &str) -> Result<(), Wrong> {
    let said = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media = said(header::CONTENT_TYPE.as_str()).split(';').next().unwrap_or_default().trim();
    if !media.eq_ignore_ascii_case(wanted) {
        return Err(Wrong::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, format!("send it as {wanted}")));
    }
    match said(encoding) {
        "" | "identity" => Ok(()),
        _ => Err(Wrong::missing("compression of messages")),
    }
}

/// Reads the message of a call with one answer.
pub(super) async fn unary<T: DeserializeOwned>(headers: &HeaderMap, body: Body) -> Result<T, Wrong> {
    check_media(headers, UNARY, header::CONTENT_ENCODING.as_str())?;
    parsed(&collected(body).await?)
}

/// Collects a body that has to be small.
pub(super) async fn collected(body: Body) -> Result<Bytes, Wrong> {
    let arrived = tokio::time::timeout(MESSAGE_TIMEOUT, Limited::new(body, MESSAGE_MAX).collect()).await;
    let arrived = arrived.map_err(|_| Wrong::new(StatusCode::REQUEST_TIMEOUT, "the message did not arrive in time"))?;
    let unread = |error| Wrong::invalid(format!("failed to read the message: {error}"));
    Ok(arrived.map_err(unread)?.to_bytes())
}

pub(super) fn parsed<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Wrong> {
    let bytes = if bytes.is_empty() { b"{}" } else { bytes };
    serde_json::from_slice(bytes).map_err(|error| Wrong::invalid(format!("invalid message: {error}")))
}

pub(super) fn answered(message: impl Serialize) -> Result<Response, Wrong> {
    Ok(axum::Json(message).into_response())
}

/// Reads the single message of a call with a streamed answer.
pub(super) async fn streamed<T: DeserializeOwned>(headers: &HeaderMap, body: Body) -> Result<T, Wrong> {
    let mut messages = Messages::of(headers, body)?;
    let first = messages.next(MESSAGE_TIMEOUT).await?;
    parsed(&first.ok_or_else(|| Wrong::invalid("the message is missing"))?)
}

/// A stream of a client's messages.
pub(super) struct Messages {
    body: Body,
    bytes: BytesMut,
}

impl Messages {
    pub(super) fn of(headers: &HeaderMap, body: Body) -> Result<Self, Wrong> {
        check_media(headers, STREAM, "connect-content-encoding")?;
        Ok(Self { body, bytes: BytesMut::new() })
    }

    /// Waits for the next message; `None` at the end.
    pub(super) async fn next(&mut self, patience: Duration) -> Result<Option<Bytes>, Wrong> {
        loop {
            if let Some(message) = self.at_hand()? {
                return Ok(Some(message));
            }
            let late = |_| Wrong::new(StatusCode::REQUEST_TIMEOUT, "the message did not arrive in time");
            match tokio::time::timeout(patience, self.body.frame()).await.map_err(late)? {
                None if self.bytes.is_empty() => return Ok(None),
                None => return Err(Wrong::invalid("the stream ends within a message")),
                Some(Err(error)) => return Err(Wrong::invalid(format!("failed to read the stream: {error}"))),
                Some(Ok(frame)) => self.bytes.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data)),
            }
        }
    }

    fn at_hand(&mut self) -> Result<Option<Bytes>, Wrong> {
        let Some(&[flags, a, b, c, d]) = self.bytes.first_chunk::<ENVELOPE>() else { return Ok(None) };
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        if flags != 0 {
            return Err(Wrong::invalid(format!("an envelope has the flags {flags}; only 0 is allowed here")));
        }
        if length > MESSAGE_MAX {
            return Err(Wrong::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                format!("a message has more than {MESSAGE_MAX} bytes"),
            ));
        }
        if self.bytes.len() < ENVELOPE + length {
            return Ok(None);
        }
        self.bytes.advance(ENVELOPE);
        Ok(Some(self.bytes.split_to(length).freeze()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers() -> HeaderMap {
        [(header::CONTENT_TYPE, header::HeaderValue::from_static(STREAM))].into_iter().collect()
    }

    #[tokio::test]
    async fn envelopes_cut_anywhere_are_the_same_messages() {
        let sent = [message(&json!({ "a": 1 })), message(&json!({})), message(&json!("x"))].concat();
        for size in 1..=sent.len() {
            let pieces: Vec<_> =
                sent.chunks(size).map(|piece| Ok::<_, std::io::Error>(Bytes::copy_from_slice(piece))).collect();
            let body = Body::from_stream(futures_util::stream::iter(pieces));
            let mut messages = Messages::of(&headers(), body).unwrap();
            let mut read = Vec::new();
            while let Some(message) = messages.next(MESSAGE_TIMEOUT).await.unwrap() {
                read.push(message);
            }
            assert_eq!(read, [&b"{\"a\":1}"[..], b"{}", b"\"x\""], "{size}");
        }
    }

    #[tokio::test]
    async fn envelopes_that_are_wrong_are_refused() {
        for (sent, status) in [
            (&b"\x00\x00"[..], 400),
            (b"\x00\x00\x00\x00\x05{}", 400),
            (b"\x01\x00\x00\x00\x02{}", 400),
            (b"\x02\x00\x00\x00\x02{}", 400),
            (b"\x00\xff\xff\xff\xff{}", 413),
            (b"", 400),
            (b"\x00\x00\x00\x00\x02[]", 400),
        ] {
            let read = streamed::<BTreeMapOfTexts>(&headers(), Body::from(sent)).await;
            assert_eq!(read.unwrap_err().status.as_u16(), status, "{sent:?}");
        }
    }

    type BTreeMapOfTexts = std::collections::BTreeMap<String, String>;
}
