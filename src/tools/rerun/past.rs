//! A history as a rerun reads it: calls in the order of their start, and the events in between.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use super::foreign::ForeignRun;
use crate::engine::clock::Timestamp;
use crate::engine::event::{
    CallFinished, CallObserved, CallReason, CallStarted, CallStatus, ChildLimits, ChildStarted, CommandDecided,
    ContainerStarted, DeleteEntry, DriftFound, Event, Isolation, LinkFile, MountHydrated, Node, RunBegan, RunNoted,
    SessionRewound, SessionStarted, SliceDeclared, SliceRestored, ToolPolicySet, WriteFile,
};
use crate::engine::id::{Digest, Seq, SessionId};
use crate::engine::path::EntryPath;
use crate::engine::recorded::{EventRef, Recorded};
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::engine::slice::{EncodedSlice, Slice};
use crate::reducers::{AgentRun, AgentRuns, Allowances, VirtualFileSystem, is_built_in};
use crate::tools::bisection::search::first_position;
use crate::tools::call::content_params::lower;
use crate::tools::environment::container_in;

/// Events outside of calls that belong to a session's files and state.
const OUTSIDE: [&str; 9] = [
    WriteFile::KIND,
    DeleteEntry::KIND,
    LinkFile::KIND,
    DriftFound::KIND,
    MountHydrated::KIND,
    SessionRewound::KIND,
    SliceRestored::KIND,
    SliceDeclared::KIND,
    ToolPolicySet::KIND,
];

/// A read-only session.
#[derive(Debug, Clone)]
pub(in crate::tools) struct PastRun {
    pub(super) session: Session,
}

#[derive(Debug, Clone)]
pub(in crate::tools) struct RecordedCall {
    pub(in crate::tools) call: Seq,
    pub(in crate::tools) at: Timestamp,
    pub(in crate::tools) tool: String,
    pub(in crate::tools) agent: Arc<str>,
    /// Its parameters, with long texts restored.
    pub(in crate::tools) params: Value,
    /// The position of its outcome, and the outcome, with long texts restored.
    pub(in crate::tools) outcome: Option<(Seq, CallFinished)>,
    pub(super) decisions: Vec<CommandDecided>,
    pub(super) changes: Vec<Recorded>,
    /// The own events that it recorded itself.
    pub(super) own: Vec<Recorded>,
    /// Tools and commands that its agent was limited to.
    pub(super) limits: Arc<ChildLimits>,
    /// The run of another program that made it.
    pub(super) foreign: Option<ForeignRun>,
    /// The id that the other program gave it.
    pub(in crate::tools) id: Option<String>,
}

/// A call of a script, which was not recorded.
#[derive(Debug, Clone)]
pub struct ScriptedCall {
    /// The tool.
    pub tool: String,
    /// Its parameters.
    pub params: Value,
    /// Agent that makes it; may be empty.
    pub agent: String,
}

/// A step of a rerun.
#[derive(Debug, Clone)]
pub(super) enum RerunStep {
    Recorded(Box<RecordedCall>),
    Scripted(ScriptedCall),
    /// Events outside of any call: drift, mounts, rewinds.
    Outside(Vec<Recorded>),
}

impl RerunStep {
    /// Returns the recorded call.
    pub(super) fn call(&self) -> Option<&RecordedCall> {
        match self {
            Self::Recorded(call) => Some(call),
            Self::Scripted(_) | Self::Outside(_) => None,
        }
    }

    pub(super) fn call_mut(&mut self) -> Option<&mut RecordedCall> {
        match self {
            Self::Recorded(call) => Some(call),
            Self::Scripted(_) | Self::Outside(_) => None,
        }
    }

    pub(super) fn at(&self) -> Option<Timestamp> {
        match self {
            Self::Recorded(call) => Some(call.at),
            Self::Outside(events) => events.first().map(|event| event.time),
            Self::Scripted(_) => None,
        }
    }

    /// Returns the run of its call if the call is from a transcript, which does not state all files.
    pub(super) fn transcript(&self) -> Option<&ForeignRun> {
        self.call()?.foreign.as_ref().filter(|run| !run.format.is_empty())
    }
}

