//! Resources: files, slices and the log, readable at any position without a tool.

mod complete;
mod read;
mod types;
mod uri;

use std::ops::Bound;

use rmcp::model::{
    ErrorData, ListResourceTemplatesResult, ListResourcesResult, PaginatedRequestParams, Resource, ResourceTemplate,
};

use super::client::McpClient;
use super::error::answer;
use crate::engine::event::Node;
use crate::engine::session::Session;
use crate::hub::operations::{OperationError, reading};
use crate::reducers::VirtualFileSystem;
use crate::view::Position;
pub(super) use complete::complete;
pub(super) use read::{find, read};
pub(super) use uri::{ResourceUri, What};

/// Resources of a page.
const PAGE: usize = 200;

pub(super) fn templates() -> ListResourceTemplatesResult {
    let template = |uri: &str, name: &str, title: &str, words: String| {
        ResourceTemplate::new(uri, name).with_title(title).with_description(words)
    };
    let at = format!("`at` is a position: {}; the current state by default.", Position::FORMS);
    ListResourceTemplatesResult::with_all_items(vec![
        template(uri::FILES, "file", "A file of a session", format!("A file of a session's workspace. {at}")),
        template(uri::SLICES, "slice", "A slice of a session's state", format!("Part of a session's state, such as its calls, usage or commands. {at}"))
            .with_mime_type("application/json"),
        template(uri::LOG, "log", "A session's events", "Events of a session, one JSON line each: `limit` events starting at position `from`, by default the last ones.".to_owned())
            .with_mime_type("application/x-ndjson"),
        template(uri::MOUNT, "mount", "A session's files as a directory", format!("The path of a read-only directory on the server's machine with the files of a session. In it, `.call/N/before` and `.call/N/after` have the files before and after a call, and `.at/POSITION` those at a position. {at}"))
            .with_mime_type("text/plain"),
    ])
}

/// Lists the resources of the client's own session. Creates no session.
pub(super) async fn list(
    client: &McpClient,
    page: Option<PaginatedRequestParams>,
) -> Result<ListResourcesResult, ErrorData> {
    let cursor = page.and_then(|page| page.cursor);
    let Some(session) = client.known() else { return Ok(ListResourcesResult::default()) };
    let after = match &cursor {
        None => None,
        Some(cursor) => Some(read_cursor(cursor).ok_or_else(|| ErrorData::invalid_params("invalid cursor", None))?),
    };
    reading(move || list_of(&session, after.as_ref())).await.map_err(|error| answer(&error, None))
}

/// Parses a cursor: the last URI of a page, so that changes do not move it.
fn read_cursor(cursor: &str) -> Option<ResourceUri> {
    ResourceUri::parse(cursor).ok().filter(|address| matches!(address.what, What::File { .. }))
}

fn list_of(session: &Session, after: Option<&ResourceUri>) -> Result<ListResourcesResult, OperationError> {
    let state = session.state()?;
    let files = VirtualFileSystem::of(&state);
    let name = session.name().to_owned();
    let address = |what| ResourceUri { session: name.clone(), what };
    let mut resources = Vec::new();
    let from = match after.map(|address| &address.what) {
        Some(What::File { path, .. }) => Bound::Excluded(path.as_bytes().to_vec()),
        _ => {
            let log = address(What::Log { from: None, limit: 0 }).to_string();
            resources.push(Resource::new(log, "log").with_title("Log").with_mime_type("application/x-ndjson"));
            for slice in state.slices() {
                let uri = address(What::Slice { name: slice.name.clone(), at: None }).to_string();
                resources.push(Resource::new(uri, slice.name).with_mime_type("application/json"));
            }
            Bound::Unbounded
        }
    };
    let mut next_cursor = None;
    for (path, entry) in files.starting_at(from) {
        let Node::File { size, .. } = &entry.node else { continue };
        if resources.len() >= PAGE {
            next_cursor = resources.last().map(|last: &Resource| last.uri.clone());
            break;
        }
        let uri = address(What::File { path: path.clone(), at: None }).to_string();
        let resource = Resource::new(uri, path.to_string()).with_mime_type(types::of(path, &entry.node));
        resources.push(resource.with_size(*size));
    }
    Ok(ListResourcesResult { next_cursor, ..ListResourcesResult::with_all_items(resources) })
}
