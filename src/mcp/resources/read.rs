//! Reading a resource.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rmcp::RoleServer;
use rmcp::model::{ErrorData, ReadResourceResult, ResourceContents};
use rmcp::service::RequestContext;

use super::uri::{ResourceUri, What};
use super::{looking, types};
use crate::engine::event::Node;
use crate::engine::id::Seq;
use crate::engine::path::EntryPath;
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::engine::state::State;
use crate::mcp::McpError;
use crate::mcp::client::McpClient;
use crate::mcp::names::shown;
use crate::reducers::{Entry, VirtualFileSystem};
use crate::view::{self, Position};

/// Bytes of a resource that can be read at once.
const RESOURCE_MAX: usize = 4 << 20;

/// Reads what stands at an address.
pub(in crate::mcp) async fn read(
    client: &McpClient,
    uri: &str,
    context: &RequestContext<RoleServer>,
) -> Result<ReadResourceResult, ErrorData> {
    let (session, address) = find(client, uri, context).await?;
    let (uri, gone) = (uri.to_owned(), uri.to_owned());
    let read = looking(move || contents(&session, &uri, &address.what)).await?;
    Ok(ReadResourceResult::new(vec![read.map_err(|error| error.answer(Some(&gone)))?]))
}

/// Finds the session of an address.
pub(in crate::mcp) async fn find(
    client: &McpClient,
    uri: &str,
    context: &RequestContext<RoleServer>,
) -> Result<(Session, ResourceUri), ErrorData> {
    let address = ResourceUri::parse(uri).map_err(|error| error.answer(Some(uri)))?;
    let session = client.session(Some(&address.session), context).await.map_err(|error| error.answer(Some(uri)))?;
    Ok((session, address))
}

fn contents(session: &Session, uri: &str, what: &What) -> Result<ResourceContents, McpError> {
    match what {
        What::File { path, at } => file(session, &state(session, *at)?, uri, path),
        What::Slice { name, at } => {
            let state = state(session, *at)?;
            let Some(name) = view::slice_named(&state, name) else {
                let known: Vec<_> = state.registry().slices().into_iter().map(|slice| slice.name).collect();
                let what = format!("there is no slice {}; there are {}", shown(name, 80), known.join(", "));
                return Err(McpError::NotFound(what));
            };
            let slice = view::slice(&state, name).map_err(SessionError::from)?.to_string();
            let hint = "`foldspace state` prints all of it";
            check_fits(|| format!("slice {name}"), slice.len() as u64, hint)?;
            Ok(ResourceContents::text(slice, uri).with_mime_type("application/json"))
        }
        What::Log { from, limit } => {
            let lines = log(session, *from, *limit)?;
            Ok(ResourceContents::text(lines, uri).with_mime_type("application/x-ndjson"))
        }
    }
}

fn state(session: &Session, at: Option<Position>) -> Result<State, McpError> {
    Ok(match at {
        None => session.state()?,
        Some(position) => session.state_at(position.resolve(session)?)?,
    })
}

fn file(session: &Session, state: &State, uri: &str, path: &EntryPath) -> Result<ResourceContents, McpError> {
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
        return Err(McpError::NotFound(format!("there is no {} at {}", named(path), state.seq())));
    };
    let kind = types::of(path, &entry.node);
    match &entry.node {
        Node::File { incomplete: true, .. } => {
            Err(McpError::Refused(format!("the contents of {} were not kept", named(path))))
        }
        Node::File { content, size, .. } => {
            check_fits(|| named(path), *size, "the tool read_file reads some of its lines")?;
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
            Err(McpError::Refused(format!("{} is no file that could be read", named(path))))
        }
    }
}

/// A path in a message; an address may have a very long one.
fn named(path: &EntryPath) -> String {
    shown(&path.rooted(), 300)
}

/// Refuses what is too long; the hint says how to have less of it.
fn check_fits(what: impl FnOnce() -> String, bytes: u64, hint: &str) -> Result<(), McpError> {
    if bytes <= RESOURCE_MAX as u64 {
        return Ok(());
    }
    Err(McpError::Refused(format!("{} has {bytes} bytes, and a resource at most {RESOURCE_MAX}; {hint}", what())))
}

/// Events, a line for each: the last ones, or the first from a position on. Of those there are fewer where they are too
/// long together.
fn log(session: &Session, from: Option<Position>, limit: usize) -> Result<String, McpError> {
    let head = session.head()?;
    let first: Seq = match from {
        Some(position) => view::first_read(session, position)?,
        None => (head + 1).saturating_sub(limit as u64),
    };
    let (mut lines, mut bytes) = (VecDeque::new(), 0);
    session.visit(first.max(1), &mut |event| {
        let line = serde_json::to_string(&view::event(session, event)).unwrap_or_default() + "\n";
        bytes += line.len();
        lines.push_back(line);
        while bytes > RESOURCE_MAX && lines.len() > 1 {
            let dropped = if from.is_some() { lines.pop_back() } else { lines.pop_front() };
            bytes -= dropped.map_or(0, |line: String| line.len());
            if from.is_some() {
                return ControlFlow::Break(());
            }
        }
        if lines.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(lines.into_iter().collect())
}
