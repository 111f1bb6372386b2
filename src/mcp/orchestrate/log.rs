//! `session_log`: what happened in a session.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use rmcp::model::Tool;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::shorten::Shortened;
use super::{OperationContext, OperationEffect, OperationError, OperationOutcome, RESULT_MAX};
use crate::engine::id::{Seq, SessionId};
use crate::engine::session::Session;
use crate::mcp::resources::first_read;
use crate::view::{self, Call, CallDocument, CallViews, EventDocument, Position};

pub(super) const NAME: &str = "session_log";

/// Events or calls that are given when nothing is said, and at most.
const COUNT: usize = 50;
const COUNT_MAX: usize = 1000;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct LogParams {
    /// The session, by name or by the beginning of its id; this client's own by default.
    session: Option<String>,
    /// The first position to look at; by default so far back that the last ones are shown.
    from: Option<Position>,
    /// How many are given, 1 to 1000; 50 by default.
    limit: Option<usize>,
    /// Gives events one by one, and not put together to calls.
    #[serde(default)]
    events: bool,
}

/// A piece of a session's history.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct LogDocument {
    /// The session: 32 hexadecimal digits.
    #[schemars(with = "String")]
    session: SessionId,
    /// Its name.
    name: String,
    /// The position of its last event.
    head: Seq,
    /// The position from which on to ask for what follows; null at the end.
    next: Option<Seq>,
    /// The calls, where events were not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    calls: Option<Vec<CallDocument>>,
    /// The events, where they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    events: Option<Vec<EventDocument>>,
}

pub(super) fn tool() -> Tool {
    let words = "Shows what happened in a session, in order: its calls, with who made them, how they ended and what they \
                 changed; or all of its events.";
    super::tool::<LogParams, Shortened<LogDocument>>(NAME, words, OperationEffect::Looks)
}

pub(super) async fn call(request: OperationContext<'_>, params: LogParams) -> Result<OperationOutcome, OperationError> {
    let session = request.session(params.session.as_deref()).await?;
    let limit = params.limit.unwrap_or(COUNT);
    if !(1..=COUNT_MAX).contains(&limit) {
        return Err(OperationError(format!("limit is a number from 1 to {COUNT_MAX}")));
    }
    super::reading(move || {
        let from = params.from.map(|from| first_read(&session, from)).transpose()?;
        match params.events {
            true => events(&session, from, limit),
            false => calls(&session, from, limit),
        }
    })
    .await
}

fn events(session: &Session, from: Option<Seq>, limit: usize) -> Result<OperationOutcome, OperationError> {
    let head = session.head()?;
    let from = from.unwrap_or_else(|| (head + 1).saturating_sub(limit as u64)).max(1);
    let (mut page, mut next) = (LogPage::new(limit), None);
    session.visit(from, &mut |event| match page.take(view::event(session, event)) {
        true => ControlFlow::Continue(()),
        false => {
            next = Some(event.seq);
            ControlFlow::Break(())
        }
    })?;
    let found = page.found;
    let line = |event: &EventDocument| format!("{} {} {} {}\n", event.seq, event.time, event.kind, event.event);
    let text = found.iter().map(line).collect();
    let (name, session) = (session.name().to_owned(), session.id());
    told(text, &LogDocument { session, name, head, next, calls: None, events: Some(found) })
}

fn calls(session: &Session, from: Option<Seq>, limit: usize) -> Result<OperationOutcome, OperationError> {
    let head = session.head()?;
    let may_run = session.lease_holder().is_some();
    let (found, next) = match from {
        Some(from) => calls_from(session, from, limit, may_run)?,
        None => (last_calls(session, limit, may_run)?, None),
    };
    let text = found.iter().map(line).collect();
    let (name, session) = (session.name().to_owned(), session.id());
    told(text, &LogDocument { session, name, head, next, calls: Some(found), events: None })
}

fn told(text: String, document: &LogDocument) -> Result<OperationOutcome, OperationError> {
    Ok(OperationOutcome::new(text, document)?.shortened("limit gives less at once"))
}

