//! Search for the next event that meets a condition.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::{Operation, OperationContext, OperationError, OperationRoute, reading};
use crate::engine::id::Seq;
use crate::engine::session::Session;
use crate::tools::WorkspaceError;
use crate::view::{HistoryRun, Position, StopCondition};

/// Limit for the events that one request checks.
const EVENTS: u64 = 20_000;
/// Limit for the states that one request checks, one per event.
const STATES: u64 = 2_000;
/// Limits for the conditions of one request: count and total bytes.
const CONDITIONS: (usize, usize) = (50, 8 << 10);

/// Runs through a session's history until one of several conditions is met, like the debugger. Nothing is executed. One
/// request checks 20,000 events, or the states after 2,000; `next` is where to continue.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunUntil {
    /// The conditions, one a line, at most 50: `path GLOB`, `kind KIND`, `agent NAME`, `tool NAME`, `failed`,
    /// `/REGEX/`, or a predicate over slices, such as `Usage.calls > 5`, which is met where it becomes true.
    pub conditions: String,
    /// The event to start from, exclusive; by default before the first event, or with `backward` after the last.
    pub from: Option<Position>,
    /// True to run towards earlier events.
    #[serde(default)]
    pub backward: bool,
}

/// The stop of a run through a history.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(rename = "Stop")]
pub struct StopDocument {
    /// The position of the event; null if no condition was met.
    pub seq: Option<Seq>,
    /// The condition that was met.
    pub because: Option<String>,
    /// The call that the event belongs to.
    pub call: Option<Seq>,
    /// The position to continue from; null if the whole history was checked or a condition was met.
    pub next: Option<Seq>,
}

impl Operation for RunUntil {
    const NAME: &'static str = "run_until";
    const ROUTE: Option<OperationRoute> = OperationRoute::get("states", "/v1/sessions/{session}/until");
    type Output = StopDocument;

    async fn run(self, context: &OperationContext<'_>) -> Result<StopDocument, OperationError> {
        let (session, cancel) = (context.session().await?, context.cancel.clone());
        reading(move || {
            let conditions = self.conditions(&session)?;
            self.stop(&session, &conditions, &cancel)
        })
        .await
    }
}

impl RunUntil {
    fn conditions(&self, session: &Session) -> Result<Vec<Arc<StopCondition>>, OperationError> {
        let lines: Vec<&str> = self.conditions.lines().filter(|line| !line.trim().is_empty()).collect();
        let (count, bytes) = CONDITIONS;
        if !(1..=count).contains(&lines.len()) || self.conditions.len() > bytes {
            let what = format!("conditions has {} lines; the limits are 1 to {count} and {bytes} bytes", lines.len());
            return Err(OperationError::invalid(what));
        }
        let state = session.state()?;
        lines.into_iter().map(|line| Ok(StopCondition::read(line, &state)?)).collect()
    }

    fn stop(
        self,
        session: &Session,
        conditions: &[Arc<StopCondition>],
        cancel: &CancellationToken,
    ) -> Result<StopDocument, OperationError> {
        let from = self.from.map(|from| from.event(session)).transpose()?;
        // Read last, since the head of a running session advances.
        let head = session.head()?;
        let from = from.unwrap_or(if self.backward { head.saturating_add(1) } else { 0 });
        let looks = if conditions.iter().any(|condition| condition.needs_state()) { STATES } else { EVENTS };
        let end = match self.backward {
            true => from.saturating_sub(looks).max(1),
            false => from.saturating_add(looks).min(head),
        };
        let run = HistoryRun { session, from, end, goes_on: &|_| !cancel.is_cancelled() };
        let found = run.to_stop(conditions)?;
        if cancel.is_cancelled() {
            return Err(WorkspaceError::Cancelled.into());
        }
        let call = found.as_ref().map(|found| session.event(found.seq)).transpose()?.and_then(|event| event.call);
        let is_all = if self.backward { end == 1 } else { end == head };
        let next = if is_all || found.is_some() { None } else { Some(end) };
        Ok(StopDocument {
            seq: found.as_ref().map(|found| found.seq),
            because: found.map(|found| found.because),
            call,
            next,
        })
    }
}
