//! Pages that are open in a browser: they keep the server running.

use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::Response;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::Instant;

use super::HttpFace;
use crate::engine::lock::lock;

/// Time that a page counts as open after its last request.
const OPEN: Duration = Duration::from_secs(60);

/// The requests of pages, and the time of the last one.
#[derive(Default)]
pub(super) struct OpenPages(Mutex<(usize, Option<Instant>)>);

impl OpenPages {
    /// Returns true if a page has a request in flight, or had one within the last minute.
    pub(super) fn are_any(&self) -> bool {
        let (requests, last) = *lock(&self.0);
        requests > 0 || last.is_some_and(|last| last.elapsed() < OPEN)
    }

    pub(super) fn touch(&self) {
        lock(&self.0).1 = Some(Instant::now());
    }
}

/// A request of a page, counted until its answer is sent.
pub(super) struct Visit(HttpFace);

impl Visit {
    pub(super) fn begin(face: &HttpFace) -> Self {
        lock(&face.shared.open_pages.0).0 += 1;
        Self(face.clone())
    }

    pub(super) fn during(self, response: Response) -> Response {
        response.map(|body| Body::new(VisitedBody { body: UnsyncBoxBody::new(body), _visit: self }))
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let mut open = lock(&self.0.shared.open_pages.0);
        *open = (open.0 - 1, Some(Instant::now()));
    }
}

struct VisitedBody {
    body: UnsyncBoxBody<Bytes, axum::Error>,
    _visit: Visit,
}

impl HttpBody for VisitedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
