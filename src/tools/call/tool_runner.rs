//! Runner of tool calls: checks, records the intent, performs, records the outcome.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use serde_json::Value;

use super::call_clock::CallClock;
use super::content_params::params_max;
use super::context::ToolContext;
use super::error::ToolError;
use super::open_call::{CallBeginning, OpenCall};
use super::repeated;
use super::tool::{Effect, ErasedTool, ToolAnswer};
use super::tool_call::{ToolCall, ToolOutcome};
use super::toolset::Tools;
use super::work_budget::{BeatWatch, ToolBeat, WorkBudget};
use crate::backends::{ClosesInput, OutputStream, Workspace};
use crate::engine::commit::CallLink;
use crate::engine::event::{CallFinished, CallReason, CallStatus};
use crate::engine::id::Seq;
use crate::engine::path::EntryPath;
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::engine::state::State;
use crate::reducers::{AgentRuns, OnFailure, PathRules, ToolCalls, ToolRules};
use crate::tools::error::WorkspaceError;
use crate::tools::off_thread::{own_state, with_store};
use crate::tools::policy::rules::ShellRules;
use crate::tools::workspace::limits::limits_of;
use crate::tools::workspace::live_files::LiveFiles;
use crate::tools::workspace::managed::{Extent, ManagedWorkspace};
use crate::tools::workspace::output_stream::{CommandOutput, OutputOptions, OutputSubscription};
use crate::tools::workspace::processes::{ProcessKeeper, ProcessTable};
use crate::tools::workspace::runtime::{SessionRuntime, WorkspaceLock};

const LIMIT: Duration = Duration::from_secs(120);
/// The name of the call that records the end of a process.
pub(crate) const END_PROCESS: &str = "end_process";
/// Time that a call waits for the workspace lock before it reports the wait.
const SILENT_LOCK_WAIT: Duration = Duration::from_secs(1);
const WAITS: &[u8] = b"[waiting for another call of this session]\n";

/// Makes calls in a session and records them.
#[derive(Clone)]
pub struct ToolRunner {
    session: Session,
    tools: Arc<Tools>,
    machine: ManagedWorkspace,
    budget: WorkBudget,
    beats: Option<BeatWatch>,
    /// False for the calls that start services again.
    starts_services: bool,
}

impl ToolRunner {
    /// Creates a runner. Open calls of an ended process are recorded as interrupted.
    ///
    /// A blank disk is populated from the session's history; other differences from it are recorded as drift.
    pub fn new(
        session: Session,
        tools: impl Into<Arc<Tools>>,
        workspace: Arc<dyn Workspace>,
    ) -> Result<Self, WorkspaceError> {
        Self::with_rules(session, tools, workspace, ShellRules::default())
    }

    /// Creates a runner with other rules for commands.
    pub fn with_rules(
        session: Session,
        tools: impl Into<Arc<Tools>>,
        workspace: Arc<dyn Workspace>,
        rules: ShellRules,
    ) -> Result<Self, WorkspaceError> {
        session.check_own()?;
        let (state, runtime) = (session.state()?, SessionRuntime::of(&session));
        let is_observed = |call| state.slice::<AgentRuns>().is_some_and(|runs| runs.open.contains_key(&call));
        for call in state.slice::<ToolCalls>().into_iter().flat_map(ToolCalls::open) {
            // The program that makes an observed call reports its end.
            if !runtime.is_in_flight(call.call) && !is_observed(call.call) {
                let mut commit = session.as_agent(Arc::clone(&call.agent)).commit().of_call(CallLink::Of(call.call));
                let message = "the process that ran the call ended before it did".to_owned();
                let lost = CallFinished::without_success(CallStatus::Interrupted, CallReason::Abandoned, message, 0);
                commit.push(&lost).map_err(SessionError::from)?;
                session.record(commit)?;
            }
        }
        let machine = ManagedWorkspace::open(&session, workspace, rules)?;
        let tools = allowed(&session, tools.into())?;
        let (budget, beats, starts_services) = (WorkBudget::default(), None, true);
        Ok(Self { session, tools, machine, budget, beats, starts_services })
    }

