//! What a tool's handler works with.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::error::ToolError;
use super::filesystem::Filesystem;
use super::record_command::RecordAs;
use super::shell::ToolShell;
use super::tool::Effect;
use crate::backends::{FileChange, MachineNews, ShellError, ShellResult, Workspace};
use crate::engine::commit::{Commit, CommitError, Content};
use crate::engine::error::ValueError;
use crate::engine::event::Event;
use crate::engine::id::Seq;
use crate::engine::path::EntryPath;
use crate::engine::session::Session;
use crate::engine::session::sessions::SessionError;
use crate::reducers::VirtualFileSystem;
use crate::tools::workspace::managed::{ManagedWorkspace, ShellRules};
use crate::tools::workspace::recording::EventBuffer;

/// What a tool's handler works with: the session, the workspace's files, and how long it may take.
///
/// ```
/// # use foldspace::{ToolContext, ToolError, EntryPath};
/// fn note(context: &mut ToolContext) -> Result<(), ToolError> {
///     context.check()?;
///     context.filesystem().create(&EntryPath::for_creation("note.txt")?, "seen")
/// }
/// ```
pub struct ToolContext {
    session: Session,
    /// What was allowed for the session in this call.
    pub(crate) allowed: Vec<String>,
    call: Seq,
    files: Filesystem,
    machine: ManagedWorkspace,
    deadline: Instant,
    limit: Duration,
    cancel: CancellationToken,
    /// Recorded with a success.
    extra: Commit,
    /// Whether it may change anything: only then it has the turn, and a shell.
    may_change: bool,
    /// What happened to the machine, until it is recorded.
    news: Vec<MachineNews>,
    /// Recorded whatever becomes of the call: it has happened.
    pub(crate) facts: Commit,
    pub(crate) running: Option<RunningCommand>,
}

/// A command that has been started and whose end nobody has seen.
pub(crate) struct RunningCommand {
    task: JoinHandle<Result<ShellResult, ShellError>>,
    /// How it ended, once that is known; what it changed may not be known then.
    ended: Option<Result<ShellResult, ToolError>>,
    /// Dropped, it kills the command.
    cancel: Option<DropGuard>,
    record_as: RecordAs,
}

impl RunningCommand {
    pub(crate) fn new(
        task: JoinHandle<Result<ShellResult, ShellError>>,
        cancel: CancellationToken,
        record_as: RecordAs,
    ) -> Self {
        Self { task, ended: None, cancel: Some(cancel.drop_guard()), record_as }
    }
}

impl ToolContext {
    pub(crate) fn new(
        session: &Session,
        call: Seq,
        machine: &ManagedWorkspace,
        effect: Effect,
        limit: Duration,
        cancel: CancellationToken,
    ) -> Result<Self, SessionError> {
        let tree = VirtualFileSystem::of(&session.state()?);
        Ok(Self {
            session: session.clone(),
            allowed: Vec::new(),
            call,
            files: Filesystem::new(session.clone(), tree),
            machine: machine.clone(),
            deadline: Instant::now() + limit,
            limit,
            cancel,
            extra: session.commit(),
            may_change: effect != Effect::ReadOnly,
            news: Vec::new(),
            facts: session.commit(),
            running: None,
        })
    }

    /// The session, as the agent that called.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The position of the call's intent, which is its name.
    pub fn call(&self) -> Seq {
        self.call
    }

    /// The workspace's files. What is changed here is seen here at once, by others after the call.
    pub fn filesystem(&mut self) -> &mut Filesystem {
        &mut self.files
    }

    /// The path of the workspace that a parameter means. What commands see the root as, such as `/workspace`, may stand
    /// before it, unless the workspace has an entry of that name itself.
    ///
    /// # Errors
    /// [`ValueError`].
    pub fn path(&self, given: &str) -> Result<EntryPath, ValueError> {
        EntryPath::lookup(self.below_root(given))
    }

