//! Problem documents (RFC 9457).

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::engine::advice::Advice;
use crate::engine::error::ErrorKind;
use crate::engine::id::Seq;
use crate::engine::path::EntryPath;
use crate::engine::session::error::SessionError;
use crate::engine::store::StoreError;
use crate::tools::WorkspaceError;

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
    /// The kind of the problem: `not_found`, `bad_request`, `conflict`, ...
    pub kind: String,
    /// A short text, the same for all problems of the kind.
    pub title: Box<str>,
    /// The status code.
    pub status: u16,
    /// The details of this problem.
    pub detail: String,
    /// Advice on how to resolve it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The parts that only some problems have.
    #[serde(flatten)]
    pub more: Box<ProblemDetails>,
}

/// The parts that only some problems have.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProblemDetails {
    /// The advice of `hint` as data: its `kind`, such as `list_sessions`, and values for some kinds. A client can have
    /// its own texts for it.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "known_advice")]
    #[schemars(with = "Option<Map<String, Value>>")]
    pub advice: Option<Advice>,
    /// The entries that block a rewind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rewind: Option<RewindRefusal>,
    /// The position of the problem: a requested position beyond the end, the expected end of the session, or the first
    /// event of the other request with the same `call_id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<Seq>,
    /// The session's last position, if a request named a position beyond it or expected another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<Seq>,
}

/// Returns the position that an error is about, and the session's last one.
pub(super) fn positions(error: &SessionError) -> (Option<Seq>, Option<Seq>) {
    match *error {
        SessionError::Store(StoreError::Conflict { expected, actual, .. }) => (Some(expected), Some(actual)),
        SessionError::NoPosition { seq, head } => (Some(seq), Some(head)),
        SessionError::NothingBack { head, .. } => (None, Some(head)),
        SessionError::NotInCall { seq, .. } | SessionError::OtherRequest { seq } => (Some(seq), None),
        _ => (None, None),
    }
}

/// Reads advice; `None` for a kind of a newer server.
fn known_advice<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Advice>, D::Error> {
    Ok(serde_json::from_value(Value::deserialize(from)?).ok())
}

/// The reason why a rewind is refused, and the entries that block it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RewindRefusal {
    /// `changed_outside`, `not_kept` or `earlier`.
    pub refused: String,
    /// The entries, or the first of them.
    #[schemars(with = "Vec<String>")]
    pub entries: Vec<EntryPath>,
    /// The number of all entries.
    pub count: usize,
}

impl RewindRefusal {
    pub(super) fn of(error: &WorkspaceError) -> Option<Self> {
        let (refused, entries, count) = match error {
            WorkspaceError::Drifted(paths) => ("changed_outside", paths, paths.len()),
            WorkspaceError::NotKept(paths) => ("not_kept", paths, paths.len()),
            WorkspaceError::Earlier { count, paths } => ("earlier", paths, *count),
            _ => return None,
        };
        Some(Self { refused: refused.to_owned(), entries: entries.clone(), count })
    }
}

macro_rules! problems {
    ($($kind:ident $word:literal $status:ident $title:literal;)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum ProblemKind {
            $($kind,)*
        }

        impl ProblemKind {
            /// Returns the kind with this name; names from newer programs read as `Refused`.
            pub(super) fn of(word: &str) -> Self {
                match word {
                    $($word => Self::$kind,)*
                    _ => Self::Refused,
                }
            }

            const fn row(self) -> (&'static str, StatusCode, &'static str) {
                match self {
                    $(Self::$kind => ($word, StatusCode::$status, $title),)*
                }
            }
        }
    };
}

problems! {
    BadRequest "bad_request" BAD_REQUEST "Malformed request";
    Unauthorized "unauthorized" UNAUTHORIZED "Token required";
    Forbidden "forbidden" FORBIDDEN "Not allowed";
    NotFound "not_found" NOT_FOUND "Not found";
    NoRoute "no_route" NOT_FOUND "No such path";
    Method "method" METHOD_NOT_ALLOWED "Method not supported at this path";
    TooSlow "too_slow" REQUEST_TIMEOUT "The request took too long to arrive";
    Clash "conflict" CONFLICT "State conflict";
    OtherVersion "other_version" CONFLICT "The store is in use by another version of foldspace";
    Unreadable "unreadable" CONFLICT "A newer foldspace created the session";
    Refused "refused" CONFLICT "Not possible in the current state";
    TooLarge "too_large" PAYLOAD_TOO_LARGE "The request is too large";
    HeadTooLarge "head_too_large" REQUEST_HEADER_FIELDS_TOO_LARGE "The request's head is too large";
    MediaType "media_type" UNSUPPORTED_MEDIA_TYPE "The body must be JSON";
    Unusable "unusable" UNPROCESSABLE_ENTITY "Invalid value in the request";
    Backend "backend" FAILED_DEPENDENCY "The workspace's backend refused";
    Broken "broken" INTERNAL_SERVER_ERROR "The store failed";
    Full "full" INSUFFICIENT_STORAGE "The disk is full";
    OtherHost "other_host" SERVICE_UNAVAILABLE "The session is on another host";
    Ending "ending" SERVICE_UNAVAILABLE "The server is shutting down";
    StoreFailed "store_failed" SERVICE_UNAVAILABLE "The store records nothing more";
    ClusterLost "cluster_lost" SERVICE_UNAVAILABLE "The cluster does not answer";
}

impl From<ErrorKind> for ProblemKind {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::NotFound | ErrorKind::ContentMissing => Self::NotFound,
            ErrorKind::Conflict | ErrorKind::Ambiguous => Self::Clash,
            ErrorKind::Busy | ErrorKind::Refused | ErrorKind::TimedOut => Self::Refused,
            ErrorKind::Forbidden => Self::Forbidden,
            ErrorKind::Invalid => Self::Unusable,
            ErrorKind::Damaged | ErrorKind::Io | ErrorKind::Broken => Self::Broken,
            ErrorKind::Newer => Self::Unreadable,
            ErrorKind::Full => Self::Full,
            ErrorKind::Backend => Self::Backend,
            ErrorKind::OtherHost => Self::OtherHost,
            ErrorKind::Cancelled | ErrorKind::Unavailable => Self::Ending,
        }
    }
}

impl From<ProblemKind> for ErrorKind {
    fn from(problem: ProblemKind) -> Self {
        match problem {
            ProblemKind::NotFound => Self::NotFound,
            ProblemKind::Clash => Self::Conflict,
            ProblemKind::OtherVersion => Self::Busy,
            ProblemKind::OtherHost => Self::OtherHost,
            ProblemKind::Forbidden => Self::Forbidden,
            ProblemKind::Unreadable => Self::Newer,
            ProblemKind::BadRequest | ProblemKind::Unusable => Self::Invalid,
            ProblemKind::Backend => Self::Backend,
            ProblemKind::Broken => Self::Io,
            ProblemKind::Full => Self::Full,
            ProblemKind::Ending | ProblemKind::StoreFailed | ProblemKind::ClusterLost => Self::Unavailable,
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
            more: Box::default(),
        }
    }

    #[must_use]
    pub(super) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl IntoResponse for HttpProblem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        use ProblemKind::{ClusterLost, Ending, StoreFailed};
        if matches!(ProblemKind::of(&self.kind), Ending | StoreFailed | ClusterLost) {
            // Answers to probes, and part of each normal end.
            tracing::info!(kind = %self.kind, detail = %self.detail, "a request was refused");
        } else if status.is_server_error() {
            tracing::error!(kind = %self.kind, detail = %self.detail, "a request failed");
        }
        // Strings and numbers always serialize.
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