impl RecordedCall {
    pub(super) fn obstacle(&self) -> Option<&'static str> {
        let Some((_, end)) = &self.outcome else { return Some("it never ended") };
        match end.status {
            CallStatus::Interrupted => Some("it was interrupted"),
            CallStatus::Error if self.params.is_null() && end.reason == Some(CallReason::TooLarge) => {
                Some("its parameters were too large to be recorded")
            }
            CallStatus::Ok | CallStatus::Error => None,
        }
    }

    /// Returns true if a used-up limit refused or ended it. A rerun has used up less, so the call might do more there.
    pub(super) fn was_over_limits(&self) -> bool {
        self.outcome.as_ref().is_some_and(|(_, end)| end.reason == Some(CallReason::OverLimit))
    }

    /// Sets the directory of a run if its transcript does not state it. Its files were then recorded at other paths.
    pub(super) fn was_in(&mut self, directory: &str) {
        if let Some(run) = self.foreign.as_mut().filter(|run| run.directory.is_none()) {
            run.directory = Some(directory.to_owned());
            self.changes.clear();
        }
    }

    pub(in crate::tools) fn paths(&self) -> impl Iterator<Item = EntryPath> {
        self.changes.iter().filter_map(|event| path_of(&event.view()))
    }
}

pub(super) fn path_of(event: &EventRef<'_>) -> Option<EntryPath> {
    event.decoded().map(|WriteFile { path, .. }| path).or_else(|| event.decoded().map(|DeleteEntry { path }| path))
}

