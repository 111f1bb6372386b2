//! A call's way: check, record the intent, perform, record the outcome.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::context::ToolContext;
use super::error::ToolError;
use super::filesystem::Filesystem;
use super::lift::lift;
use super::tool::{Answer, Answering, Effect};
use super::toolset::Tools;
use crate::backends::Workspace;
use crate::engine::commit::{CallLink, Commit, Content};
use crate::engine::event::{CallFinished, CallStarted, CallStatus};
use crate::engine::recorded::Seq;
use crate::engine::session::{Session, UnderWay};
use crate::engine::sessions::SessionError;
use crate::reducers::{ToolCalls, VirtualFileSystem};

/// How long a call may take when nothing else is said.
const LIMIT: Duration = Duration::from_secs(120);
/// Bytes of a call's parameters as JSON.
const PARAMS_MAX: usize = 1 << 20;

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
}

impl ToolCall {
    /// A call of that tool.
    pub fn new(tool: impl Into<String>, params: Value) -> Self {
        Self { tool: tool.into(), params, limit: None, cancel: CancellationToken::new() }
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
pub struct Dispatcher {
    session: Session,
    tools: Arc<Tools>,
    workspace: Arc<dyn Workspace>,
}

impl Dispatcher {
    /// Prepares to make calls. Calls that an ended process left open are recorded as interrupted.
    ///
    /// # Errors
    /// What the session says.
    pub fn new(
        session: Session,
        tools: impl Into<Arc<Tools>>,
        workspace: Arc<dyn Workspace>,
    ) -> Result<Self, SessionError> {
        let state = session.state()?;
        for call in state.slice::<ToolCalls>().into_iter().flat_map(ToolCalls::open) {
            if !session.is_under_way(call.call) {
                let mut commit = session.as_agent(Arc::clone(&call.agent)).commit().of_call(CallLink::Of(call.call));
                commit.push(&interrupted("the process that ran the call ended before it did", 0))?;
                session.record(commit)?;
            }
        }
        Ok(Self { session, tools: tools.into(), workspace })
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
        &self.workspace
    }

    /// The same for another agent.
    #[must_use]
    pub fn as_agent(&self, agent: impl Into<Arc<str>>) -> Self {
        Self { session: self.session.as_agent(agent), ..self.clone() }
    }

    /// Makes a call. A tool's own failure is an outcome, not an error. Dropping the future takes the
    /// call back: it is recorded as interrupted.
    ///
    /// # Errors
    /// When the session can't record; then the call had no effect.
    pub async fn call(&self, call: ToolCall) -> Result<ToolOutcome, SessionError> {
        let size = json_bytes(&call.params);
        let open = OpenCall::begin(&self.session, &call, size)?;
        let limit = call.limit.unwrap_or(LIMIT);
        let performed = self.perform(&open, call, size, limit).await;
        match performed {
            Ok(done) => match open.succeed(done) {
                Ok((outcome, pending)) => {
                    pending.durable().await?;
                    Ok(outcome)
                }
                Err((open, error)) => open.fail(&error).await,
            },
            Err(error) => open.fail(&error).await,
        }
    }

    /// The parameters have that size as JSON.
    async fn perform(
        &self,
        open: &OpenCall,
        call: ToolCall,
        size: usize,
        limit: Duration,
    ) -> Result<Done<'_>, ToolError> {
        if size > PARAMS_MAX {
            return Err(ToolError::new(format!("the parameters have {size} bytes; at most {PARAMS_MAX} are allowed")));
        }
        let Some(tool) = self.tools.get(&call.tool) else {
            let known = self.tools.names().collect::<Vec<_>>().join(", ");
            return Err(ToolError::new(format!("there is no tool {:?}; there are {known}", call.tool)));
        };
        let cancelled = call.cancel.clone().cancelled_owned();
        let work = async {
            // Tools that only look see one state and need no turn.
            let turn = match tool.effect() {
                Effect::ReadOnly => None,
                Effect::Additive | Effect::Destructive => Some(self.session.turn().await),
            };
            let state = self.session.state()?;
            let tree = state.slice::<VirtualFileSystem>().cloned().unwrap_or_default();
            let files = Filesystem::new(self.session.clone(), tree);
            let mut context = ToolContext::new(self.session.clone(), open.call, files, limit, call.cancel);
            let params = if call.params.is_null() { Value::Object(Default::default()) } else { call.params };
            let answer = unpanicked(tool.call(&mut context, params)).await?;
            let (files, extra) = context.into_parts();
            Ok(Done { answer, files, extra, workspace: &self.workspace, _turn: turn })
        };
        tokio::select! {
            done = tokio::time::timeout(limit, work) => done.unwrap_or(Err(ToolError::TimedOut(limit))),
            () = cancelled => Err(ToolError::Cancelled),
        }
    }
}

/// How long a value is as JSON.
fn json_bytes(value: &Value) -> usize {
    struct Count(usize);

    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    let mut count = Count(0);
    match serde_json::to_writer(&mut count, value) {
        Ok(()) => count.0,
        // A value can be written, and a count does not fail.
        Err(_) => usize::MAX,
    }
}

/// A call that did what was asked and is not recorded yet. Nobody else changes files meanwhile.
struct Done<'a> {
    answer: Answer,
    files: Filesystem,
    extra: Commit,
    workspace: &'a Arc<dyn Workspace>,
    _turn: Option<tokio::sync::MutexGuard<'a, ()>>,
}

