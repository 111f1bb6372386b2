//! Starts services again after a rewind, in a fork, and after the end of the owner or the container.

use std::sync::atomic::Ordering;

use futures_util::future::BoxFuture;
use serde_json::Value;

use super::processes::ProcessStartTool;
use crate::engine::event::CallStarted;
use crate::engine::id::Seq;
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::reducers::Services;
use crate::tools::call::content_params::lower;
use crate::tools::call::tool::Tool;
use crate::tools::call::tool_call::ToolCall;
use crate::tools::call::tool_runner::ToolRunner;
use crate::tools::off_thread::own_state;

impl ToolRunner {
    /// Starts the services again that should run and do not, once after each opening of the workspace and each rewind.
    #[doc(hidden)]
    pub fn start_services(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if !self.machine().services_due.swap(false, Ordering::AcqRel) {
                return;
            }
            if let Err(error) = self.restart_services().await {
                tracing::warn!(%error, session = self.session().name(), "failed to start services again");
            }
        })
    }

    async fn restart_services(&self) -> Result<(), SessionError> {
        let state = own_state(self.session()).await?;
        for (name, service) in state.slice::<Services>().map(Services::to_restart).unwrap_or_default() {
            if self.machine().processes.service(name).is_some() {
                continue;
            }
            let mut rules = (*self.machine().rules).clone();
            // Its first start was approved.
            rules.policy.auto_confirm = true;
            let runner = self.for_start().with_shell_rules(rules).as_agent(service.agent.as_str());
            let params = params_of(self.session(), service.process)?;
            let outcome = runner.call(ToolCall::new(ProcessStartTool::NAME, params)).await?;
            if !outcome.is_ok() {
                let session = self.session().name();
                tracing::warn!(session, service = name, problem = outcome.text, "a service was not started again");
            }
        }
        Ok(())
    }
}

/// Returns the parameters of a recorded call.
fn params_of(session: &Session, call: Seq) -> Result<Value, SessionError> {
    let params = session.event(call)?.view().decoded::<CallStarted>().map(|started| started.params);
    Ok(lower(params.unwrap_or_default(), &mut |digest| session.content(digest).ok().map(|bytes| bytes.to_vec())))
}
