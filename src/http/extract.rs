//! What a request holds, or the problem with it.

use std::time::Duration;

use axum::extract::rejection::JsonRejection;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::HeaderMap;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::request::Parts;
use bytes::Bytes;
use serde::de::DeserializeOwned;

use super::problem::{Kind, Problem};

/// How long a body may take to arrive.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival(pub(super) Duration);

/// The body, as JSON.
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        if !is_json(request.headers()) {
            return Err(Problem::new(Kind::MediaType, "send the body with `Content-Type: application/json`"));
        }
        let arrival = request.extensions().get().map_or(super::BODY_TIME, |Arrival(time)| *time);
        let arriving = Bytes::from_request(request, state);
        let Ok(arrived) = tokio::time::timeout(arrival, arriving).await else {
            return Err(Problem::new(Kind::TooSlow, format!("the body took more than {} s", arrival.as_secs_f32())));
        };
        let bytes = arrived.map_err(JsonRejection::from)?;
        // A list would be taken for the fields in their order.
        if bytes.trim_ascii_start().first().is_some_and(|byte| *byte != b'{') {
            return Err(Problem::new(Kind::BadRequest, "the body must be a JSON object"));
        }
        Ok(Self(axum::Json::from_bytes(&bytes)?.0))
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let media = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media = media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    media == "application/json" || (media.starts_with("application/") && media.ends_with("+json"))
}

/// What follows the question mark.
pub(super) struct Query<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        Ok(Self(axum::extract::Query::from_request_parts(parts, state).await?.0))
    }
}

/// The variable parts of the path.
pub(super) struct Path<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        Ok(Self(axum::extract::Path::from_request_parts(parts, state).await?.0))
    }
}

/// Whether the client asks for a media type before all others.
pub(super) fn accepts(headers: &HeaderMap, wanted: &str) -> bool {
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let first = accepted.flat_map(|value| value.split(',')).next();
    first.is_some_and(|first| first.split(';').next().unwrap_or("").trim().eq_ignore_ascii_case(wanted))
}
