//! A history as what is run again sees it: calls in the order in which they began, and what happened in between.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use crate::engine::event::{
    CallFinished, CallReason, CallStarted, CallStatus, ChildLimits, ChildStarted, CommandDecided, DeleteEntry,
    DriftFound, Event, Isolation, MountHydrated, SessionRewound, SessionStarted, SliceRestored, WriteFile,
};
use crate::engine::id::{Digest, Seq, SessionId};
use crate::engine::path::EntryPath;
use crate::engine::recorded::{EventRef, Recorded};
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::reducers::{Allowances, VirtualFileSystem};
use crate::tools::call::content_params::lower;

/// Events of no call that belong to a session's files and state.
const OUTSIDE: [&str; 6] = [
    WriteFile::KIND,
    DeleteEntry::KIND,
    DriftFound::KIND,
    MountHydrated::KIND,
    SessionRewound::KIND,
    SliceRestored::KIND,
];

/// A session that can only be looked at: nothing here records anything.
#[derive(Debug, Clone)]
pub(super) struct PastRun {
    session: Session,
}

/// A call as it is recorded.
#[derive(Debug, Clone)]
pub(super) struct RecordedCall {
    /// The position of its intent, which is its name.
    pub(super) call: Seq,
    pub(super) tool: String,
    pub(super) agent: Arc<str>,
    /// With long texts in their places.
    pub(super) params: Value,
    /// The position of its outcome, and that, with long texts in their places.
    pub(super) outcome: Option<(Seq, CallFinished)>,
    /// What was decided about its commands.
    pub(super) decisions: Vec<CommandDecided>,
    /// What it did to the files.
    pub(super) changes: Vec<Recorded>,
    /// What whoever made it might not do: which tools, which commands.
    pub(super) limits: Arc<ChildLimits>,
}

/// What happened outside of any call: drift, mounts, rewinds.
#[derive(Debug, Clone, Default)]
pub(super) struct OutsideEvents {
    pub(super) events: Vec<Recorded>,
}

/// What a history is made of.
#[derive(Debug, Clone)]
pub(super) enum Happening {
    Call(Box<RecordedCall>),
    Outside(OutsideEvents),
}

impl RecordedCall {
    /// Why it can't be run again; none when it can.
    pub(super) fn obstacle(&self) -> Option<&'static str> {
        let Some((_, end)) = &self.outcome else { return Some("it never ended") };
        match end.status {
            CallStatus::Interrupted => Some("it was interrupted"),
            CallStatus::Error if self.params.is_null() && end.reason() == Some(CallReason::TooLarge) => {
                Some("its parameters were too large to be recorded")
            }
            CallStatus::Ok | CallStatus::Error => None,
        }
    }

    /// Whether it was refused, or ended, because what the session might use was used up. How much that is by now
    /// is another in a run of its own, in which such a call would do what it never did.
    pub(super) fn was_over_limits(&self) -> bool {
        self.outcome.as_ref().is_some_and(|(_, end)| end.reason() == Some(CallReason::OverLimit))
    }

    /// The paths that it wrote or deleted.
    pub(super) fn paths(&self) -> impl Iterator<Item = EntryPath> {
        self.changes.iter().filter_map(|event| path_of(&event.view()))
    }
}

/// The path that a file event is about.
pub(super) fn path_of(event: &EventRef<'_>) -> Option<EntryPath> {
    match event.kind {
        WriteFile::KIND => event.typed::<WriteFile>()?.ok().map(|write| write.event.path),
        DeleteEntry::KIND => event.typed::<DeleteEntry>()?.ok().map(|delete| delete.event.path),
        _ => None,
    }
}

impl PastRun {
    pub(super) fn of(session: &Session) -> Self {
        Self { session: session.clone() }
    }

    pub(super) fn id(&self) -> SessionId {
        self.session.id()
    }

    pub(super) fn head(&self) -> Result<Seq, SessionError> {
        self.session.head()
    }

