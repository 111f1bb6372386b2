//! The verbs of the hub as tools for orchestrators.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rmcp::RoleServer;
use rmcp::model::{
    CallToolRequestParams, CallToolResult, JsonObject, ProgressNotificationParam, Tool, ToolAnnotations,
};
use rmcp::service::RequestContext;
use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::calls::{failed, succeeded};
use super::client::McpClient;
use super::tool_list::{described, has_session_tool};
use super::{probe_approval, shorten};
use crate::engine::error::ErrorKind;
use crate::engine::session::Session;
use crate::hub::OpenSession;
use crate::hub::operations::{
    Caller, OperationAnswer, OperationContext, OperationEffect, OperationEntry, OperationError, OperationTool, TooLong,
    operations,
};
use crate::tools::{Bisection, ShellRules};

/// Bytes of a result at most, so that it fits into a model's memory.
pub(super) const RESULT_MAX: usize = 1 << 20;

/// A client whose request is worked on.
pub(super) struct McpCaller<'a> {
    pub(super) client: &'a McpClient,
    pub(super) context: &'a RequestContext<RoleServer>,
}

impl Caller for McpCaller<'_> {
    fn session<'a>(&'a self, wanted: Option<&'a str>) -> BoxFuture<'a, Result<Session, OperationError>> {
        async move { Ok(self.client.session(wanted, self.context).await?) }.boxed()
    }

    fn open<'a>(&'a self, wanted: Option<&'a str>) -> BoxFuture<'a, Result<OpenSession, OperationError>> {
        async move { Ok(self.client.open(wanted, self.context).await?) }.boxed()
    }

    fn rules(&self) -> &ShellRules {
        &self.client.options().rules
    }

    fn is_model(&self) -> bool {
        true
    }

    fn allow<'a>(&'a self, bisection: Bisection) -> BoxFuture<'a, Result<Bisection, OperationError>> {
        probe_approval::allow(self, bisection).boxed()
    }
}

fn hints(effect: OperationEffect) -> ToolAnnotations {
    let hints = ToolAnnotations::new();
    match effect {
        OperationEffect::Looks => hints.read_only(true).destructive(false).idempotent(true).open_world(false),
        OperationEffect::Adds => hints.read_only(false).destructive(false).idempotent(false).open_world(false),
        OperationEffect::Changes => hints.read_only(false).destructive(true).idempotent(false).open_world(false),
        // The command may reach whatever the session's own commands reach.
        OperationEffect::Runs => hints.read_only(false).destructive(true).idempotent(false).open_world(true),
    }
}

fn known() -> impl Iterator<Item = (&'static OperationEntry, OperationTool)> {
    operations().iter().filter_map(|entry| Some((entry, entry.tool?)))
}

/// All of them.
pub(super) fn tools() -> Vec<Tool> {
    let mut tools: Vec<Tool> = known().map(|(entry, tool)| offered(entry, tool)).collect();
    tools.sort_by(|one, other| one.name.cmp(&other.name));
    tools
}

fn offered(entry: &'static OperationEntry, tool: OperationTool) -> Tool {
    let mut params = root(entry.params, SchemaSettings::default());
    params.remove("description");
    if let Some(fields) = params.get_mut("properties").and_then(Value::as_object_mut) {
        fields.retain(|name, _| !tool.hidden.contains(&&**name));
        let (name, about) = tool.session;
        fields.shift_insert(0, name.to_owned(), json!({ "type": ["string", "null"], "description": about }));
    }
    let mut output = root(entry.output, SchemaSettings::default().for_serialize());
    if let (TooLong::Cut(_), Some(Value::Object(fields))) = (tool.too_long, output.get_mut("properties")) {
        let about = "What is cut, since a result would be too long: names of fields, with how much of them is left. \
                     Left out where nothing is.";
        let list = json!({ "type": "array", "items": { "type": "string" }, "description": about });
        fields.insert("shortened".to_owned(), list);
    }
    described(tool.name, &entry.about, &params.into(), &output.into(), hints(tool.effect))
}

