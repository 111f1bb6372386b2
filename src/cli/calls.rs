//! Calls put together from their events.

use std::collections::VecDeque;
use std::sync::Arc;

use anstyle::Style;
use foldspace::{
    CallFinished, CallStarted, DeleteEntry, EntryPath, Event, EventRef, Seq, Session, Timestamp, WriteFile, lower,
};
use serde_json::{Value, json};

use super::events;
use super::output::NOTED;
use super::text;

/// A call with what is known of it so far.
#[derive(Debug, Clone)]
pub(super) struct Call {
    /// The position of its intent, which is its name.
    pub(super) call: Seq,
    pub(super) tool: String,
    pub(super) agent: Arc<str>,
    pub(super) started_at: Timestamp,
    pub(super) params: Value,
    pub(super) outcome: Option<Outcome>,
    /// The positions of all its events, its intent and its outcome among them.
    pub(super) events: Vec<Seq>,
    /// What it changed, in order.
    pub(super) paths: Vec<EntryPath>,
}

/// How a call ended.
#[derive(Debug, Clone)]
pub(super) struct Outcome {
    pub(super) finished: Seq,
    pub(super) end: CallFinished,
}

impl Call {
    /// How it stands: a call without an outcome runs, or was cut off when nobody is there to run it.
    fn status(&self, shared: bool) -> &'static str {
        match &self.outcome {
            Some(outcome) => events::status_word(outcome.end.status),
            None if shared => "running",
            None => "interrupted",
        }
    }

    /// The same for people, who are told how its command ended where that did not do well.
    pub(super) fn ending(&self, shared: bool) -> String {
        match &self.outcome {
            Some(Outcome { end, .. }) => events::ending(end.status, &end.result),
            None => self.status(shared).to_owned(),
        }
    }

    pub(super) fn style(&self) -> Style {
        match &self.outcome {
            Some(Outcome { end, .. }) => events::ending_style(end.status, &end.result),
            None => NOTED,
        }
    }

    /// What the result says of the command that the call ran; null where it ran none.
    fn of_command(&self, field: &str) -> Option<&Value> {
        self.outcome.as_ref()?.end.result.get(field)
    }

    /// How long it took; empty while that is not known.
    pub(super) fn duration(&self) -> String {
        self.outcome.as_ref().map_or(String::new(), |outcome| text::duration(outcome.end.micros))
    }

    /// What was wrong; empty after a success.
    pub(super) fn message(&self) -> &str {
        self.outcome.as_ref().map_or("", |outcome| &outcome.end.message)
    }

    /// The call as JSON; long texts stand in it as marks.
    pub(super) fn as_json(&self, shared: bool) -> Value {
        json!({
            "call": self.call,
            "tool": self.tool,
            "agent": self.agent,
            "started_at": self.started_at,
            "status": self.status(shared),
            "exit_code": self.of_command("exit_code"),
            "timed_out": self.of_command("timed_out"),
            "finished": self.outcome.as_ref().map(|outcome| outcome.finished),
            "micros": self.outcome.as_ref().map(|outcome| outcome.end.micros),
            "message": self.message(),
            "params": self.params,
            "events": self.events,
            "paths": self.paths,
        })
    }
}

/// Puts a long text that was kept as a content back into parameters or a result.
pub(crate) fn whole(session: &Session, value: &Value) -> Value {
    lower(value.clone(), &mut |digest| session.content(digest).ok().map(|bytes| bytes.to_vec()))
}

/// Puts calls together from events in order.
#[derive(Default)]
pub(super) struct Calls {
    open: VecDeque<Call>,
}

impl Calls {
    /// Takes an event into account. Only what it says of calls matters.
    pub(super) fn take(&mut self, event: &EventRef<'_>) {
        if let Some(Ok(started)) = event.typed::<CallStarted>() {
            self.open.push_back(Call {
                call: event.seq,
                tool: started.event.tool,
                agent: started.agent,
                started_at: event.time,
                params: started.event.params,
                outcome: None,
                events: vec![event.seq],
                paths: Vec::new(),
            });
            return;
        }
        let Some(call) = self.open.iter_mut().find(|call| event.call == Some(call.call) && call.outcome.is_none())
        else {
            return;
        };
        call.events.push(event.seq);
        call.paths.extend(path_of(event));
        if event.kind == CallFinished::KIND {
            let end = event.typed::<CallFinished>().and_then(Result::ok);
            call.outcome = end.map(|end| Outcome { finished: event.seq, end: end.event });
        }
    }

    /// The next call in the order in which they began, once it has ended.
    pub(super) fn next_ended(&mut self) -> Option<Call> {
        let ended = self.open.front().is_some_and(|call| call.outcome.is_some());
        if ended { self.open.pop_front() } else { None }
    }

    /// The next call, whether it has ended or not.
    pub(super) fn next(&mut self) -> Option<Call> {
        self.open.pop_front()
    }
}

/// The path that an event is about.
pub(crate) fn path_of(event: &EventRef<'_>) -> Option<EntryPath> {
    match event.kind {
        WriteFile::KIND => event.typed::<WriteFile>()?.ok().map(|write| write.event.path),
        DeleteEntry::KIND => event.typed::<DeleteEntry>()?.ok().map(|delete| delete.event.path),
        _ => None,
    }
}