    pub(super) fn content(&self, digest: &Digest) -> Result<Bytes, SessionError> {
        self.session.content(digest)
    }

    /// The files after the event at `seq`.
    pub(super) fn files_at(&self, seq: Seq) -> Result<VirtualFileSystem, SessionError> {
        Ok(VirtualFileSystem::of(&self.session.state_at(seq)?))
    }

    /// What the session may not do, as a rule for each single call.
    pub(super) fn limits(&self) -> Arc<ChildLimits> {
        of_each_call(self.session.limits())
    }

    /// The slices that are state at `seq`, but for the files and for what commands were allowed, as events that put
    /// them there. Whoever allowed something did not do so for another session.
    pub(super) fn slices_at(&self, seq: Seq) -> Result<Vec<SliceRestored>, SessionError> {
        use crate::engine::slice::Slice;
        let pick = |seq| Ok::<_, SessionError>(self.session.state_at(seq)?.restorable(VirtualFileSystem::NAME)?);
        let empty = pick(0)?;
        let is_wanted = |slice: &crate::engine::slice::EncodedSlice| *slice.name != *Allowances::NAME;
        let differing = pick(seq)?.into_iter().filter(|slice| !empty.contains(slice) && is_wanted(slice));
        let event = |slice: crate::engine::slice::EncodedSlice| SliceRestored {
            slice: slice.name.to_string(),
            version: slice.version,
            blocks: slice.blocks,
        };
        Ok(differing.map(event).collect())
    }

