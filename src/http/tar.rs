//! The files of a session at a position, as a tar stream.

use std::io::{self, Write};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::extract::{Path, optional_body};
use super::frames::PATIENCE;
use super::problem::HttpProblem;
use super::{HttpFace, blocking};
use crate::tools::write_tar;
use crate::view::Position;

/// Pieces that wait for a client, and their bytes.
const WAITING: usize = 4;
const PIECE: usize = 256 << 10;

/// The position of the files.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[schemars(rename = "MaterialiseRequest")]
#[serde(deny_unknown_fields)]
pub(super) struct TarRequest {
    /// The position; the last one by default.
    #[serde(default)]
    at: Option<Position>,
}

/// Gives the files as they were at a position. A stream that breaks off before tar's end has failed.
pub(super) async fn materialise(
    State(face): State<HttpFace>,
    Path(wanted): Path<String>,
    request: Request,
) -> Result<Response, HttpProblem> {
    let TarRequest { at } = optional_body(request).await?;
    let session = face.session(wanted).await?;
    let looked = session.clone();
    let state = blocking(move || {
        Ok::<_, HttpProblem>(match at {
            Some(at) => looked.state_at(at.resolve(&looked)?)?,
            None => looked.state()?,
        })
    });
    let state = state.await??;
    let ((sender, receiver), runtime) = (mpsc::channel(WAITING), Handle::current());
    tokio::task::spawn_blocking(move || {
        let mut pieces = Pieces(sender, runtime);
        let written = write_tar(&session, &state, io::BufWriter::with_capacity(PIECE, &mut pieces));
        if let Err(error) = written.and_then(|()| pieces.send(Bytes::new())) {
            tracing::debug!(%error, "a tar stream broke off");
        }
    });
    let body = Body::from_stream(stream::unfold(Some(receiver), async |receiver| {
        let mut receiver = receiver?;
        match receiver.recv().await {
            // Only a stream that is whole has an end.
            Some(end) if end.is_empty() => None,
            Some(piece) => Some((Ok(piece), Some(receiver))),
            None => Some((Err(io::Error::other("the archive could not be written to its end")), None)),
        }
    }));
    Ok(([(header::CONTENT_TYPE, "application/x-tar")], body).into_response())
}

/// Hands pieces to a client, and waits a while for one that is slow.
struct Pieces(mpsc::Sender<Bytes>, Handle);

impl Pieces {
    fn send(&self, piece: Bytes) -> io::Result<()> {
        match self.1.block_on(tokio::time::timeout(PATIENCE, self.0.send(piece))) {
            Ok(Ok(())) => Ok(()),
            _ => Err(io::Error::new(io::ErrorKind::BrokenPipe, "the client is gone, or reads nothing")),
        }
    }
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let piece = Bytes::copy_from_slice(&bytes[..bytes.len().min(PIECE)]);
        let length = piece.len();
        self.send(piece).map(|()| length)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
