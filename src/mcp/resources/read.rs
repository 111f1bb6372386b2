//! Reading a resource.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rmcp::RoleServer;
use rmcp::model::{ErrorData, ReadResourceResult, ResourceContents};
use rmcp::service::RequestContext;
use serde_json::json;

use super::types;
use super::uri::{Address, Position, What};
use crate::engine::event::Node;
use crate::engine::path::EntryPath;
use crate::engine::recorded::Seq;
use crate::engine::session::Session;
use crate::engine::sessions::SessionError;
use crate::engine::state::State;
use crate::mcp::client::{Client, JoinError};
use crate::mcp::names::shown;
use crate::reducers::{Entry, VirtualFileSystem};
use crate::view;

/// Bytes of a file that can be read at once.
const FILE_MAX: u64 = 4 << 20;

/// Reads what stands at an address.
pub(in crate::mcp) async fn read(
    client: &Client,
    uri: &str,
    context: &RequestContext<RoleServer>,
) -> Result<ReadResourceResult, ErrorData> {
    let address = Address::parse(uri).map_err(|error| ErrorData::resource_not_found(error.to_string(), None))?;
    let session = client.session(Some(&address.session), context).await.map_err(|error| not_found(uri, &error))?;
    let (uri, gone) = (uri.to_owned(), uri.to_owned());
    let read = tokio::task::spawn_blocking(move || contents(&session, &uri, &address.what)).await;
    let contents = match read {
        Ok(contents) => contents.map_err(|error| error.told(&gone))?,
        Err(_) => return Err(ErrorData::internal_error("foldspace is ending", None)),
    };
    Ok(ReadResourceResult::new(vec![contents]))
}

/// Why something can't be read.
#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error(transparent)]
    Session(#[from] SessionError),
    /// It is not there.
    #[error("{0}")]
    NotThere(String),
    /// It is there, and not to be had so.
    #[error("{0}")]
    Refused(String),
}

impl ReadError {
    fn told(&self, uri: &str) -> ErrorData {
        match self {
            Self::Session(SessionError::NoPosition { .. }) | Self::NotThere(_) => not_found(uri, self),
            Self::Refused(_) => ErrorData::invalid_params(self.to_string(), None),
            Self::Session(_) => ErrorData::internal_error(self.to_string(), None),
        }
    }
}

fn not_found(uri: &str, error: &dyn std::error::Error) -> ErrorData {
    ErrorData::resource_not_found(error.to_string(), Some(json!({ "uri": shown(uri, 300) })))
}

impl From<JoinError> for ErrorData {
    fn from(error: JoinError) -> Self {
        Self::internal_error(error.to_string(), None)
    }
}

fn contents(session: &Session, uri: &str, what: &What) -> Result<ResourceContents, ReadError> {
    match what {
        What::File { path, at } => file(session, &state(session, *at)?, uri, path),
        What::Slice { name, at } => {
            let state = state(session, *at)?;
            let Some(name) = view::slice_named(&state, name) else {
                let known: Vec<_> = state.registry().slices().into_iter().map(|slice| slice.name).collect();
                let what = format!("there is no slice {}; there are {}", shown(name, 80), known.join(", "));
                return Err(ReadError::NotThere(what));
            };
            let slice = view::slice(&state, name).map_err(SessionError::from)?;
            Ok(ResourceContents::text(slice.to_string(), uri).with_mime_type("application/json"))
        }
        What::Log { from, limit } => {
            let lines = log(session, *from, *limit)?;
            Ok(ResourceContents::text(lines, uri).with_mime_type("application/x-ndjson"))
        }
    }
}

fn state(session: &Session, at: Option<Position>) -> Result<State, SessionError> {
    match at {
        None => session.state(),
        Some(position) => session.state_at(position.resolve(session)?),
    }
}

fn file(session: &Session, state: &State, uri: &str, path: &EntryPath) -> Result<ResourceContents, ReadError> {
    let files = VirtualFileSystem::of(state);
    let entry = files.get(path);
    if path.is_root() || entry.is_some_and(Entry::is_directory) {
        let listed: Vec<_> = files.children(path).map(|(path, entry)| view::entry(path, entry)).collect();
        let listed = serde_json::to_string(&listed).unwrap_or_default();
        return Ok(ResourceContents::text(listed, uri).with_mime_type("inode/directory"));
    }
    let Some(entry) = entry else {
        return Err(ReadError::NotThere(format!("there is no {} at {}", path.rooted(), state.seq())));
    };
    let kind = types::of(path, &entry.node);
    match &entry.node {
        Node::File { incomplete: true, .. } => {
            Err(ReadError::Refused(format!("the contents of {} were not kept", path.rooted())))
        }
        Node::File { size, .. } if *size > FILE_MAX => {
            let what = format!("{} has {size} bytes, and a resource at most {FILE_MAX}", path.rooted());
            Err(ReadError::Refused(format!("{what}; the tool read_file reads some of its lines")))
        }
        Node::File { content, .. } => {
            let bytes = session.content(content)?;
            Ok(match std::str::from_utf8(&bytes) {
                Ok(text) => ResourceContents::text(text, uri).with_mime_type(kind),
                Err(_) => ResourceContents::blob(BASE64_STANDARD.encode(&bytes), uri).with_mime_type(kind),
            })
        }
        Node::Symlink { target } => {
            Ok(ResourceContents::text(String::from_utf8_lossy(target), uri).with_mime_type(kind))
        }
        Node::Directory | Node::Special { .. } => {
            Err(ReadError::Refused(format!("{} is no file that could be read", path.rooted())))
        }
    }
}

/// Events, a line for each.
fn log(session: &Session, from: Option<Position>, limit: usize) -> Result<String, SessionError> {
    let head = session.head()?;
    let from: Seq = match from {
        Some(position) => position.resolve(session)?,
        None => (head + 1).saturating_sub(limit as u64),
    };
    let mut lines = VecDeque::new();
    session.visit(from.max(1), &mut |event| {
        lines.push_back(serde_json::to_string(&view::event(session, event)).unwrap_or_default());
        if lines.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(lines.into_iter().map(|line| line + "\n").collect())
}
