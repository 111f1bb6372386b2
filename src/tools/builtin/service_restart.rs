//! Starts services again after a rewind, in a fork, and after the end of the owner or the container.

use std::ops::ControlFlow;

use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use super::processes::ProcessStartTool;
use crate::engine::event::{CallStarted, ServiceStarted};
use crate::engine::id::Seq;
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::reducers::Services;
use crate::tools::call::content_params::lower;
use crate::tools::call::tool::Tool;
use crate::tools::call::tool_call::ToolCall;
use crate::tools::call::tool_runner::ToolRunner;
use crate::tools::off_thread::own_state;

/// The longest time, in seconds, that a command waits for one of them.
const READY_MAX: f64 = 30.0;

impl ToolRunner {
    /// Starts the services again that should run and do not, once after each opening of the workspace and each rewind.
    /// Concurrent callers wait.
    #[doc(hidden)]
    pub fn start_services(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let mut is_due = self.machine().services_due.lock().await;
            if !*is_due {
                return;
            }
            if let Err(error) = self.restart_services().await {
                tracing::warn!(%error, session = self.session().name(), "failed to start services again");
            }
            // Not before: a caller that is gone by now leaves the rest to the next one.
            *is_due = false;
        })
    }

    async fn restart_services(&self) -> Result<(), SessionError> {
        let state = own_state(self.session()).await?;
        for (name, service) in state.slice::<Services>().map(Services::to_restart).unwrap_or_default() {
            if self.machine().processes.service(name).is_some() {
                continue;
            }
            let Some(params) = params_of(self.session(), name, service.process)? else { continue };
            let mut rules = (*self.machine().rules).clone();
            // Its first start was approved.
            rules.policy.auto_confirm = true;
            let runner = self.for_start().with_shell_rules(rules).as_agent(service.agent.as_str()).without_services();
            let outcome = runner.call(ToolCall::new(ProcessStartTool::NAME, params)).await?;
            if !outcome.is_ok() {
                let session = self.session().name();
                tracing::warn!(session, service = name, problem = outcome.text, "a service was not started again");
            }
        }
        Ok(())
    }
}

/// Returns the parameters of the call that started a service. The slice alone proves nothing: an import checks only the
/// events of services.
fn params_of(session: &Session, name: &str, call: Seq) -> Result<Option<Value>, SessionError> {
    let (mut params, mut was_started) = (None, false);
    session.visit(call, &mut |event| {
        if event.seq == call {
            params = event.decoded::<CallStarted>().filter(|started| started.tool == ProcessStartTool::NAME);
        }
        let started = event.decoded::<ServiceStarted>().filter(|_| event.call == Some(call));
        was_started = started.is_some_and(|started| started.restart && started.name == name);
        match params.is_some() && !was_started {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    })?;
    let Some(started) = params.filter(|_| was_started) else { return Ok(None) };
    let mut params = lower(started.params, &mut |digest| session.content(digest).ok().map(|bytes| bytes.to_vec()));
    let patience = params["service"]["ready_seconds"].as_f64().unwrap_or(READY_MAX);
    params["service"]["ready_seconds"] = json!(patience.min(READY_MAX));
    Ok(Some(params))
}
