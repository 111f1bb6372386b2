//! The head and the body of a request, or the problem with them.

use std::time::Duration;

use axum::body::Body;
use axum::http::HeaderMap;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::request::Parts;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Body as _;
use serde_json::{Map, Value};

use super::problem::{HttpProblem, ProblemKind};
use crate::tools::TraceContext;

#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival {
    pub(super) bytes: usize,
    pub(super) time: Duration,
}

impl Default for Arrival {
    fn default() -> Self {
        let super::HttpOptions { body_bytes: bytes, body_time: time, .. } = super::HttpOptions::default();
        Self { bytes, time }
    }
}

/// Bytes of a body that is too large which are read all the same: a client that still writes would not hear the answer.
const PASSED_OVER: usize = 64 << 20;
/// Time that such a client may send nothing before it is answered.
const PAUSE: Duration = Duration::from_millis(500);

pub(super) struct RequestHead {
    /// The session in the path; empty if there is none.
    pub(super) session: String,
    pub(super) headers: HeaderMap,
}

impl RequestHead {
    pub(super) fn trace(&self) -> Option<TraceContext> {
        let mut parents = self.headers.get_all("traceparent").iter();
        let parent = parents.next().filter(|_| parents.next().is_none())?;
        let states: Vec<_> =
            self.headers.get_all("tracestate").iter().filter_map(|value| value.to_str().ok()).collect();
        TraceContext::read(parent.to_str().ok()?, Some(&states.join(",")))
    }

    /// Tells whether the client prefers a media type to all others.
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
    let Arrival { bytes, time } = parts.extensions.get().copied().unwrap_or_default();
    let Ok(arrived) = tokio::time::timeout(time, arrived(body, bytes)).await else {
        let detail = format!("the body took more than {} s", time.as_secs_f32());
        return Err(HttpProblem::new(ProblemKind::TooSlow, detail));
    };
    let unread = |error| HttpProblem::new(ProblemKind::BadRequest, format!("the body is no JSON object: {error}"));
    serde_json::from_slice(&arrived?).map_err(unread)
}

async fn arrived(mut body: Body, most: usize) -> Result<Bytes, HttpProblem> {
    let mut read = BytesMut::new();
    let mut is_too_large = body.size_hint().lower() > most as u64;
    while !is_too_large && let Some(frame) = body.frame().await {
        let frame = frame
            .map_err(|error| HttpProblem::new(ProblemKind::BadRequest, format!("the body can't be read: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        is_too_large = read.len() + data.len() > most;
        if !is_too_large {
            read.extend_from_slice(&data);
        }
    }
    if !is_too_large {
        return Ok(read.freeze());
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
