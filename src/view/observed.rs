//! Observed calls, with the agents' runs that they belong to.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use schemars::JsonSchema;
use serde::Serialize;

use crate::backends::WorkspaceSpec;
use crate::engine::event::{
    CallFinished, CallObserved, ChangesShared, DeleteEntry, Event, LinkFile, RunBegan, RunEnded, RunNoted, RunPrompted,
    TranscriptRecord, WriteFile,
};
use crate::engine::id::Seq;
use crate::engine::path::EntryPath;
use crate::engine::recorded::EventRef;
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::reducers::AgentRuns;
use crate::tools::{WorkspaceError, known_run, taken_up};

use super::conversation::prompt_in;

/// The observed calls of a session, and the changes that several of them may have made.
#[derive(Debug, Default)]
pub struct ObservedCalls {
    calls: BTreeMap<Seq, CallOfRun>,
    shared: Vec<SharedChanges>,
    runs: AgentRuns,
    /// The files that the calls wrote, or may have written.
    written: BTreeSet<EntryPath>,
    /// The last position that recorded the directory's existing files; 0 for a workspace that is not only watched.
    taken_up: Seq,
}

#[derive(Debug)]
struct CallOfRun {
    run: String,
    prompt: String,
    agent: String,
    /// The position of its last change, or its end.
    last: Seq,
}

#[derive(Debug)]
struct SharedChanges {
    first: Seq,
    last: Seq,
    calls: Vec<Seq>,
}

/// An observed call, with its agent and run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RunMention {
    /// The call.
    pub call: Seq,
    /// The agent, as in the session.
    pub agent: String,
    /// The agent's id of the run.
    pub run: String,
    /// The model; null if the agent does not report it.
    pub model: Option<String>,
    /// The first line of the prompt that it served; empty if none was reported.
    pub prompt: String,
}

/// The part of a history that belongs to a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunSpan {
    /// The run's whole id.
    pub run: String,
    /// The calls.
    pub calls: BTreeSet<Seq>,
    /// The position before its first call; the run's beginning if it is without calls.
    pub before: Seq,
    /// The position of its last change, or of the end of its last call.
    pub last: Seq,
    shared: Vec<(Seq, Seq)>,
}

impl ObservedCalls {
    /// Reads the history of a session.
    ///
    /// # Errors
    /// [`SessionError`] if it can't be read.
    pub fn of(session: &Session) -> Result<Self, SessionError> {
        let state = session.state()?;
        let runs = state.slice::<AgentRuns>().cloned().unwrap_or_default();
        if runs.runs.is_empty() && !is_watched(session) {
            return Ok(Self::default());
        }
        let taken_up = if is_watched(session) { taken_up(session)?.unwrap_or(0) } else { 0 };
        let mut observed = Self { runs, taken_up, ..Self::default() };
        let mut prompts = BTreeMap::new();
        session.visit(1, &mut |event| {
            observed.take(event, &mut prompts);
            prompts.extend(prompt_in(session, event));
            ControlFlow::Continue(())
        })?;
        Ok(observed)
    }

    fn take(&mut self, event: &EventRef<'_>, prompts: &mut BTreeMap<String, String>) {
        match event.kind {
            RunPrompted::KIND => {
                prompts.extend(event.decoded::<RunPrompted>().map(|prompted| (prompted.run, prompted.line)));
            }
            CallObserved::KIND => {
                let Some(CallObserved { run, .. }) = event.decoded() else { return };
                let call = event.call.unwrap_or(event.seq);
                let prompt = prompts.get(&run).cloned().unwrap_or_default();
                self.calls.insert(call, CallOfRun { run, prompt, agent: event.agent.to_owned(), last: event.seq });
            }
            ChangesShared::KIND => {
                let shared = |ChangesShared { calls }| SharedChanges { first: event.seq, last: event.seq, calls };
                self.shared.extend(event.decoded().map(shared));
            }
            WriteFile::KIND | DeleteEntry::KIND | LinkFile::KIND | CallFinished::KIND => {
                let mut is_its = false;
                if let Some(call) = event.call.and_then(|call| self.calls.get_mut(&call)) {
                    call.last = event.seq;
                    is_its = true;
                }
                // Shared changes directly follow the event that names their calls.
                let is_next = |shared: &&mut SharedChanges| event.call.is_none() && shared.last + 1 == event.seq;
                if let Some(shared) = self.shared.last_mut().filter(is_next) {
                    shared.last = event.seq;
                    is_its = true;
                }
                self.written.extend(event.decoded::<WriteFile>().filter(|_| is_its).map(|write| write.path));
            }
            _ => {}
        }
    }

