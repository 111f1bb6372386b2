//! The parts of a request, or the problem with them.

use std::time::Duration;

use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::HeaderMap;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::request::Parts;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Body as _;
use serde::de::DeserializeOwned;

use super::problem::{HttpProblem, ProblemKind};
use crate::tools::TraceContext;

/// Bounds of a body.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival {
    pub(super) bytes: usize,
    /// Time that it may take to arrive.
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

/// The body, as JSON.
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = HttpProblem;

    async fn from_request(request: Request, _state: &S) -> Result<Self, HttpProblem> {
        if !is_json(request.headers()) {
            return Err(HttpProblem::new(
                ProblemKind::MediaType,
                "send the body with `Content-Type: application/json`",
            ));
        }
        let Arrival { bytes, time } = request.extensions().get().copied().unwrap_or_default();
        let Ok(arrived) = tokio::time::timeout(time, arrived(request.into_body(), bytes)).await else {
            return Err(HttpProblem::new(
                ProblemKind::TooSlow,
                format!("the body took more than {} s", time.as_secs_f32()),
            ));
        };
        let bytes = arrived?;
        // A list would be taken for the fields in their order.
        if bytes.trim_ascii_start().first().is_some_and(|byte| *byte != b'{') {
            return Err(HttpProblem::new(ProblemKind::BadRequest, "the body must be a JSON object"));
        }
        Ok(Self(axum::Json::from_bytes(&bytes)?.0))
    }
}

/// Reads a body that may be missing.
pub(super) async fn optional_body<T: DeserializeOwned + Default>(request: Request) -> Result<T, HttpProblem> {
    match request.body().size_hint().exact() {
        Some(0) => Ok(T::default()),
        _ => Ok(Body::from_request(request, &()).await?.0),
    }
}

async fn arrived(mut body: axum::body::Body, most: usize) -> Result<Bytes, HttpProblem> {
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

/// The query.
pub(super) struct StrictQuery<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for StrictQuery<T> {
    type Rejection = HttpProblem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, HttpProblem> {
        Ok(Self(axum::extract::Query::from_request_parts(parts, state).await?.0))
    }
}

/// The variable parts of the path.
pub(super) struct Path<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = HttpProblem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, HttpProblem> {
        Ok(Self(axum::extract::Path::from_request_parts(parts, state).await?.0))
    }
}

/// The trace that the request belongs to.
pub(super) fn trace_of(headers: &HeaderMap) -> Option<TraceContext> {
    let mut parents = headers.get_all("traceparent").iter();
    let parent = parents.next().filter(|_| parents.next().is_none())?;
    let states: Vec<_> = headers.get_all("tracestate").iter().filter_map(|value| value.to_str().ok()).collect();
    TraceContext::read(parent.to_str().ok()?, Some(&states.join(",")))
}

/// Tells whether the client asks for a media type before all others.
pub(super) fn accepts(headers: &HeaderMap, wanted: &str) -> bool {
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let first = accepted.flat_map(|value| value.split(',')).next();
    first.is_some_and(|first| first.split(';').next().unwrap_or("").trim().eq_ignore_ascii_case(wanted))
}
