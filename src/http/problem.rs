//! Problems as RFC 9457 has them.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::engine::error::ErrorKind;
use crate::engine::store::LeaseHolder;

/// The media type of a [`HttpProblem`].
pub(super) const MEDIA_TYPE: &str = "application/problem+json";

/// A problem with a request (RFC 9457).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[schemars(rename = "Problem")]
#[error("{detail}")]
pub struct HttpProblem {
    /// `urn:foldspace:problem:` and the kind.
    #[serde(rename = "type")]
    pub reference: Box<str>,
    /// The kind of the problem in a word: `not_found`, `bad_request`, `in_use`, ...
    pub kind: String,
    /// The kind in a few words, the same for all of its kind.
    pub title: Box<str>,
    /// The status code.
    pub status: u16,
    /// The details of this time.
    pub detail: String,
    /// The advice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The other process that has the session's workspace, where that is what is in the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<Box<Holder>>,
}

/// A process that has a session's workspace open.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Holder {
    /// Its number.
    pub process: u32,
    /// Its command line.
    pub command: String,
    /// The unix socket on which it takes calls; null when it takes none.
    pub address: Option<String>,
}

impl From<&LeaseHolder> for Holder {
    fn from(holder: &LeaseHolder) -> Self {
        let address = holder.address.as_ref().map(|path| path.display().to_string());
        Self { process: holder.process, command: holder.command.clone(), address }
    }
}

/// The kinds of problems.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProblemKind {
    BadRequest,
    Unauthorized,
    Forbidden,
    NotFound,
    NoRoute,
    Method,
    TooSlow,
    Clash,
    InUse,
    Refused,
    TooLarge,
    HeadTooLarge,
    MediaType,
    Unusable,
    Backend,
    Broken,
    Full,
    Lost,
    Ending,
}

impl ProblemKind {
    const ALL: [Self; 19] = [
        Self::BadRequest,
        Self::Unauthorized,
        Self::Forbidden,
        Self::NotFound,
        Self::NoRoute,
        Self::Method,
        Self::TooSlow,
        Self::Clash,
        Self::InUse,
        Self::Refused,
        Self::TooLarge,
        Self::HeadTooLarge,
        Self::MediaType,
        Self::Unusable,
        Self::Backend,
        Self::Broken,
        Self::Full,
        Self::Lost,
        Self::Ending,
    ];

    /// The kind of that word; what it is in general of one that a newer program says.
    pub(super) fn of(word: &str) -> Self {
        Self::ALL.into_iter().find(|kind| kind.row().0 == word).unwrap_or(Self::Refused)
    }

    /// The only table of them: the word, the status, the title.
    const fn row(self) -> (&'static str, StatusCode, &'static str) {
        match self {
            Self::BadRequest => ("bad_request", StatusCode::BAD_REQUEST, "The request can't be read"),
            Self::Unauthorized => ("unauthorized", StatusCode::UNAUTHORIZED, "A token is needed"),
            Self::Forbidden => ("forbidden", StatusCode::FORBIDDEN, "This is not allowed"),
            Self::NotFound => ("not_found", StatusCode::NOT_FOUND, "There is no such thing"),
            Self::NoRoute => ("no_route", StatusCode::NOT_FOUND, "There is nothing at this path"),
            Self::Method => ("method", StatusCode::METHOD_NOT_ALLOWED, "The path does not take this method"),
            Self::TooSlow => ("too_slow", StatusCode::REQUEST_TIMEOUT, "The request took too long to arrive"),
            Self::Clash => ("conflict", StatusCode::CONFLICT, "It is otherwise than the request expects"),
            Self::InUse => ("in_use", StatusCode::CONFLICT, "Another process has the workspace"),
            Self::Refused => ("refused", StatusCode::CONFLICT, "It can't be done as things are"),
            Self::TooLarge => ("too_large", StatusCode::PAYLOAD_TOO_LARGE, "The request is too large"),
            Self::HeadTooLarge => {
                ("head_too_large", StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "The request's head is too large")
            }
            Self::MediaType => ("media_type", StatusCode::UNSUPPORTED_MEDIA_TYPE, "The body must be JSON"),
            Self::Unusable => ("unusable", StatusCode::UNPROCESSABLE_ENTITY, "A value in the request can't be used"),
            Self::Backend => ("backend", StatusCode::FAILED_DEPENDENCY, "The workspace's backend refused"),
            Self::Broken => ("broken", StatusCode::INTERNAL_SERVER_ERROR, "The store failed"),
            Self::Full => ("full", StatusCode::INSUFFICIENT_STORAGE, "The disk is full"),
            Self::Lost => ("lost", StatusCode::BAD_GATEWAY, "The process that has the workspace is gone"),
            Self::Ending => ("ending", StatusCode::SERVICE_UNAVAILABLE, "The server is ending"),
        }
    }
}

/// The table from kinds of errors; `error_map` has the exceptions.
impl From<ErrorKind> for ProblemKind {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::NotFound => Self::NotFound,
            ErrorKind::Conflict => Self::Clash,
            ErrorKind::Busy | ErrorKind::Refused | ErrorKind::TimedOut => Self::Refused,
            ErrorKind::Invalid => Self::Unusable,
            ErrorKind::Damaged | ErrorKind::Io => Self::Broken,
            ErrorKind::Cancelled | ErrorKind::Unavailable => Self::Ending,
        }
    }
}

/// The way back, for a problem that another process gave as its answer.
impl From<ProblemKind> for ErrorKind {
    fn from(problem: ProblemKind) -> Self {
        match problem {
            ProblemKind::NotFound => Self::NotFound,
            ProblemKind::Clash => Self::Conflict,
            ProblemKind::InUse => Self::Busy,
            ProblemKind::BadRequest | ProblemKind::Unusable => Self::Invalid,
            ProblemKind::Backend | ProblemKind::Broken | ProblemKind::Full | ProblemKind::Lost => Self::Io,
            ProblemKind::Ending => Self::Unavailable,
            _ => Self::Refused,
        }
    }
}

impl HttpProblem {
    pub(super) fn new(kind: ProblemKind, detail: impl Into<String>) -> Self {
        let (word, status, title) = kind.row();
        Self {
            reference: format!("urn:foldspace:problem:{word}").into(),
            kind: word.to_owned(),
            title: title.into(),
            status: status.as_u16(),
            detail: detail.into(),
            hint: None,
            holder: None,
        }
    }

    #[must_use]
    pub(super) fn with_hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

impl IntoResponse for HttpProblem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        if status.is_server_error() {
            tracing::error!(kind = %self.kind, detail = %self.detail, "a request failed");
        }
        // Texts and numbers have a JSON form.
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"foldspace\""));
        }
        response
    }
}
