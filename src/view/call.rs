//! Calls, assembled from their events.

use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::engine::clock::Timestamp;
use crate::engine::event::{
    CallFinished, CallStarted, CallStatus, ChangesShared, CommandResult, DriftFound, EvalResult, Event, WriteMode,
};
use crate::engine::id::Seq;
use crate::engine::path::EntryPath;
use crate::engine::recorded::{EventRef, Recorded};
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::tools::{PlannedChange, lower};

use super::unkept::{Unkept, UnkeptOfCall, follow, unkept_before};

/// A call as far as its events have been read.
#[derive(Debug, Clone, Default)]
pub struct Call {
    /// The call id: the position of its intent.
    pub call: Seq,
    /// The tool.
    pub tool: String,
    /// The agent that made it.
    pub agent: Arc<str>,
    /// Its start time.
    pub started_at: Timestamp,
    /// Its parameters, with marks in place of long texts.
    pub params: Value,
    /// Its outcome; `None` until it has ended.
    pub outcome: Option<CallOutcome>,
    /// The positions of all its events, including its intent and its outcome.
    pub events: Vec<Seq>,
    /// The paths that it changed, in order.
    pub paths: Vec<EntryPath>,
    /// Changes by path.
    pub changes: BTreeMap<EntryPath, CallPathChange>,
    /// Changes during the call that it may have made.
    pub shared: Vec<SharedPaths>,
    unkept: UnkeptOfCall,
}

/// Changes of files that one of several calls may have made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SharedPaths {
    /// The other calls that may have made them.
    pub with: Vec<Seq>,
    /// True if none of the calls certainly ran then: a person may have made the changes.
    pub in_doubt: bool,
    /// The paths.
    #[schemars(with = "Vec<String>")]
    pub paths: Vec<EntryPath>,
}

/// The net change of a path by a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallPathChange {
    /// The entry is new.
    Added,
    /// The entry has changed.
    Changed,
    /// The entry was removed.
    Removed,
}

/// The numbers of entries that a call added, changed and removed, all in all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CallChanges {
    /// New entries.
    pub added: usize,
    /// Changed entries.
    pub changed: usize,
    /// Removed entries.
    pub removed: usize,
}

/// The end of a call.
#[derive(Debug, Clone)]
pub struct CallOutcome {
    /// The position of its outcome.
    pub finished: Seq,
    /// The event.
    pub end: CallFinished,
}

/// A call as a document.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(rename = "Call")]
pub struct CallDocument {
    /// The call id: the position of its intent.
    pub call: Seq,
    /// The tool.
    pub tool: String,
    /// The agent that made it; empty if none was named.
    #[schemars(with = "String")]
    pub agent: Arc<str>,
    /// Its start time, in UTC.
    #[schemars(with = "String")]
    pub started_at: Timestamp,
    /// `ok`, `error`, `interrupted` or `running`.
    pub status: &'static str,
    /// The exit code in its result; null without one.
    pub exit_code: Option<Value>,
    /// True if its result reports a command that timed out; null without that field.
    pub timed_out: Option<Value>,
    /// The position of its outcome.
    pub finished: Option<Seq>,
    /// Its duration in microseconds.
    pub micros: Option<u64>,
    /// The error's text; empty after a success.
    pub message: String,
    /// Its parameters, with `{ "$content": digest, "bytes": n }` in place of a long text.
    pub params: Value,
    /// The positions of its events.
    pub events: Vec<Seq>,
    /// The paths that it changed.
    pub paths: Vec<String>,
    /// The numbers of its changes.
    pub changed: CallChanges,
    /// Changes that this call, another open call or, in doubt, a person may have made.
    pub shared: Vec<SharedPaths>,
    /// Changed paths with entries that can't be recreated: their contents were not stored, or they are sockets or
    /// devices.
    pub not_kept: Vec<String>,
    /// Entries not made by the call that it removed or replaced and that can't be recreated. Entries that were never recorded
    /// are not listed.
    pub lost: Vec<String>,
}

