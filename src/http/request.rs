//! Reading the head and the body of a request.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::HeaderMap;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::request::Parts;
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Body as _;
use hyper::upgrade::OnUpgrade;
use serde_json::{Map, Value};
use tokio::sync::Semaphore;

use super::HttpOptions;
use super::problem::{HttpProblem, ProblemKind};
use crate::backends::HostCaller;
use crate::tools::TraceContext;

/// The most bytes of an oversized body to read and discard: a client that is still writing would miss the answer.
const PASSED_OVER: usize = 128 << 20;
/// Time that a client with an oversized body may send nothing before it is answered.
const PAUSE: Duration = Duration::from_millis(500);

pub(super) struct RequestHead {
    /// The session in the path; empty if the path names none.
    pub(super) session: String,
    pub(super) headers: HeaderMap,
    /// The client's process, if the kernel names it.
    pub(super) caller: Option<HostCaller>,
    /// The connection, if the client may upgrade it to another protocol.
    pub(super) upgrade: Option<OnUpgrade>,
    /// The options of the listener.
    pub(super) options: Arc<HttpOptions>,
    /// The body; empty if it was parsed as JSON.
    pub(super) body: Body,
}

/// The most bytes of an upload: a file or an archive.
pub(super) const UPLOAD_MAX: usize = 1 << 30;
/// Uploads larger than this are collected one at a time: they are held in memory.
const UPLOAD_LARGE: usize = 64 << 20;
/// Time that an uploading client may send nothing.
const UPLOAD_PAUSE: Duration = Duration::from_secs(30);

pub(super) async fn upload(body: Body) -> Result<Bytes, HttpProblem> {
    static LARGE: Semaphore = Semaphore::const_new(1);
    let too_large = || HttpProblem::new(ProblemKind::TooLarge, format!("the upload has more than {UPLOAD_MAX} bytes"));
    let announced = body.size_hint().lower();
    if announced > UPLOAD_MAX as u64 {
        return Err(too_large());
    }
    let (mut body, mut bytes, mut turn) = (body, Vec::new(), None);
    loop {
        if turn.is_none() && (bytes.len() > UPLOAD_LARGE || announced > UPLOAD_LARGE as u64) {
            turn = Some(LARGE.acquire().await);
        }
        let Ok(frame) = tokio::time::timeout(UPLOAD_PAUSE, body.frame()).await else {
            let detail = format!("the upload stalled: no data for {} s", UPLOAD_PAUSE.as_secs());
            return Err(HttpProblem::new(ProblemKind::TooSlow, detail));
        };
        let Some(frame) = frame else { return Ok(bytes.into()) };
        let frame = frame.map_err(|error| unread(&error))?;
        bytes.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
        if bytes.len() > UPLOAD_MAX {
            return Err(too_large());
        }
    }
}

fn unread(error: &dyn std::fmt::Display) -> HttpProblem {
    HttpProblem::new(ProblemKind::BadRequest, format!("failed to read the body: {error}"))
}

impl RequestHead {
    pub(super) fn trace(&self) -> Option<TraceContext> {
        let mut parents = self.headers.get_all("traceparent").iter();
        let parent = parents.next().filter(|_| parents.next().is_none())?;
        let states: Vec<_> =
            self.headers.get_all("tracestate").iter().filter_map(|value| value.to_str().ok()).collect();
        TraceContext::read(parent.to_str().ok()?, Some(&states.join(",")))
    }

    /// Returns the `Last-Event-ID` of a client that reconnects.
    pub(super) fn last_seen(&self) -> Result<Option<u64>, HttpProblem> {
        let seen = self.headers.get("last-event-id").map(|value| value.to_str().unwrap_or_default().trim());
        let seen = seen.filter(|seen| !seen.is_empty()).map(str::parse).transpose();
        seen.map_err(|_| HttpProblem::new(ProblemKind::BadRequest, "Last-Event-ID must be a position"))
    }

    /// Returns true if the client prefers a media type to all others.
    pub(super) fn accepts(&self, wanted: &str) -> bool {
        let accepted = self.headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let first = accepted.flat_map(|value| value.split(',')).next();
        first.is_some_and(|first| first.split(';').next().unwrap_or("").trim().eq_ignore_ascii_case(wanted))
    }
}

pub(super) async fn json(parts: &Parts, body: Body) -> Result<Map<String, Value>, HttpProblem> {
    if !is_json(&parts.headers) {
        let detail = "send the body with `Content-Type: application/json`";
        return Err(HttpProblem::new(ProblemKind::MediaType, detail));
    }
    let options = parts.extensions.get::<Arc<HttpOptions>>().cloned().unwrap_or_default();
    let Ok(arrived) = tokio::time::timeout(options.body_time, arrived(body, options.body_bytes)).await else {
        let detail = format!("the body took more than {} s", options.body_time.as_secs_f32());
        return Err(HttpProblem::new(ProblemKind::TooSlow, detail));
    };
    let no_object = |error| HttpProblem::new(ProblemKind::BadRequest, format!("body is not a JSON object: {error}"));
    serde_json::from_slice(&arrived?).map_err(no_object)
}

async fn arrived(mut body: Body, most: usize) -> Result<Bytes, HttpProblem> {
    if body.size_hint().lower() <= most as u64 {
        match Limited::new(&mut body, most).collect().await {
            Ok(collected) => return Ok(collected.to_bytes()),
            Err(error) if error.is::<LengthLimitError>() => {}
            Err(error) => {
                return Err(unread(&error));
            }
        }
    }
    let mut left = PASSED_OVER;
    while let Ok(Some(Ok(frame))) = tokio::time::timeout(PAUSE, body.frame()).await
        && left > 0
    {
        left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
    }
    Err(HttpProblem::new(ProblemKind::TooLarge, format!("the body has more than {most} bytes")))
}

fn is_json(headers: &HeaderMap) -> bool {
    let media = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media = media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    media == "application/json" || (media.starts_with("application/") && media.ends_with("+json"))
}
