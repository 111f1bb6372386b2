//! What may stand in a template, for who begins to type it.

use rmcp::model::{CompleteRequestParams, CompletionInfo};

use super::uri;
use crate::engine::session::Session;
use crate::engine::sessions::name_of;
use crate::mcp::client::Client;
use crate::reducers::VirtualFileSystem;

/// What an argument of a template may be that begins so. Nothing is begun or opened for this.
pub(in crate::mcp) fn complete(client: &Client, request: &CompleteRequestParams) -> CompletionInfo {
    let argument = &request.argument;
    let template = request.r#ref.as_resource_uri().unwrap_or_default();
    let wanted = request.context.as_ref().and_then(|context| context.get_argument("session"));
    let values = match (template, argument.name.as_str()) {
        (uri::FILES | uri::SLICES | uri::LOG, "session") => sessions(client),
        (uri::FILES, "path") => session(client, wanted).map(|session| paths(&session)).unwrap_or_default(),
        (uri::SLICES, "slice") => {
            let slices = client.hub().sessions().registry().slices();
            slices.into_iter().map(|slice| slice.name.to_owned()).collect()
        }
        _ => Vec::new(),
    };
    let fitting = values.into_iter().filter(|value| value.starts_with(&argument.value));
    let mut fitting: Vec<String> = fitting.collect();
    let total = u32::try_from(fitting.len()).ok();
    let has_more = fitting.len() > CompletionInfo::MAX_VALUES;
    fitting.truncate(CompletionInfo::MAX_VALUES);
    CompletionInfo::with_pagination(fitting, total, has_more).unwrap_or_default()
}

fn sessions(client: &Client) -> Vec<String> {
    if !client.options().reaches_all() {
        return client.known().map(|session| session.name().to_owned()).into_iter().collect();
    }
    let entries = client.hub().sessions().list().unwrap_or_default();
    entries.iter().map(name_of).collect()
}

fn session(client: &Client, wanted: Option<&String>) -> Option<Session> {
    let own = client.known();
    let Some(wanted) = wanted else { return own };
    if own.as_ref().is_some_and(|own| own.name() == wanted) {
        return own;
    }
    if !client.options().reaches_all() {
        return None;
    }
    let entry = client.hub().sessions().find(wanted).ok()?;
    client.hub().sessions().session(entry.id).ok()
}

fn paths(session: &Session) -> Vec<String> {
    let Ok(state) = session.state() else { return Vec::new() };
    let files = VirtualFileSystem::of(&state);
    files.iter().filter(|(_, entry)| !entry.is_directory()).map(|(path, _)| path.to_string()).collect()
}