impl Call {
    /// Returns its status: a call without an outcome runs, or was interrupted if nothing may run it.
    pub fn status(&self, may_run: bool) -> &'static str {
        match &self.outcome {
            Some(outcome) => outcome.end.status.word(),
            None if may_run => "running",
            None => "interrupted",
        }
    }

    /// Returns the error's text; empty after a success.
    pub fn message(&self) -> &str {
        self.outcome.as_ref().map_or("", |outcome| &outcome.end.message)
    }

    /// Iterates over the paths where it left entries that can't be recreated.
    pub fn not_kept(&self) -> impl ExactSizeIterator<Item = &EntryPath> {
        self.unkept.made.keys()
    }

    /// Iterates over the paths of entries of others that it removed or replaced and that can't be recreated.
    pub fn lost(&self) -> impl ExactSizeIterator<Item = &EntryPath> {
        self.unkept.lost.keys()
    }

    fn changed(&mut self, change: &PlannedChange, gone: &Unkept) {
        self.unkept.take(change, gone);
        let path = change.path().clone();
        // The link of a new name follows its write.
        if change.link().is_none() || !self.changes.contains_key(&path) {
            self.paths.push(path.clone());
        }
        let now = match change {
            PlannedChange::Write(write) if write.mode == WriteMode::Create => CallPathChange::Added,
            PlannedChange::Write(_) | PlannedChange::Link(_) => CallPathChange::Changed,
            PlannedChange::Delete(_) => CallPathChange::Removed,
        };
        let all_in_all = match (self.changes.remove(&path), now) {
            // Added and removed again: no change.
            (Some(CallPathChange::Added), CallPathChange::Removed) => return,
            (Some(CallPathChange::Added), _) => CallPathChange::Added,
            (Some(CallPathChange::Removed), CallPathChange::Added) => CallPathChange::Changed,
            (_, now) => now,
        };
        self.changes.insert(path, all_in_all);
    }

    /// Counts its changes by kind.
    pub fn counts(&self) -> CallChanges {
        let mut counts = CallChanges::default();
        for change in self.changes.values() {
            match change {
                CallPathChange::Added => counts.added += 1,
                CallPathChange::Changed => counts.changed += 1,
                CallPathChange::Removed => counts.removed += 1,
            }
        }
        counts
    }

    /// Returns the call as a document, with marks for long texts. `may_run` is true if a call without an outcome may
    /// run.
    pub fn document(&self, may_run: bool) -> CallDocument {
        let of_command = |field: &str| self.outcome.as_ref()?.end.result.get(field).cloned();
        CallDocument {
            call: self.call,
            tool: self.tool.clone(),
            agent: Arc::clone(&self.agent),
            started_at: self.started_at,
            status: self.status(may_run),
            exit_code: of_command("exit_code"),
            timed_out: of_command("timed_out"),
            finished: self.outcome.as_ref().map(|outcome| outcome.finished),
            micros: self.outcome.as_ref().map(|outcome| outcome.end.micros),
            message: self.message().to_owned(),
            params: self.params.clone(),
            events: self.events.clone(),
            paths: self.paths.iter().map(ToString::to_string).collect(),
            changed: self.counts(),
            shared: self.shared.clone(),
            not_kept: self.not_kept().map(ToString::to_string).collect(),
            lost: self.lost().map(ToString::to_string).collect(),
        }
    }
}

/// Restores the long texts in parameters or a result from their contents.
pub fn whole(session: &Session, value: &Value) -> Value {
    lower(value.clone(), &mut |digest| session.content(digest).ok().map(|bytes| bytes.to_vec()))
}

/// Assembles calls from events in order.
#[derive(Debug)]
pub struct CallViews {
    open: VecDeque<Call>,
    unkept: Unkept,
    /// The calls that may have made the changes now being read, and the position of the last such change.
    sharing: Option<(Seq, Vec<Seq>)>,
}

impl CallViews {
    /// Prepares for the events of a session from a position on.
    pub fn from(session: &Session, from: Seq) -> Result<Self, SessionError> {
        Ok(Self { open: VecDeque::new(), unkept: unkept_before(session, from)?, sharing: None })
    }