/// The calls from a position on, and where the first stands that does not fit any more.
fn calls_from(
    session: &Session,
    from: Seq,
    limit: usize,
    may_run: bool,
) -> Result<(Vec<CallDocument>, Option<Seq>), OperationError> {
    let (mut calls, mut page, mut next) = (CallViews::default(), LogPage::new(limit), None);
    let mut take = |call: Call| {
        let begun = call.call;
        let fits = page.take(call.document(may_run));
        if !fits {
            next = Some(begun);
        }
        fits
    };
    let mut has_room = true;
    session.visit(from.max(1), &mut |event| {
        calls.take(event);
        while let Some(call) = calls.next_ended() {
            has_room = take(call);
            if !has_room {
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    })?;
    while has_room && let Some(call) = calls.next_begun() {
        has_room = take(call);
    }
    Ok((page.found, next))
}

/// The last calls, as many as a page has.
fn last_calls(session: &Session, limit: usize, may_run: bool) -> Result<Vec<CallDocument>, OperationError> {
    let (mut calls, mut last) = (CallViews::default(), VecDeque::new());
    let mut keep = |call| {
        if last.len() >= limit {
            last.pop_front();
        }
        last.push_back(call);
    };
    session.visit(1, &mut |event| {
        calls.take(event);
        while let Some(call) = calls.next_ended() {
            keep(call);
        }
        ControlFlow::Continue(())
    })?;
    while let Some(call) = calls.next_begun() {
        keep(call);
    }
    let mut page = LogPage::new(limit);
    while let Some(call) = last.pop_back() {
        if !page.take(call.document(may_run)) {
            break;
        }
    }
    page.found.reverse();
    Ok(page.found)
}

/// As many documents as a result has room for, one at least.
struct LogPage<D> {
    found: Vec<D>,
    bytes: usize,
    limit: usize,
}

impl<D: Serialize> LogPage<D> {
    fn new(limit: usize) -> Self {
        Self { found: Vec::new(), bytes: 0, limit }
    }

    /// Takes one more, if there is room for it.
    fn take(&mut self, document: D) -> bool {
        if self.found.len() >= self.limit {
            return false;
        }
        let bytes = serde_json::to_string(&document).map_or(0, |text| text.len());
        if self.bytes + bytes > RESULT_MAX && !self.found.is_empty() {
            return false;
        }
        self.bytes += bytes;
        self.found.push(document);
        true
    }
}

fn line(call: &CallDocument) -> String {
    let agent = if call.agent.is_empty() { "-" } else { &call.agent };
    let mut line = format!("{} {} {} {} {}", call.call, call.started_at, agent, call.tool, call.status);
    if let Some(code) = &call.exit_code {
        line.push_str(&format!(" exit {code}"));
    }
    if !call.paths.is_empty() {
        line.push_str(&format!(" changed {}", call.paths.join(", ")));
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
    use crate::engine::session::sessions::{NewSession, Sessions};
    use crate::engine::session::snapshot::SnapshotPolicy;
    use crate::engine::store::MemoryStore;

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
        record(session, CallLink::Of(call), &CallFinished { status, result, message: String::new(), micros: 1 });
    }

    fn session() -> Session {
        let clock = Arc::new(StepClock::new(Timestamp(1), 1));
        let store = Arc::new(MemoryStore::default());
        let sessions = Sessions::new(store, Registry::standard(), clock, SnapshotPolicy::default()).unwrap();
        sessions.create(NewSession::named("s")).unwrap()
    }

    fn page(session: &Session, from: Option<Seq>, limit: usize) -> (Vec<u64>, Option<u64>) {
        let done = calls(session, from, limit).ok().unwrap();
        let calls = done.result["calls"].as_array().unwrap();
        (calls.iter().map(|call| call["call"].as_u64().unwrap()).collect(), done.result["next"].as_u64())
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
        // One that nobody ends any more holds up none that ended.
        let later = begin(&session, json!({}));
        end(&session, later);
        assert_eq!(page(&session, Some(running[0]), 9), (vec![running[0], running[1], later], None));
        let status = &calls(&session, Some(running[0]), 1).ok().unwrap().result["calls"][0]["status"];
        assert_eq!(status, "interrupted", "nobody is there to run it");
    }

    #[test]
    fn log_page_fits_result_limit() {
        let session = session();
        let large = || json!({ "x": "y".repeat(700_000) });
        let both = [begin(&session, large()), begin(&session, large())];
        assert_eq!(page(&session, Some(1), 9), (vec![both[0]], Some(both[1])));
        assert_eq!(page(&session, None, 9), (vec![both[1]], None));
        let one = begin(&session, json!({ "x": "y".repeat(3 << 20) }));
        let done = events(&session, Some(one), 9).ok().unwrap();
        assert!(done.result.to_string().len() <= RESULT_MAX && done.text.len() <= RESULT_MAX + 200);
        assert!(done.text.contains("not all is shown (x: 65536 of 3145728 characters)"));
    }
}
