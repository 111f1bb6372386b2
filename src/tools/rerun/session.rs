//! The fresh session of a rerun.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::answers::Answers;
use super::past::PastRun;
use crate::backends::{FileChange, Workspace};
use crate::engine::commit::{Commit, Content};
use crate::engine::event::{
    ChildLimits, Event, HttpExchange, Isolation, RunBegan, RunNoted, SessionRewound, SliceRestored, WriteFile,
    WriteMode,
};
use crate::engine::id::Seq;
use crate::engine::path::EntryPath;
use crate::engine::recorded::Recorded;
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::engine::slice::Slice;
use crate::reducers::{AgentRun, Allowances, VirtualFileSystem, can_be_made};
use crate::tools::call::tool_runner::ToolRunner;
use crate::tools::call::toolset::Tools;
use crate::tools::error::WorkspaceError;
use crate::tools::policy::rules::ShellRules;
use crate::tools::workspace::keeping::distrust;
use crate::tools::workspace::plan::PlannedChange;
use crate::tools::workspace::populate::not_kept;

const PIECE: (u64, usize) = (32 << 20, 4096);

pub(super) struct RerunSession<'a> {
    pub(super) past: &'a PastRun,
    pub(super) tool_runner: ToolRunner,
    pub(super) answers: Arc<Answers>,
    pub(super) missing: BTreeSet<EntryPath>,
    /// The longest time limit that a command may have.
    pub(super) most: Duration,
    limited: Vec<(ChildLimits, ToolRunner)>,
    start: Seq,
    /// True if the session is a fork, which already has the history up to `start`.
    is_fork: bool,
}

/// A batch of file events for the fresh session.
struct FileBatch {
    commit: Commit,
    changes: Vec<FileChange>,
    bytes: u64,
}

impl<'a> RerunSession<'a> {
    /// Accepts a new session, or a new fork of the recorded session at `start`; refuses any other session.
    pub(super) fn new(
        past: &'a PastRun,
        start: Seq,
        session: Session,
        workspace: Arc<dyn Workspace>,
        tools: Arc<Tools>,
        rules: ShellRules,
    ) -> Result<Self, WorkspaceError> {
        let is_fork = is_fork_of(&session, past, start);
        let has_begun = if is_fork { start.saturating_add(1) } else { 1 };
        if session.head()? != has_begun || session.id() == past.id() {
            return Err(WorkspaceError::NotFresh(session.name().to_owned()));
        }
        let is_sandboxed = workspace.unrecorded_shell().is_none_or(|shell| shell.properties().sandboxed);
        let answers = Arc::new(Answers::new(&rules, is_sandboxed));
        let most = rules.time.most();
        let rules = ShellRules { asker: Some(Arc::clone(&answers) as _), ..rules };
        let tool_runner = ToolRunner::with_rules(session, tools, workspace, rules)?;
        if !is_fork && !PastRun::of(tool_runner.session()).files_at(tool_runner.session().head()?)?.is_empty() {
            return Err(WorkspaceError::NotFresh(tool_runner.session().name().to_owned()));
        }
        let (missing, limited) = (BTreeSet::new(), Vec::new());
        Ok(Self { past, tool_runner, answers, missing, most, limited, start, is_fork })
    }

    fn session(&self) -> &Session {
        self.tool_runner.session()
    }

    /// Returns a runner with these limits, in addition to its session's own limits.
    pub(super) fn under(&mut self, limits: &ChildLimits) -> Result<ToolRunner, SessionError> {
        if limits.is_unlimited() {
            return Ok(self.tool_runner.clone());
        }
        // A runner counts the usage of its session's own limits, so it is reused.
        if let Some((_, known)) = self.limited.iter().find(|(known, _)| known == limits) {
            return Ok(known.clone());
        }
        let narrower = limits.within(self.session().limits());
        let limited = self.tool_runner.in_session(self.session().clone().limited_to(narrower))?;
        self.limited.push((limits.clone(), limited.clone()));
        Ok(limited)
    }

