//! `session_log`: what happened in a session.

use std::ops::ControlFlow;

use rmcp::model::Tool;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Done, Kind, Place, RESULT_MAX, Refused, Request};
use crate::engine::id::SessionId;
use crate::engine::recorded::Seq;
use crate::engine::session::Session;
use crate::view::{self, CallDocument, Calls, EventDocument};

pub(super) const NAME: &str = "session_log";

/// Events or calls that are given when nothing is said, and at most.
const COUNT: usize = 50;
const COUNT_MAX: usize = 1000;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Params {
    /// The session, by name or by the beginning of its id; this client's own by default.
    session: Option<String>,
    /// The first position to look at; by default so far back that the last ones are shown.
    from: Option<Place>,
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
    super::tool::<Params, LogDocument>(NAME, words, Kind::Looks)
}

pub(super) async fn call(request: Request<'_>, params: Params) -> Result<Done, Refused> {
    let session = request.session(params.session.as_deref()).await?;
    let limit = params.limit.unwrap_or(COUNT);
    if !(1..=COUNT_MAX).contains(&limit) {
        return Err(Refused(format!("limit is a number from 1 to {COUNT_MAX}")));
    }
    let from = params.from.as_ref().map(|place| Ok::<_, Refused>(place.position()?.resolve(&session)?)).transpose()?;
    super::reading(move || match params.events {
        true => events(&session, from, limit),
        false => calls(&session, from, limit),
    })
    .await
}

fn events(session: &Session, from: Option<Seq>, limit: usize) -> Result<Done, Refused> {
    let head = session.head()?;
    let from = from.unwrap_or_else(|| (head + 1).saturating_sub(limit as u64)).max(1);
    let (mut found, mut bytes, mut next) = (Vec::new(), 0, None);
    session.visit(from, &mut |event| {
        let document = view::event(session, event);
        bytes += serde_json::to_string(&document).map_or(0, |text| text.len());
        if found.len() >= limit || (bytes > RESULT_MAX && !found.is_empty()) {
            next = Some(event.seq);
            return ControlFlow::Break(());
        }
        found.push(document);
        ControlFlow::Continue(())
    })?;
    let line = |event: &EventDocument| format!("{} {} {} {}\n", event.seq, event.time, event.kind, event.event);
    let text = found.iter().map(line).collect();
    let (name, session) = (session.name().to_owned(), session.id());
    Done::new(text, &LogDocument { session, name, head, next, calls: None, events: Some(found) })
}

fn calls(session: &Session, from: Option<Seq>, limit: usize) -> Result<Done, Refused> {
    let head = session.head()?;
    let (mut calls, mut found, mut bytes) = (Calls::default(), std::collections::VecDeque::new(), 0);
    let (is_last, mut next) = (from.is_none(), None);
    session.visit(from.unwrap_or(1).max(1), &mut |event| {
        calls.take(event);
        while let Some(call) = calls.next_ended() {
            let document = call.document(true);
            bytes += serde_json::to_string(&document).map_or(0, |text| text.len());
            found.push_back((document, bytes));
            if is_last {
                // Only the last ones are wanted.
                while found.len() > limit || found.front().is_some_and(|(_, before)| bytes - before > RESULT_MAX) {
                    found.pop_front();
                }
            } else if found.len() >= limit || bytes > RESULT_MAX {
                next = Some(call.call + 1).filter(|next| *next <= head);
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    })?;
    if next.is_none() {
        while let Some(call) = calls.next_begun() {
            found.push_back((call.document(true), bytes));
        }
        while found.len() > limit {
            found.pop_front();
        }
    }
    let found: Vec<CallDocument> = found.into_iter().map(|(call, _)| call).collect();
    let text = found.iter().map(line).collect();
    let (name, session) = (session.name().to_owned(), session.id());
    Done::new(text, &LogDocument { session, name, head, next, calls: Some(found), events: None })
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