/// Makes a schema that stands by itself.
fn root(make: fn(&mut SchemaGenerator) -> Schema, settings: SchemaSettings) -> JsonObject {
    let mut generator = settings.into_generator();
    let schema = make(&mut generator);
    let mut definitions = generator.take_definitions(true);
    let name = schema.get("$ref").and_then(Value::as_str).and_then(|reference| reference.rsplit('/').next());
    let own = name.and_then(|name| definitions.shift_remove(name));
    let mut schema = own.unwrap_or(schema.into()).as_object_mut().map(std::mem::take).unwrap_or_default();
    if !definitions.is_empty() {
        schema.insert("$defs".to_owned(), definitions.into());
    }
    schema
}

/// Calls a tool of these; none where there is no such tool, or the client may not use it.
pub(super) async fn call(
    client: &McpClient,
    request: &CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Option<CallToolResult> {
    let (entry, tool) = known().find(|(_, tool)| tool.name == request.name)?;
    if !has_session_tool(client, tool.name) {
        return None;
    }
    let params = request.arguments.clone().unwrap_or_default();
    let done = run(entry, tool, params, &McpCaller { client, context }).await;
    Some(match done.and_then(|answer| told(&*answer, tool.too_long)) {
        Ok(told) => told,
        Err(OperationError::Told { detail, hint: Some(hint), .. }) => failed(&format!("{detail}; {hint}")),
        Err(error) => failed(&error),
    })
}

async fn run(
    entry: &OperationEntry,
    tool: OperationTool,
    mut params: JsonObject,
    caller: &McpCaller<'_>,
) -> Result<Box<dyn OperationAnswer>, OperationError> {
    if let Some(hidden) = tool.hidden.iter().find(|name| params.contains_key(**name)) {
        return Err(OperationError::invalid(format!("the parameters are not right: unknown field `{hidden}`")));
    }
    let session = match params.shift_remove(tool.session.0) {
        None | Some(Value::Null) => None,
        Some(Value::String(session)) => Some(session),
        Some(_) => return Err(OperationError::invalid(format!("{} is a text", tool.session.0))),
    };
    let (seen, records) = mpsc::unbounded_channel();
    let context = OperationContext {
        hub: caller.client.hub(),
        session,
        caller,
        cancel: caller.client.gone.child_token(),
        progress: Some(seen),
        bytes_max: RESULT_MAX,
    };
    let cancel = context.cancel.clone();
    let work = async {
        let done = (entry.run)(params.into(), &context).await;
        // Now nothing more is told.
        drop(context);
        done
    };
    let mut work = std::pin::pin!(async { tokio::join!(work, tell(caller, records)).0 });
    tokio::select! {
        done = &mut work => done,
        () = caller.context.ct.cancelled() => {
            // Copies are removed first.
            cancel.cancel();
            work.await
        }
    }
}

/// Tells a client that wants to know of the progress.
async fn tell(caller: &McpCaller<'_>, mut records: mpsc::UnboundedReceiver<String>) {
    let Some(token) = caller.context.meta.get_progress_token() else { return };
    let mut count = 0_u32;
    while let Some(words) = records.recv().await {
        count += 1;
        let said = ProgressNotificationParam::new(token.clone(), f64::from(count)).with_message(words);
        if caller.context.peer.notify_progress(said).await.is_err() {
            return;
        }
    }
}

/// Tells what came of it, as text and as data.
fn told(answer: &dyn OperationAnswer, too_long: TooLong) -> Result<CallToolResult, OperationError> {
    let unwritten = |error| OperationError::new(ErrorKind::Refused, format!("the result can't be written: {error}"));
    let (mut text, mut result) = (answer.text(), answer.value().map_err(unwritten)?);
    match too_long {
        TooLong::Cut(hint) => shorten::both(&mut text, &mut result, RESULT_MAX, hint),
        TooLong::Refuse(hint) => {
            let bytes = result.to_string().len().max(text.len());
            if bytes > RESULT_MAX {
                let what = format!("that has {bytes} bytes, and a result at most {RESULT_MAX}: {hint}");
                return Err(OperationError::new(ErrorKind::Refused, what));
            }
        }
    }
    let mut told = succeeded(text, result);
    told.is_error = Some(!answer.is_well());
    Ok(told)
}
