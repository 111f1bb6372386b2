//! Sessions that another host has claimed: calls and operations are forwarded to it.

use rmcp::RoleServer;
use rmcp::model::JsonObject;
use rmcp::service::RequestContext;
use serde_json::Value;

use super::client::McpClient;
use crate::engine::id::SessionId;
use crate::hub::blocking;
use crate::hub::hosts::{CallElsewhere, OtherHosts, VerbElsewhere};
use crate::hub::operations::{OperationError, OperationRoute};
use crate::tools::ToolOutcome;

impl McpClient {
    /// Finds a session that another host has claimed. `None` if this host serves the session.
    pub(super) async fn elsewhere(&self, wanted: Option<&str>) -> Option<SessionId> {
        self.hub().sessions().store().hosts()?;
        let session = match wanted {
            Some(wanted) => self.reachable(wanted).ok()?,
            None => self.known()?,
        };
        let look = move || session.hosts().and_then(|hosts| hosts.other(session.id()).ok()?).map(|_| session.id());
        blocking(look).await.ok()?
    }

    fn hosts(&self) -> Result<&dyn OtherHosts, OperationError> {
        self.hub().other_hosts().ok_or_else(|| OperationError::refused("this host can't reach the session's host"))
    }

    /// Makes a call on the session's host. A cancelled request cancels the call.
    pub(super) async fn call_elsewhere(
        &self,
        session: SessionId,
        (tool, params): (&str, JsonObject),
        context: &RequestContext<RoleServer>,
    ) -> Result<ToolOutcome, OperationError> {
        let (agent, rules) = (self.agent_name(context), &self.options().rules);
        let call = CallElsewhere { session, tool, params: params.into_iter().collect(), agent, rules };
        tokio::select! {
            outcome = self.hosts()?.call(self.hub(), call) => outcome,
            () = context.ct.cancelled() => Err(OperationError::refused("the call was cancelled")),
            () = self.gone.cancelled() => Err(OperationError::refused("foldspace is shutting down")),
        }
    }

    /// Runs an operation on the session's host.
    pub(super) async fn run_elsewhere(
        &self,
        session: SessionId,
        (route, params): (OperationRoute, JsonObject),
    ) -> Result<Value, OperationError> {
        let verb = VerbElsewhere { session, route, params: params.into_iter().collect() };
        self.hosts()?.run(self.hub(), verb).await
    }
}
