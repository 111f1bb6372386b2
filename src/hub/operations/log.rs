//! The history of a session, as calls or events.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Operation, OperationContext, OperationEffect, OperationError, OperationTool, TooLong, reading};
use crate::engine::backward::backward_spans;
use crate::engine::id::{Seq, SessionId};
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::view::{self, Call, EventDocument, Position, visit_calls};

/// Default and maximum number of events or calls.
const COUNT: usize = 50;
const COUNT_MAX: usize = 1000;
/// Upper bound for the events of most calls.
const EVENTS_OF_A_CALL: u64 = 8;

/// Shows what happened in a session, in order: its calls with agent, outcome and changes, or all of its events.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Log {
    /// The start position; by default chosen so that the last entries are shown.
    pub from: Option<Position>,
    /// Limit for the entries, 1 to 1000; 50 by default.
    pub limit: Option<usize>,
    /// True to return single events instead of calls.
    #[serde(default)]
    pub events: bool,
}

/// A piece of a session's history.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct LogDocument {
    /// The session: 32 hexadecimal digits.
    #[schemars(with = "String")]
    pub session: SessionId,
    /// Its name.
    pub name: String,
    /// The position of its last event.
    pub head: Seq,
    /// The start of the next page; null at the end.
    pub next: Option<Seq>,
    /// The calls, unless events were requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls: Option<Vec<Call>>,
    /// The events, if they were requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events: Option<Vec<EventDocument>>,
}

impl Operation for Log {
    const NAME: &'static str = "log";
    const TOOL: Option<OperationTool> =
        Some(OperationTool::new("session_log", OperationEffect::Looks, TooLong::Cut("use limit for shorter results")));
    type Output = LogDocument;

    async fn run(self, context: &OperationContext<'_>) -> Result<LogDocument, OperationError> {
        let (session, bytes_max) = (context.session().await?, context.bytes_max);
        let limit = self.limit.unwrap_or(COUNT);
        if !(1..=COUNT_MAX).contains(&limit) {
            return Err(OperationError::invalid(format!("limit is {limit}; it must be from 1 to {COUNT_MAX}")));
        }
        reading(move || {
            let from = self.from.as_ref().map(|from| view::first_read(&session, from)).transpose()?;
            Ok(match self.events {
                true => events(&session, from, (limit, bytes_max))?,
                false => calls(&session, from, (limit, bytes_max))?,
            })
        })
        .await
    }

    fn text(log: &LogDocument) -> String {
        let event = |event: &EventDocument| format!("{} {} {} {}\n", event.seq, event.time, event.kind, event.event);
        let events = log.events.iter().flatten().map(event);
        log.calls.iter().flatten().map(line).chain(events).collect()
    }
}

/// Reads events from a position, or the last ones. The limits are a count and a size in bytes.
pub fn events(session: &Session, from: Option<Seq>, limits: (usize, usize)) -> Result<LogDocument, SessionError> {
    let head = session.head()?;
    let first = from.unwrap_or_else(|| (head + 1).saturating_sub(limits.0 as u64)).max(1);
    let (mut page, mut next) = (LogPage::new(limits, from.is_none()), None);
    session.visit(first, &mut |event| match page.take(view::event(session, event)) {
        true => ControlFlow::Continue(()),
        false => {
            next = Some(event.seq);
            ControlFlow::Break(())
        }
    })?;
    let (name, session, events) = (session.name().to_owned(), session.id(), Some(page.documents()));
    Ok(LogDocument { session, name, head, next, calls: None, events })
}

fn calls(session: &Session, from: Option<Seq>, limits: (usize, usize)) -> Result<LogDocument, SessionError> {
    let head = session.head()?;
    let (mut page, mut next) = (LogPage::new(limits, false), None);
    match from {
        Some(from) => visit_calls(session, (from.max(1), Seq::MAX), &|_| true, &mut |call| {
            let begun = call.call;
            if page.take(call) {
                return ControlFlow::Continue(());
            }
            next = Some(begun);
            ControlFlow::Break(())
        })?,
        None => {
            for call in last_calls(session, head, limits.0)?.into_iter().rev() {
                if !page.take(call) {
                    break;
                }
            }
        }
    }
    let mut calls = page.documents();
    if from.is_none() {
        calls.reverse();
    }
    let (name, session) = (session.name().to_owned(), session.id());
    Ok(LogDocument { session, name, head, next, calls: Some(calls), events: None })
}

/// Returns the last calls.
fn last_calls(session: &Session, head: Seq, count: usize) -> Result<VecDeque<Call>, SessionError> {
    let mut last = VecDeque::new();
    for (from, _) in backward_spans((1, head), EVENTS_OF_A_CALL * count as u64, 8) {
        last.clear();
        visit_calls(session, (from, Seq::MAX), &|_| true, &mut |call| {
            last.push_back(call);
            last.drain(..last.len().saturating_sub(count));
            ControlFlow::Continue(())
        })?;
        if last.len() == count {
            break;
        }
    }
    Ok(last)
}

/// The documents of a page with their sizes: as many as fit, but at least one.
pub(super) struct LogPage<D> {
    found: VecDeque<(D, usize)>,
    bytes: usize,
    limits: (usize, usize),
    /// True to drop the first documents of a full page instead of the last.
    keeps_last: bool,
}

