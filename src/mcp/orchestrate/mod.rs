//! Tools for orchestrators: sessions as a whole, at any position of their history.

mod allowing;
mod bisect;
mod clone;
mod diff;
mod log;
mod merge;
mod rewind;
mod shorten;
mod state;

use rmcp::RoleServer;
use rmcp::model::{CallToolRequestParams, CallToolResult, Tool, ToolAnnotations};
use rmcp::service::RequestContext;
use schemars::{JsonSchema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::calls::{failed, succeeded};
use super::client::McpClient;
use super::tool_list::described;
use crate::engine::id::Seq;
use crate::engine::session::Session;
use crate::view::Position;

/// Bytes of a result at most, so that it fits into a model's memory.
const RESULT_MAX: usize = 1 << 20;

/// Why nothing was done, in words that a model can act on.
struct OperationError(String);

impl<E: std::error::Error> From<E> for OperationError {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

/// What came of a call: as text and as data, and whether it did what was wanted.
struct OperationOutcome {
    text: String,
    result: Value,
    is_well: bool,
}

impl OperationOutcome {
    fn new(text: String, document: &impl Serialize) -> Result<Self, OperationError> {
        let result = serde_json::to_value(document)?;
        Ok(Self { text, result, is_well: true })
    }

    /// Cuts what is too long, where something was done that has to be told of; the hint says where to see the rest.
    fn shortened(mut self, hint: &str) -> Self {
        let cuts = shorten::to_fit(&mut self.result, RESULT_MAX);
        let is_cut = self.text.len() > RESULT_MAX;
        if is_cut {
            self.text.truncate(self.text.floor_char_boundary(RESULT_MAX));
            self.text.push('…');
        }
        if is_cut || !cuts.is_empty() {
            let what = if cuts.is_empty() { String::new() } else { format!(" ({})", cuts.join("; ")) };
            self.text.push_str(&format!("\nnot all is shown{what}: {hint}"));
        }
        self
    }

    /// Refuses what is too long, where nothing is lost by that; the hint says how to ask for less.
    fn fitting(self, hint: &str) -> Result<Self, OperationError> {
        let bytes = self.result.to_string().len().max(self.text.len());
        match bytes {
            0..=RESULT_MAX => Ok(self),
            _ => Err(OperationError(format!("that has {bytes} bytes, and a result at most {RESULT_MAX}: {hint}"))),
        }
    }
}

/// What a call works with.
struct OperationContext<'a> {
    client: &'a McpClient,
    context: &'a RequestContext<RoleServer>,
}

impl OperationContext<'_> {
    /// A session by its name or id; the client's own when nothing is said.
    async fn session(&self, wanted: Option<&str>) -> Result<Session, OperationError> {
        Ok(self.client.session(wanted, self.context).await?)
    }
}

/// Does what only reads where it holds up nobody.
async fn reading<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, OperationError> + Send + 'static,
) -> Result<T, OperationError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(_) => Err(OperationError("foldspace is ending".to_owned())),
    }
}

/// The position that is meant; another one when nothing is said.
fn position(session: &Session, given: Option<Position>, otherwise: Seq) -> Result<Seq, OperationError> {
    Ok(given.map_or(Ok(otherwise), |given| given.resolve(session))?)
}

/// What such a tool does to sessions and the world.
#[derive(Clone, Copy)]
enum OperationEffect {
    /// It only looks.
    Looks,
    /// It begins something new.
    Adds,
    /// It changes a session's files.
    Changes,
    /// It runs a command in copies.
    Runs,
}

impl OperationEffect {
    fn hints(self) -> ToolAnnotations {
        let hints = ToolAnnotations::new();
        match self {
            Self::Looks => hints.read_only(true).destructive(false).idempotent(true).open_world(false),
            Self::Adds => hints.read_only(false).destructive(false).idempotent(false).open_world(false),
            Self::Changes => hints.read_only(false).destructive(true).idempotent(false).open_world(false),
            // The command may reach whatever the session's own commands reach.
            Self::Runs => hints.read_only(false).destructive(true).idempotent(false).open_world(true),
        }
    }
}

fn tool<P: JsonSchema, O: JsonSchema>(name: &'static str, description: &'static str, kind: OperationEffect) -> Tool {
    let schema = SchemaGenerator::default;
    let (params, output) = (schema().into_root_schema_for::<P>(), schema().into_root_schema_for::<O>());
    described(name, description, &params, &output, kind.hints())
}

/// All of them.
pub(super) fn tools() -> Vec<Tool> {
    vec![bisect::tool(), clone::tool(), diff::tool(), log::tool(), merge::tool(), rewind::tool(), state::tool()]
}

/// Calls a tool of these; none where there is no such tool, or the client may not use it.
pub(super) async fn call(
    client: &McpClient,
    request: &CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Option<CallToolResult> {
    if !super::tool_list::has_session_tool(client, &request.name) {
        return None;
    }
    let params = Value::Object(request.arguments.clone().unwrap_or_default());
    let (name, request) = (request.name.as_ref(), OperationContext { client, context });
    let done = match name {
        bisect::NAME => run(bisect::call, request, params).await,
        clone::NAME => run(clone::call, request, params).await,
        diff::NAME => run(diff::call, request, params).await,
        log::NAME => run(log::call, request, params).await,
        merge::NAME => run(merge::call, request, params).await,
        rewind::NAME => run(rewind::call, request, params).await,
        state::NAME => run(state::call, request, params).await,
        _ => return None,
    };
    Some(match done {
        Ok(done) => {
            let mut told = succeeded(done.text, done.result);
            told.is_error = Some(!done.is_well);
            told
        }
        Err(OperationError(why)) => failed(&why),
    })
}

async fn run<P: DeserializeOwned>(
    tool: impl AsyncFnOnce(OperationContext<'_>, P) -> Result<OperationOutcome, OperationError>,
    request: OperationContext<'_>,
    params: Value,
) -> Result<OperationOutcome, OperationError> {
    let params = serde_json::from_value(params);
    let params = params.map_err(|error| OperationError(format!("the parameters are not right: {error}")))?;
    tool(request, params).await
}
