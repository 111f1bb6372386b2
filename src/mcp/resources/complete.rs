//! Completion of template arguments.

use std::ops::Bound;

use rmcp::model::{CompleteRequestParams, CompletionInfo, ErrorData};

use super::uri;
use crate::engine::session::Session;
use crate::engine::session::sessions::Sessions;
use crate::hub::operations::reading;
use crate::mcp::client::McpClient;
use crate::mcp::error::answer;
use crate::reducers::VirtualFileSystem;

/// Completes an argument of a template. Creates and opens nothing.
pub(in crate::mcp) async fn complete(
    client: &McpClient,
    request: &CompleteRequestParams,
) -> Result<CompletionInfo, ErrorData> {
    let argument = &request.argument;
    let template = request.r#ref.as_resource_uri().unwrap_or_default();
    let wanted = request.context.as_ref().and_then(|context| context.get_argument("session"));
    let beginning = argument.value.as_str();
    let mut fitting = Fitting::default();
    match (template, argument.name.as_str()) {
        (uri::FILES | uri::SLICES | uri::LOG, "session") => {
            fitting.take(sessions(client).into_iter().filter(|name| name.starts_with(beginning)));
        }
        (uri::FILES, "path") => {
            let session = match wanted {
                Some(wanted) => client.reachable(wanted).ok(),
                None => client.known(),
            };
            if let Some(session) = session {
                let beginning = beginning.to_owned();
                let fitted = reading(move || Ok(Fitting::of_paths(&session, &beginning)));
                fitting = fitted.await.map_err(|error| answer(&error, None))?;
            }
        }
        (uri::SLICES, "slice") => {
            let slices = client.hub().sessions().registry().slices();
            fitting.take(slices.iter().map(|slice| slice.name).filter(|name| name.starts_with(beginning)));
        }
        _ => {}
    }
    let has_more = fitting.count > fitting.values.len();
    let total = u32::try_from(fitting.count).ok();
    Ok(CompletionInfo::with_pagination(fitting.values, total, has_more).unwrap_or_default())
}

#[derive(Default)]
struct Fitting {
    values: Vec<String>,
    count: usize,
}

impl Fitting {
    fn take(&mut self, values: impl IntoIterator<Item: ToString>) {
        for value in values {
            self.count += 1;
            if self.values.len() < CompletionInfo::MAX_VALUES {
                self.values.push(value.to_string());
            }
        }
    }

    fn of_paths(session: &Session, beginning: &str) -> Self {
        let mut fitting = Self::default();
        if let Ok(state) = session.state() {
            let files = VirtualFileSystem::of(&state);
            let from = files.starting_at(Bound::Included(beginning.as_bytes().to_vec()));
            let with_it = from.take_while(|(path, _)| path.as_bytes().starts_with(beginning.as_bytes()));
            fitting.take(with_it.filter(|(_, entry)| !entry.is_directory()).map(|(path, _)| path));
        }
        fitting
    }
}

fn sessions(client: &McpClient) -> Vec<String> {
    if !client.reaches_all() {
        return client.known().map(|session| session.name().to_owned()).into_iter().collect();
    }
    let entries = client.read(Sessions::list).unwrap_or_default();
    entries.iter().map(|entry| entry.name()).collect()
}
