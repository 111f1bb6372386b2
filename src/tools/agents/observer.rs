//! Recording reports from hooks: runs, calls, and the changes on the disk while calls were open.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::brief::{brief, first_line};
use super::linked_places::linked_places;
use super::report::{HookKind, HookReport, ReportedCall, ReportedEnd};
use crate::backends::agent_process::process_ended;
use crate::engine::clock::Timestamp;
use crate::engine::commit::{CallLink, Commit, CommitError};
use crate::engine::event::{
    CallNoted, CallObserved, CallStatus, GitMoved, ObservedAccess, ReportLate, RunBegan, RunEnded, RunNoted,
    RunPrompted, TaskObserved,
};
use crate::engine::id::{Digest, Seq};
use crate::engine::path::EntryPath;
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::engine::store::Pending;
use crate::reducers::{AgentRuns, EndedObservation, GitWorktree, ObservedCall};
use crate::tools::call::content_params::lift;
use crate::tools::call::error::ToolError;
use crate::tools::call::tool_runner::ToolRunner;
use crate::tools::off_thread::{off_thread, own_state};
use crate::tools::transcript::call_events::{ObservedEnd, push_begin, push_end, push_record};
use crate::tools::transcript::exit_codes::exit_codes;
use crate::tools::transcript::tool_access::ToolAccess;
use crate::tools::workspace::borrowed::keep_unlisted;
use crate::tools::workspace::managed::Extent;

/// The maximum duration of a call without a reported end; then it is closed.
const OPEN_MAX_MILLIS: i64 = 3_600_000;
/// The agent with exit codes in its transcript, but not in its hooks.
pub(super) const CODELESS: &str = "codex";
/// The agent that makes its writing calls one after the other.
const SEQUENTIAL: &str = "claude";
/// The name of the run fact that holds the agent's process.
const PROCESS: &str = "process";
/// The minimum age of a late report: its hook has stopped waiting.
const LATE_MICROS: u64 = 2_000_000;
/// The number of characters of a subagent's id in its agent's name.
const SUBAGENT_CHARS: usize = 8;
/// The limit for the characters of an agent's name, which has at most 200 bytes.
const AGENT_MAX: usize = 40;

/// A report with the circumstances of its arrival.
#[derive(Debug, Clone)]
pub struct Arrival {
    pub report: HookReport,
    /// The payload, which is recorded for an unknown event.
    pub payload: Value,
    /// The start time of the hook if known, else the arrival time.
    pub arrived: Instant,
    /// The time that the report was queued before, in microseconds.
    pub waited: u64,
    /// True to record requests and outputs whole.
    pub keeps_all: bool,
    /// The process of the agent; empty if unknown.
    pub process: String,
    /// The end time of the call that the report begins, if the end was reported before the beginning is recorded.
    pub until: Option<Timestamp>,
}

impl ToolRunner {
    /// Records a report. Scans the disk first if a call that may write begins or ends. Without a payload, only scans.
    ///
    /// # Errors
    /// Reading the disk or recording failed. The report is not recorded, or only in part.
    #[doc(hidden)]
    pub async fn observe(&self, arrival: Arrival) -> Result<(), ToolError> {
        if arrival.payload.is_null() {
            return self.look().await;
        }
        let turn = self.runtime().lock_workspace().await;
        // For a late report, an earlier scan found the changes up to its time.
        if arrival.waited == 0 && may_have_changed(&arrival.report.kind) {
            self.machine().record_drift(self.session(), Extent::Due).await?;
        }
        let session = self.session().clone();
        let root = self.workspace().root().map(PathBuf::from).unwrap_or_default();
        let stopped = ToolError::new("recording a report was interrupted");
        off_thread(turn, stopped, move || Observer::new(&session, root, arrival).record()).await
    }

    /// Scans the disk, and closes calls that ended without a report.
    pub(crate) async fn look(&self) -> Result<(), ToolError> {
        self.find_changes().await?;
        self.close_lost().await
    }

    /// Scans the disk, and records changes.
    #[doc(hidden)]
    pub async fn find_changes(&self) -> Result<(), ToolError> {
        let _turn = self.runtime().lock_workspace().await;
        self.machine().record_drift(self.session(), Extent::Due).await
    }

    /// Closes calls that ended without a report.
    #[doc(hidden)]
    pub async fn close_lost(&self) -> Result<(), ToolError> {
        let turn = self.runtime().lock_workspace().await;
        let session = self.session().clone();
        off_thread(turn, ToolError::new("closing lost calls was interrupted"), move || close_lost(&session)).await
    }

