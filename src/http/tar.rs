//! The files of a session at a position, as a tar stream.

use std::io::{self, Write};

use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::frames::CLIENT_STALL_LIMIT;
use super::problem::{HttpProblem, ProblemKind};
use super::request::RequestHead;
use super::verb::{HttpVerb, Media};
use super::{HttpFace, blocking};
use crate::engine::path::EntryPath;
use crate::engine::session::Session;
use crate::engine::state::State;
use crate::hub::operations::{OperationRoute, state_at};
use crate::reducers::VirtualFileSystem;
use crate::tools::write_tar;
use crate::view::Position;

/// The most pieces that wait for a client.
const WAITING: usize = 4;
const PIECE: usize = 256 << 10;

/// Returns the files of a session at a position as a tar stream. Modes, links and times are preserved; the same
/// position returns the same bytes. Entries without stored contents are left out.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "MaterialiseRequest")]
#[serde(deny_unknown_fields)]
pub(super) struct TarRequest {
    /// The position; the head by default.
    at: Option<Position>,
    /// The directory to archive, with paths relative to it; the root by default.
    below: Option<String>,
}

impl HttpVerb for TarRequest {
    const NAME: &'static str = "materialise";
    const ROUTE: OperationRoute = OperationRoute::at("POST", "files", "/v1/sessions/{session}/materialise", 200);
    const GIVES: Media = &[("application/x-tar", None)];
    const NEEDS_BODY: bool = false;

    async fn answer(self, face: HttpFace, head: RequestHead) -> Result<Response, HttpProblem> {
        let session = face.session(&head.session).await?;
        let looked = session.clone();
        let below = EntryPath::lookup(self.below.as_deref().unwrap_or("/"))?;
        if self.at.is_none() {
            face.hub().refresh(session.id()).await?;
        }
        let state = blocking(move || state_at(&looked, self.at)).await??;
        if !VirtualFileSystem::of(&state).is_directory(&below) {
            let what = format!("directory {} does not exist there", below.rooted());
            return Err(HttpProblem::new(ProblemKind::NotFound, what));
        }
        Ok(([(header::CONTENT_TYPE, "application/x-tar")], archive(session, state, below)).into_response())
    }
}

/// Streams an archive to a client. A stream without tar's end has failed.
fn archive(session: Session, state: State, below: EntryPath) -> Body {
    let ((sender, receiver), runtime) = (mpsc::channel(WAITING), Handle::current());
    tokio::task::spawn_blocking(move || {
        let mut pieces = Pieces(sender, runtime);
        let written = write_tar(&session, &state, &below, io::BufWriter::with_capacity(PIECE, &mut pieces));
        match written.and_then(|left| pieces.send(Bytes::new()).map(|()| left.len())) {
            Ok(0) => {}
            Ok(left) => tracing::warn!(left, "a tar stream leaves out entries that can't be recreated"),
            Err(error) => tracing::debug!(%error, "a tar stream was cut off"),
        }
    });
    Body::from_stream(stream::unfold(Some(receiver), async |receiver| {
        let mut receiver = receiver?;
        match receiver.recv().await {
            // Only a complete stream has an end.
            Some(end) if end.is_empty() => None,
            Some(piece) => Some((Ok(piece), Some(receiver))),
            None => Some((Err(io::Error::other("the archive is incomplete")), None)),
        }
    }))
}

/// Sends pieces to a client that may be slow.
struct Pieces(mpsc::Sender<Bytes>, Handle);

impl Pieces {
    fn send(&self, piece: Bytes) -> io::Result<()> {
        match self.1.block_on(tokio::time::timeout(CLIENT_STALL_LIMIT, self.0.send(piece))) {
            Ok(Ok(())) => Ok(()),
            _ => Err(io::Error::new(io::ErrorKind::BrokenPipe, "the client disconnected or stopped reading")),
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
