//! Recording runs into a temporary store, which their sessions are then copied from.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Map, Value};
use tempfile::TempDir;

use super::call_events::{MESSAGE_MAX, ObservedEnd, push_begin, push_end, push_record};
use super::documents::Documents;
use super::error::TranscriptError;
use super::files::{KnownChange, StatedFiles};
use super::source::RunSource;
use super::step::{BegunCall, EndedCall, StatedFile, StepKind, TranscriptStep};
use super::tool_access::ToolAccess;
use super::{ImportedRun, SourceRun};
use crate::engine::clock::{StepClock, Timestamp};
use crate::engine::commit::{CallLink, Commit, Content, Expected, ForkPoint};
use crate::engine::event::{
    CallObserved, CallStatus, ChangesUnknown, DeleteEntry, Isolation, Node, Origin, RunBegan, RunNoted, SessionStarted,
    WriteFile, WriteMode,
};
use crate::engine::id::Seq;
use crate::engine::registry::Registry;
use crate::engine::session::Session;
use crate::engine::session::sessions::Sessions;
use crate::engine::session::snapshot::SnapshotPolicy;
use crate::engine::store::{Durability, LocalStore, LocalStoreOptions, Pending};
use crate::reducers::{AgentRun, AgentRuns};

/// The number of runs before the temporary store is replaced.
const RUNS_HELD: usize = 1000;
/// The limit for the memory of a run's calls, and the memory of a call besides its id, in bytes.
const CALLS_MAX: usize = 24 << 20;
const EACH: usize = 300;
/// The limit for the files of open calls, in bytes.
const WAITING_MAX: usize = 8 << 20;
/// The limit for the characters of an agent's name, which has at most 200 bytes.
const AGENT_MAX: usize = 50;
/// The backend of imported sessions. Their workspaces no longer exist, so their files come from the history.
const BACKEND: &str = "memory";

/// A temporary store, with the runs recorded in it.
pub(super) struct RunRecorder {
    sessions: Sessions,
    recorded: BTreeMap<(String, String), RecordedRun>,
    /// The ids of the runs with subagents.
    parents: BTreeSet<String>,
    documents: Documents,
    count: usize,
    _directory: TempDir,
}

/// The calls of a recorded run, where its subagents may begin.
#[derive(Default)]
struct RecordedRun {
    calls: BTreeMap<String, Seq>,
    children: BTreeMap<String, Seq>,
    begun: Vec<(Timestamp, Seq)>,
}

impl RunRecorder {
    pub(super) fn new(parents: BTreeSet<String>) -> Result<Self, TranscriptError> {
        let directory = tempfile::tempdir().map_err(TranscriptError::Temporary)?;
        let options = LocalStoreOptions { durability: Durability::Buffered, ..LocalStoreOptions::default() };
        let store = LocalStore::open(directory.path(), options)?;
        let policy = SnapshotPolicy { every: 0, ..SnapshotPolicy::default() };
        let clock = Arc::new(StepClock::new(Timestamp(0), 0));
        let sessions = Sessions::new(Arc::new(store), Registry::standard(), clock, policy)?;
        let (recorded, documents) = (BTreeMap::new(), Documents::default());
        Ok(Self { sessions, recorded, parents, documents, count: 0, _directory: directory })
    }