    /// Sets a budget for tools. Clones and children of the runner share it.
    #[must_use]
    pub fn with_budget(mut self, budget: WorkBudget) -> Self {
        self.budget = budget;
        self
    }

    /// Reports each [`beat`](ToolContext::beat) of a tool to `watch`.
    #[must_use]
    pub fn with_beats(mut self, watch: impl Fn(ToolBeat) + Send + Sync + 'static) -> Self {
        self.beats = Some(Arc::new(watch));
        self
    }

    /// Returns the session.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Returns the tools.
    pub fn tools(&self) -> &Tools {
        &self.tools
    }

    /// Returns the workspace.
    pub fn workspace(&self) -> &Arc<dyn Workspace> {
        &self.machine.workspace
    }

    /// Subscribes to the output of running commands of the session, from now on. It is not recorded.
    pub fn output(&self, options: OutputOptions) -> OutputSubscription {
        self.runtime().output(options)
    }

    #[doc(hidden)]
    pub fn runtime(&self) -> Arc<SessionRuntime> {
        SessionRuntime::of(&self.session)
    }

    /// Returns a runner for a child that shares the session, with its agent's name and limits.
    pub(crate) fn in_session(&self, child: Session) -> Result<Self, SessionError> {
        let machine = self.machine.shared_by(&child)?;
        let tools = allowed(&child, Arc::clone(&self.tools))?;
        Ok(Self { session: child, tools, machine, ..self.clone() })
    }

    /// Returns a runner with only this tool. A call of it is refused unless the session's limits allow its name.
    pub(crate) fn with_tool(&self, name: &'static str, tool: Arc<dyn ErasedTool>) -> Self {
        Self { tools: Arc::new(Tools::of_one(name, tool)), ..self.clone() }
    }

    /// Returns a runner without tools for work that outlives a call.
    pub(super) fn beyond(context: &ToolContext) -> Self {
        let (session, machine, budget) = (context.session().clone(), context.machine.clone(), context.budget.clone());
        Self { session, tools: Arc::default(), machine, budget, beats: None, starts_services: true }
    }

    /// Returns a runner with a table of processes; `keeper` keeps the workspace open while they run.
    #[doc(hidden)]
    #[must_use]
    pub fn with_processes(mut self, processes: Arc<ProcessTable>, keeper: ProcessKeeper) -> Self {
        (self.machine.processes, self.machine.keeper) = (processes, Some(keeper));
        self
    }

    pub(crate) fn for_child(&self, session: Session, workspace: Arc<dyn Workspace>) -> Result<Self, WorkspaceError> {
        let child = Self::with_rules(session, Arc::clone(&self.tools), workspace, (*self.machine.rules).clone())?;
        Ok(Self { budget: self.budget.clone(), beats: self.beats.clone(), ..child })
    }

    /// Returns a runner whose calls do not wait for services.
    pub(crate) fn without_services(self) -> Self {
        Self { starts_services: false, ..self }
    }

    #[doc(hidden)]
    pub fn machine(&self) -> &ManagedWorkspace {
        &self.machine
    }

    /// Closes the workspace, records the end of its container and waits for the record. Files stay; a later call starts
    /// the container again.
    pub fn close(&self) -> Result<(), SessionError> {
        self.machine.keep_at_end(&self.session);
        self.machine.workspace.close();
        self.machine.record_end(&self.session)
    }

    /// Records drift, unless a call is in flight.
    #[doc(hidden)]
    pub async fn refresh(&self) -> Result<(), WorkspaceError> {
        match self.runtime().try_lock_workspace() {
            Some(_turn) if self.machine.workspace.capture().is_some() => {
                Ok(self.machine.record_drift(&self.session, Extent::Due).await?)
            }
            _ => Ok(()),
        }
    }

    /// Reads the files on the workspace's disk now, at and below `path`, without waiting for calls in flight. Other
    /// files are as recorded. Records nothing.
    pub fn live_files(&self, path: &EntryPath) -> Result<LiveFiles, WorkspaceError> {
        self.machine.live_files(&self.session, path)
    }

    /// Returns a runner for another agent. For a child that shares its parent's session, returns a clone: the child's
    /// limits are bound to its agent's name.
    #[must_use]
    pub fn as_agent(&self, agent: impl Into<Arc<str>>) -> Self {
        if self.machine.limits.is_shared {
            return self.clone();
        }
        Self { session: self.session.as_agent(agent), ..self.clone() }
    }

