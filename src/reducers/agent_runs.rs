//! Runs made by other programs.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::engine::event::{
    CallFinished, CallNoted, CallObserved, CallStatus, ChangesShared, ChangesUnknown, Common, ObservedAccess,
    ReportLate, RunBegan, RunEnded, RunNoted, RunPrompted, SessionStarted, TaskObserved, TranscriptRecord,
};
use crate::engine::{EntryPath, EventRef, OnRewind, Recorded, Registry, Seq, Slice, Timestamp, ValueError};

/// Maximum number of ended calls to remember.
const ENDED_MAX: usize = 256;
/// Maximum time between a scan of the disk and the start of a call. No person saves a file and then answers within it,
/// so the scan shows all changes before the call.
const LOOK_MILLIS: i64 = 1_000;

/// Runs of agents, recorded by observation or from their transcripts. A rewind keeps them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentRuns {
    /// Runs by the ids that their agents assigned.
    pub runs: BTreeMap<String, AgentRun>,
    /// Observed calls that have not ended, by their positions.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub open: BTreeMap<Seq, ObservedCall>,
    /// The latest observed calls that ended, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ended: Vec<EndedObservation>,
    /// Background tasks by the ids that their agents assigned.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tasks: BTreeMap<String, ObservedTask>,
}

/// A run of an agent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentRun {
    /// The position of its beginning.
    pub seq: Seq,
    /// The kind of agent, such as `claude`.
    pub agent: String,
    /// The format of its transcript; empty for none.
    pub format: String,
    /// Facts such as its model, by name.
    pub facts: Map<String, Value>,
    /// The number of its calls.
    pub calls: u64,
    /// The number of its calls with unknown file changes.
    pub incomplete: u64,
    /// The number of other records of its transcript.
    pub records: u64,
    /// The first line of the latest request; empty for none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prompt: String,
    /// The position of its end; 0 while it runs.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ended: Seq,
}

/// A call that another program makes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedCall {
    /// The run.
    pub run: String,
    /// The id that its agent assigned.
    pub id: String,
    /// The agent, as in the session.
    pub agent: Arc<str>,
    /// The changes that it may make.
    pub access: ObservedAccess,
    /// The paths that it declares to change.
    pub paths: Vec<EntryPath>,
    /// The time of its beginning.
    pub began: Timestamp,
    /// The process of its agent; empty if unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub process: String,
    /// True if it may not be running: it waits for a permission, or its end will never be reported.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub doubt: bool,
    /// The time from when it certainly ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The time of its end, if known before the end is recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// A call of another program that ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedObservation {
    /// The position of its beginning.
    pub call: Seq,
    /// The call.
    pub observed: ObservedCall,
    /// The status; interrupted if its agent reported no end.
    pub status: CallStatus,
    /// True if facts about it were recorded after its end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub noted: bool,
    /// The time of its end.
    #[serde(default)]
    pub at: Timestamp,
}

/// A background task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedTask {
    /// The run.
    pub run: String,
    /// The call that started it.
    pub call: Seq,
    /// The agent, as in the session.
    pub agent: Arc<str>,
}

fn is_zero(seq: &Seq) -> bool {
    *seq == 0
}

impl Slice for AgentRuns {
    const NAME: &'static str = "AgentRuns";
    const ON_REWIND: OnRewind = OnRewind::Keep;
}

impl ObservedCall {
    /// Returns true if it certainly ran during a change: between a scan of the disk that had not found the change, and
    /// the latest change of the entry.
    pub fn made_between(&self, look: Option<Timestamp>, latest: Option<Timestamp>) -> bool {
        let is_since = |since: Timestamp| {
            let look = look.unwrap_or(Timestamp(0)).0.saturating_add(LOOK_MILLIS);
            since.0 <= look && latest.is_some_and(|latest| since <= latest)
        };
        let had_begun = !self.doubt || self.since.is_some_and(is_since);
        had_begun && self.until.is_none_or(|until| latest.is_some_and(|latest| latest <= until))
    }
}

impl AgentRuns {
    /// Returns the agent of an observed call that is open, started a task or ended recently; empty for other calls.
    pub fn agent_of(&self, call: Seq) -> Arc<str> {
        let open = self.open.get(&call).map(|open| &open.agent);
        let task = || self.tasks.values().find(|task| task.call == call).map(|task| &task.agent);
        let ended = || self.ended.iter().find(|ended| ended.call == call).map(|ended| &ended.observed.agent);
        open.or_else(task).or_else(ended).map(Arc::clone).unwrap_or_default()
    }

    fn with(mut self, run: &str, change: impl FnOnce(&mut AgentRun)) -> Self {
        change(self.runs.entry(run.to_owned()).or_default());
        self
    }

