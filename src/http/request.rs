//! The head and the body of a request, or the problem with them.

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

/// Bytes of a body that is too large which are read all the same: a client that still writes would not hear the answer.
const PASSED_OVER: usize = 64 << 20;
/// Time that such a client may send nothing before it is answered.
const PAUSE: Duration = Duration::from_millis(500);

pub(super) struct RequestHead {
    /// The session in the path; empty if there is none.
    pub(super) session: String,
    pub(super) headers: HeaderMap,
    /// The client's process, where the kernel names it.
    pub(super) caller: Option<HostCaller>,
    /// The connection, of a client that may ask for another protocol on it.
    pub(super) upgrade: Option<OnUpgrade>,
    /// The options of the way in.
    pub(super) options: Arc<HttpOptions>,
    /// The body, where the route reads none as JSON.
    pub(super) body: Body,
}

/// Bytes of a file, or an archive, that a client sends.
const UPLOAD_MAX: usize = 1 << 30;
/// Uploads larger than this come one after another: they are in memory.
const UPLOAD_LARGE: usize = 64 << 20;
/// Time that a client which uploads may send nothing.
const UPLOAD_PAUSE: Duration = Duration::from_secs(30);

/// Collects an upload.
pub(super) async fn upload(body: Body) -> Result<Bytes, HttpProblem> {
    static LARGE: Semaphore = Semaphore::const_new(1);
    let too_large = || HttpProblem::new(ProblemKind::TooLarge, format!("an upload has at most {UPLOAD_MAX} bytes"));
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
            let detail = format!("nothing more of the upload came for {} s", UPLOAD_PAUSE.as_secs());
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
    HttpProblem::new(ProblemKind::BadRequest, format!("the body can't be read: {error}"))
}

impl RequestHead {
    pub(super) fn trace(&self) -> Option<TraceContext> {
        let mut parents = self.headers.get_all("traceparent").iter();
        let parent = parents.next().filter(|_| parents.next().is_none())?;
        let states: Vec<_> =
            self.headers.get_all("tracestate").iter().filter_map(|value| value.to_str().ok()).collect();
        TraceContext::read(parent.to_str().ok()?, Some(&states.join(",")))
    }

    /// Returns the `Last-Event-ID` of a client that comes again.
    pub(super) fn last_seen(&self) -> Result<Option<u64>, HttpProblem> {
        let seen = self.headers.get("last-event-id").map(|value| value.to_str().unwrap_or_default().trim());
        let seen = seen.filter(|seen| !seen.is_empty()).map(str::parse).transpose();
        seen.map_err(|_| HttpProblem::new(ProblemKind::BadRequest, "Last-Event-ID must be a position"))
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
    let options = parts.extensions.get::<Arc<HttpOptions>>().cloned().unwrap_or_default();
    let Ok(arrived) = tokio::time::timeout(options.body_time, arrived(body, options.body_bytes)).await else {
        let detail = format!("the body took more than {} s", options.body_time.as_secs_f32());
        return Err(HttpProblem::new(ProblemKind::TooSlow, detail));
    };
    let no_object = |error| HttpProblem::new(ProblemKind::BadRequest, format!("the body is no JSON object: {error}"));
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