    pub(super) fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// Records a run. A subagent becomes a fork of its parent if the parent is recorded already.
    pub(super) fn record(&mut self, source: RunSource, name: String) -> Result<ImportedRun, TranscriptError> {
        let RunSource { format, run, .. } = &source;
        let (format, run) = (*format, run.clone());
        let began = run.began.unwrap_or_default().max(Timestamp(0));
        let parent = self.origin_of(&run, source.link.as_deref(), began)?;
        let expected = match &parent {
            Some(origin) => Expected::ForkOf(ForkPoint { session: origin.parent, seq: origin.at }),
            None => Expected::NoSession,
        };
        let parent_name = parent.as_ref().map(|origin| origin.parent_name.clone());
        let mut commit = Commit::new(run.session(), began).expecting(expected);
        commit.push(&SessionStarted {
            name: name.clone(),
            backend: BACKEND.to_owned(),
            program: env!("CARGO_PKG_VERSION").to_owned(),
            options: Value::Null,
            origin: parent,
            limits: Default::default(),
        })?;
        let format_name = format.name().to_owned();
        commit.push(&RunBegan { run: run.id.clone(), agent: run.agent.clone(), format: format_name })?;
        self.sessions.store().submit(commit)?.wait()?;
        let agent: String = run.agent.chars().take(AGENT_MAX).collect();
        let mut recording = RunRecording {
            session: self.sessions.session(run.session())?,
            agent: agent.into(),
            last: began,
            open: BTreeMap::new(),
            recorded: RecordedRun::default(),
            files: StatedFiles::below(run.directory.clone()),
            facts: Map::new(),
            pending: None,
            run: run.id.clone(),
            calls: 0,
            waiting: 0,
        };
        let unreadable = source.read(&mut self.documents, &mut |step| recording.step(step))?;
        let RunRecording { session, pending, recorded, .. } = recording;
        pending.map(Pending::wait).transpose()?;
        if self.parents.contains(&run.id) {
            self.recorded.insert((run.agent.clone(), run.id.clone()), recorded);
        }
        let state = session.state()?;
        let counted = state.slice::<AgentRuns>().and_then(|runs| runs.runs.get(&run.id));
        let AgentRun { calls, incomplete, records, .. } = counted.cloned().unwrap_or_default();
        let (session, run) = (run.session(), run.id);
        Ok(ImportedRun {
            session,
            name,
            format,
            run,
            parent: parent_name,
            events: 0,
            added: 0,
            calls,
            incomplete,
            records,
            unreadable,
        })
    }

    /// Replaces the store every [`RUNS_HELD`] runs, which bounds its size. A store that holds parents is retained.
    pub(super) fn relieve(&mut self) -> Result<(), TranscriptError> {
        self.count += 1;
        if self.count == RUNS_HELD && self.recorded.is_empty() {
            *self = Self::new(std::mem::take(&mut self.parents))?;
        }
        self.count %= RUNS_HELD;
        Ok(())
    }

    /// Returns the fork point of a subagent: before the call that names it, else before the last call begun by `began`.
    fn origin_of(
        &self,
        run: &SourceRun,
        link: Option<&str>,
        began: Timestamp,
    ) -> Result<Option<Origin>, TranscriptError> {
        let Some(parent) = &run.parent else { return Ok(None) };
        let Some(recorded) = self.recorded.get(&(run.agent.clone(), parent.clone())) else { return Ok(None) };
        let by_link = link.and_then(|call| recorded.calls.get(call));
        let by_time = || recorded.begun.iter().rev().find(|(at, _)| *at <= began).map(|(_, seq)| seq);
        let at = by_link.or_else(|| recorded.children.get(&run.id)).or_else(by_time).copied().unwrap_or(1);
        let parent = SourceRun { parent: None, id: parent.clone(), ..run.clone() }.session();
        let parent = self.sessions.session(parent)?;
        let at = parent.commit_end_before(at)?;
        let (parent, parent_name) = (parent.id(), parent.name().to_owned());
        Ok(Some(Origin { parent, parent_name, at, isolation: Isolation::Fork }))
    }
}

/// A call without an outcome yet.
struct OpenRecord {
    seq: Seq,
    began: Timestamp,
    access: ToolAccess,
    files: Vec<StatedFile>,
}

struct RunRecording {
    session: Session,
    agent: Arc<str>,
    last: Timestamp,
    open: BTreeMap<String, OpenRecord>,
    recorded: RecordedRun,
    files: StatedFiles,
    facts: Map<String, Value>,
    pending: Option<Pending>,
    run: String,
    /// The bytes of memory of the calls, and of the files of open calls.
    calls: usize,
    waiting: usize,
}

impl RunRecording {
    fn step(&mut self, step: TranscriptStep) -> Result<(), TranscriptError> {
        self.last = self.last.max(step.at.unwrap_or(self.last));
        match step.kind {
            StepKind::Facts(mut facts) => {
                facts.retain(|name, value| self.facts.get(name) != Some(value));
                if facts.is_empty() {
                    return Ok(());
                }
                self.facts.extend(facts.clone());
                let mut commit = self.commit();
                commit.push(&RunNoted { run: self.run.clone(), facts })?;
                self.submit(commit)
            }
            StepKind::Begun(call) => self.begin(call),
            StepKind::Ended(call) => self.end(call),
            StepKind::Record(record) => self.record(record),
        }
    }