    fn observed(mut self, recorded: &Recorded<CallObserved>) -> Self {
        let CallObserved { run, id, access, paths, process, until } = recorded.event.clone();
        let (agent, began) = (Arc::clone(&recorded.agent), recorded.time);
        let run_id = run.clone();
        let call = ObservedCall { run: run_id, id, agent, access, paths, began, process, until, ..Default::default() };
        self.open.insert(recorded.call.unwrap_or(recorded.seq), call);
        self.with(&run, |entry| entry.calls += 1)
    }

    fn finished(mut self, recorded: &Recorded<CallFinished>) -> Self {
        let (status, at) = (recorded.event.status, recorded.time);
        let Some((call, observed)) = recorded.call.and_then(|call| self.open.remove_entry(&call)) else { return self };
        self.ended.push(EndedObservation { call, observed, status, noted: false, at });
        if self.ended.len() > ENDED_MAX {
            self.ended.remove(0);
        }
        self
    }

    fn noted(mut self, recorded: &Recorded<CallNoted>) -> Self {
        let ended = self.ended.iter_mut().filter(|ended| Some(ended.call) == recorded.call);
        ended.for_each(|ended| ended.noted = true);
        if let Some(open) = recorded.call.and_then(|call| self.open.get_mut(&call)) {
            let fact = |name| recorded.event.facts.get(name);
            open.doubt |= fact("doubt").is_some();
            open.since = fact("since").and_then(|since| since.as_str()?.parse().ok()).or(open.since);
        }
        self
    }

    fn task(mut self, recorded: &Recorded<TaskObserved>) -> Self {
        let TaskObserved { run, task, call, running } = recorded.event.clone();
        match running {
            true => drop(self.tasks.insert(task, ObservedTask { run, call, agent: Arc::clone(&recorded.agent) })),
            false => drop(self.tasks.remove(&task)),
        }
        self
    }

    /// Returns true for the end of a call that is not observed: most are the session's own.
    fn ignores(&self, event: &EventRef<'_>) -> bool {
        event.common == Common::CallFinished && event.call.is_none_or(|call| !self.open.contains_key(&call))
    }

    /// Drops the parent's open calls and tasks when a child begins: they do not run in the child.
    fn began(mut self, started: &Recorded<SessionStarted>) -> Self {
        if started.event.begins_child() {
            self.open.clear();
            self.tasks.clear();
        }
        self
    }
}

pub(super) fn register(registry: Registry) -> Result<Registry, ValueError> {
    let registry = registry.event::<RunBegan>()?.event::<RunNoted>()?.event::<CallObserved>()?;
    let registry = registry.event::<RunEnded>()?.event::<RunPrompted>()?.event::<TaskObserved>()?;
    let registry = registry.event::<CallNoted>()?.event::<ReportLate>()?.event::<ChangesShared>()?;
    let registry = registry.event::<ChangesUnknown>()?.event::<TranscriptRecord>()?.slice::<AgentRuns>()?;
    let registry = registry.reducer(|runs: AgentRuns, recorded: &Recorded<RunBegan>| {
        let RunBegan { run, agent, format } = recorded.event.clone();
        runs.with(&run, |entry| *entry = AgentRun { seq: recorded.seq, agent, format, ..std::mem::take(entry) })
    })?;
    let registry = registry.reducer(|runs: AgentRuns, recorded: &Recorded<RunNoted>| {
        runs.with(&recorded.event.run, |entry| entry.facts.extend(recorded.event.facts.clone()))
    })?;
    let registry = registry.reducer(|runs: AgentRuns, recorded: &Recorded<RunPrompted>| {
        runs.with(&recorded.event.run, |entry| entry.prompt.clone_from(&recorded.event.line))
    })?;
    let registry = registry.reducer(|runs: AgentRuns, recorded: &Recorded<RunEnded>| {
        runs.with(&recorded.event.run, |entry| entry.ended = recorded.seq)
    })?;
    let registry = registry.reducer(AgentRuns::observed)?.reducer(AgentRuns::finished)?.reducer(AgentRuns::noted)?;
    let registry = registry.reducer(AgentRuns::task)?.reducer(AgentRuns::began)?;
    let registry = registry.reducer(|runs: AgentRuns, recorded: &Recorded<ChangesUnknown>| {
        runs.with(&recorded.event.run, |entry| entry.incomplete += 1)
    })?;
    let registry = registry.reducer(|runs: AgentRuns, recorded: &Recorded<TranscriptRecord>| {
        runs.with(&recorded.event.run, |entry| entry.records += 1)
    })?;
    Ok(registry.ignoring(AgentRuns::ignores))
}