    /// Adds an event. Only events of calls and changes of files matter.
    pub fn take(&mut self, event: &EventRef<'_>) {
        if let Some(Ok(started)) = event.typed::<CallStarted>() {
            self.open.push_back(Call {
                call: event.seq,
                tool: started.event.tool,
                agent: started.agent,
                started_at: event.time,
                params: started.event.params,
                events: vec![event.seq],
                ..Call::default()
            });
            return;
        }
        let change = PlannedChange::of(event);
        let gone = change.as_ref().map(|change| follow(&mut self.unkept, change)).unwrap_or_default();
        if event.call.is_none() {
            return self.take_shared(event, change.as_ref(), &gone);
        }
        let at = event.call.and_then(|call| self.open.binary_search_by_key(&call, |known| known.call).ok());
        let call = at.and_then(|at| self.open.get_mut(at)).filter(|call| call.outcome.is_none());
        let Some(call) = call else { return };
        call.events.push(event.seq);
        if let Some(change) = &change {
            call.changed(change, &gone);
        }
        if event.kind == CallFinished::KIND {
            call.outcome = event.decoded().map(|end| CallOutcome { finished: event.seq, end });
        }
    }

    fn take_shared(&mut self, event: &EventRef<'_>, change: Option<&PlannedChange>, gone: &Unkept) {
        let shared = event.decoded().map(|ChangesShared { calls }| (calls, false));
        let drift = || event.decoded().map(|DriftFound { perhaps, .. }| (perhaps, true));
        if let Some((calls, in_doubt)) = shared.or_else(drift) {
            for call in self.open.iter_mut().filter(|call| calls.contains(&call.call)) {
                let with = calls.iter().copied().filter(|other| *other != call.call).collect();
                call.shared.push(SharedPaths { with, in_doubt, paths: Vec::new() });
            }
            self.sharing = Some((event.seq, calls));
            return;
        }
        let Some(change) = change else { return };
        let Some((last, calls)) = self.sharing.as_mut().filter(|(last, _)| *last + 1 == event.seq) else { return };
        *last = event.seq;
        let its = self.open.iter_mut().filter(|call| calls.contains(&call.call));
        for call in its {
            call.unkept.take(change, gone);
            let shared = call.shared.last_mut().filter(|shared| shared.paths.last() != Some(change.path()));
            shared.into_iter().for_each(|shared| shared.paths.push(change.path().clone()));
        }
    }

    /// Returns the next call, in the order of their intents, if it has ended.
    pub fn next_ended(&mut self) -> Option<Call> {
        let ended = self.open.front().is_some_and(|call| call.outcome.is_some());
        if ended { self.open.pop_front() } else { None }
    }

    /// Returns the next call, ended or not.
    pub fn next_begun(&mut self) -> Option<Call> {
        self.open.pop_front()
    }
}

/// Returns the call that began at a position, with its events; `None` if no call began there.
pub fn call_at(session: &Session, call: Seq) -> Result<Option<(Call, Vec<Recorded>)>, SessionError> {
    let mut calls = CallViews::from(session, call)?;
    let mut events = Vec::new();
    let mut ended = None;
    session.visit(call, &mut |event| {
        if event.call == Some(call) {
            events.push(event.to_recorded());
        }
        if event.call == Some(call) || event.kind != CallStarted::KIND {
            calls.take(event);
        }
        ended = calls.next_ended();
        if ended.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(ended.or_else(|| calls.next_begun()).map(|call| (call, events)))
}

/// Returns true if an event is the end of a failed call, command or evaluation.
pub fn has_failed(event: &EventRef<'_>) -> bool {
    event.decoded().is_some_and(|CallFinished { status, .. }| status != CallStatus::Ok)
        || event.decoded().is_some_and(|CommandResult { exit_code, .. }| exit_code != 0)
        || event.decoded().is_some_and(|EvalResult { exit_code, .. }| exit_code != 0)
}

/// Returns the path that an event changes.
pub fn path_of(event: &EventRef<'_>) -> Option<EntryPath> {
    PlannedChange::of(event).map(|change| change.path().clone())
}