    /// The text of a path without what commands see the root as.
    pub(crate) fn below_root<'a>(&self, given: &'a str) -> &'a str {
        let root = self.machine.workspace.root();
        let below = root.as_deref().and_then(|root| given.strip_prefix(root)).filter(|below| {
            let first = given.trim_start_matches('/').split('/').next().unwrap_or_default();
            let is_own = EntryPath::lookup(first)
                .is_ok_and(|path| self.files.tree().get(&path).is_some() || self.files.tree().is_directory(&path));
            (below.is_empty() || below.starts_with('/')) && !is_own
        });
        below.unwrap_or(given)
    }

    /// Adds an event of any registered type to what the call records.
    ///
    /// # Errors
    /// When the event can't be encoded, or the call would record too much.
    pub fn record<E: Event>(&mut self, event: &E) -> Result<(), ToolError> {
        self.extra.push(event).map_err(|e| ToolError::new(e.to_string()))
    }

    /// Keeps a content that an event of [`record`](ToolContext::record) refers to by its digest.
    pub fn keep(&mut self, content: Content) {
        self.extra.keep(content);
    }

    /// How long the call may still take.
    pub fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Is cancelled when the caller takes the call back.
    pub fn cancellation(&self) -> &CancellationToken {
        &self.cancel
    }

    /// For long work without awaiting: fails when the call is cancelled or out of time.
    ///
    /// # Errors
    /// [`ToolError::Cancelled`] and [`ToolError::TimedOut`].
    pub fn check(&self) -> Result<(), ToolError> {
        if self.cancel.is_cancelled() {
            return Err(ToolError::Cancelled);
        }
        if self.remaining().is_zero() { Err(ToolError::TimedOut(self.limit)) } else { Ok(()) }
    }

    /// Where commands run; none where the backend has no such place, and for a tool that only reads.
    pub fn shell(&mut self) -> Option<ToolShell<'_>> {
        if !self.may_change {
            return None;
        }
        let shell = self.machine.workspace.shell()?;
        Some(ToolShell::new(self, shell))
    }

    /// The workspace.
    pub fn workspace(&self) -> &Arc<dyn Workspace> {
        &self.machine.workspace
    }

    /// Refuses what is staged when the session may not write so much.
    pub(crate) fn check_staged(&self) -> Result<(), ToolError> {
        match (&self.machine.limits, self.files.staged_bytes()) {
            (None, _) | (_, 0) => Ok(()),
            (Some(limits), bytes) => limits.check_bytes(&self.session, bytes),
        }
    }

    /// Refuses to run a command when the session may write nothing more.
    pub(crate) fn check_may_run(&self) -> Result<(), ToolError> {
        self.check_staged()?;
        self.machine.limits.as_ref().map_or(Ok(()), |limits| limits.check_bytes(&self.session, 0))
    }

    pub(crate) fn rules(&self) -> &Arc<ShellRules> {
        &self.machine.rules
    }

    /// Puts onto the disk what is staged, so that a command sees it. From then on it is recorded whatever
    /// becomes of the call.
    pub(crate) fn land(&mut self) -> Result<(), ToolError> {
        if self.files.is_changed() {
            let changes = self.files.changes()?;
            // Not on another thread: the call could be dropped between the change and the note of it.
            self.machine.workspace.project(&changes).map_err(|e| ToolError::new(e.to_string()))?;
        }
        self.files.land();
        Ok(())
    }

    /// Whether a command runs, or has changed files that are not recorded.
    pub(crate) fn has_run(&self) -> bool {
        self.running.is_some() || self.files.has_landed()
    }

    /// Waits for the running command's end, records it, and takes up what it did to the files. It may be
    /// dropped wherever it waits, and begun again.
    pub(crate) async fn finish_running(&mut self) -> Result<ShellResult, ToolError> {
        let nothing = || ToolError::new("no command runs");
        let running = self.running.as_mut().ok_or_else(nothing)?;
        if running.ended.is_none() {
            let ended = (&mut running.task).await;
            let panicked = |_| ToolError::new("the shell failed: it panicked");
            running.ended = Some(ended.map_err(panicked).and_then(|ended| Ok(ended?)));
        }
        let captured = self.machine.captured(&self.session, self.files.tree().clone()).await;
        let Some(RunningCommand { ended: Some(ended), record_as, .. }) = self.running.take() else {
            return Err(nothing());
        };
        // It has run, whether or not what it changed can be found out; and that is known to nobody else by now.
        let recorded = ended.as_ref().map_or(Ok(()), |result| record_as.record(&mut self.facts, result));
        self.files.take_captured(captured?);
        recorded.map_err(|error| ToolError::new(error.to_string()))?;
        ended
    }

    /// Kills a command that nobody waits for any more, and records what is known of it.
    pub(crate) async fn stop_running(&mut self) {
        let Some(running) = &mut self.running else { return };
        drop(running.cancel.take());
        if let Err(error) = self.finish_running().await {
            tracing::warn!(%error, "of a command that was stopped not all is known");
        }
    }

    /// Begins what a call records with what has happened, whatever became of it. It is kept here until
    /// [`recorded`](ToolContext::recorded), so that a recording that fails loses nothing.
    pub(crate) fn record_facts(&mut self, mut recording: EventBuffer) -> Result<EventBuffer, CommitError> {
        if self.files.has_landed() {
            recording = recording.splitting();
        }
        // Somebody else's command may run while a tool reads.
        if self.may_change && self.running.is_none() {
            self.news.extend(self.machine.workspace.news());
        }
        self.machine.record_news(&self.news, &mut recording)?;
        recording.append(self.facts.clone())?;
        Ok(recording)
    }

    /// What happened is recorded.
    pub(crate) fn recorded(&mut self) {
        self.news.clear();
        self.facts = self.session.commit();
    }

    /// Records what the tool did, and gives what is still to be put onto the disk.
    pub(crate) fn record_work(&mut self, recording: &mut EventBuffer) -> Result<Vec<FileChange>, ToolError> {
        let too_much = |e: CommitError| ToolError::new(e.to_string());
        let changes = if self.files.is_changed() { self.files.changes()? } else { Vec::new() };
        self.files.record_into(recording).map_err(too_much)?;
        recording.append(self.extra.clone()).map_err(too_much)?;
        Ok(changes)
    }

    /// Records of a failed call what is on the disk all the same.
    pub(crate) fn record_landed(&mut self, recording: &mut EventBuffer) -> Result<(), CommitError> {
        self.files.record_landed(recording)
    }
}
