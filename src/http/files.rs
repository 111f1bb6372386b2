//! Reading files at any position.

use axum::http::header;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use schemars::{JsonSchema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::problem::{HttpProblem, ProblemKind};
use super::request::RequestHead;
use super::verb::{HttpVerb, Media};
use super::{HttpFace, blocking};
use crate::engine::event::Node;
use crate::engine::id::Digest;
use crate::engine::path::EntryPath;
use crate::hub::operations::{OperationRoute, SeenFiles};
use crate::reducers::Entry;
use crate::view::{EntryDocument, Position};

/// An entry with its contents.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(super) struct WholeEntry {
    /// The entry.
    #[serde(flatten)]
    entry: EntryDocument,
    /// The contents of a file, if they are UTF-8.
    contents_text: Option<String>,
    /// The contents of a file, if they are not UTF-8.
    contents_base64: Option<String>,
}

/// Returns the bytes of a file at a position; with `Accept: application/json` its metadata, with its contents as text
/// or base64.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FileAt {
    /// The path from the workspace root; its slashes are not escaped.
    path: String,
    /// The position; the head by default.
    at: Option<Position>,
    /// True to read the file from the workspace's disk now, also while a command runs. The header `foldspace-live-at`
    /// then has the last recorded position at that time. A file with over 64 MiB of unrecorded contents has no bytes.
    #[serde(default)]
    live: bool,
}

impl HttpVerb for FileAt {
    const NAME: &'static str = "read_file";
    const ROUTE: OperationRoute = OperationRoute::at("GET", "files", "/v1/sessions/{session}/files/{*path}", 200);
    const GIVES: Media =
        &[("application/octet-stream", None), ("application/json", Some(SchemaGenerator::subschema_for::<WholeEntry>))];

    async fn answer(self, face: HttpFace, head: RequestHead) -> Result<Response, HttpProblem> {
        let path = EntryPath::lookup(&self.path)?;
        let as_json = head.accepts("application/json");
        let session = face.session(&head.session).await?;
        let seen = SeenFiles::read(face.hub(), session, self.at, (self.live, &path)).await?;
        let answer = blocking(move || {
            let Some(entry) = seen.files().get(&path) else {
                return Err(HttpProblem::new(ProblemKind::NotFound, format!("{} does not exist there", path.rooted())));
            };
            let mut answer = match as_json {
                true => whole(&seen, &path, entry).map(|whole| axum::Json(whole).into_response()),
                false => raw(&seen, &path, entry),
            }?;
            if let Some(at) = seen.live_at() {
                answer.headers_mut().insert("foldspace-live-at", at.into());
            }
            Ok(answer)
        });
        answer.await?
    }
}

fn contents(seen: &SeenFiles, entry: &Entry) -> Result<Option<Bytes>, HttpProblem> {
    Ok(match &entry.node {
        Node::File { content, incomplete: false, .. } => Some(seen.content(content)?),
        _ => None,
    })
}

fn whole(seen: &SeenFiles, path: &EntryPath, entry: &Entry) -> Result<WholeEntry, HttpProblem> {
    let bytes = contents(seen, entry)?;
    let text = bytes.as_ref().and_then(|bytes| std::str::from_utf8(bytes).ok());
    Ok(WholeEntry {
        entry: seen.entry(path, entry),
        contents_base64: bytes.as_ref().filter(|_| text.is_none()).map(|bytes| STANDARD.encode(bytes)),
        contents_text: text.map(str::to_owned),
    })
}

/// Answers with the bytes of a content, as an attachment: files that an agent wrote must not run in a browser.
pub(super) fn attachment(bytes: Bytes, content: &Digest) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::CONTENT_DISPOSITION, "attachment".to_owned()),
        (header::ETAG, format!("\"{content}\"")),
    ];
    (headers, bytes).into_response()
}

fn raw(seen: &SeenFiles, path: &EntryPath, entry: &Entry) -> Result<Response, HttpProblem> {
    let what = match &entry.node {
        Node::File { content, incomplete: false, .. } => return Ok(attachment(seen.content(content)?, content)),
        Node::File { .. } => "a file without stored contents",
        Node::Directory { .. } => "a directory",
        Node::Symlink { .. } => "a symbolic link",
        Node::Special { .. } => "a special file",
    };
    let problem =
        HttpProblem::new(ProblemKind::Refused, format!("{} is {what}, which has no bytes to return", path.rooted()));
    Err(problem.with_hint("`Accept: application/json` returns its metadata"))
}
