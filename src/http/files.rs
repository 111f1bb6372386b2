//! Files at any position.

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::extract::{Path, StrictQuery, accepts};
use super::problem::{HttpProblem, ProblemKind};
use super::states::{AtQuery, state_at};
use super::{HttpFace, blocking};
use crate::engine::event::Node;
use crate::engine::path::EntryPath;
use crate::engine::session::Session;
use crate::reducers::{Entry, VirtualFileSystem};
use crate::view::{self, EntryDocument, Position};

/// Which entries.
#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct EntriesQuery {
    /// The position; the last one when nothing is said.
    #[serde(default)]
    #[param(value_type = Option<String>, example = "42")]
    at: Option<Position>,
    /// Only what is below this directory; the root when nothing is said.
    #[serde(default)]
    below: Option<String>,
    /// Also what is in the directories below it; true when nothing is said.
    #[serde(default = "yes")]
    recursive: bool,
}

fn yes() -> bool {
    true
}

/// An entry with its contents.
#[derive(Debug, Clone, Serialize, JsonSchema, ToSchema)]
pub(super) struct WholeEntry {
    /// The entry.
    #[serde(flatten)]
    #[schema(inline)]
    entry: EntryDocument,
    /// The contents of a file, where they are UTF-8.
    contents_text: Option<String>,
    /// The contents of a file, where they are not.
    contents_base64: Option<String>,
}

/// Lists the entries of a workspace as they were at a position.
#[utoipa::path(get, path = "/v1/sessions/{session}/files", tag = "files",
    params(("session" = String, Path, description = "The session, by name or by the beginning of its id"), EntriesQuery),
    responses((status = 200, body = Vec<EntryDocument>), (status = "4XX", body = HttpProblem, content_type = "application/problem+json")))]
pub(super) async fn list(
    State(face): State<HttpFace>,
    Path(wanted): Path<String>,
    StrictQuery(listed): StrictQuery<EntriesQuery>,
) -> Result<axum::Json<Vec<EntryDocument>>, HttpProblem> {
    let directory = EntryPath::lookup(listed.below.as_deref().unwrap_or("/"))?;
    let session = face.session(wanted).await?;
    let entries = blocking(move || {
        let files = VirtualFileSystem::of(&state_at(&session, listed.at)?);
        if !files.is_directory(&directory) {
            return Err(HttpProblem::new(
                ProblemKind::NotFound,
                format!("there is no directory {} there", directory.rooted()),
            ));
        }
        let document = |(path, entry): (&EntryPath, &Entry)| view::entry(path, entry);
        Ok(match listed.recursive {
            true => files.below(&directory).map(document).collect(),
            false => files.children(&directory).map(document).collect(),
        })
    });
    Ok(axum::Json(entries.await??))
}

/// Gives a file as it was at a position: its bytes; with `Accept: application/json` what is known of it, with its
/// contents as text or base64.
#[utoipa::path(get, path = "/v1/sessions/{session}/files/{path}", tag = "files",
    params(("session" = String, Path, description = "The session, by name or by the beginning of its id"),
        ("path" = String, Path, description = "The path from the workspace root; its slashes stand as they are"), AtQuery),
    responses((status = 200, content((String = "application/octet-stream"), (WholeEntry = "application/json"))),
        (status = "4XX", body = HttpProblem, content_type = "application/problem+json")))]
pub(super) async fn one(
    State(face): State<HttpFace>,
    Path((wanted, path)): Path<(String, String)>,
    StrictQuery(AtQuery { at }): StrictQuery<AtQuery>,
    headers: HeaderMap,
) -> Result<Response, HttpProblem> {
    let path = EntryPath::lookup(&path)?;
    let session = face.session(wanted).await?;
    let as_json = accepts(&headers, "application/json");
    let answer = blocking(move || {
        let files = VirtualFileSystem::of(&state_at(&session, at)?);
        let Some(entry) = files.get(&path) else {
            return Err(HttpProblem::new(ProblemKind::NotFound, format!("there is no {} there", path.rooted())));
        };
        match as_json {
            true => whole(&session, &path, entry).map(|whole| axum::Json(whole).into_response()),
            false => raw(&session, &path, entry),
        }
    });
    answer.await?
}

fn contents(session: &Session, entry: &Entry) -> Result<Option<Bytes>, HttpProblem> {
    Ok(match &entry.node {
        Node::File { content, incomplete: false, .. } => Some(session.content(content)?),
        _ => None,
    })
}

fn whole(session: &Session, path: &EntryPath, entry: &Entry) -> Result<WholeEntry, HttpProblem> {
    let bytes = contents(session, entry)?;
    let text = bytes.as_ref().and_then(|bytes| std::str::from_utf8(bytes).ok());
    Ok(WholeEntry {
        entry: view::entry(path, entry),
        contents_base64: bytes.as_ref().filter(|_| text.is_none()).map(|bytes| STANDARD.encode(bytes)),
        contents_text: text.map(str::to_owned),
    })
}

fn raw(session: &Session, path: &EntryPath, entry: &Entry) -> Result<Response, HttpProblem> {
    let what = match &entry.node {
        Node::File { content, incomplete: false, .. } => {
            // Nothing that an agent wrote is to run in a browser.
            let headers = [
                (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
                (header::CONTENT_DISPOSITION, "attachment".to_owned()),
                (header::ETAG, format!("\"{content}\"")),
            ];
            return Ok((headers, session.content(content)?).into_response());
        }
        Node::File { .. } => "a file whose contents were not kept",
        Node::Directory => "a directory",
        Node::Symlink { .. } => "a symbolic link",
        Node::Special { .. } => "a special file",
    };
    let problem =
        HttpProblem::new(ProblemKind::Refused, format!("{} is {what}: it has no bytes to give", path.rooted()));
    Err(problem.with_hint("`Accept: application/json` tells what is known of it"))
}
