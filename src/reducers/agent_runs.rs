//! Runs that other programs made.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::engine::event::{CallObserved, ChangesUnknown, RunBegan, RunNoted, TranscriptRecord};
use crate::engine::{OnRewind, Recorded, Registry, Seq, Slice, ValueError};

/// Runs of agents that were recorded by looking on, or from their transcripts. A rewind keeps them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentRuns {
    /// Runs by the ids that their agents give them.
    pub runs: BTreeMap<String, AgentRun>,
}

/// A run of an agent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentRun {
    /// The position at which it begins.
    pub seq: Seq,
    /// The kind of agent, such as `claude`.
    pub agent: String,
    /// The format of its transcript; empty for none.
    pub format: String,
    /// Facts such as its model, by name.
    pub facts: Map<String, Value>,
    /// The number of its calls.
    pub calls: u64,
    /// The number of its calls of which it is not known which files they changed.
    pub incomplete: u64,
    /// The number of other records of its transcript.
    pub records: u64,
}

impl Slice for AgentRuns {
    const NAME: &'static str = "AgentRuns";
    const ON_REWIND: OnRewind = OnRewind::Keep;
}

impl AgentRuns {
    fn with(mut self, run: &str, change: impl FnOnce(&mut AgentRun)) -> Self {
        change(self.runs.entry(run.to_owned()).or_default());
        self
    }
}

pub(super) fn register(registry: Registry) -> Result<Registry, ValueError> {
    let registry = registry.event::<RunBegan>()?.event::<RunNoted>()?.event::<CallObserved>()?;
    let registry = registry.event::<ChangesUnknown>()?.event::<TranscriptRecord>()?.slice::<AgentRuns>()?;
    let registry = registry.reducer(|runs: AgentRuns, recorded: &Recorded<RunBegan>| {
        let RunBegan { run, agent, format } = recorded.event.clone();
        runs.with(&run, |entry| *entry = AgentRun { seq: recorded.seq, agent, format, ..std::mem::take(entry) })
    })?;
    let registry = registry.reducer(|runs: AgentRuns, recorded: &Recorded<RunNoted>| {
        runs.with(&recorded.event.run, |entry| entry.facts.extend(recorded.event.facts.clone()))
    })?;
    let registry = registry.reducer(|runs: AgentRuns, recorded: &Recorded<CallObserved>| {
        runs.with(&recorded.event.run, |entry| entry.calls += 1)
    })?;
    let registry = registry.reducer(|runs: AgentRuns, recorded: &Recorded<ChangesUnknown>| {
        runs.with(&recorded.event.run, |entry| entry.incomplete += 1)
    })?;
    registry.reducer(|runs: AgentRuns, recorded: &Recorded<TranscriptRecord>| {
        runs.with(&recorded.event.run, |entry| entry.records += 1)
    })
}