impl<D: Serialize> LogPage<D> {
    pub(super) fn new(limits: (usize, usize), keeps_last: bool) -> Self {
        Self { found: VecDeque::new(), bytes: 0, limits, keeps_last }
    }

    pub(super) fn take(&mut self, document: D) -> bool {
        let bytes = serde_json::to_string(&document).map_or(0, |text| text.len());
        self.bytes += bytes;
        self.found.push_back((document, bytes));
        while self.found.len() > 1 && (self.found.len() > self.limits.0 || self.bytes > self.limits.1) {
            let dropped = if self.keeps_last { self.found.pop_front() } else { self.found.pop_back() };
            self.bytes -= dropped.map_or(0, |(_, bytes)| bytes);
            if !self.keeps_last {
                return false;
            }
        }
        true
    }

    pub(super) fn documents(self) -> Vec<D> {
        self.found.into_iter().map(|(document, _)| document).collect()
    }
}

fn line(call: &Call) -> String {
    let agent = if call.agent.is_empty() { "-" } else { &call.agent };
    let mut line = format!("{} {} {} {} {}", call.call, call.started_at, agent, call.tool, call.status);
    if let Some(code) = &call.exit_code {
        line.push_str(&format!(" exit {code}"));
    }
    if !call.paths.is_empty() {
        let paths: Vec<String> = call.paths.iter().map(ToString::to_string).collect();
        line.push_str(&format!(" changed {}", paths.join(", ")));
    }
    if !call.message.is_empty() {
        line.push_str(&format!(": {}", call.message));
    }
    line + "\n"
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::engine::clock::{StepClock, Timestamp};
    use crate::engine::commit::CallLink;
    use crate::engine::event::{CallFinished, CallStarted, CallStatus, Event};
    use crate::engine::registry::Registry;
    use crate::engine::session::sessions::NewSession;
    use crate::engine::session::sessions::Sessions;
    use crate::engine::session::snapshot::SnapshotPolicy;
    use crate::engine::store::MemoryStore;

    const BYTES_MAX: usize = 1 << 20;

    fn record<E: Event>(session: &Session, call: CallLink, event: &E) -> Seq {
        let mut commit = session.commit().of_call(call);
        commit.push(event).unwrap();
        session.record(commit).unwrap().last
    }

    fn begin(session: &Session, params: serde_json::Value) -> Seq {
        record(session, CallLink::Opens, &CallStarted { tool: "t".to_owned(), params })
    }

    fn end(session: &Session, call: Seq) {
        let (status, result) = (CallStatus::Ok, serde_json::Value::Null);
        record(
            session,
            CallLink::Of(call),
            &CallFinished { status, result, message: String::new(), micros: 1, reason: None },
        );
    }

    fn session() -> Session {
        let clock = Arc::new(StepClock::new(Timestamp(1), 1));
        let store = Arc::new(MemoryStore::default());
        let sessions = Sessions::new(store, Registry::standard(), clock, SnapshotPolicy::default()).unwrap();
        sessions.create(NewSession::named("s")).unwrap()
    }

    fn page(session: &Session, from: Option<Seq>, limit: usize) -> (Vec<u64>, Option<u64>) {
        let log = calls(session, from, (limit, BYTES_MAX)).unwrap();
        (log.calls.unwrap().iter().map(|call| call.call).collect(), log.next)
    }

    #[test]
    fn log_page_holds_each_call_once() {
        let session = session();
        let ended = begin(&session, json!({}));
        end(&session, ended);
        let running = [begin(&session, json!({})), begin(&session, json!({}))];
        assert_eq!(page(&session, Some(1), 2), (vec![ended, running[0]], Some(running[1])));
        assert_eq!(page(&session, Some(running[1]), 2), (vec![running[1]], None));
        assert_eq!(page(&session, None, 2), (running.to_vec(), None));
        // A call that never ends does not delay calls that ended.
        let later = begin(&session, json!({}));
        end(&session, later);
        assert_eq!(page(&session, Some(running[0]), 9), (vec![running[0], running[1], later], None));
        let open = calls(&session, Some(running[0]), (1, BYTES_MAX)).unwrap().calls.unwrap();
        assert_eq!(open[0].status, "interrupted", "no process runs it");
    }

    #[test]
    fn log_page_of_last_calls_reads_far_enough() {
        let session = session();
        let mut begun = Vec::new();
        for number in 0..40 {
            begun.push(begin(&session, json!({})));
            (0..number % 7 * 10).for_each(|_| end(&session, begun[0]));
        }
        for limit in [1, 3, 17, 40, 99] {
            let last = begun[begun.len().saturating_sub(limit)..].to_vec();
            assert_eq!(page(&session, None, limit), (last, None), "{limit}");
        }
    }

    #[test]
    fn log_page_fits_result_limit() {
        let session = session();
        let large = || json!({ "x": "y".repeat(700_000) });
        let both = [begin(&session, large()), begin(&session, large())];
        assert_eq!(page(&session, Some(1), 9), (vec![both[0]], Some(both[1])));
        assert_eq!(page(&session, None, 9), (vec![both[1]], None));
        let one = begin(&session, json!({ "x": "y".repeat(3 << 20) }));
        let log = events(&session, Some(one), (9, BYTES_MAX)).unwrap();
        assert_eq!(log.events.unwrap().len(), 1, "one at least");
    }
}
