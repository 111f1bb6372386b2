//! Whole files of a sandbox over plain HTTP.

use std::io::Read;

use axum::Extension;
use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::IntoResponse;
use serde_json::{Value, json};

use super::connect::Wrong;
use super::entries::followed;
use super::metadata;
use super::outside::OutsideFiles;
use super::place::SandboxPath;
use super::query::parameter;
use super::upload::{Upload, boundary, parts};
use super::{Api, E2bAnswer, Within};
use crate::engine::event::{CallReason, Node};
use crate::engine::path::EntryPath;
use crate::engine::session::Session;
use crate::http::file_changes::problem_of;
use crate::http::request::{UPLOAD_MAX, upload as arrived};
use crate::hub::{HubError, blocking};
use crate::reducers::VirtualFileSystem;
use crate::tools::{FileWork, ToolOutcome};

pub(super) async fn download(State(api): Api, Extension(sandbox): Within, RawQuery(text): RawQuery) -> E2bAnswer {
    let asked = parameter(text.as_deref(), "path").unwrap_or_default();
    let found = match SandboxPath::of(&asked)? {
        SandboxPath::Outside(path) => FileFound::Outside(path),
        SandboxPath::Workspace(place) => {
            let session = api.face.session(sandbox.name()).await?;
            api.face.hub().refresh(session.id()).await?;
            blocking(move || contents(&session, &place.path, &asked)).await??
        }
    };
    let body = match found {
        FileFound::Contents(bytes) => Body::from(bytes),
        FileFound::Outside(path) => OutsideFiles::of(&api, &sandbox, &path)?.read(&path).await?,
    };
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream"),
        // Files that an agent wrote must not run in a browser.
        (header::CONTENT_DISPOSITION, "attachment"),
    ];
    Ok((headers, body).into_response())
}

enum FileFound {
    Contents(bytes::Bytes),
    /// A path outside of the workspace.
    Outside(String),
}

fn contents(session: &Session, path: &EntryPath, asked: &str) -> Result<FileFound, Wrong> {
    let state = session.state()?;
    let files = VirtualFileSystem::of(&state);
    let place = match followed(&files, path)? {
        SandboxPath::Workspace(place) => place,
        SandboxPath::Outside(path) => return Ok(FileFound::Outside(path)),
    };
    match files.get(&place.path).map(|entry| &entry.node) {
        Some(Node::File { content, incomplete: false, .. }) => Ok(FileFound::Contents(session.content(content)?)),
        Some(Node::File { .. }) => {
            Err(Wrong::invalid(format!("the contents of {asked:.200} were not stored: it is too large")))
        }
        Some(Node::Directory { .. }) => Err(Wrong::invalid(format!("path is a directory: {asked:.200}"))),
        Some(_) => Err(Wrong::invalid(format!("{asked:.200} is not a regular file"))),
        None if place.path.is_root() => Err(Wrong::invalid(format!("path is a directory: {asked:.200}"))),
        None => Err(Wrong::not_found(format!("path not found: {asked:.200}"))),
    }
}

pub(super) async fn upload(
    State(api): Api,
    Extension(sandbox): Within,
    RawQuery(text): RawQuery,
    headers: HeaderMap,
    body: Body,
) -> E2bAnswer {
    let said = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let metadata = metadata::of_headers(&headers)?;
    // The whole body is read before any answer: some clients report a connection that closes early as lost.
    let mut bytes = arrived(body).await?;
    match said(header::CONTENT_ENCODING) {
        "" | "identity" => {}
        "gzip" => bytes = blocking(move || unzipped(&bytes)).await??,
        _ => return Err(Wrong::missing("uploads with another compression than gzip")),
    }
    let uploads = uploads(said(header::CONTENT_TYPE), parameter(text.as_deref(), "path"), bytes)?;
    // Check all names first: one invalid name writes nothing.
    let (mut files, mut outside, mut paths, mut written) = (Vec::new(), Vec::new(), Vec::new(), Vec::<Value>::new());
    for Upload { path, bytes } in uploads {
        let place = SandboxPath::of(&path)?;
        let full = place.name();
        let mut entry = json!({ "name": full.rsplit('/').next(), "type": "file", "path": full });
        match place {
            SandboxPath::Workspace(place) => {
                if !metadata.is_empty() {
                    entry["metadata"] = json!(metadata);
                }
                files.push((place.rooted(), bytes));
                paths.push(place.path);
            }
            SandboxPath::Outside(path) if metadata.is_empty() => outside.push((path, bytes)),
            SandboxPath::Outside(_) => return Err(Wrong::missing("metadata of files outside of the workspace")),
        }
        written.push(entry);
    }
    // A task: it ends even if the client disconnects. One call writes all files of the workspace or none.
    let writing = tokio::spawn(async move {
        for (path, bytes) in outside {
            OutsideFiles::of(&api, &sandbox, &path)?.write(&path, bytes).await?;
        }
        if files.is_empty() {
            return Ok(());
        }
        let open = api.face.open(sandbox.name()).await?;
        done(open.change_files(FileWork::WriteAll { files }).await?)?;
        api.set_metadata(sandbox.name(), paths, metadata).await
    });
    writing.await.map_err(|_| HubError::Panicked)??;
    Ok(axum::Json(written).into_response())
}

/// Returns the files of a body: those of a form, or the body itself.
fn uploads(media: &str, path: Option<String>, bytes: bytes::Bytes) -> Result<Vec<Upload>, Wrong> {
    let Some(boundary) = boundary(media) else {
        if media.starts_with("application/octet-stream") {
            let path = path.ok_or_else(|| Wrong::invalid("name the file in `path`"))?;
            return Ok(vec![Upload { path, bytes }]);
        }
        let what = "send files as multipart/form-data or application/octet-stream";
        return Err(Wrong::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, what));
    };
    let mut uploads = parts(&bytes, &boundary)?;
    // A URL may be signed only for this path.
    if let Some(path) = &path {
        if uploads.len() > 1 {
            return Err(Wrong::invalid("`path` names one file, and the body has several"));
        }
        uploads.iter_mut().for_each(|upload| upload.path.clone_from(path));
    }
    match uploads.iter().all(|upload| !upload.path.is_empty()) {
        _ if uploads.is_empty() => Err(Wrong::invalid("the form has no part with the name `file`, and no file name")),
        true => Ok(uploads),
        false => Err(Wrong::invalid("name the file in `path`, or in the part of the form")),
    }
}

fn unzipped(bytes: &[u8]) -> Result<bytes::Bytes, Wrong> {
    let mut all = Vec::new();
    let mut reader = flate2::read::MultiGzDecoder::new(bytes).take(UPLOAD_MAX as u64 + 1);
    reader.read_to_end(&mut all).map_err(|error| Wrong::invalid(format!("the body is not gzip: {error}")))?;
    match all.len() {
        0..=UPLOAD_MAX => Ok(all.into()),
        _ => Err(Wrong::new(StatusCode::PAYLOAD_TOO_LARGE, format!("the upload has more than {UPLOAD_MAX} bytes"))),
    }
}

pub(super) fn done(outcome: ToolOutcome) -> Result<ToolOutcome, Wrong> {
    if outcome.is_ok() {
        return Ok(outcome);
    }
    let reason = outcome.reason;
    let wrong = Wrong::from(problem_of(outcome));
    // E2B reports an obstacle to a change as an invalid argument.
    Err(if reason == Some(CallReason::Refused) { Wrong::invalid(wrong.message) } else { wrong })
}
