//! Completions of templates.

use std::ops::Bound;

use rmcp::model::{CompleteRequestParams, CompletionInfo, ErrorData};

use super::uri;
use crate::engine::session::Session;
use crate::engine::session::name_index::name_of;
use crate::hub::operations::reading;
use crate::mcp::client::McpClient;
use crate::mcp::error::answer;
use crate::reducers::VirtualFileSystem;

/// Completes an argument of a template. Nothing is begun or opened for this.
pub(in crate::mcp) async fn complete(
    client: &McpClient,
    request: &CompleteRequestParams,
) -> Result<CompletionInfo, ErrorData> {
    let argument = &request.argument;
    let template = request.r#ref.as_resource_uri().unwrap_or_default();
    let wanted = request.context.as_ref().and_then(|context| context.get_argument("session"));
    let mut fitting = Fitting { beginning: argument.value.clone(), values: Vec::new(), count: 0 };
    match (template, argument.name.as_str()) {
        (uri::FILES | uri::SLICES | uri::LOG, "session") => fitting.take(sessions(client)),
        (uri::FILES, "path") => {
            let session = match wanted {
                Some(wanted) => client.reachable(wanted).ok(),
                None => client.known(),
            };
            if let Some(session) = session {
                let fitted = reading(move || Ok(fitting.with_paths(&session)));
                fitting = fitted.await.map_err(|error| answer(&error, None))?;
            }
        }
        (uri::SLICES, "slice") => {
            let slices = client.hub().sessions().registry().slices();
            fitting.take(slices.into_iter().map(|slice| slice.name.to_owned()));
        }
        _ => {}
    }
    let has_more = fitting.count > fitting.values.len();
    let total = u32::try_from(fitting.count).ok();
    Ok(CompletionInfo::with_pagination(fitting.values, total, has_more).unwrap_or_default())
}

struct Fitting {
    beginning: String,
    values: Vec<String>,
    count: usize,
}

impl Fitting {
    fn take(&mut self, values: impl IntoIterator<Item = String>) {
        for value in values.into_iter().filter(|value| value.starts_with(&self.beginning)) {
            self.count += 1;
            if self.values.len() < CompletionInfo::MAX_VALUES {
                self.values.push(value);
            }
        }
    }

    fn with_paths(mut self, session: &Session) -> Self {
        let Ok(state) = session.state() else { return self };
        let files = VirtualFileSystem::of(&state);
        let beginning = self.beginning.as_bytes();
        let from = files.starting_at(Bound::Included(beginning.to_vec()));
        let fitting = from.take_while(|(path, _)| path.as_bytes().starts_with(beginning));
        for (path, _) in fitting.filter(|(_, entry)| !entry.is_directory()) {
            self.count += 1;
            if self.values.len() < CompletionInfo::MAX_VALUES {
                self.values.push(path.to_string());
            }
        }
        self
    }
}

fn sessions(client: &McpClient) -> Vec<String> {
    if !client.reaches_all() {
        return client.known().map(|session| session.name().to_owned()).into_iter().collect();
    }
    let entries = client.hub().sessions().list().unwrap_or_default();
    entries.iter().map(name_of).collect()
}