    /// The position before the first call; the head where there is none.
    pub(super) fn before_calls(&self) -> Result<Seq, SessionError> {
        let mut first = None;
        self.session.visit(1, &mut |event| {
            if event.kind == CallStarted::KIND {
                first = Some(event.seq - 1);
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        first.map_or_else(|| self.head(), Ok)
    }

    /// What happened after `from`: calls that began up to `until`, in that order, each with all that it did.
    pub(super) fn happenings(&self, from: Seq, until: Seq) -> Result<Vec<Happening>, SessionError> {
        let mut reading = Reading { from, until, ..Reading::default() };
        // From the beginning: what stands there limits what comes after.
        self.session.visit(1, &mut |event| {
            reading.take(event);
            ControlFlow::Continue(())
        })?;
        let mut happenings = reading.happenings;
        for happening in happenings.values_mut() {
            if let Happening::Call(call) = happening {
                self.complete(call);
            }
        }
        Ok(happenings.into_values().collect())
    }

    /// The calls after `from`, in the order in which they began.
    pub(super) fn calls(&self, from: Seq) -> Result<Vec<RecordedCall>, SessionError> {
        let happenings = self.happenings(from, Seq::MAX)?.into_iter();
        Ok(happenings
            .filter_map(|happening| match happening {
                Happening::Call(call) => Some(*call),
                Happening::Outside(_) => None,
            })
            .collect())
    }

    /// The call of that name, when it has ended.
    pub(super) fn ended_call(&self, call: Seq, finished: Seq) -> Result<Option<RecordedCall>, SessionError> {
        let mut reading = Reading { until: call, ..Reading::default() };
        self.session.visit(call, &mut |event| {
            reading.take(event);
            if event.seq < finished { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        let found = reading.happenings.into_values().find_map(|happening| match happening {
            Happening::Call(found) if found.call == call => Some(*found),
            _ => None,
        });
        Ok(found.map(|mut found| {
            self.complete(&mut found);
            found
        }))
    }

    /// Puts long texts back in their places.
    fn complete(&self, call: &mut RecordedCall) {
        let mut read = |digest: &Digest| self.content(digest).ok().map(|bytes| bytes.to_vec());
        call.params = lower(std::mem::take(&mut call.params), &mut read);
        if let Some((_, end)) = &mut call.outcome {
            end.result = lower(std::mem::take(&mut end.result), &mut read);
        }
    }
}

/// The limits that hold while a history is read: those of the session, and of agents that share it.
#[derive(Default)]
struct PastLimits {
    session: Arc<ChildLimits>,
    agents: BTreeMap<Arc<str>, Arc<ChildLimits>>,
}

impl PastLimits {
    /// Takes up what an event says of limits; gives whether with it a child begins.
    fn begins_child(&mut self, event: &EventRef<'_>) -> bool {
        if let Some(Ok(started)) = event.typed::<SessionStarted>() {
            *self = Self { session: of_each_call(&started.event.limits), agents: BTreeMap::new() };
            return started.event.begins_child();
        }
        if let Some(Ok(child)) = event.typed::<ChildStarted>()
            && child.event.isolation == Isolation::Shared
        {
            self.agents.insert(child.event.agent.into(), of_each_call(&child.event.limits));
        }
        false
    }

    fn limits_of(&self, agent: &Arc<str>) -> Arc<ChildLimits> {
        Arc::clone(self.agents.get(agent).unwrap_or(&self.session))
    }
}

/// Of limits those that hold for each call by itself, whatever was done before.
fn of_each_call(limits: &ChildLimits) -> Arc<ChildLimits> {
    let (tools, deny) = (limits.tools.clone(), limits.deny.clone());
    Arc::new(ChildLimits { tools, deny, ..ChildLimits::default() })
}

/// A history while it is read. What is found outside stands before the call that found it.
#[derive(Default)]
struct Reading {
    from: Seq,
    until: Seq,
    held: PastLimits,
    /// By where they stand; at the same position what was found outside comes first.
    happenings: BTreeMap<(Seq, bool, Seq), Happening>,
    open: Vec<Seq>,
    /// Where the last event was put, if that was outside, and its position.
    outside: Option<((Seq, bool, Seq), Seq)>,
}

impl Reading {
    fn take(&mut self, event: &EventRef<'_>) {
        if self.held.begins_child(event) {
            // A call of the parent that was open there ends nowhere in this history, and finds nothing.
            self.open.clear();
            self.outside = None;
        }
        if event.seq <= self.from {
            return;
        }
        if let Some(call) = event.call {
            self.outside = None;
            self.take_of_call(call, event);
        } else if OUTSIDE.contains(&event.kind) {
            self.take_outside(event);
        }
    }

    fn take_of_call(&mut self, call: Seq, event: &EventRef<'_>) {
        let place = (call, true, call);
        if let Some(Ok(started)) = event.typed::<CallStarted>().filter(|_| call == event.seq && call <= self.until) {
            let Recorded { agent, event: CallStarted { tool, params }, .. } = started;
            let (limits, decisions, changes) = (self.held.limits_of(&agent), Vec::new(), Vec::new());
            let begun = RecordedCall { call, tool, agent, params, outcome: None, decisions, changes, limits };
            self.happenings.insert(place, Happening::Call(Box::new(begun)));
            self.open.push(call);
            return;
        }
        let Some(Happening::Call(known)) = self.happenings.get_mut(&place) else { return };
        if path_of(event).is_some() {
            known.changes.push(event.to_recorded());
        } else if let Some(Ok(decided)) = event.typed::<CommandDecided>() {
            known.decisions.push(decided.event);
        } else if let Some(Ok(finished)) = event.typed::<CallFinished>() {
            known.outcome = Some((event.seq, finished.event));
            self.open.retain(|open| *open != call);
        }
    }

    fn take_outside(&mut self, event: &EventRef<'_>) {
        let place = match self.outside {
            Some((place, last)) if last + 1 == event.seq => place,
            _ if event.seq > self.until && self.open.is_empty() => return,
            _ => {
                // The call that found it has done nothing yet.
                let idle = |call: &&Seq| match self.happenings.get(&(**call, true, **call)) {
                    Some(Happening::Call(call)) => call.changes.is_empty(),
                    _ => false,
                };
                let finder = self.open.iter().find(idle).copied();
                (finder.unwrap_or(event.seq), false, event.seq)
            }
        };
        self.outside = Some((place, event.seq));
        let outside = self.happenings.entry(place).or_insert_with(|| Happening::Outside(OutsideEvents::default()));
        if let Happening::Outside(outside) = outside {
            outside.events.push(event.to_recorded());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::clock::{StepClock, Timestamp};
    use crate::engine::commit::CallLink;
    use crate::engine::event::{Node, WriteMode};
    use crate::engine::registry::Registry;
    use crate::engine::session::children::ForkOptions;
    use crate::engine::session::sessions::NewSession;
    use crate::engine::session::sessions::Sessions;
    use crate::engine::session::snapshot::SnapshotPolicy;
    use crate::engine::store::MemoryStore;

    fn sessions() -> Sessions {
        let clock = Arc::new(StepClock::new(Timestamp(1), 1));
        Sessions::new(Arc::new(MemoryStore::default()), Registry::standard(), clock, SnapshotPolicy::default()).unwrap()
    }

    fn record<E: Event>(session: &Session, call: CallLink, event: &E) -> Seq {
        let mut commit = session.commit().of_call(call);
        commit.push(event).unwrap();
        session.record(commit).unwrap().first
    }

    fn begin(session: &Session) -> Seq {
        record(session, CallLink::Opens, &CallStarted { tool: "ls".to_owned(), params: Value::Null })
    }

    fn end(session: &Session, call: Seq) {
        let (status, message) = (CallStatus::Ok, String::new());
        record(
            session,
            CallLink::Of(call),
            &CallFinished { status, result: Value::Null, message, micros: 1, reason: None },
        );
    }

    fn write(session: &Session) {
        let path = EntryPath::lookup("by somebody").unwrap();
        record(session, CallLink::None, &WriteFile { path, mode: WriteMode::Create, node: Node::Directory });
    }

    #[test]
    fn rerun_past_of_fork_excludes_parent_drift() {
        let sessions = sessions();
        let parent = sessions.create(NewSession::named("parent")).unwrap();
        let open = begin(&parent);
        let child = sessions.child_of(&parent, ForkOptions::new(Isolation::Fork)).unwrap();
        let own = begin(&child);
        end(&child, own);
        write(&child);
        let order: Vec<Option<Seq>> = PastRun::of(&child)
            .happenings(0, Seq::MAX)
            .unwrap()
            .iter()
            .map(|happening| match happening {
                Happening::Call(call) => Some(call.call),
                Happening::Outside(_) => None,
            })
            .collect();
        assert_eq!(order, [Some(open), Some(own), None]);
    }

    #[test]
    fn rerun_call_has_limits_of_its_agent() {
        let sessions = sessions();
        let parent = sessions.create(NewSession::named("parent")).unwrap();
        let only = |tool: &str| ChildLimits {
            tools: Some([tool.to_owned()].into()),
            calls: Some(7),
            ..ChildLimits::default()
        };
        let calls = |session: &Session| end(session, begin(session));
        calls(&parent);
        let shared =
            ForkOptions { agent: "guest".to_owned(), limits: only("ls"), ..ForkOptions::new(Isolation::Shared) };
        let guest = sessions.child_of(&parent, shared).unwrap();
        calls(&guest);
        calls(&parent);
        let fork = ForkOptions { limits: only("rm"), ..ForkOptions::new(Isolation::Fork) };
        let child = sessions.child_of(&parent, fork).unwrap();
        calls(&child.as_agent("guest"));
        let tools: Vec<Option<String>> = PastRun::of(&child)
            .calls(0)
            .unwrap()
            .iter()
            .map(|call| {
                assert_eq!(call.limits.calls, None, "how much is left is another matter");
                call.limits.tools.as_ref().map(|tools| tools.iter().cloned().collect())
            })
            .collect();
        let of = |tool: &str| Some(tool.to_owned());
        assert_eq!(tools, [None, of("ls"), None, of("rm")]);
        // Also where reading begins later.
        let later = PastRun::of(&child).calls(child.origin().unwrap().at + 1).unwrap();
        assert_eq!((later.len(), later[0].limits.tools.is_some()), (1, true));
    }
}
