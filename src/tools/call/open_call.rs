//! A call with a recorded intent and no outcome yet.

use serde_json::Value;

use super::content_params::{PARAMS_MAX, lift};
use super::context::ToolContext;
use super::error::ToolError;
use super::tool::ToolAnswer;
use super::tool_call::{ToolCall, ToolOutcome};
use crate::engine::commit::CallLink;
use crate::engine::event::{CallFinished, CallReason, CallStarted, CallStatus};
use crate::engine::id::Seq;
use crate::engine::session::error::SessionError;
use crate::engine::session::{Session, SessionCall, WorkspaceLock};
use crate::engine::store::Pending;
use crate::tools::workspace::keeping::distrust;
use crate::tools::workspace::recording::EventBuffer;

/// Call with a recorded intent and no outcome. Dropping it kills its command, captures the changes, and records an
/// interruption.
pub(crate) struct OpenCall {
    pub(crate) call: Seq,
    session: Session,
    since: u64,
    closed: bool,
    /// True if a task finishes the call; a drop there does not hand it over again.
    handed_over: bool,
    pub(crate) context: Option<ToolContext>,
    /// Keeps other calls from changing files until the outcome is recorded.
    pub(crate) turn: Option<WorkspaceLock>,
    settling: Option<Pending>,
    in_flight: Option<SessionCall>,
}

impl OpenCall {
    pub(crate) async fn begin(session: &Session, call: &ToolCall, size: usize) -> Result<Self, SessionError> {
        let mut contents = Vec::new();
        let params = if size > PARAMS_MAX { Value::Null } else { lift(call.params.clone(), &mut contents) };
        let tool = call.tool.chars().take(100).collect();
        let mut commit = session.commit().of_call(CallLink::Opens);
        commit.push(&CallStarted { tool, params })?;
        contents.into_iter().for_each(|content| commit.keep(content));
        // The outcome is committed after the intent, so waiting for the outcome is enough.
        let pending = session.submit(commit)?;
        let call = match pending.known() {
            Some(committed) => committed.first,
            // A cluster may be slow, which must not block this thread.
            None => pending.durable().await?.first,
        };
        let (since, in_flight) = (session.steady_micros(), Some(session.call_in_flight(call)));
        Ok(Self {
            call,
            session: session.clone(),
            since,
            closed: false,
            handed_over: false,
            context: None,
            turn: None,
            settling: None,
            in_flight,
        })
    }

    pub(crate) fn micros(&self) -> u64 {
        self.session.steady_micros().saturating_sub(self.since)
    }

    /// Records a success with its facts, changes and events. On an error the call stays open.
    pub(crate) fn succeed(&mut self, answer: ToolAnswer) -> Result<(ToolOutcome, Pending), ToolError> {
        let mut recording = EventBuffer::of_call(&self.session, self.call);
        let mut changes = Vec::new();
        if let Some(context) = &mut self.context {
            context.record_facts(&mut recording)?;
            changes = context.record_work(&mut recording)?;
        }
        let mut contents = Vec::new();
        let result = lift(answer.result.clone(), &mut contents);
        let micros = self.micros();
        let finished = CallFinished { status: CallStatus::Ok, result, message: String::new(), micros, reason: None };
        contents.into_iter().for_each(|content| recording.keep(content));
        recording.push(&finished)?;
        if let Some(context) = self.context.as_ref().filter(|_| !changes.is_empty()) {
            context.workspace().apply(&changes)?;
        }
        let pending = recording.submit().inspect_err(|_| self.distrust())?;
        self.close();
        let outcome = ToolOutcome {
            call: self.call,
            finished: pending.last(),
            status: CallStatus::Ok,
            result: answer.result,
            text: answer.text,
            micros,
            reason: None,
        };
        Ok((outcome, pending))
    }

    pub(crate) async fn fail(mut self, error: &ToolError) -> Result<ToolOutcome, SessionError> {
        let micros = self.micros();
        let message = error.to_string();
        let status = match error {
            ToolError::Cancelled => CallStatus::Interrupted,
            _ => CallStatus::Error,
        };
        let finished = CallFinished::without_success(status, error.reason(), message.clone(), micros);
        let reason = finished.reason;
        let pending = self.record_failure(&finished).inspect_err(|_| self.distrust())?;
        let (call, finished) = (self.call, pending.last());
        self.settle(pending).await?;
        Ok(ToolOutcome { call, finished, status, result: Value::Null, text: message, micros, reason })
    }

    pub(crate) async fn settle(&mut self, pending: Pending) -> Result<(), SessionError> {
        let settled = self.settling.insert(pending).settled().await;
        self.settling = None;
        settled.inspect_err(|_| self.distrust())?;
        Ok(())
    }

    /// Notes in the workspace that files may have changed without a record.
    fn distrust(&self) {
        if let Some(context) = &self.context {
            distrust(context.workspace().as_ref());
        }
    }

    fn record_failure(&mut self, finished: &CallFinished) -> Result<Pending, SessionError> {
        let mut recording = EventBuffer::of_call(&self.session, self.call);
        if let Some(context) = &mut self.context {
            context.record_facts(&mut recording)?;
            context.files.unstage();
            context.files.record_into(&mut recording)?;
        }
        recording.push(finished)?;
        self.closed = true;
        let pending = recording.submit()?;
        self.close();
        Ok(pending)
    }

    fn close(&mut self) {
        self.closed = true;
        if let Some(context) = &mut self.context {
            context.recorded();
        }
    }

    /// Waits for the end of the command and records an interruption. Holds the workspace lock until that is visible.
    async fn give_up(mut self) {
        if let Some(context) = &mut self.context {
            context.stop_running().await;
        }
        if let Some(pending) = self.record_interruption()
            && let Err(error) = self.settle(pending).await
        {
            tracing::warn!(%error, "failed to record an interrupted call");
        }
    }

    fn record_interruption(&mut self) -> Option<Pending> {
        let (reason, message) = (CallReason::Cancelled, "the call was cancelled".to_owned());
        let finished = CallFinished::without_success(CallStatus::Interrupted, reason, message, self.micros());
        let recorded = self.record_failure(&finished);
        let warn = |error: &SessionError| tracing::warn!(%error, "failed to record an interrupted call");
        recorded.inspect_err(warn).inspect_err(|_| self.distrust()).ok()
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        if let Some(pending) = self.settling.take() {
            return keep_until_settled(pending, self.context.take(), self.turn.take(), self.in_flight.take());
        }
        if self.closed {
            return;
        }
        let ran = self.context.as_ref().is_some_and(ToolContext::has_run);
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) if ran && !self.handed_over => {
                self.closed = true;
                let abandoned = Self {
                    call: self.call,
                    session: self.session.clone(),
                    since: self.since,
                    closed: false,
                    handed_over: true,
                    context: self.context.take(),
                    turn: self.turn.take(),
                    settling: None,
                    in_flight: self.in_flight.take(),
                };
                runtime.spawn(abandoned.give_up());
            }
            // Without a runtime, dropping the context kills the command, and its changes are found as drift later.
            // The background writer makes the record durable.
            _ => drop(self.record_interruption()),
        }
    }
}

/// Holds the workspace lock and the in-flight entry of a dropped call until its record is visible.
fn keep_until_settled(
    pending: Pending,
    context: Option<ToolContext>,
    turn: Option<WorkspaceLock>,
    in_flight: Option<SessionCall>,
) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(async move {
            if let Err(error) = pending.settled().await {
                tracing::warn!(%error, "failed to record the outcome of a call");
                context.iter().for_each(|context| distrust(context.workspace().as_ref()));
            }
            drop((turn, in_flight));
        });
    }
}
