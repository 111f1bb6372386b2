//! Whole files of a sandbox over plain HTTP.

use axum::Extension;
use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::IntoResponse;
use serde_json::{Value, json};

use super::connect::Wrong;
use super::filesystem::done;
use super::place::SandboxPlace;
use super::query::parameter;
use super::upload::{Upload, boundary, parts};
use super::{Api, E2bAnswer, Within};
use crate::engine::event::Node;
use crate::engine::path::EntryPath;
use crate::engine::session::Session;
use crate::http::request::upload as arrived;
use crate::hub::{HubError, blocking};
use crate::reducers::VirtualFileSystem;
use crate::tools::FileWork;

/// The most links to follow in a row.
const LINKS_MAX: usize = 40;

pub(super) async fn download(State(api): Api, Extension(sandbox): Within, RawQuery(text): RawQuery) -> E2bAnswer {
    let asked = parameter(text.as_deref(), "path").unwrap_or_default();
    let place = SandboxPlace::of(&asked)?;
    let session = api.face.session(sandbox.name()).await?;
    api.face.hub().refresh(session.id()).await?;
    let bytes = blocking(move || contents(&session, place.path, &asked)).await??;
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream"),
        // Files that an agent wrote must not run in a browser.
        (header::CONTENT_DISPOSITION, "attachment"),
    ];
    Ok((headers, bytes).into_response())
}

fn contents(session: &Session, path: EntryPath, asked: &str) -> Result<bytes::Bytes, Wrong> {
    let state = session.state()?;
    let files = VirtualFileSystem::of(&state);
    let mut path = path;
    for _ in 0..LINKS_MAX {
        match files.get(&path).map(|entry| &entry.node) {
            Some(Node::File { content, incomplete: false, .. }) => return Ok(session.content(content)?),
            Some(Node::File { .. }) => {
                return Err(Wrong::invalid(format!("the contents of {asked:.200} were not stored: it is too large")));
            }
            Some(Node::Symlink { target }) => {
                let target = String::from_utf8_lossy(target).into_owned();
                let above = path.parent().unwrap_or_else(EntryPath::root);
                let full = if target.starts_with('/') { target } else { format!("{}/{target}", above.rooted()) };
                let full = if full.starts_with("/workspace") { full } else { format!("/workspace{full}") };
                path = SandboxPlace::of(&full)?.path;
            }
            Some(Node::Directory { .. }) => return Err(Wrong::invalid(format!("path is a directory: {asked:.200}"))),
            Some(Node::Special { .. }) => return Err(Wrong::invalid(format!("{asked:.200} is not a regular file"))),
            None if path.is_root() => return Err(Wrong::invalid(format!("path is a directory: {asked:.200}"))),
            None => return Err(Wrong::not_found(format!("path not found: {asked:.200}"))),
        }
    }
    Err(Wrong::invalid(format!("{asked:.200} leads through too many links")))
}

pub(super) async fn upload(
    State(api): Api,
    Extension(sandbox): Within,
    RawQuery(text): RawQuery,
    headers: HeaderMap,
    body: Body,
) -> E2bAnswer {
    let said = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !matches!(said(header::CONTENT_ENCODING), "" | "identity") {
        return Err(Wrong::missing("compressed uploads"));
    }
    let media = said(header::CONTENT_TYPE);
    let path = parameter(text.as_deref(), "path");
    let uploads = match boundary(media) {
        Some(boundary) => {
            let mut uploads = parts(&arrived(body).await?, &boundary)?;
            // A URL may be signed only for this path.
            if let Some(path) = &path {
                if uploads.len() > 1 {
                    return Err(Wrong::invalid("`path` names one file, and the body has several"));
                }
                uploads.iter_mut().for_each(|upload| upload.path.clone_from(path));
            }
            uploads
        }
        None if media.starts_with("application/octet-stream") => {
            let path = path.ok_or_else(|| Wrong::invalid("name the file in `path`"))?;
            vec![Upload { path, bytes: arrived(body).await? }]
        }
        None => {
            let what = "send files as multipart/form-data or application/octet-stream";
            return Err(Wrong::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, what));
        }
    };
    // Check all names first: one invalid name writes nothing.
    let places = uploads.iter().map(|upload| SandboxPlace::of(&upload.path)).collect::<Result<Vec<_>, _>>()?;
    let open = api.face.open(sandbox.name()).await?;
    let (mut files, mut written): (Vec<_>, Vec<Value>) = (Vec::new(), Vec::new());
    for (place, Upload { bytes, .. }) in places.into_iter().zip(uploads) {
        let full = place.name_of(&place.path);
        written.push(json!({ "name": full.rsplit('/').next(), "type": "file", "path": full }));
        files.push((place.rooted(), bytes));
    }
    // A task: one call writes all files or none, even if the client disconnects.
    let writing = tokio::spawn(async move { done(open.change_files(FileWork::WriteAll { files }).await?) });
    writing.await.map_err(|_| HubError::Panicked)??;
    Ok(axum::Json(written).into_response())
}