    /// Records the exit codes in the transcript of a run. Does nothing for agents that report exit codes by hooks.
    #[doc(hidden)]
    pub async fn note_exit_codes(&self, run: &str) -> Result<(), ToolError> {
        let runs = own_state(self.session()).await?.slice::<AgentRuns>().cloned().unwrap_or_default();
        let known = runs.runs.get(run).filter(|known| known.agent == CODELESS);
        let Some(path) = known.and_then(|known| known.facts.get("transcript_path")?.as_str()) else { return Ok(()) };
        let (session, run, path) = (self.session().clone(), run.to_owned(), PathBuf::from(path));
        let stopped = ToolError::new("reading a transcript was interrupted");
        let noted = off_thread((), stopped, move || {
            let codes = match exit_codes(&path) {
                Ok(codes) => codes,
                Err(error) => {
                    tracing::info!(%error, "can't read exit codes from the transcript");
                    return Ok(());
                }
            };
            let is_new = |ended: &&EndedObservation| ended.observed.run == run && !ended.noted;
            for ended in runs.ended.iter().filter(is_new) {
                let Some(code) = codes.get(&ended.observed.id) else { continue };
                drop(note_of(&session, ended.call, &ended.observed, ("exit_code", json!(code)))?);
            }
            Ok::<_, SessionError>(())
        });
        noted.await
    }

    /// Records the place of the git worktree if it has changed.
    #[doc(hidden)]
    pub async fn note_git(&self) -> Result<(), ToolError> {
        let workspace = Arc::clone(self.workspace());
        let stopped = ToolError::new("reading the git worktree was interrupted");
        let look = move || workspace.capture().map_or(Ok(None), |disk| disk.git_place());
        let Some(place) = off_thread((), stopped, look).await? else { return Ok(()) };
        let state = own_state(self.session()).await?;
        let known = state.slice::<GitWorktree>();
        let is_same = |known: &GitWorktree| {
            (&known.head, &known.branch, known.index) == (&place.head, &place.branch, Some(place.index))
        };
        if known.is_some_and(is_same) {
            return Ok(());
        }
        let (session, blobs) = (self.session().clone(), place.blobs);
        let stopped = ToolError::new("storing contents was interrupted");
        let moved = GitMoved { head: place.head, branch: place.branch, index: place.index };
        let record = move || {
            keep_unlisted(&session, &blobs)?;
            let mut commit = session.as_agent("").commit();
            commit.push(&moved)?;
            session.record(commit).map(drop)
        };
        off_thread((), stopped, record).await
    }
}

/// Returns the name of the acting agent, or `agent/subagent`.
pub(super) fn agent_name(report: &HookReport) -> Arc<str> {
    let agent: String = report.agent.chars().take(AGENT_MAX).collect();
    match report.subagent.as_ref().or(report.parent.as_ref().map(|_| &report.run)) {
        Some(id) => format!("{agent}/{}", id.chars().take(SUBAGENT_CHARS).collect::<String>()).into(),
        None => agent.into(),
    }
}

/// Returns true if a report needs a scan of the disk, which separates the changes before the report from later ones.
fn may_have_changed(kind: &HookKind) -> bool {
    match kind {
        HookKind::CallBegan(call) | HookKind::CallEnded(call, _) => call.access != ToolAccess::Reads,
        HookKind::Batch(calls) => calls.iter().any(|(call, _)| call.access != ToolAccess::Reads),
        HookKind::Other | HookKind::SubagentBegan => false,
        HookKind::RunBegan
        | HookKind::RunEnded { .. }
        | HookKind::Prompted { .. }
        | HookKind::Asked
        | HookKind::Allowed
        | HookKind::SubagentEnded
        | HookKind::Paused { .. } => true,
    }
}

pub(super) struct Observer {
    /// The session, for the acting agent.
    pub(super) session: Session,
    pub(super) name: Arc<str>,
    /// The recorded directory.
    pub(super) root: PathBuf,
    pub(super) arrival: Arrival,
    /// The last submitted commit.
    last: Option<Pending>,
    /// True if an earlier report of the run named the same process, so it outlives a hook.
    lasts: bool,
}

impl Observer {
    pub(super) fn new(session: &Session, root: PathBuf, arrival: Arrival) -> Self {
        let name = agent_name(&arrival.report);
        Self { session: session.as_agent(Arc::clone(&name)), name, root, arrival, last: None, lasts: false }
    }

    /// Returns true if the agent makes writing calls one after the other, in one conversation at a time.
    pub(super) fn is_sequential(&self) -> bool {
        self.arrival.report.agent == SEQUENTIAL
    }

