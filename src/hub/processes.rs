//! Background processes of a store's sessions.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;

use super::{Hub, HubError, OpenSession, blocking};
use crate::backends::Container;
use crate::engine::id::{Seq, SessionId};
use crate::engine::lock::lock;
use crate::tools::processes::{Process, ProcessTable, end};
use crate::tools::{ProcessStartTool, Tool, ToolCall, ToolOutcome};

/// The processes of all sessions. A session's table outlives its open workspace.
#[derive(Default)]
pub(super) struct ProcessTables(Mutex<BTreeMap<SessionId, Arc<ProcessTable>>>);

impl Hub {
    /// Starts a process in a session, by a call of `process_start`. If it can't be started, returns the call's outcome.
    #[doc(hidden)]
    pub async fn start_process(
        &self,
        open: OpenSession,
        params: Value,
    ) -> Result<Result<Arc<Process>, ToolOutcome>, HubError> {
        let started = open.through(open.tool_runner().for_start());
        let outcome = started.call(ToolCall::new(ProcessStartTool::NAME, params)).await?;
        let process = self.process(open.session().id(), outcome.call).filter(|_| outcome.is_ok());
        Ok(process.ok_or(outcome))
    }

    /// Returns the known processes of a session, oldest first.
    #[doc(hidden)]
    pub fn processes(&self, session: SessionId) -> Vec<Arc<Process>> {
        self.shared.processes.of(session).all()
    }

    /// Waits until only processes in the background are in flight, which may never end.
    pub async fn foreground_ended(&self) {
        self.shared.in_flight.calls_ended().await;
    }

    /// Returns the container of a session whose workspace is open.
    #[doc(hidden)]
    pub async fn open_container(&self, session: SessionId) -> Option<Arc<dyn Container>> {
        let place = self.place(session).lock_owned().await;
        place.as_ref().and_then(|kept| kept.workspace().container())
    }

    /// Ends the processes of a session, and waits for their ends to be recorded.
    pub(super) async fn end_processes(&self, session: SessionId, patience: Duration) {
        // Frozen processes would not end.
        if let Some(container) = self.open_container(session).await
            && let Ok(Err(error)) = blocking(move || container.resume()).await
        {
            tracing::warn!(%error, "failed to resume a container before its end");
        }
        end(&self.processes(session), patience).await;
    }

    /// Returns a process of a session.
    #[doc(hidden)]
    pub fn process(&self, session: SessionId, number: Seq) -> Option<Arc<Process>> {
        self.shared.processes.of(session).find(number)
    }
}

impl ProcessTables {
    /// Returns the table of a session.
    pub(super) fn of(&self, session: SessionId) -> Arc<ProcessTable> {
        Arc::clone(lock(&self.0).entry(session).or_default())
    }

    /// Forgets the processes of a session.
    pub(super) fn forget(&self, session: SessionId) {
        lock(&self.0).remove(&session);
    }
}