    /// Returns a runner with other rules for commands. Denials by the session's limits stay.
    #[must_use]
    pub fn with_shell_rules(&self, rules: ShellRules) -> Self {
        let mut machine = self.machine.clone();
        machine.rules = Arc::new(rules);
        // Each call adds the denials of the agent's own limits.
        Self { machine: machine.within(self.session.limits()), ..self.clone() }
    }

    /// Makes a call. A tool's own failure is an outcome, not an error. Dropping the future cancels the call: its
    /// command is killed, and it is recorded as interrupted.
    ///
    /// # Errors
    /// Failure to record. Changes made by then are found as drift when the session is opened again.
    pub async fn call(&self, call: ToolCall) -> Result<ToolOutcome, SessionError> {
        self.call_telling(call, |_| ()).await
    }

    /// Makes a call, and passes its id to `begun` as soon as it has one.
    pub async fn call_telling(
        &self,
        call: ToolCall,
        begun: impl FnOnce(Seq) + Send,
    ) -> Result<ToolOutcome, SessionError> {
        let (size, most) = (json_bytes(&call.params), params_max(self.machine.rules.text_chars));
        let too_large = (size > most).then_some(ToolError::TooLarge(size, most));
        let _closes = ClosesInput(call.input.clone());
        let tool = self.tools.find(&call.tool, Some(self.session.id()));
        if self.starts_services && tool.as_ref().is_some_and(|tool| tool.runs_commands()) {
            self.start_services().await;
        }
        // With the lock, one state serves the whole call: no other call changes files after it was read.
        let turn = tool.as_ref().and_then(|tool| self.free_turn(tool.effect()));
        let (mut open, state) = match OpenCall::begin(&self.session, &call, too_large.is_some(), turn).await? {
            CallBeginning::Now(begun) => *begun,
            CallBeginning::Earlier(earlier) => return repeated::outcome_of(&self.session, earlier, &call.cancel).await,
        };
        let rules = state.as_ref().map(ToolRules::of).ok().filter(|rules| !rules.is_empty());
        // The end of a process is recorded whatever the policy.
        let rules = rules.filter(|_| call.tool != END_PROCESS).unwrap_or_default();
        open.on_failure = if rules.on_failure().is_keep() { call.on_failure } else { OnFailure::Undo };
        begun(open.call);
        let answer = match state {
            Ok(state) => self.perform(&mut open, (state, rules), tool, call, too_large).await,
            Err(error) => Err(error.into()),
        };
        if let Some(context) = &mut open.context {
            context.stop_running().await;
        }
        open.finish(answer).await
    }

    async fn perform(
        &self,
        open: &mut OpenCall,
        (state, rules): (State, ToolRules),
        tool: Option<Arc<dyn ErasedTool>>,
        call: ToolCall,
        too_large: Option<ToolError>,
    ) -> Result<ToolAnswer, ToolError> {
        let time_left = self.admit(open.call, &state, &call.tool).await?;
        if let Some(refusal) = rules.refusal(open.call, &call.tool) {
            return Err(ToolError::new(refusal));
        }
        let path_rules = PathRules::new(&rules, &call.tool)?;
        if let Some(too_large) = too_large {
            return Err(too_large);
        }
        let Some(tool) = tool else {
            let known = self.tools.describe_for(Some(self.session.id()));
            let known: Vec<_> = known.into_iter().map(|tool| tool.name).collect();
            return Err(ToolError::new(format!("tool {:?} not found; available: {}", call.tool, known.join(", "))));
        };
        let left = time_left.as_ref().map(|(left, _)| *left);
        let own = call.limit.or(tool.limit()).unwrap_or(LIMIT);
        let clock = CallClock::start(own, call.limit.into_iter().chain(left).min());
        let cancelled = call.cancel.clone().cancelled_owned();
        let work = async {
            let may_change = tool.effect() != Effect::ReadOnly;
            let state = self.scanned(open, state, may_change, &clock).await?;
            let machine = self.machine.for_agent(&self.session, &state);
            let (number, clock) = (open.call, Arc::clone(&clock));
            let context = ToolContext::new(&self.session, state, number, machine, may_change, clock, call.cancel);
            let context = open.context.insert(context);
            (context.budget, context.beats) = (self.budget.clone(), self.beats.clone());
            (context.input, context.time_left, context.files.rules) = (call.input, left, path_rules);
            if may_change {
                self.machine.join_names(context.files.tree()).await;
            }
            let params = if call.params.is_null() { Value::Object(Default::default()) } else { call.params };
            let panicked = |_| Err(ToolError::new("the tool panicked"));
            let answer = AssertUnwindSafe(tool.call(context, params)).catch_unwind().await.unwrap_or_else(panicked)?;
            context.check_changes(false)?;
            Ok(answer)
        };
        let too_late = || match &time_left {
            Some((left, over)) if clock.passed() >= *left => over.clone(),
            _ => ToolError::TimedOut(clock.limit()),
        };
        tokio::select! {
            done = work => done,
            () = clock.expired() => Err(too_late()),
            () = cancelled => Err(ToolError::Cancelled),
        }
    }
}

