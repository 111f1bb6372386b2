//! A call's way: check, record the intent, perform, record the outcome.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::content_params::PARAMS_MAX;
use super::context::ToolContext;
use super::error::ToolError;
use super::open_call::OpenCall;
use super::tool::{Answering, Effect, ToolAnswer};
use super::toolset::Tools;
use super::trace::TraceContext;
use crate::backends::Workspace;
use crate::engine::commit::CallLink;
use crate::engine::event::{CallFinished, CallReason, CallStatus};
use crate::engine::id::Seq;
use crate::engine::session::Session;
use crate::engine::session::sessions::SessionError;
use crate::reducers::ToolCalls;
use crate::tools::error::WorkspaceError;
use crate::tools::workspace::capture::CaptureBudget;
use crate::tools::workspace::managed::{ManagedWorkspace, ShellRules};

/// How long a call may take when nothing else is said.
const LIMIT: Duration = Duration::from_secs(120);

/// A call to be made.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ToolCall {
    /// The tool's name.
    pub tool: String,
    /// Its parameters.
    #[serde(default)]
    pub params: Value,
    /// How long it may take; 120 seconds when nothing is said.
    #[serde(skip)]
    pub limit: Option<Duration>,
    /// Takes the call back.
    #[serde(skip)]
    pub cancel: CancellationToken,
    /// The trace that it belongs to; one of its own when nothing is said.
    #[serde(skip)]
    pub trace: Option<TraceContext>,
}

impl ToolCall {
    /// A call of that tool.
    pub fn new(tool: impl Into<String>, params: Value) -> Self {
        Self { tool: tool.into(), params, limit: None, cancel: CancellationToken::new(), trace: None }
    }
}

/// What came of a call.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ToolOutcome {
    /// The position of the call's intent, which is its name.
    pub call: Seq,
    /// The position of its outcome.
    pub finished: Seq,
    /// How it ended.
    pub status: CallStatus,
    /// The result of a success, else null.
    pub result: Value,
    /// The result, or what was wrong, as text for a model.
    pub text: String,
    /// How long it took, in microseconds.
    pub micros: u64,
}

impl ToolOutcome {
    /// Whether it did what was asked.
    pub fn is_ok(&self) -> bool {
        self.status == CallStatus::Ok
    }
}

/// Makes calls in a session and records them.
///
/// ```
/// use foldspace::{Dispatcher, MemoryWorkspace, NewSession, Registry, Sessions, ToolCall, Tools};
/// use std::sync::Arc;
/// # let directory = tempfile::tempdir()?;
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
/// let sessions = Sessions::open(directory.path(), Registry::standard())?;
/// let session = sessions.create(NewSession::default())?;
/// let dispatcher = Dispatcher::new(session, Tools::standard(), Arc::new(MemoryWorkspace))?;
/// let params = serde_json::json!({ "file_path": "a.txt", "content": "hello" });
/// let outcome = runtime.block_on(dispatcher.call(ToolCall::new("write_file", params)))?;
/// assert!(outcome.is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct ToolRunner {
    session: Session,
    tools: Arc<Tools>,
    machine: ManagedWorkspace,
}

impl ToolRunner {
    /// Prepares to make calls. Calls that an ended process left open are recorded as interrupted.
    ///
    /// A workspace whose disk has nothing of the session is filled from its history; what else is found
    /// to be otherwise than the history says is recorded as drift.
    ///
    /// # Errors
    /// What the session or the workspace says.
    pub fn new(
        session: Session,
        tools: impl Into<Arc<Tools>>,
        workspace: Arc<dyn Workspace>,
    ) -> Result<Self, WorkspaceError> {
        Self::with_rules(session, tools, workspace, ShellRules::default())
    }

    /// The same with other rules for commands: which may run, who is asked, how much is kept.
    ///
    /// # Errors
    /// As [`new`](ToolRunner::new).
    pub fn with_rules(
        session: Session,
        tools: impl Into<Arc<Tools>>,
        workspace: Arc<dyn Workspace>,
        rules: ShellRules,
    ) -> Result<Self, WorkspaceError> {
        let _lease = session.lease()?;
        let state = session.state()?;
        for call in state.slice::<ToolCalls>().into_iter().flat_map(ToolCalls::open) {
            if !session.is_under_way(call.call) {
                let mut commit = session.as_agent(Arc::clone(&call.agent)).commit().of_call(CallLink::Of(call.call));
                let message = "the process that ran the call ended before it did".to_owned();
                let lost = CallFinished::without_success(CallStatus::Interrupted, CallReason::Abandoned, message, 0);
                commit.push(&lost).map_err(SessionError::from)?;
                session.record(commit)?;
            }
        }
        let machine = ManagedWorkspace::new(&session, workspace, rules)?;
        machine.prepare(&session)?;
        let tools = machine.allowed(&session, tools.into())?;
        Ok(Self { session, tools, machine })
    }

    /// The session.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The tools.
    pub fn tools(&self) -> &Tools {
        &self.tools
    }

    /// The workspace.
    pub fn workspace(&self) -> &Arc<dyn Workspace> {
        &self.machine.workspace
    }

    pub(crate) fn budget(&self) -> CaptureBudget {
        self.machine.rules.budget
    }

    /// The same for a child that shares the session: under its agent's name, and within its limits.
    pub(crate) fn in_session(&self, child: Session) -> Result<Self, SessionError> {
        let machine = self.machine.shared_by(&child)?;
        let tools = machine.allowed(&child, Arc::clone(&self.tools))?;
        Ok(Self { session: child, tools, machine })
    }

