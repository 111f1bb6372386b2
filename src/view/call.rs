//! Calls, assembled from their events.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::engine::clock::Timestamp;
use crate::engine::event::{
    CallFinished, CallStarted, CallStatus, ChangesShared, CommandResult, DriftFound, EvalResult, Event, WriteMode,
};
use crate::engine::history::OpenCalls;
use crate::engine::id::Seq;
use crate::engine::path::EntryPath;
use crate::engine::recorded::{EventRef, Recorded};
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::tools::{PlannedChange, lower, running_calls};

use super::unkept::{Unkept, UnkeptOfCall, follow, unkept_before};

/// A call as a document.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
pub struct Call {
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
    #[schemars(with = "Vec<String>")]
    pub paths: Vec<EntryPath>,
    /// The numbers of its changes.
    pub changed: CallChanges,
    /// Changes that this call, another open call or, in doubt, a person may have made.
    pub shared: Vec<SharedPaths>,
    /// Changed paths with entries that can't be recreated: their contents were not stored, or they are sockets or
    /// devices.
    #[schemars(with = "Vec<String>")]
    pub not_kept: Vec<EntryPath>,
    /// Entries not made by the call that it removed or replaced and that can't be recreated. Entries that were never recorded
    /// are not listed.
    #[schemars(with = "Vec<String>")]
    pub lost: Vec<EntryPath>,
    /// Its outcome; `None` until it has ended.
    #[serde(skip)]
    pub end: Option<CallFinished>,
    /// Net changes by path.
    #[serde(skip)]
    pub changes: BTreeMap<EntryPath, CallPathChange>,
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

impl Call {
    /// Restores the long texts in its parameters and its result.
    pub fn make_whole(&mut self, session: &Session) {
        self.params = whole(session, &self.params);
        if let Some(end) = &mut self.end {
            end.result = whole(session, &end.result);
        }
    }

    fn changed(&mut self, change: &PlannedChange) {
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

    fn ended(&mut self, at: Seq, end: CallFinished) {
        self.status = end.status.word();
        self.exit_code = end.result.get("exit_code").cloned();
        self.timed_out = end.result.get("timed_out").cloned();
        self.finished = Some(at);
        self.micros = Some(end.micros);
        self.message.clone_from(&end.message);
        self.end = Some(end);
    }
}

/// Restores the long texts in parameters or a result from their contents.
pub fn whole(session: &Session, value: &Value) -> Value {
    lower(value.clone(), &mut |digest| session.content(digest).ok().map(|bytes| bytes.to_vec()))
}

/// Assembles calls from events in order.
#[derive(Debug)]
pub struct CallViews {
    open: OpenCalls<(Call, UnkeptOfCall)>,
    unkept: Unkept,
    /// The calls that may have made the changes now being read, and the position of the last such change.
    sharing: Option<(Seq, Vec<Seq>)>,
    session: Session,
    running: OnceCell<BTreeSet<Seq>>,
}

impl CallViews {
    /// Prepares for the events of a session from a position on.
    pub fn from(session: &Session, from: Seq) -> Result<Self, SessionError> {
        let (open, unkept, running) = (OpenCalls::default(), unkept_before(session, from)?, OnceCell::new());
        Ok(Self { open, unkept, sharing: None, session: session.clone(), running })
    }

    /// Adds an event. Only events of calls and changes of files matter.
    pub fn take(&mut self, event: &EventRef<'_>) {
        if let Some(Ok(started)) = event.typed::<CallStarted>() {
            let begun = Call {
                call: event.seq,
                tool: started.event.tool,
                agent: started.agent,
                started_at: event.time,
                status: CallStatus::Interrupted.word(),
                params: started.event.params,
                events: vec![event.seq],
                ..Call::default()
            };
            return self.open.begin(event.seq, (begun, UnkeptOfCall::default()));
        }
        let change = PlannedChange::of(event);
        let gone = change.as_ref().map(|change| follow(&mut self.unkept, change)).unwrap_or_default();
        if event.call.is_none() {
            return self.take_shared(event, change.as_ref(), &gone);
        }
        let Some((call, unkept)) = self.open.of(event) else { return };
        call.events.push(event.seq);
        if let Some(change) = &change {
            unkept.take(change, &gone);
            call.changed(change);
        }
        if let Some(end) = event.decoded() {
            call.ended(event.seq, end);
        }
    }

    fn take_shared(&mut self, event: &EventRef<'_>, change: Option<&PlannedChange>, gone: &Unkept) {
        let shared = event.decoded().map(|ChangesShared { calls }| (calls, false));
        let drift = || event.decoded().map(|DriftFound { perhaps, .. }| (perhaps, true));
        if let Some((calls, in_doubt)) = shared.or_else(drift) {
            for (call, (its, _)) in self.open.among(&calls) {
                let with = calls.iter().copied().filter(|other| *other != call).collect();
                its.shared.push(SharedPaths { with, in_doubt, paths: Vec::new() });
            }
            self.sharing = Some((event.seq, calls));
            return;
        }
        let Some(change) = change else { return };
        let Some((last, calls)) = self.sharing.as_mut().filter(|(last, _)| *last + 1 == event.seq) else { return };
        *last = event.seq;
        for (_, (call, unkept)) in self.open.among(calls) {
            unkept.take(change, gone);
            let shared = call.shared.last_mut().filter(|shared| shared.paths.last() != Some(change.path()));
            shared.into_iter().for_each(|shared| shared.paths.push(change.path().clone()));
        }
    }

    /// Returns the next call, in the order of their intents, if it has ended.
    pub fn next_ended(&mut self) -> Option<Call> {
        self.open.next_ended().map(whole_call)
    }

    /// Returns the next call, ended or not.
    pub fn next_begun(&mut self) -> Option<Call> {
        let mut call = self.open.next_begun().map(whole_call)?;
        let is_running = || self.running.get_or_init(|| running_calls(&self.session)).contains(&call.call);
        if call.finished.is_none() && is_running() {
            call.status = "running";
        }
        Some(call)
    }
}

fn whole_call((mut call, unkept): (Call, UnkeptOfCall)) -> Call {
    (call.not_kept, call.lost) = (unkept.made.into_keys().collect(), unkept.lost.into_keys().collect());
    for change in call.changes.values() {
        match change {
            CallPathChange::Added => call.changed.added += 1,
            CallPathChange::Changed => call.changed.changed += 1,
            CallPathChange::Removed => call.changed.removed += 1,
        }
    }
    call
}

/// Visits the `wanted` calls that begin at `from` or later, in order, with events up to `until`, until `take` breaks.
pub fn visit_calls(
    session: &Session,
    (from, until): (Seq, Seq),
    wanted: &dyn Fn(Seq) -> bool,
    take: &mut dyn FnMut(Call) -> ControlFlow<()>,
) -> Result<(), SessionError> {
    let (mut calls, mut flow) = (CallViews::from(session, from)?, ControlFlow::Continue(()));
    session.visit_between(from, until, &mut |event| {
        if event.kind != CallStarted::KIND || wanted(event.seq) {
            calls.take(event);
        }
        while flow.is_continue()
            && let Some(call) = calls.next_ended()
        {
            flow = take(call);
        }
        flow
    })?;
    while flow.is_continue()
        && let Some(call) = calls.next_begun()
    {
        flow = take(call);
    }
    Ok(())
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