    /// Begins with the files at `start`, or with the final files of `base`.
    pub(super) fn begin(&mut self, base: Option<&PastRun>) -> Result<(), WorkspaceError> {
        let seq = self.start;
        let files: VirtualFileSystem = match base {
            Some(base) => base.files_at(base.head()?)?,
            None => self.past.files_at(seq)?,
        };
        if self.is_fork {
            self.missing.extend(not_kept(&files).cloned());
            return Ok(());
        }
        let mut piece = self.piece();
        for (path, entry) in files.iter() {
            if !can_be_made(&entry.node) {
                self.missing.insert(path.clone());
                continue;
            }
            let (path, node) = (path.clone(), entry.node.clone());
            let write = PlannedChange::Write(WriteFile { path, mode: WriteMode::Create, node });
            write.push_to(&mut piece.commit)?;
            self.change(&mut piece, &write, base.unwrap_or(self.past))?;
            self.put_full(&mut piece)?;
        }
        self.link(&mut piece)?;
        for slice in self.past.slices_at(seq)? {
            piece.commit.push(&slice)?;
        }
        self.put(piece)
    }

    /// Records the agent's run, and the session of its transcript.
    fn link(&self, piece: &mut FileBatch) -> Result<(), SessionError> {
        let Some((run, AgentRun { agent, format, mut facts, .. })) = self.past.agent_run()? else { return Ok(()) };
        if !format.is_empty() {
            facts.insert("recorded".to_owned(), json!({ "session": self.past.id(), "name": self.past.name() }));
            piece.commit.push(&RunBegan { run: run.clone(), agent, format: String::new() })?;
            piece.commit.push(&RunNoted { run, facts })?;
        }
        Ok(())
    }

    /// Applies events from outside of any call, or of a skipped call, and records them unchanged. Omits allowances,
    /// requests, and events that name positions, which differ here.
    pub(super) fn apply(&mut self, events: &[Recorded]) -> Result<(), WorkspaceError> {
        if events.is_empty() {
            return Ok(());
        }
        let mut piece = self.piece();
        for event in events {
            if self.take(&mut piece, event)? {
                piece.commit.push_encoded(&event.event.kind, event.event.version, &event.event.bytes)?;
            }
            self.put_full(&mut piece)?;
        }
        self.put(piece)
    }

    /// Adds the disk change of an event. Returns false, so that the event is not recorded, if it can't apply here.
    fn take(&mut self, piece: &mut FileBatch, event: &Recorded) -> Result<bool, WorkspaceError> {
        match PlannedChange::of(&event.view()) {
            Some(PlannedChange::Write(write)) if !can_be_made(&write.node) => {
                self.missing.insert(write.path);
                return Ok(false);
            }
            Some(change) => self.change(piece, &change, self.past)?,
            None if let Some(SliceRestored { slice, .. }) = event.view().decoded() => {
                return Ok(!slice.is_empty() && slice != Allowances::NAME);
            }
            None => {}
        }
        let is_of_the_past = [SessionRewound::KIND, HttpExchange::KIND].contains(&&*event.event.kind);
        Ok(!is_of_the_past)
    }

    fn change(
        &self,
        FileBatch { commit, changes, bytes }: &mut FileBatch,
        change: &PlannedChange,
        from: &PastRun,
    ) -> Result<(), SessionError> {
        changes.push(change.file_change(|digest| {
            let content = from.content(digest)?;
            commit.keep(Content { digest: *digest, bytes: content.clone() });
            *bytes += content.len() as u64;
            Ok::<_, SessionError>(content)
        })?);
        Ok(())
    }

    fn piece(&self) -> FileBatch {
        FileBatch { commit: self.session().as_agent("").commit(), changes: Vec::new(), bytes: 0 }
    }

    fn put_full(&self, piece: &mut FileBatch) -> Result<(), WorkspaceError> {
        if piece.bytes < PIECE.0 && piece.changes.len() < PIECE.1 {
            return Ok(());
        }
        self.put(std::mem::replace(piece, self.piece()))
    }

    fn put(&self, piece: FileBatch) -> Result<(), WorkspaceError> {
        let workspace = self.tool_runner.workspace();
        // The changes may be recorded in another commit.
        distrust(workspace.as_ref());
        workspace.apply(&piece.changes)?;
        if !piece.commit.is_empty() {
            self.session().record(piece.commit)?;
        }
        Ok(())
    }
}

fn is_fork_of(session: &Session, past: &PastRun, at: Seq) -> bool {
    let is_of = |isolation, parent, begun| isolation == Isolation::Fork && parent == past.id() && begun == at;
    session.origin().is_some_and(|origin| is_of(origin.isolation, origin.parent, origin.at))
}