    /// The same tools and rules for another session with a workspace of its own.
    pub(crate) fn for_child(&self, session: Session, workspace: Arc<dyn Workspace>) -> Result<Self, WorkspaceError> {
        Self::with_rules(session, Arc::clone(&self.tools), workspace, (*self.machine.rules).clone())
    }

    /// The workspace with its rules.
    pub(crate) fn machine(&self) -> &ManagedWorkspace {
        &self.machine
    }

    /// Closes the workspace, and records what became of its container. Files stay; a later call brings the
    /// container up again. It blocks until that is recorded.
    ///
    /// # Errors
    /// What the session's store says.
    pub fn close(&self) -> Result<(), SessionError> {
        self.machine.workspace.close();
        self.machine.record_end(&self.session)
    }

    /// The same for another agent. A child that shares its parent's session has one name only, by which it is held to
    /// its limits: its dispatcher stays as it is.
    #[must_use]
    pub fn as_agent(&self, agent: impl Into<Arc<str>>) -> Self {
        if self.machine.is_shared() {
            return self.clone();
        }
        Self { session: self.session.as_agent(agent), ..self.clone() }
    }

    /// The same under other rules for commands, for one who asks differently or may do more or less. What a limited
    /// session is denied stays denied.
    ///
    /// # Errors
    /// What the session says.
    pub fn ruled(&self, rules: ShellRules) -> Result<Self, SessionError> {
        Ok(Self { machine: self.machine.ruled(&self.session, rules)?, ..self.clone() })
    }

    /// Makes a call. A tool's own failure is an outcome, not an error. Dropping the future takes the
    /// call back: what it runs is killed, and it is recorded as interrupted.
    ///
    /// # Errors
    /// When the session can't record. What a command has done by then is found as drift when the session is
    /// opened again.
    pub async fn call(&self, call: ToolCall) -> Result<ToolOutcome, SessionError> {
        self.call_telling(call, |_| ()).await
    }

    /// The same, and tells the call's position, its name, as soon as it has one.
    ///
    /// # Errors
    /// As [`call`](ToolRunner::call).
    pub async fn call_telling(
        &self,
        call: ToolCall,
        begun: impl FnOnce(Seq) + Send,
    ) -> Result<ToolOutcome, SessionError> {
        let size = json_bytes(&call.params);
        let mut open = OpenCall::begin(&self.session, &call, size)?;
        begun(open.call);
        let answer = self.perform(&mut open, call, size).await;
        if let Some(context) = &mut open.context {
            context.stop_running().await;
        }
        match answer.and_then(|answer| open.succeed(answer)) {
            Ok((outcome, pending)) => {
                open.settle(pending).await?;
                Ok(outcome)
            }
            Err(error) => open.fail(&error).await,
        }
    }

    /// The parameters have that size as JSON.
    async fn perform(&self, open: &mut OpenCall, call: ToolCall, size: usize) -> Result<ToolAnswer, ToolError> {
        let time_left = match &self.machine.limits {
            Some(limits) => limits.admit(&self.session, open.call, &call.tool)?,
            None => None,
        };
        if size > PARAMS_MAX {
            return Err(ToolError::TooLarge(size));
        }
        let Some(tool) = self.tools.get(&call.tool) else {
            let known = self.tools.names().collect::<Vec<_>>().join(", ");
            return Err(ToolError::new(format!("there is no tool {:?}; there are {known}", call.tool)));
        };
        let own = call.limit.or(tool.limit()).unwrap_or(LIMIT);
        let limit = time_left.as_ref().map_or(own, |time| time.left.min(own));
        let cancelled = call.cancel.clone().cancelled_owned();
        let work = async {
            // Tools that only look need no turn; where nobody has it, they see what others did to the disk.
            open.turn = match tool.effect() {
                Effect::ReadOnly if self.machine.workspace.capture().is_none() => None,
                Effect::ReadOnly => self.session.turn_now(),
                Effect::Additive | Effect::Destructive => Some(self.session.turn().await),
            };
            if open.turn.is_some() {
                self.machine.record_drift(&self.session).await?;
            }
            if tool.effect() == Effect::ReadOnly {
                open.turn = None;
            }
            let machine = self.machine.for_agent(&self.session)?;
            let context = ToolContext::new(&self.session, open.call, &machine, tool.effect(), limit, call.cancel)?;
            let context = open.context.insert(context);
            let params = if call.params.is_null() { Value::Object(Default::default()) } else { call.params };
            let answer = unpanicked(tool.call(context, params)).await?;
            context.check_staged()?;
            Ok(answer)
        };
        let too_late = || match &time_left {
            Some(time) if limit < own => time.over.clone(),
            _ => ToolError::TimedOut(limit),
        };
        tokio::select! {
            done = tokio::time::timeout(limit, work) => done.unwrap_or_else(|_| Err(too_late())),
            () = cancelled => Err(ToolError::Cancelled),
        }
    }
}

/// How long a value is as JSON.
fn json_bytes(value: &Value) -> usize {
    struct CallCounter(usize);

    impl std::io::Write for CallCounter {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    let mut count = CallCounter(0);
    match serde_json::to_writer(&mut count, value) {
        Ok(()) => count.0,
        // A value can be written, and a count does not fail.
        Err(_) => usize::MAX,
    }
}

/// Turns a panic of a tool into its failure.
async fn unpanicked(mut work: Answering<'_>) -> Result<ToolAnswer, ToolError> {
    std::future::poll_fn(|context| {
        let polled = std::panic::catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context)));
        polled.unwrap_or_else(|_| Poll::Ready(Err(ToolError::new("the tool failed: it panicked"))))
    })
    .await
}

impl std::fmt::Debug for ToolRunner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dispatcher").field("session", &self.session).field("tools", &self.tools).finish_non_exhaustive()
    }
}