    /// Returns the observed calls that made a change, given its call if it has one.
    pub fn by(&self, call: Option<Seq>, seq: Seq) -> Vec<RunMention> {
        let shared = || self.shared.iter().find(|shared| (shared.first..=shared.last).contains(&seq));
        let calls = call.map_or_else(|| shared().map_or(Vec::new(), |shared| shared.calls.clone()), |call| vec![call]);
        calls.into_iter().filter_map(|call| self.mention(call)).collect()
    }

    /// Returns true if observed calls wrote a file, or may have.
    pub(crate) fn has_written(&self, path: &EntryPath) -> bool {
        self.written.contains(path)
    }

    /// Returns true if a change existed before recording began.
    pub fn was_there(&self, seq: Seq) -> bool {
        seq <= self.taken_up
    }

    /// Returns the run and the prompt of a call; `None` if it was not observed.
    pub fn mention(&self, call: Seq) -> Option<RunMention> {
        let known = self.calls.get(&call)?;
        let model = self.runs.runs.get(&known.run).and_then(|run| run.facts.get("model")?.as_str());
        let CallOfRun { run, prompt, agent, .. } = known;
        let (agent, run, prompt) = (agent.clone(), run.clone(), prompt.clone());
        Some(RunMention { call, agent, run, model: model.map(str::to_owned), prompt })
    }

    /// Finds the span of a run, given by its id, a prefix of the id, or `last`.
    ///
    /// # Errors
    /// [`WorkspaceError::UnknownRun`] if no run matches, or several do.
    pub fn run(&self, session: &Session, wanted: &str) -> Result<RunSpan, WorkspaceError> {
        let run = known_run(session, wanted)?;
        let calls: BTreeSet<Seq> =
            self.calls.iter().filter(|(_, call)| call.run == run).map(|(call, _)| *call).collect();
        let is_its = |shared: &&SharedChanges| shared.calls.iter().any(|call| calls.contains(call));
        let shared: Vec<(Seq, Seq)> =
            self.shared.iter().filter(is_its).map(|shared| (shared.first, shared.last)).collect();
        let ends = calls.iter().filter_map(|call| self.calls.get(call)).map(|call| call.last);
        let began = self.runs.runs.get(&run).map_or(0, |run| run.seq);
        let before = calls.first().map_or(began, |first| first - 1);
        let last = ends.chain(shared.iter().map(|(_, last)| *last)).max().unwrap_or(before);
        Ok(RunSpan { run, calls, before, last, shared })
    }
}

impl RunSpan {
    /// Returns true if an event belongs to the run.
    pub fn has(&self, event: &EventRef<'_>) -> bool {
        let of_run = || match event.kind {
            RunBegan::KIND => event.decoded().map(|RunBegan { run, .. }| run),
            RunNoted::KIND => event.decoded().map(|RunNoted { run, .. }| run),
            RunPrompted::KIND => event.decoded().map(|RunPrompted { run, .. }| run),
            RunEnded::KIND => event.decoded().map(|RunEnded { run, .. }| run),
            TranscriptRecord::KIND => event.decoded().map(|TranscriptRecord { run, .. }| run),
            _ => None,
        };
        event.call.is_some_and(|call| self.calls.contains(&call))
            || self.shared.iter().any(|(first, last)| (*first..=*last).contains(&event.seq))
            || of_run().is_some_and(|run| run == self.run)
    }
}

/// Returns true if a session only watches a directory where other programs work.
fn is_watched(session: &Session) -> bool {
    let spec = session.started().and_then(|started| WorkspaceSpec::of_session(started).ok());
    spec.is_some_and(|spec| spec.only_watches())
}
