//! Context of a tool's handler.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::call_clock::{CallClock, StoppedClock};
use super::command_hooks::CommandHooks;
use super::error::ToolError;
use super::filesystem::Filesystem;
use super::record_command::RecordAs;
use super::tool_call::RanCommand;
use super::work_budget::{BeatWatch, ToolBeat, WorkBudget};
use crate::backends::{
    CommandInput, CommandOptions, FileChange, MachineNews, OutputStream, ShellError, ShellResult, Workspace,
};
use crate::engine::commit::{Commit, CommitError, Content};
use crate::engine::error::ValueError;
use crate::engine::event::{Event, ExternalEffect, NetworkConnection};
use crate::engine::id::Seq;
use crate::engine::path::EntryPath;
use crate::engine::session::Session;
use crate::engine::state::State;
use crate::engine::store::Pending;
use crate::reducers::VirtualFileSystem;
use crate::tools::off_thread::with_store;
use crate::tools::policy::command_time::CommandTime;
use crate::tools::policy::effect_text::without_secrets;
use crate::tools::policy::python::{PythonPlace, PythonRules};
use crate::tools::workspace::managed::{ManagedWorkspace, push_news};
use crate::tools::workspace::output_stream::CommandOutput;
use crate::tools::workspace::recording::EventBuffer;
use crate::tools::workspace::runtime::SessionRuntime;

/// Access of a tool's handler to the session, the workspace's files, and its time limit.
pub struct ToolContext {
    session: Session,
    /// State that the call began with. No other call changes files after it while this one holds the workspace lock.
    state: State,
    /// Programs that this call allowed for the session; not recorded yet.
    pub(crate) allowed: Vec<String>,
    pub(crate) allowed_everything: bool,
    /// Additional hooks for a command of the session's shell.
    pub(crate) hooks: Option<CommandHooks>,
    pub(super) budget: WorkBudget,
    pub(super) beats: Option<BeatWatch>,
    call: Seq,
    pub(super) files: Filesystem,
    pub(super) machine: ManagedWorkspace,
    clock: Arc<CallClock>,
    /// True if the call's clock pauses while a command runs.
    pub(crate) clock_waits: bool,
    /// The time that the session's limits leave to the agent's calls.
    pub(super) time_left: Option<Duration>,
    /// The input of the call's first command.
    pub(crate) input: Option<CommandInput>,
    cancel: CancellationToken,
    extra: Commit,
    /// True for a tool that may change files: it has the workspace lock and a shell.
    pub(super) may_change: bool,
    news: Vec<MachineNews>,
    /// Recorded whatever the outcome, since it has happened.
    pub(crate) facts: Commit,
    pub(crate) running: Option<RunningCommand>,
    /// Advice about the last command, in addition to its output.
    pub(crate) note: Option<String>,
    /// The command that the call ran.
    pub(crate) ran: Option<RanCommand>,
}

/// The root of every workspace, as tools name it.
const WORKSPACE: &str = "/workspace";
const TEMPORARY: &str = "/tmp";

fn below<'a>(path: &'a str, directory: &str) -> Option<&'a str> {
    path.strip_prefix(directory).filter(|below| below.is_empty() || below.starts_with('/'))
}

/// Command in flight.
pub(crate) struct RunningCommand {
    pub(super) task: JoinHandle<Result<ShellResult, ShellError>>,
    /// Result of the process once it has ended; its changes may not be captured yet.
    pub(super) ended: Option<Result<ShellResult, ToolError>>,
    /// Kills the command when dropped.
    pub(super) cancel: Option<DropGuard>,
    pub(super) record_as: RecordAs,
    pub(super) stopped: Option<StoppedClock>,
}

impl ToolContext {
    pub(crate) fn new(
        session: &Session,
        state: State,
        call: Seq,
        machine: ManagedWorkspace,
        may_change: bool,
        clock: Arc<CallClock>,
        cancel: CancellationToken,
    ) -> Self {
        let tree = VirtualFileSystem::of(&state);
        Self {
            session: session.clone(),
            state,
            allowed: Vec::new(),
            allowed_everything: false,
            hooks: None,
            budget: WorkBudget::default(),
            beats: None,
            call,
            files: Filesystem::new(session.clone(), tree, machine.workspace.umask()),
            machine,
            clock,
            clock_waits: false,
            time_left: None,
            input: None,
            cancel,
            extra: session.commit(),
            may_change,
            news: Vec::new(),
            facts: session.commit(),
            running: None,
            note: None,
            ran: None,
        }
    }