    fn record(&mut self) -> Result<(), SessionError> {
        // The queued reports may include the ends of calls by an agent that has exited.
        if self.arrival.waited == 0 {
            close_lost(&self.session)?;
        }
        self.record_kind(true)
    }

    /// Records a report. With `closes`, also closes the other calls that this report shows to be over.
    pub(super) fn record_kind(&mut self, closes: bool) -> Result<(), SessionError> {
        self.run()?;
        if closes {
            self.settle()?;
            close_where(&self.session, |call| self.is_over(call))?;
        }
        match self.arrival.report.kind.clone() {
            HookKind::RunBegan | HookKind::SubagentBegan | HookKind::SubagentEnded => {}
            HookKind::Asked | HookKind::Allowed => {}
            HookKind::RunEnded { reason } => {
                self.end_tasks(&[])?;
                let (run, reason) = (self.run_id(), reason.unwrap_or_default());
                self.push(|commit| commit.push(&RunEnded { run, reason }))?;
            }
            HookKind::Prompted { prompt, id } => self.prompted(&prompt, id)?,
            HookKind::CallBegan(call) => drop(self.begin(&call, closes)?),
            HookKind::CallEnded(call, end) => self.end(&call, end)?,
            HookKind::Batch(calls) => calls.into_iter().try_for_each(|(call, end)| self.end(&call, end))?,
            HookKind::Paused { background } => background.map_or(Ok(()), |background| self.end_tasks(&background))?,
            HookKind::Other => self.other()?,
        }
        self.settle()
    }

    pub(super) fn runs(&mut self) -> Result<AgentRuns, SessionError> {
        self.settle()?;
        Ok(self.session.state()?.slice::<AgentRuns>().cloned().unwrap_or_default())
    }

    pub(super) fn run_id(&self) -> String {
        let HookReport { agent, run, .. } = &self.arrival.report;
        if run.is_empty() { agent.clone() } else { run.clone() }
    }

    fn submit(&mut self, commit: Commit) -> Result<Seq, SessionError> {
        let pending = self.session.submit(commit)?;
        let first = pending.first();
        self.last = Some(pending);
        Ok(first)
    }

    fn push(&mut self, events: impl FnOnce(&mut Commit) -> Result<(), CommitError>) -> Result<(), SessionError> {
        let mut commit = self.session.commit();
        events(&mut commit)?;
        self.submit(commit).map(drop)
    }

    /// Waits until the submitted commits are in the state.
    fn settle(&mut self) -> Result<(), SessionError> {
        self.last.take().map_or(Ok(()), |pending| pending.wait().map(drop))?;
        Ok(())
    }

    /// Records the beginning of the run, and new facts about it.
    fn run(&mut self) -> Result<(), SessionError> {
        let (run, runs) = (self.run_id(), self.runs()?);
        let known = runs.runs.get(&run);
        let HookReport { agent, parent, facts, .. } = &self.arrival.report;
        let parent = parent.as_ref().map(|parent| ("parent".to_owned(), json!(parent)));
        let process = Some(&self.arrival.process).filter(|process| !process.is_empty());
        let process = process.map(|process| (PROCESS.to_owned(), json!(process)));
        self.lasts =
            process.as_ref().is_some_and(|(_, now)| known.is_some_and(|known| known.facts.get(PROCESS) == Some(now)));
        let facts = facts.clone().into_iter().chain(parent).chain(process);
        let fresh: Map<String, Value> =
            facts.filter(|(name, value)| !known.is_some_and(|known| known.facts.get(name) == Some(value))).collect();
        if known.is_some() && fresh.is_empty() {
            return Ok(());
        }
        let began = RunBegan { run: run.clone(), agent: agent.clone(), format: String::new() };
        let is_new = known.is_none();
        self.push(|commit| {
            if is_new {
                commit.push(&began)?;
            }
            if fresh.is_empty() { Ok(()) } else { commit.push(&RunNoted { run, facts: fresh }) }
        })
    }

    fn prompted(&mut self, prompt: &str, id: Option<String>) -> Result<(), SessionError> {
        let (run, id) = (self.run_id(), id.unwrap_or_default());
        let digest = Digest::of(prompt.as_bytes());
        let content = self.arrival.keeps_all.then(|| crate::engine::commit::Content::of(prompt.to_owned()));
        self.push(|commit| {
            content.into_iter().for_each(|content| commit.keep(content));
            commit.push(&RunPrompted { run, id, line: first_line(prompt), digest })
        })
    }

