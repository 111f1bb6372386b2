//! Reading the rest of a request's body before the answer.
//!
//! hyper closes a connection whose body nobody reads. On the unix socket, a client that is still sending then gets a
//! broken pipe instead of the answer.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::EXPECT;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::{Error, Request};

use crate::engine::lock::lock;

/// Limit for the bytes to drain from an unread body.
const UNREAD_MAX: usize = 64 << 10;

/// A request's body for a handler.
pub(super) struct LentBody(Arc<Mutex<Incoming>>);

/// The same body, from which unread bytes are drained.
pub(super) struct UnreadBody(Option<Arc<Mutex<Incoming>>>);

/// Splits off the rest of a request's body. A client that waits for `100 Continue` has no rest: it sends nothing before
/// its body is read.
pub(super) fn lend(request: Request<Incoming>) -> (Request<LentBody>, UnreadBody) {
    let waits = request.headers().contains_key(EXPECT);
    let (head, body) = request.into_parts();
    let is_empty = body.is_end_stream();
    let body = Arc::new(Mutex::new(body));
    let rest = (!waits && !is_empty).then(|| Arc::clone(&body));
    (Request::from_parts(head, LentBody(body)), UnreadBody(rest))
}

impl UnreadBody {
    /// Reads what the handler left, unless it still reads itself: at most 64 KiB, and at most for `patience`.
    pub(super) async fn drain(self, patience: Duration) {
        let Some(rest) = self.0.and_then(Arc::into_inner) else { return };
        let mut rest = rest.into_inner().unwrap_or_else(PoisonError::into_inner);
        let read = async {
            let mut left = UNREAD_MAX;
            while let Some(Ok(frame)) = rest.frame().await {
                let bytes = frame.data_ref().map_or(0, Bytes::len);
                let Some(fewer) = left.checked_sub(bytes) else { return };
                left = fewer;
            }
        };
        drop(tokio::time::timeout(patience, read).await);
    }
}

impl Body for LentBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        Pin::new(&mut *lock(&self.0)).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        lock(&self.0).is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        lock(&self.0).size_hint()
    }
}