    fn commit(&self) -> Commit {
        Commit::new(self.session.id(), self.last).as_agent(&self.agent)
    }

    fn submit(&mut self, commit: Commit) -> Result<(), TranscriptError> {
        self.pending = Some(self.session.submit(commit)?);
        Ok(())
    }

    fn begin(&mut self, BegunCall { id, tool, params, files }: BegunCall) -> Result<(), TranscriptError> {
        // Logs that were copied into each other repeat calls.
        if self.recorded.calls.contains_key(&id) {
            return self.record(serde_json::json!({ "again": { "id": id, "tool": tool, "params": params } }));
        }
        self.calls += EACH + 3 * id.len();
        if self.calls > CALLS_MAX {
            let reason = format!("it has more calls than an import takes ({})", self.recorded.calls.len());
            return Err(TranscriptError::Limit {
                path: self.run.clone().into(),
                reason: format!("{reason}; split it"),
            });
        }
        let access = ToolAccess::of(&tool);
        let bytes = files.iter().map(StatedFile::size).sum::<usize>();
        // Over the limit, the changes of the call count as unknown.
        let files = if self.waiting == 0 || self.waiting + bytes <= WAITING_MAX { files } else { Vec::new() };
        self.waiting += files.iter().map(StatedFile::size).sum::<usize>();
        let mut commit = self.commit().of_call(CallLink::Opens);
        let observed = CallObserved { run: self.run.clone(), id: id.clone(), ..CallObserved::default() };
        push_begin(&mut commit, &observed, &tool, params)?;
        let pending = self.session.submit(commit)?;
        let (seq, began) = (pending.first(), self.last);
        self.pending = Some(pending);
        self.recorded.calls.insert(id.clone(), seq);
        self.recorded.begun.push((began, seq));
        self.open.insert(id, OpenRecord { seq, began, access, files });
        Ok(())
    }

    fn end(&mut self, mut call: EndedCall) -> Result<(), TranscriptError> {
        let Some(open) = self.open.remove(&call.id) else {
            // The transcript lacks the beginning of the call, or the call has ended already.
            let result = serde_json::json!({ "id": call.id, "result": call.result, "message": call.message });
            return self.record(serde_json::json!({ "late": result }));
        };
        self.waiting -= open.files.iter().map(StatedFile::size).sum::<usize>();
        if call.message.len() > MESSAGE_MAX {
            // The outcome holds only the beginning of the message.
            self.record(serde_json::json!({ "message": { "id": call.id, "text": call.message } }))?;
        }
        let has_failed = call.status != CallStatus::Ok;
        if !has_failed && call.files.is_empty() {
            call.files = open.files;
        }
        // The changes of a subagent are in its own run.
        let mut may_change = match open.access {
            ToolAccess::Reads => false,
            ToolAccess::Edits => !has_failed && call.files.is_empty(),
            ToolAccess::Writes => call.files.is_empty(),
        };
        if let Some(child) = call.child {
            self.recorded.children.insert(child, open.seq);
            may_change = false;
        }
        let mut commit = self.commit().of_call(CallLink::Of(open.seq));
        let mut unknown = Vec::new();
        for change in self.files.changes(call.files) {
            match change {
                KnownChange::Written { path, contents, is_new } => {
                    let mode = if is_new { WriteMode::Create } else { WriteMode::Overwrite };
                    commit.push(&WriteFile { path, mode, node: Node::file(&contents, false) })?;
                    commit.keep(Content::of(contents));
                }
                KnownChange::Removed(path) => commit.push(&DeleteEntry { path })?,
                KnownChange::Unknown(path) => unknown.push(path),
            }
        }
        if !unknown.is_empty() || may_change {
            commit.push(&ChangesUnknown { run: self.run.clone(), paths: unknown })?;
        }
        let between = u64::try_from(self.last.0.saturating_sub(open.began.0)).unwrap_or(0).saturating_mul(1000);
        let micros = call.micros.unwrap_or(between);
        let end = ObservedEnd { status: call.status, result: call.result, message: call.message, micros };
        push_end(&mut commit, end)?;
        self.submit(commit)
    }

    fn record(&mut self, record: Value) -> Result<(), TranscriptError> {
        if record.is_null() {
            return Ok(());
        }
        let mut commit = self.commit();
        push_record(&mut commit, self.run.clone(), record)?;
        self.submit(commit)
    }
}