    fn other(&mut self) -> Result<(), SessionError> {
        let payload = std::mem::take(&mut self.arrival.payload);
        let record = if self.arrival.keeps_all { payload } else { brief(payload) };
        let run = self.run_id();
        self.push(|commit| push_record(commit, run, record))
    }

    fn begin(&mut self, call: &ReportedCall, closes: bool) -> Result<Option<Seq>, SessionError> {
        let (id, runs) = (id_of(call), self.runs()?);
        if call.id.is_some() && (open(&runs, &id).is_some() || has_ended(&runs, &id)) {
            // An agent that also loads the hooks of another agent reports calls twice.
            return Ok(None);
        }
        let (access, paths) = self.access(call);
        if closes {
            close_where(&self.session, |open| self.precedes(open, call))?;
        }
        let process = if self.lasts { self.arrival.process.clone() } else { String::new() };
        let (run, until) = (self.run_id(), self.arrival.until);
        let observed = CallObserved { run, id: id.clone(), access, paths, process, until };
        let mut commit = self.session.commit().of_call(CallLink::Opens);
        push_begin(&mut commit, &observed, &call.tool, call.params.clone())?;
        self.push_late(&mut commit, &id)?;
        Ok(Some(self.submit(commit)?))
    }

    fn end(&mut self, call: &ReportedCall, end: ReportedEnd) -> Result<(), SessionError> {
        let (id, runs) = (id_of(call), self.runs()?);
        let found = open(&runs, &id).map(|(seq, open)| (seq, open.began));
        let (seq, began) = match found {
            Some(found) => found,
            None if has_ended(&runs, &id) => return self.note(&runs, &id, end),
            // Hooks do not report the beginning of a refused edit, for example.
            None => match self.begin(call, true)? {
                Some(seq) => (seq, self.session.now()),
                None => return Ok(()),
            },
        };
        let passed = u64::try_from(self.session.now().0.saturating_sub(began.0)).unwrap_or(0).saturating_mul(1000);
        let mut result = if self.arrival.keeps_all { end.result } else { brief(end.result) };
        if let (Some(code), Some(fields)) = (end.exit_code, result.as_object_mut()) {
            fields.insert("exit_code".to_owned(), code.into());
        }
        if let (Some(child), Some(fields)) = (&end.child, result.as_object_mut()) {
            fields.insert("child".to_owned(), json!(child));
        }
        let micros = end.micros.unwrap_or(passed);
        let ended = ObservedEnd { status: end.status, result, message: end.message, micros };
        let mut commit = self.session.commit().of_call(CallLink::Of(seq));
        if let Some(task) = end.background {
            let began = TaskObserved { run: self.run_id(), task, call: seq, running: true };
            commit.push(&began)?;
        }
        push_end(&mut commit, ended)?;
        self.push_late(&mut commit, &id)?;
        self.submit(commit).map(drop)
    }

    /// Records the reported end of a call that was already closed as interrupted. Ignores other repeated ends.
    fn note(&mut self, runs: &AgentRuns, id: &str, end: ReportedEnd) -> Result<(), SessionError> {
        let is_it = |ended: &&EndedObservation| ended.observed.id == id && ended.status == CallStatus::Interrupted;
        let Some(ended) = runs.ended.iter().rev().find(is_it) else { return Ok(()) };
        let mut contents = Vec::new();
        let result = if self.arrival.keeps_all { end.result } else { brief(end.result) };
        let status = json!(end.status.word());
        let mut facts =
            Map::from_iter([("status".to_owned(), status), ("result".to_owned(), lift(result, &mut contents))]);
        facts.extend(end.exit_code.map(|code| ("exit_code".to_owned(), json!(code))));
        let mut commit = self.session.commit().of_call(CallLink::Of(ended.call));
        contents.into_iter().for_each(|content| commit.keep(content));
        commit.push(&CallNoted { run: self.run_id(), id: id.to_owned(), facts })?;
        self.submit(commit).map(drop)
    }

