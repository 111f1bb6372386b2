//! Checks of HTTP requests: their query parameters, and the size and arrival time of their bodies.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};

use super::client::ServerState;
use super::connect_query::ConnectQuery;
use super::{MESSAGE_MAX, names};

/// Time limit for a body to arrive.
const ARRIVAL: Duration = Duration::from_secs(30);

/// Reads the whole body first, so that a stalled body does not hold a connection forever.
pub(super) async fn whole(State(shared): State<Arc<ServerState>>, request: Request, next: Next) -> Response {
    let asked = match ConnectQuery::read(request.uri(), &shared.options) {
        Ok(asked) => asked,
        Err(what) => return (StatusCode::BAD_REQUEST, format!("{}\n", names::shown(&what, 500))).into_response(),
    };
    let (mut parts, body) = request.into_parts();
    parts.extensions.insert(asked);
    let is_end = parts.method == Method::DELETE;
    let mut response = match arrived(body, ARRIVAL).await {
        Ok(bytes) => next.run(Request::from_parts(parts, Body::from(bytes))).await,
        Err(refusal) => refusal.into_response(),
    };
    // The connection has ended by then, and some clients treat any status but 200 as a failure.
    if is_end && response.status() == StatusCode::ACCEPTED {
        response = StatusCode::OK.into_response();
    }
    response
}

async fn arrived(body: Body, within: Duration) -> Result<Bytes, (StatusCode, String)> {
    match tokio::time::timeout(within, Limited::new(body, MESSAGE_MAX).collect()).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            Err((StatusCode::PAYLOAD_TOO_LARGE, format!("message too long; the limit is {MESSAGE_MAX} bytes\n")))
        }
        Ok(Err(error)) => Err((StatusCode::BAD_REQUEST, format!("the body can't be read: {error}\n"))),
        Err(_) => Err((StatusCode::REQUEST_TIMEOUT, format!("the body took more than {} s\n", within.as_secs()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn body_limit_bounds_size_and_time() {
        let whole = arrived(Body::from("{}"), ARRIVAL).await;
        assert_eq!(whole.unwrap(), "{}");
        let long = arrived(Body::from(vec![b' '; MESSAGE_MAX + 1]), ARRIVAL).await;
        assert_eq!(long.unwrap_err().0, StatusCode::PAYLOAD_TOO_LARGE);
        let never = Body::from_stream(futures_util::stream::pending::<std::io::Result<Bytes>>());
        assert_eq!(arrived(never, Duration::ZERO).await.unwrap_err().0, StatusCode::REQUEST_TIMEOUT);
    }
}