/// A call whose intent is recorded and whose outcome is not. Dropped, it records an interruption.
struct OpenCall {
    session: Session,
    call: Seq,
    since: u64,
    closed: bool,
    _under_way: UnderWay,
}

impl OpenCall {
    fn begin(session: &Session, call: &ToolCall, size: usize) -> Result<Self, SessionError> {
        let mut contents = Vec::new();
        let params = if size > PARAMS_MAX { Value::Null } else { lift(call.params.clone(), &mut contents) };
        let tool = call.tool.chars().take(100).collect();
        let mut commit = session.commit().of_call(CallLink::Opens);
        commit.push(&CallStarted { tool, params })?;
        contents.into_iter().for_each(|content| commit.keep(content));
        // The outcome is recorded behind it, so waiting for that is enough.
        let pending = session.submit(commit)?;
        let call = pending.first();
        let since = session.steady_micros();
        Ok(Self { session: session.clone(), call, since, closed: false, _under_way: session.call_under_way(call) })
    }

    fn micros(&self) -> u64 {
        self.session.steady_micros().saturating_sub(self.since)
    }

    fn succeed(mut self, done: Done<'_>) -> Result<(ToolOutcome, crate::engine::store::Pending), (Self, ToolError)> {
        let recorded = self.record_success(done);
        match recorded {
            Ok(recorded) => {
                self.closed = true;
                Ok(recorded)
            }
            Err(error) => Err((self, error)),
        }
    }

    fn record_success(&self, done: Done<'_>) -> Result<(ToolOutcome, crate::engine::store::Pending), ToolError> {
        let Done { answer, files, extra, workspace, _turn } = done;
        let mut commit = self.session.commit().of_call(CallLink::Of(self.call));
        let changes = if files.is_changed() { files.changes()? } else { Vec::new() };
        let too_much = |e: crate::engine::commit::CommitError| ToolError::new(e.to_string());
        files.record_into(&mut commit).map_err(too_much)?;
        commit.append(extra).map_err(too_much)?;
        let mut contents = Vec::new();
        let result = lift(answer.result.clone(), &mut contents);
        let micros = self.micros();
        let finished = CallFinished { status: CallStatus::Ok, result, message: String::new(), micros };
        commit.push(&finished).map_err(too_much)?;
        contents.into_iter().for_each(|content: Content| commit.keep(content));
        if !changes.is_empty() {
            workspace.project(&changes).map_err(|e| ToolError::new(e.to_string()))?;
        }
        let pending = self.session.submit(commit)?;
        let outcome = ToolOutcome {
            call: self.call,
            finished: pending.last(),
            status: CallStatus::Ok,
            result: answer.result,
            text: answer.text,
            micros,
        };
        Ok((outcome, pending))
    }

    async fn fail(mut self, error: &ToolError) -> Result<ToolOutcome, SessionError> {
        let micros = self.micros();
        let message = error.to_string();
        let mut finished = interrupted(&message, micros);
        if !matches!(error, ToolError::Cancelled) {
            finished.status = CallStatus::Error;
        }
        let status = finished.status;
        let mut commit = self.session.commit().of_call(CallLink::Of(self.call));
        commit.push(&finished)?;
        self.closed = true;
        let committed = self.session.submit(commit)?.durable().await?;
        let (call, finished) = (self.call, committed.last);
        Ok(ToolOutcome { call, finished, status, result: Value::Null, text: message, micros })
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        if self.closed {
            return;
        }
        let mut commit = self.session.commit().of_call(CallLink::Of(self.call));
        let pushed = commit.push(&interrupted("the call was taken back", self.micros()));
        let recorded = pushed.map_err(SessionError::from).and_then(|()| self.session.submit(commit));
        match recorded {
            // Nobody waits for it: the background writer makes it durable.
            Ok(pending) => drop(pending),
            Err(error) => tracing::warn!(%error, "an interrupted call could not be recorded"),
        }
    }
}

fn interrupted(message: &str, micros: u64) -> CallFinished {
    CallFinished { status: CallStatus::Interrupted, result: Value::Null, message: message.to_owned(), micros }
}

/// Turns a panic of a tool into its failure.
async fn unpanicked(mut work: Answering<'_>) -> Result<Answer, ToolError> {
    std::future::poll_fn(|context| {
        let polled = std::panic::catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context)));
        polled.unwrap_or_else(|_| Poll::Ready(Err(ToolError::new("the tool failed: it panicked"))))
    })
    .await
}

impl std::fmt::Debug for Dispatcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dispatcher").field("session", &self.session).field("tools", &self.tools).finish_non_exhaustive()
    }
}