    /// Returns the microseconds since the report was made.
    pub(super) fn micros_since(&self) -> u64 {
        let passed = u64::try_from(self.arrival.arrived.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.arrival.waited.saturating_add(passed)
    }

    fn push_late(&self, commit: &mut Commit, id: &str) -> Result<(), SessionError> {
        let micros = self.micros_since();
        if self.arrival.waited == 0 && micros < LATE_MICROS {
            return Ok(());
        }
        let late = ReportLate { run: self.run_id(), id: id.to_owned(), micros };
        Ok(commit.push(&late)?)
    }

    fn end_tasks(&mut self, running: &[String]) -> Result<(), SessionError> {
        let run = self.run_id();
        let tasks = self.runs()?.tasks;
        let over = tasks.into_iter().filter(|(task, known)| known.run == run && !running.contains(task));
        for (task, known) in over {
            let mut commit = self.session.as_agent(known.agent).commit().of_call(CallLink::Of(known.call));
            let ended = TaskObserved { run: run.clone(), task, call: known.call, running: false };
            commit.push(&ended)?;
            self.submit(commit)?;
        }
        Ok(())
    }

    /// Returns the changes that a call may make in the directory, and the paths that it names there.
    pub(super) fn access(&self, call: &ReportedCall) -> (ObservedAccess, Vec<EntryPath>) {
        let paths: Vec<EntryPath> = call.declared.iter().flat_map(|path| self.paths(path)).collect();
        let access = match call.access {
            ToolAccess::Reads => ObservedAccess::None,
            ToolAccess::Edits if paths.is_empty() => ObservedAccess::None,
            ToolAccess::Edits => ObservedAccess::Named,
            ToolAccess::Writes => ObservedAccess::Any,
        };
        (access, paths)
    }

    /// Resolves a file that an agent names, with the links on the way, to paths below the directory.
    pub(super) fn paths(&self, given: &str) -> Vec<EntryPath> {
        let below = self.arrival.report.directory.as_ref().map_or(self.root.as_path(), Path::new);
        let places = linked_places(&below.join(given));
        let below = places.iter().filter_map(|place| place.strip_prefix(&self.root).ok());
        let paths = below.filter_map(|path| EntryPath::from_bytes(path.as_os_str().as_bytes()).ok());
        paths.filter(|path| !path.is_root()).collect()
    }
}

/// Closes calls that have been open for too long, and calls of an agent process that has ended.
fn close_lost(session: &Session) -> Result<(), SessionError> {
    close_where(session, |call| is_lost(call, session.now()))
}

pub(super) fn is_lost(call: &ObservedCall, now: Timestamp) -> bool {
    call.began.0 < now.0.saturating_sub(OPEN_MAX_MILLIS) || process_ended(&call.process)
}

fn close_where(session: &Session, is_over: impl Fn(&ObservedCall) -> bool) -> Result<(), SessionError> {
    let (now, state) = (session.now().0, session.state()?);
    for (seq, call) in state.slice::<AgentRuns>().into_iter().flat_map(|runs| &runs.open) {
        if !is_over(call) {
            continue;
        }
        let micros = u64::try_from(now.saturating_sub(call.began.0)).unwrap_or(0).saturating_mul(1000);
        let message = "the agent reported no end".to_owned();
        let end = ObservedEnd { status: CallStatus::Interrupted, result: Value::Null, message, micros };
        record_of(session, *seq, call, |commit| push_end(commit, end))?.wait()?;
    }
    Ok(())
}

/// Records a fact about a call, as its agent.
pub(super) fn note_of(
    session: &Session,
    seq: Seq,
    call: &ObservedCall,
    (name, fact): (&str, Value),
) -> Result<Pending, SessionError> {
    let facts = Map::from_iter([(name.to_owned(), fact)]);
    let noted = CallNoted { run: call.run.clone(), id: call.id.clone(), facts };
    record_of(session, seq, call, |commit| commit.push(&noted))
}

/// Records events of a call, as its agent.
pub(super) fn record_of(
    session: &Session,
    seq: Seq,
    call: &ObservedCall,
    push: impl FnOnce(&mut Commit) -> Result<(), CommitError>,
) -> Result<Pending, SessionError> {
    let mut commit = session.as_agent(Arc::clone(&call.agent)).commit().of_call(CallLink::Of(seq));
    push(&mut commit)?;
    session.submit(commit)
}

/// Returns a call's id. Without an id from the agent, derives one from the tool and the parameters.
pub(super) fn id_of(call: &ReportedCall) -> String {
    let made = || format!("{}-{}", call.tool, Digest::of(call.params.to_string().as_bytes()).short());
    call.id.clone().unwrap_or_else(made)
}

/// Finds an open call by its id: the oldest one if several calls have the same derived id.
pub(super) fn open<'r>(runs: &'r AgentRuns, id: &str) -> Option<(Seq, &'r ObservedCall)> {
    runs.open.iter().find(|(_, call)| call.id == id).map(|(seq, call)| (*seq, call))
}

fn has_ended(runs: &AgentRuns, id: &str) -> bool {
    runs.ended.iter().any(|ended| ended.observed.id == id)
}