    /// Returns the state that the call began with.
    pub(super) fn state(&self) -> &State {
        &self.state
    }

    /// Returns the session, as the calling agent.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Returns the call's id: the position of its intent.
    pub fn call(&self) -> Seq {
        self.call
    }

    /// Returns the workspace's files. This call sees its changes at once, other calls after it succeeds.
    pub fn filesystem(&mut self) -> &mut Filesystem {
        &mut self.files
    }

    /// Resolves a path parameter. On every backend it may begin with `/workspace`: `/workspace/x` is `x`, and an entry
    /// `workspace` is `/workspace/workspace`. It may also begin with the root that commands see.
    ///
    /// # Errors
    /// [`ValueError`] for an invalid path, or a path below `/tmp`, which is outside of the workspace.
    pub fn path(&self, given: &str) -> Result<EntryPath, ValueError> {
        EntryPath::lookup(self.below_root(given)?)
    }

    /// Strips the workspace's root from a path; refuses a path that commands see in another directory.
    #[doc(hidden)]
    pub fn below_root<'a>(&self, given: &'a str) -> Result<&'a str, ValueError> {
        if let Some(below) = below(given, WORKSPACE) {
            return Ok(below);
        }
        let root = self.machine.workspace.root();
        let first = given.trim_start_matches('/').split('/').next().unwrap_or_default();
        let is_own = || {
            EntryPath::lookup(first)
                .is_ok_and(|path| self.files.tree().get(&path).is_some() || self.files.tree().is_directory(&path))
        };
        match root.as_deref().and_then(|root| below(given, root)) {
            Some(below) if !is_own() => Ok(below),
            _ if below(given, TEMPORARY).is_some() => {
                let shown: String = given.chars().take(200).collect();
                let what = "is outside of the workspace; use a path below /workspace: only commands reach /tmp";
                Err(ValueError::new(format!("path {shown:?} {what}")))
            }
            _ => Ok(given),
        }
    }

    /// Adds an event of any registered type to what the call records.
    ///
    /// # Errors
    /// [`ToolError`] if the event can't be encoded, or the call would record too much.
    pub fn record<E: Event>(&mut self, event: &E) -> Result<(), ToolError> {
        Ok(self.extra.push(event)?)
    }

    /// Records an effect outside of the workspace, even if the call fails. URLs in the target lose their passwords and
    /// queries.
    ///
    /// # Errors
    /// [`ToolError`] if the event can't be encoded.
    pub fn effect(&mut self, effect: &ExternalEffect) -> Result<(), ToolError> {
        let target = without_secrets(&effect.target);
        Ok(self.facts.push(&ExternalEffect { target, ..effect.clone() })?)
    }

    /// Adds an encoded event of a kind that is not in the store's registry.
    #[doc(hidden)]
    pub fn record_encoded(&mut self, kind: &str, version: u16, payload: &[u8]) -> Result<(), ToolError> {
        if kind.is_empty() || self.session.knows_kind(kind) {
            let shown: String = kind.chars().take(100).collect();
            return Err(ToolError::new(format!("a program records only its own event kinds, not {shown:?}")));
        }
        Ok(self.extra.push_encoded(kind, version, payload)?)
    }

    /// Fails for a read-only tool.
    #[doc(hidden)]
    pub fn check_may_change(&self) -> Result<(), ToolError> {
        match self.may_change {
            true => Ok(()),
            false => Err(ToolError::new("the tool is registered as read-only")),
        }
    }

    /// Stores a content that an event of [`record`](ToolContext::record) refers to by its digest.
    pub fn keep(&mut self, content: Content) {
        self.extra.keep(content);
    }

    /// Returns the remaining time of the call.
    pub fn remaining(&self) -> Duration {
        self.clock.remaining()
    }

    /// Returns the token that is cancelled with the call.
    pub fn cancellation(&self) -> &CancellationToken {
        &self.cancel
    }

    /// Fails if the call is cancelled or out of time; for long work that does not await.
    ///
    /// # Errors
    /// [`ToolError::Cancelled`] and [`ToolError::TimedOut`].
    pub fn check(&self) -> Result<(), ToolError> {
        if self.cancel.is_cancelled() {
            return Err(ToolError::Cancelled);
        }
        if self.remaining().is_zero() { Err(ToolError::TimedOut(self.clock.limit())) } else { Ok(()) }
    }

    /// Sends a heartbeat to the program that runs the tools, before slow work.
    pub fn beat(&self, doing: impl Into<String>) {
        if let Some(watch) = &self.beats {
            watch(ToolBeat { call: self.call, doing: doing.into() });
        }
    }

    /// Returns the program's budget to spend from; unlimited if the program has set none.
    pub fn budget(&self) -> &WorkBudget {
        &self.budget
    }

    /// Returns the time limits of commands.
    pub fn command_time(&self) -> CommandTime {
        self.machine.rules.time
    }

    /// Returns the options of all commands of the session.
    pub(crate) fn command_options(&self) -> CommandOptions {
        self.machine.workspace.command_options()
    }

    /// Returns the default directory of commands. A tool that may change files creates it if it is missing.
    pub fn workdir(&mut self) -> Result<EntryPath, ToolError> {
        let workdir = self.command_options().workdir;
        if self.may_change && !workdir.is_root() && self.files.entry(&workdir)?.is_none() {
            self.files.make_directory(&workdir)?;
        }
        Ok(workdir)
    }

    /// Pauses the call's clock for a command, if the tool wants that.
    pub(super) fn stop_clock(&self) -> Option<StoppedClock> {
        self.clock_waits.then(|| self.clock.stop())
    }

    /// Returns the workspace.
    pub fn workspace(&self) -> &Arc<dyn Workspace> {
        &self.machine.workspace
    }

    /// Refuses staged changes against the policy, more staged bytes than the session may write, and any command once
    /// that limit is used up.
    pub(super) fn check_changes(&self, is_command: bool) -> Result<(), ToolError> {
        self.files.check_staged()?;
        self.machine.limits.check_bytes(&self.session, &self.state, self.files.staged_bytes(), is_command)
    }

    /// Applies the staged changes to the disk for a command. They are then recorded whatever the outcome.
    pub(crate) fn land(&mut self) -> Result<(), ToolError> {
        let changes = self.files.changes()?;
        if !changes.is_empty() {
            // Not on another thread: the call could be dropped between the change and `files.land`.
            self.machine.workspace.apply(&changes)?;
        }
        self.files.land();
        Ok(())
    }

    pub(crate) fn has_run(&self) -> bool {
        self.running.is_some() || self.files.has_landed()
    }

    pub(crate) fn text_chars(&self) -> Option<usize> {
        self.machine.rules.text_chars
    }

    pub(crate) fn python_rules(&self) -> PythonRules {
        self.machine.rules.python
    }

    /// Records code that ran in process, whatever the outcome, and shows its output.
    pub(crate) fn record_evaluation(
        &mut self,
        language: &'static str,
        code: &str,
        result: &ShellResult,
    ) -> Result<(), ToolError> {
        let call = self.call;
        for (stream, bytes) in
            [(OutputStream::Stdout, &result.stdout.kept), (OutputStream::Stderr, &result.stderr.kept)]
        {
            if !bytes.is_empty() {
                SessionRuntime::of(&self.session).show_output(|| CommandOutput { call, stream, bytes: bytes.clone() });
            }
        }
        let record_as = RecordAs::Evaluation { language, place: PythonPlace::InProcess.word(), code: code.to_owned() };
        Ok(record_as.record(&mut self.facts, result)?)
    }

    /// Waits for the running command, records its result and captures its changes. Cancel safe: it may be dropped and
    /// called again.
    pub(crate) async fn finish_running(&mut self) -> Result<ShellResult, ToolError> {
        let nothing = || ToolError::new("no command is running");
        let running = self.running.as_mut().ok_or_else(nothing)?;
        if running.ended.is_none() {
            let ended = (&mut running.task).await;
            let panicked = |_| ToolError::new("the shell panicked");
            running.ended = Some(ended.map_err(panicked).and_then(|ended| Ok(ended?)));
            running.stopped = None;
        }
        let captured = self.machine.captured(&self.session, self.files.tree().clone()).await;
        let Some(RunningCommand { ended: Some(ended), record_as, .. }) = self.running.take() else {
            return Err(nothing());
        };
        // Record the result even if the capture failed: only this call has it.
        let recorded = ended.as_ref().map_or(Ok(()), |result| record_as.record(&mut self.facts, result));
        self.files.take_captured(captured?);
        recorded?;
        ended
    }

    pub(crate) async fn stop_running(&mut self) {
        let Some(running) = &mut self.running else { return };
        drop(running.cancel.take());
        if let Err(error) = self.finish_running().await {
            tracing::warn!(%error, "incomplete result of a killed command");
        }
    }

    /// Adds the facts, which are recorded whatever the outcome. They are retained, so a failed commit loses nothing.
    pub(super) fn record_facts(&mut self, recording: &mut EventBuffer) -> Result<(), CommitError> {
        recording.may_split = self.files.has_landed();
        // Another call's command may run while a tool reads.
        if self.may_change && self.running.is_none() {
            self.news.extend(self.machine.workspace.news());
        }
        self.machine.record_news(&self.news, recording)?;
        recording.append_retained(&self.facts)
    }

    /// Records the facts so far, before the outcome: they have to survive a command that kills this process.
    pub(super) async fn record_so_far(&mut self) -> Result<Option<Pending>, ToolError> {
        self.news.extend(self.machine.workspace.news());
        if self.news.is_empty() && self.facts.is_empty() {
            return Ok(None);
        }
        let (session, call) = (self.session.clone(), self.call);
        let (news, facts) = (std::mem::take(&mut self.news), std::mem::replace(&mut self.facts, session.commit()));
        let recorded = with_store(&self.session, move || {
            let mut recording = EventBuffer::of_call(&session, call);
            let added = push_news(&news, &mut recording).and_then(|()| recording.append_retained(&facts));
            let recorded = added.map_err(ToolError::from).and_then(|()| Ok(recording.submit()?));
            (recorded, news, facts)
        });
        let (recorded, news, facts) = recorded.await?;
        // The outcome records them after a failure.
        recorded.map(Some).inspect_err(|_| (self.news, self.facts) = (news, facts))
    }

    /// Returns true if the machine's news of this call include a start.
    pub(crate) fn machine_has_started(&mut self) -> bool {
        self.news.extend(self.machine.workspace.news());
        self.news.iter().any(|news| matches!(news, MachineNews::Started(_)))
    }

    /// Describes the connections of this call that the network's rules refused; `None` if there are none.
    pub(crate) fn refused_connections(&mut self) -> Option<String> {
        self.news.extend(self.machine.workspace.news());
        let refused: BTreeSet<String> = self.news.iter().filter_map(refused_connection).collect();
        let shown: Vec<&str> = refused.iter().take(REFUSED_SHOWN).map(String::as_str).collect();
        let more = refused.len() - shown.len();
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        (!shown.is_empty()).then(|| format!("the network refused connections: {}{more}", shown.join("; ")))
    }

    /// Adds the changes and events of a success; returns the changes that are not on the disk yet. A failure does not
    /// record the tool's events, so they are moved.
    pub(super) fn record_work(&mut self, recording: &mut EventBuffer) -> Result<Vec<FileChange>, ToolError> {
        self.files.record_into(recording)?;
        recording.append(std::mem::replace(&mut self.extra, self.session.commit()))?;
        self.files.changes()
    }
}

/// The most refused hosts that a note names.
const REFUSED_SHOWN: usize = 5;

fn refused_connection(news: &MachineNews) -> Option<String> {
    let MachineNews::Connected(NetworkConnection { host, port, outcome, reason, .. }) = news else { return None };
    let port = if *port == 0 { String::new() } else { format!(":{port}") };
    (outcome == "refused").then(|| format!("{host}{port} ({reason})"))
}