impl ToolRunner {
    /// Returns the workspace lock if a tool with that effect uses it and it is free.
    fn free_turn(&self, effect: Effect) -> Option<WorkspaceLock> {
        match effect {
            Effect::ReadOnly if self.machine.workspace.capture().is_none() => None,
            _ => self.runtime().try_lock_workspace(),
        }
    }

    /// Counts a call and refuses it above the limits; returns the time that it may take, and the error for more.
    async fn admit(&self, call: Seq, state: &State, tool: &str) -> Result<Option<(Duration, ToolError)>, ToolError> {
        // The end of a process is recorded whatever the limits.
        if tool == END_PROCESS {
            return Ok(None);
        }
        let (session, limits) = (self.session.clone(), Arc::clone(&self.machine.limits));
        let (state, tool) = (state.clone(), tool.to_owned());
        with_store(&self.session, move || limits.admit(&session, &state, call, &tool)).await?
    }

    /// Waits for the workspace lock if the call may change files, and records drift. Returns the state after that. A
    /// read-only tool needs no lock; if it is free, the tool sees external changes.
    async fn scanned(
        &self,
        open: &mut OpenCall,
        mut state: State,
        may_change: bool,
        clock: &Arc<CallClock>,
    ) -> Result<State, ToolError> {
        if open.turn.is_none() && may_change {
            open.turn = Some(self.turn(open.call, clock).await);
            // The call that had the lock may have changed files.
            state = own_state(&self.session).await?;
        }
        if open.turn.is_some() && self.machine.record_drift_since(&self.session, &state, Extent::Due).await? {
            state = own_state(&self.session).await?;
        }
        if !may_change {
            open.turn = None;
        }
        Ok(state)
    }

    /// Waits for the workspace lock, and reports a long wait. Commands without a time limit may wait forever.
    async fn turn(&self, call: Seq, clock: &Arc<CallClock>) -> WorkspaceLock {
        let _stopped = self.machine.rules.time.is_unlimited().then(|| clock.stop());
        let runtime = self.runtime();
        let mut turn = std::pin::pin!(runtime.lock_workspace());
        if let Ok(turn) = tokio::time::timeout(SILENT_LOCK_WAIT, &mut turn).await {
            return turn;
        }
        runtime.show_output(|| CommandOutput { call, stream: OutputStream::Stderr, bytes: Bytes::from_static(WAITS) });
        turn.await
    }
}

struct ByteCount(usize);

impl std::io::Write for ByteCount {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Returns the length of a value as JSON, without building the text.
fn json_bytes(value: &Value) -> usize {
    let mut count = ByteCount(0);
    serde_json::to_writer(&mut count, value).map_or(usize::MAX, |()| count.0)
}

impl std::fmt::Debug for ToolRunner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ToolRunner").field("session", &self.session).field("tools", &self.tools).finish_non_exhaustive()
    }
}

fn allowed(session: &Session, tools: Arc<Tools>) -> Result<Arc<Tools>, SessionError> {
    Ok(match limits_of(session)?.tools {
        Some(names) => Arc::new(tools.only(&names)),
        None => tools,
    })
}
