//! Reading of resources.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rmcp::RoleServer;
use rmcp::model::{ErrorData, ReadResourceResult, ResourceContents};
use rmcp::service::RequestContext;

use super::types;
use super::uri::{ResourceUri, What};
use crate::engine::event::Node;
use crate::engine::path::EntryPath;
use crate::engine::session::Session;
use crate::engine::state::State;
use crate::hub::Hub;
use crate::hub::operations::{OperationError, events, known_slice, mounted_directory, reading, state_at};
use crate::mcp::client::McpClient;
use crate::mcp::error::answer;
use crate::mcp::names::shown;
use crate::reducers::{Entry, VirtualFileSystem};
use crate::view::{self, EventDocument};

/// Limit for a resource in bytes.
const RESOURCE_MAX: usize = 4 << 20;

pub(in crate::mcp) async fn read(
    client: &McpClient,
    uri: &str,
    context: &RequestContext<RoleServer>,
) -> Result<ReadResourceResult, ErrorData> {
    let (session, address) = find(client, uri, context).await?;
    let (uri, gone) = (uri.to_owned(), uri.to_owned());
    let hub = client.hub().clone();
    let read = reading(move || contents(&hub, &session, &uri, &address.what)).await;
    Ok(ReadResourceResult::new(vec![read.map_err(|error| answer(&error, Some(&gone)))?]))
}

pub(in crate::mcp) async fn find(
    client: &McpClient,
    uri: &str,
    context: &RequestContext<RoleServer>,
) -> Result<(Session, ResourceUri), ErrorData> {
    let address = ResourceUri::parse(uri).map_err(|error| answer(&error, Some(uri)))?;
    let session = client.session(Some(&address.session), context).await.map_err(|error| answer(&error, Some(uri)))?;
    Ok((session, address))
}

fn contents(hub: &Hub, session: &Session, uri: &str, what: &What) -> Result<ResourceContents, OperationError> {
    match what {
        What::File { path, at } => file(session, &state_at(session, at.clone())?, uri, path),
        What::Slice { name, at } => {
            let state = state_at(session, at.clone())?;
            let name = known_slice(&state, name)?;
            let slice = view::slice(&state, &name)?.to_string();
            let hint = "session_state with `pointer` shows a part of it";
            check_fits(|| format!("slice {name}"), slice.len() as u64, hint)?;
            Ok(ResourceContents::text(slice, uri).with_mime_type("application/json"))
        }
        What::Log { from, limit } => {
            let from = from.as_ref().map(|from| view::first_read(session, from)).transpose()?;
            let events = events(session, from, (*limit, RESOURCE_MAX))?.events.unwrap_or_default();
            let line = |event: &EventDocument| serde_json::to_string(event).unwrap_or_default() + "\n";
            let lines = events.iter().map(line).collect::<String>();
            Ok(ResourceContents::text(lines, uri).with_mime_type("application/x-ndjson"))
        }
        What::Mount { at } => {
            let directory = mounted_directory(hub, session, at.clone())?;
            Ok(ResourceContents::text(directory.to_string_lossy(), uri).with_mime_type("text/plain"))
        }
    }
}

fn file(session: &Session, state: &State, uri: &str, path: &EntryPath) -> Result<ResourceContents, OperationError> {
    let files = VirtualFileSystem::of(state);
    let entry = files.get(path);
    if path.is_root() || entry.is_some_and(Entry::is_directory) {
        let listed: Vec<_> = files.children(path).map(|(path, entry)| view::entry(path, entry)).collect();
        let listed = serde_json::to_string(&listed).unwrap_or_default();
        let hint = "the tool ls lists some of its entries";
        check_fits(|| format!("the list of {}", named(path)), listed.len() as u64, hint)?;
        return Ok(ResourceContents::text(listed, uri).with_mime_type("inode/directory"));
    }
    let Some(entry) = entry else {
        return Err(OperationError::not_found(format!("{} does not exist at {}", named(path), state.seq())));
    };
    let kind = types::of(path, &entry.node);
    match &entry.node {
        Node::File { incomplete: true, .. } => {
            Err(OperationError::refused(format!("the contents of {} were not stored", named(path))))
        }
        Node::File { content, size, .. } => {
            check_fits(|| named(path), *size, "the tool read_file reads it in parts")?;
            let bytes = session.content(content)?;
            Ok(match std::str::from_utf8(&bytes) {
                Ok(text) => ResourceContents::text(text, uri).with_mime_type(kind),
                Err(_) => ResourceContents::blob(BASE64_STANDARD.encode(&bytes), uri).with_mime_type(kind),
            })
        }
        Node::Symlink { target } => {
            Ok(ResourceContents::text(String::from_utf8_lossy(target), uri).with_mime_type(kind))
        }
        Node::Directory { .. } | Node::Special { .. } => {
            Err(OperationError::refused(format!("{} is not a readable file", named(path))))
        }
    }
}

fn named(path: &EntryPath) -> String {
    shown(&path.rooted(), 300)
}

fn check_fits(what: impl FnOnce() -> String, bytes: u64, hint: &str) -> Result<(), OperationError> {
    if bytes <= RESOURCE_MAX as u64 {
        return Ok(());
    }
    Err(OperationError::refused(format!("{} has {bytes} bytes; the limit is {RESOURCE_MAX}; {hint}", what())))
}