impl PastRun {
    pub(in crate::tools) fn of(session: &Session) -> Self {
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

    pub(super) fn files_at(&self, seq: Seq) -> Result<VirtualFileSystem, SessionError> {
        Ok(VirtualFileSystem::of(&self.session.state_at(seq)?))
    }

    /// Returns the own events of a call: a list of `{"kind", "data"}`.
    pub(super) fn own_events(&self, call: &RecordedCall) -> Value {
        let read = |digest: &Digest| self.content(digest).ok().map(|bytes| bytes.to_vec());
        let data = |event: &Recorded| lower(self.session.event_json(&event.view()), &mut read.clone());
        call.own.iter().map(|event| json!({ "kind": &*event.event.kind, "data": data(event) })).collect()
    }

    /// Returns the containers of the calls after `from`, up to `until`, in order.
    pub(super) fn containers(&self, from: Seq, until: Seq) -> Result<Vec<ContainerStarted>, SessionError> {
        let mut containers: Vec<_> = container_in(&self.session.state_at(from)?).cloned().into_iter().collect();
        self.session.visit_between(from.saturating_add(1), until, &mut |event| {
            containers.extend(event.decoded::<ContainerStarted>());
            ControlFlow::Continue(())
        })?;
        Ok(containers)
    }

    /// Returns the text of a file at the head.
    pub(super) fn text(&self, path: &EntryPath) -> Option<String> {
        let files = self.files_at(self.head().ok()?).ok()?;
        let Node::File { content, .. } = &files.get(path)?.node else { return None };
        String::from_utf8(self.content(content).ok()?.to_vec()).ok()
    }

    /// Returns the latest run of another program in the session, and its id.
    pub(in crate::tools) fn agent_run(&self) -> Result<Option<(String, AgentRun)>, SessionError> {
        let state = self.session.state()?;
        let runs = state.slice::<AgentRuns>().into_iter().flat_map(|runs| &runs.runs);
        Ok(runs.max_by_key(|(_, run)| run.seq).map(|(id, run)| (id.clone(), run.clone())))
    }

    /// Returns the last position that it inherited from its parent.
    pub(in crate::tools) fn own_from(&self) -> Seq {
        self.session.origin().filter(|origin| origin.isolation == Isolation::Fork).map_or(0, |origin| origin.at)
    }

    pub(super) fn name(&self) -> &str {
        self.session.name()
    }

    pub(super) fn limits(&self) -> Arc<ChildLimits> {
        of_each_call(self.session.limits())
    }

    /// Returns the slices that are state at `seq` as events that restore them: without the files, and without
    /// allowances, which apply to the recorded session only.
    pub(super) fn slices_at(&self, seq: Seq) -> Result<Vec<SliceRestored>, SessionError> {
        let pick = |seq| Ok::<_, SessionError>(self.session.state_at(seq)?.restorable(VirtualFileSystem::NAME)?);
        let empty = pick(0)?;
        let is_wanted = |slice: &EncodedSlice| *slice.name != *Allowances::NAME;
        let differing = pick(seq)?.into_iter().filter(|slice| !empty.contains(slice) && is_wanted(slice));
        let event = |EncodedSlice { name, version, blocks }| SliceRestored { slice: name.to_string(), version, blocks };
        Ok(differing.map(event).collect())
    }

    pub(super) fn before_calls(&self) -> Result<Seq, SessionError> {
        first_position(&self.session)
    }

    /// Returns the steps after `from`: calls that began up to `until`, in the order of their start, with their events.
    pub(super) fn steps(&self, from: Seq, until: Seq) -> Result<Vec<RerunStep>, SessionError> {
        let mut reading = Reading { from, until, ..Reading::default() };
        // From the beginning, since earlier events limit later calls.
        self.session.visit(1, &mut |event| {
            reading.take(event);
            ControlFlow::Continue(())
        })?;
        let mut steps = reading.steps;
        for step in steps.values_mut() {
            if let RerunStep::Recorded(call) = step {
                self.complete(call);
            }
        }
        Ok(steps.into_values().collect())
    }

    pub(in crate::tools) fn calls(&self, from: Seq) -> Result<Vec<RecordedCall>, SessionError> {
        let steps = self.steps(from, Seq::MAX)?;
        Ok(steps.iter().filter_map(RerunStep::call).cloned().collect())
    }

    pub(super) fn ended_call(&self, call: Seq, finished: Seq) -> Result<Option<RecordedCall>, SessionError> {
        let mut reading = Reading { until: call, ..Reading::default() };
        self.session.visit(call, &mut |event| {
            reading.take(event);
            if event.seq < finished { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        let mut found = reading.steps.values().filter_map(RerunStep::call).find(|found| found.call == call).cloned();
        found.iter_mut().for_each(|found| self.complete(found));
        Ok(found)
    }

    /// Restores long texts.
    fn complete(&self, call: &mut RecordedCall) {
        let mut read = |digest: &Digest| self.content(digest).ok().map(|bytes| bytes.to_vec());
        call.params = lower(std::mem::take(&mut call.params), &mut read);
        if let Some((_, end)) = &mut call.outcome {
            end.result = lower(std::mem::take(&mut end.result), &mut read);
        }
    }
}

/// Limits at the current event of a history: of the session, and of agents that share it.
#[derive(Default)]
struct PastLimits {
    session: Arc<ChildLimits>,
    agents: BTreeMap<Arc<str>, Arc<ChildLimits>>,
}

impl PastLimits {
    /// Updates the limits by an event. Returns true if a child begins with it.
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

/// Returns the limits that apply to each call independently of usage.
fn of_each_call(limits: &ChildLimits) -> Arc<ChildLimits> {
    let (tools, deny) = (limits.tools.clone(), limits.deny.clone());
    Arc::new(ChildLimits { tools, deny, ..ChildLimits::default() })
}

/// A history while it is read. External changes come before the call that found them.
#[derive(Default)]
struct Reading {
    from: Seq,
    until: Seq,
    held: PastLimits,
    /// Steps by place; at the same position, outside events come first.
    steps: BTreeMap<(Seq, bool, Seq), RerunStep>,
    open: Vec<Seq>,
    /// Runs of other programs by their ids.
    runs: BTreeMap<String, ForeignRun>,
    /// Place and position of the last event, if it was outside of calls.
    outside: Option<((Seq, bool, Seq), Seq)>,
}

impl Reading {
    fn take(&mut self, event: &EventRef<'_>) {
        if self.held.begins_child(event) {
            // An open call of the parent never ends in this history, and finds nothing.
            self.open.clear();
            self.outside = None;
        }
        if let Some(Ok(began)) = event.typed::<RunBegan>() {
            self.runs.entry(began.event.run).or_default().format = began.event.format;
        } else if let Some(Ok(noted)) = event.typed::<RunNoted>() {
            self.runs.entry(noted.event.run).or_default().note(&noted.event.facts);
        }
        if event.seq <= self.from {
            return;
        }
        if !is_built_in(event.kind) {
            self.take_own(event);
        } else if let Some(call) = event.call {
            self.outside = None;
            self.take_of_call(call, event);
        } else if OUTSIDE.contains(&event.kind) {
            self.take_outside(event);
        }
    }

    fn take_of_call(&mut self, call: Seq, event: &EventRef<'_>) {
        let place = (call, true, call);
        if let Some(Ok(started)) = event.typed::<CallStarted>().filter(|_| call == event.seq && call <= self.until) {
            let Recorded { agent, time: at, event: CallStarted { tool, params }, .. } = started;
            let (limits, decisions, changes) = (self.held.limits_of(&agent), Vec::new(), Vec::new());
            let (own, outcome, foreign, id) = (Vec::new(), None, None, None);
            let begun =
                RecordedCall { call, at, tool, agent, params, outcome, decisions, changes, own, limits, foreign, id };
            self.steps.insert(place, RerunStep::Recorded(Box::new(begun)));
            self.open.push(call);
            return;
        }
        let Some(RerunStep::Recorded(known)) = self.steps.get_mut(&place) else { return };
        if path_of(event).is_some() || event.kind == LinkFile::KIND {
            known.changes.push(event.to_recorded());
        } else if let Some(Ok(decided)) = event.typed::<CommandDecided>() {
            known.decisions.push(decided.event);
        } else if let Some(Ok(observed)) = event.typed::<CallObserved>() {
            known.foreign = self.runs.get(&observed.event.run).cloned();
            known.id = Some(observed.event.id);
        } else if let Some(Ok(finished)) = event.typed::<CallFinished>() {
            known.outcome = Some((event.seq, finished.event));
            self.open.retain(|open| *open != call);
        }
    }

    /// Takes an own event: of a call if that is open, else as one from outside.
    fn take_own(&mut self, event: &EventRef<'_>) {
        self.outside = None;
        match event.call.and_then(|call| self.steps.get_mut(&(call, true, call))) {
            Some(RerunStep::Recorded(call)) if call.outcome.is_none() => call.own.push(event.to_recorded()),
            _ if event.seq > self.until => {}
            _ => drop(self.steps.insert((event.seq, false, event.seq), RerunStep::Outside(vec![event.to_recorded()]))),
        }
    }

    fn take_outside(&mut self, event: &EventRef<'_>) {
        let place = match self.outside {
            Some((place, last)) if last + 1 == event.seq => place,
            _ if event.seq > self.until && self.open.is_empty() => return,
            _ => {
                // The call that found the change has done nothing yet.
                let idle = |call: &&Seq| match self.steps.get(&(**call, true, **call)) {
                    Some(RerunStep::Recorded(call)) => call.changes.is_empty(),
                    _ => false,
                };
                let finder = self.open.iter().find(idle).copied();
                (finder.unwrap_or(event.seq), false, event.seq)
            }
        };
        self.outside = Some((place, event.seq));
        let outside = self.steps.entry(place).or_insert_with(|| RerunStep::Outside(Vec::new()));
        if let RerunStep::Outside(outside) = outside {
            outside.push(event.to_recorded());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::clock::StepClock;
    use crate::engine::commit::CallLink;
    use crate::engine::event::WriteMode;
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
        record(session, CallLink::None, &WriteFile { path, mode: WriteMode::Create, node: Node::DIRECTORY });
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
            .steps(0, Seq::MAX)
            .unwrap()
            .iter()
            .map(|step| step.call().map(|call| call.call))
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
        assert_eq!(tools, [None, Some("ls".to_owned()), None, Some("rm".to_owned())]);
        // Also if reading begins later.
        let later = PastRun::of(&child).calls(child.origin().unwrap().at + 1).unwrap();
        assert_eq!((later.len(), later[0].limits.tools.is_some()), (1, true));
    }
}
