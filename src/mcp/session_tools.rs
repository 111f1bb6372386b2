//! The hub's operations as tools for orchestrators.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rmcp::RoleServer;
use rmcp::model::{CallToolRequestParams, CallToolResult, JsonObject, ProgressNotificationParam};
use rmcp::service::RequestContext;
use serde_json::Value;
use tokio::sync::mpsc;

use super::calls::{failed, succeeded, to_the_end};
use super::client::McpClient;
use super::error::words;
use super::offered::operation_tools;
use super::tool_list::has_session_tool;
use super::{probe_approval, shorten};
use crate::engine::session::Session;
use crate::hub::OpenSession;
use crate::hub::operations::{
    Caller, OperationAnswer, OperationContext, OperationEntry, OperationError, OperationTool, TooLong,
};
use crate::tools::{Bisection, ShellRules};

/// Limit for a result in bytes, so that it fits a model's context.
pub(super) const RESULT_MAX: usize = 1 << 20;

pub(super) struct McpCaller<'a> {
    pub(super) client: &'a McpClient,
    pub(super) context: &'a RequestContext<RoleServer>,
}

impl Caller for McpCaller<'_> {
    fn session<'a>(&'a self, wanted: Option<&'a str>) -> BoxFuture<'a, Result<Session, OperationError>> {
        self.client.session(wanted, self.context).boxed()
    }

    fn open<'a>(&'a self, wanted: Option<&'a str>) -> BoxFuture<'a, Result<OpenSession, OperationError>> {
        self.client.open(wanted, self.context).boxed()
    }

    fn rules(&self) -> &ShellRules {
        &self.client.options().rules
    }

    fn is_model(&self) -> bool {
        true
    }

    fn offers(&self, tool: &str) -> bool {
        self.client.offers(tool)
    }

    fn allow<'a>(&'a self, bisection: Bisection) -> BoxFuture<'a, Result<Bisection, OperationError>> {
        probe_approval::allow(self.client, self.context, bisection).boxed()
    }
}

/// Calls a session tool. `None` if the tool does not exist or the client may not use it.
pub(super) async fn call(
    client: &McpClient,
    request: &CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Option<CallToolResult> {
    let (entry, tool) = operation_tools().find(|(_, tool)| tool.name == request.name)?;
    if !has_session_tool(client, tool.name) {
        return None;
    }
    let mut params = request.arguments.clone().unwrap_or_default();
    if let Some(route) = entry.route {
        let wanted = params.get(tool.session.0).and_then(Value::as_str);
        if let Some(session) = client.elsewhere(wanted).await {
            params.shift_remove(tool.session.0);
            return Some(match client.run_elsewhere(session, (route, params)).await {
                Ok(value) => succeeded(serde_json::to_string_pretty(&value).unwrap_or_default(), value),
                Err(error) => failed(&words(&error)),
            });
        }
    }
    let done = run(entry, tool, params, &McpCaller { client, context }).await;
    Some(match done.and_then(|answer| told(&*answer, tool.too_long)) {
        Ok(told) => told,
        Err(error) => failed(&words(&error)),
    })
}

async fn run(
    entry: &OperationEntry,
    tool: OperationTool,
    mut params: JsonObject,
    caller: &McpCaller<'_>,
) -> Result<Box<dyn OperationAnswer>, OperationError> {
    if let Some(hidden) = tool.hidden.iter().find(|name| params.contains_key(**name)) {
        return Err(OperationError::invalid(format!("invalid parameters: unknown field `{hidden}`")));
    }
    let session = match params.shift_remove(tool.session.0) {
        None | Some(Value::Null) => None,
        Some(Value::String(session)) => Some(session),
        Some(_) => return Err(OperationError::invalid(format!("{} must be a string", tool.session.0))),
    };
    let (seen, records) = mpsc::unbounded_channel();
    let context = OperationContext {
        hub: caller.client.hub(),
        session,
        caller,
        cancel: caller.client.gone.child_token(),
        progress: Some(seen),
        results: None,
        bytes_max: RESULT_MAX,
    };
    let cancel = context.cancel.clone();
    let work = async {
        let done = (entry.run)(params.into(), &context).await;
        // Closes the progress channel.
        drop(context);
        done
    };
    // Waits even if cancelled, since a bisection removes its copies before it ends.
    to_the_end(async { tokio::join!(work, tell(caller, records)).0 }, &cancel, caller.context).await
}

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

fn told(answer: &dyn OperationAnswer, too_long: TooLong) -> Result<CallToolResult, OperationError> {
    let unwritten = |error| OperationError::refused(format!("failed to serialize the result: {error}"));
    let (mut text, mut result) = (answer.text(), answer.value().map_err(unwritten)?);
    match too_long {
        TooLong::Cut(hint) => shorten::both(&mut text, &mut result, RESULT_MAX, hint),
        TooLong::Refuse(hint) => {
            let bytes = result.to_string().len().max(text.len());
            if bytes > RESULT_MAX {
                let what = format!("the result has {bytes} bytes; the limit is {RESULT_MAX}: {hint}");
                return Err(OperationError::refused(what));
            }
        }
    }
    let mut told = succeeded(text, result);
    told.is_error = Some(!answer.is_well());
    Ok(told)
}
