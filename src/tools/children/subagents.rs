//! Batches of children that work concurrently, each in its own isolation.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::future::{MaybeDone, maybe_done};
use futures_util::{FutureExt, poll};
use serde::Serialize;
use serde_json::Value;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::forker::Forker;
use super::merge::{MergeReport, merge_child};
use crate::engine::event::Isolation;
use crate::engine::id::SessionId;
use crate::engine::session::children::ForkOptions;
use crate::reducers::MergeChoices;
use crate::tools::call::tool_runner::ToolRunner;
use crate::tools::error::WorkspaceError;
use crate::tools::workspace::managed::Extent;

const PARALLEL: usize = 4;

/// Child to create, with its task.
#[derive(Debug, Clone, PartialEq)]
pub struct Subagent {
    /// Options of the child: isolation, name, agent, limits.
    pub child: ForkOptions,
    /// Task, in the callback's own format.
    pub task: Value,
}

/// Options of a batch.
#[derive(Debug, Clone)]
pub struct Subagents {
    /// Maximum number of children that work concurrently, at least one.
    pub parallel: usize,
    /// Choices for a final merge. Successful children with their own session are merged one after the other, in input
    /// order.
    pub merge: Option<MergeChoices>,
    /// Cancels the batch: working children must end, others do not begin, none is merged.
    pub cancel: CancellationToken,
}

impl Default for Subagents {
    /// Returns options with four concurrent children and no merge.
    fn default() -> Self {
        Self { parallel: PARALLEL, merge: None, cancel: CancellationToken::new() }
    }
}

/// Input of a callback.
#[derive(Debug)]
pub struct ChildContext {
    /// Runner for calls in the child.
    pub tool_runner: ToolRunner,
    /// Task of the child.
    pub task: Value,
    /// Index of the child in the batch, from 0.
    pub number: usize,
    /// Cancelled with the batch. Pass it to every call.
    pub cancel: CancellationToken,
}

/// Result of one child of a batch.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SubagentResult {
    /// Session of the child; with shared isolation the parent's; `None` if it was not created.
    pub session: Option<SessionId>,
    /// Name of the session; empty if it was not created.
    pub name: String,
    /// Outcome of the child's work.
    pub outcome: SubagentOutcome,
    /// Result of its merge; `None` without one.
    pub merge: Option<Result<MergeReport, String>>,
}

/// Outcome of a child's work.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum SubagentOutcome {
    /// The callback succeeded.
    Done {
        /// Result of the callback.
        result: Value,
    },
    /// The callback failed.
    Failed {
        /// Reason of the callback.
        reason: String,
    },
    /// The callback panicked.
    Panicked {
        /// Message of the panic.
        reason: String,
    },
    /// The child could not be created.
    NotStarted {
        /// Reason of the failure.
        reason: String,
    },
    /// The batch was cancelled before the work was done.
    Cancelled,
}

impl SubagentOutcome {
    /// Returns true if the work succeeded.
    pub fn is_done(&self) -> bool {
        matches!(self, Self::Done { .. })
    }
}

/// Creates children of a session and lets a callback work in each; returns one result per child, in batch order.
///
/// All children are created one after the other before any works, so forks of the present are equal. A child that
/// fails, panics or can't be created does not affect others, and its session stays. When a child ends, its workspace
/// is closed; its session and files stay until they are removed. Dropping the future cancels the batch.
///
/// A merge waits for the parent's workspace lock: never request one in a call of the parent that holds the lock, as
/// every changing tool does.
///
/// ```
/// # use foldspace_tools as foldspace;
/// use foldspace::{
///     ForkOptions, MemoryWorkspace, NewSession, Registry, Sessions, ToolCall, ToolRunner, Tools, event::Isolation,
///     reducers::MergeChoices, tools::{AllowedRoots, ChildContext, Forker, Subagent, Subagents, dispatch_subagents},
/// };
/// use serde_json::{Value, json};
/// use std::sync::Arc;
/// # let directory = tempfile::tempdir()?;
/// # let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
/// # runtime.block_on(async {
/// let sessions = Sessions::open(directory.path().join("data"), Registry::standard())?;
/// let session = sessions.create(NewSession::named("lead"))?;
/// let lead = ToolRunner::new(session, Tools::standard(), Arc::new(MemoryWorkspace))?;
/// let forker = Forker { sessions, home: directory.path().into(), roots: AllowedRoots::default() };
///
/// async fn work(child: ChildContext) -> Result<Value, String> {
///     let params = json!({ "file_path": child.task, "content": "done\n" });
///     let outcome = child.tool_runner.call(ToolCall::new("write_file", params)).await.map_err(|e| e.to_string())?;
///     if outcome.is_ok() { Ok(outcome.result) } else { Err(outcome.text) }
/// }
///
/// let fork = |task: &str| Subagent { child: ForkOptions::new(Isolation::Fork), task: json!(task) };
/// let options = Subagents { merge: Some(MergeChoices::default()), ..Subagents::default() };
/// let results = dispatch_subagents(&lead, &forker, vec![fork("a.txt"), fork("b.txt")], options, work).await;
/// assert!(results.iter().all(|child| child.outcome.is_done()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub async fn dispatch_subagents<F, W>(
    parent: &ToolRunner,
    forker: &Forker,
    batch: Vec<Subagent>,
    options: Subagents,
    work: F,
) -> Vec<SubagentResult>
where
    F: Fn(ChildContext) -> W + Send + Sync + 'static,
    W: Future<Output = Result<Value, String>> + Send + 'static,
{
    let cancel = options.cancel.child_token();
    let _dropped = cancel.clone().drop_guard();
    let (work, places) = (Arc::new(work), Arc::new(Semaphore::new(options.parallel.max(1))));
    let mut children = Vec::with_capacity(batch.len());
    for Subagent { child, task } in batch {
        let isolation = child.isolation;
        let begun = match cancel.is_cancelled() {
            true => Err(not_begun(SubagentOutcome::Cancelled)),
            false => forker.start(parent, child).await.map_err(not_started),
        };
        children.push((begun, task, isolation));
    }
    let mut running = Vec::with_capacity(children.len());
    for (number, (begun, task, isolation)) in children.into_iter().enumerate() {
        // Queued here, so that the children work in the order of the batch.
        let mut place = Box::pin(maybe_done(Arc::clone(&places).acquire_owned()));
        let _ = poll!(&mut place);
        running.push(begun.map(|tool_runner| {
            let context = ChildContext { tool_runner: tool_runner.clone(), task, number, cancel: cancel.clone() };
            let working = worked(Arc::clone(&work), context, place);
            let (child, is_own) = (tool_runner.clone(), isolation != Isolation::Shared);
            let ended = tokio::spawn(async move {
                let (outcome, place) = working.await;
                if is_own {
                    close(child, outcome.is_done()).await;
                }
                drop(place);
                outcome
            });
            (tool_runner, is_own, ended)
        }));
    }
    let mut results = Vec::with_capacity(running.len());
    for child in running {
        results.push(match child {
            Err(result) => (result, None),
            Ok((tool_runner, is_own, ended)) => end(tool_runner, is_own, ended).await,
        });
    }
    match &options.merge {
        Some(choices) if !options.cancel.is_cancelled() => merge_all(parent, results, choices).await,
        _ => results.into_iter().map(|(result, _)| result).collect(),
    }
}

/// Waits for a child's end; returns the runner of a child to merge.
async fn end(
    tool_runner: ToolRunner,
    is_own: bool,
    ended: JoinHandle<SubagentOutcome>,
) -> (SubagentResult, Option<ToolRunner>) {
    let outcome = ended.await.unwrap_or(SubagentOutcome::Cancelled);
    let (session, name) = (Some(tool_runner.session().id()), tool_runner.session().name().to_owned());
    let to_merge = (is_own && outcome.is_done()).then_some(tool_runner);
    (SubagentResult { session, name, outcome, merge: None }, to_merge)
}

fn not_begun(outcome: SubagentOutcome) -> SubagentResult {
    SubagentResult { session: None, name: String::new(), outcome, merge: None }
}

fn not_started(error: WorkspaceError) -> SubagentResult {
    let result = not_begun(SubagentOutcome::NotStarted { reason: error.to_string() });
    match error {
        // The child exists, and the caller has to remove it.
        WorkspaceError::Mounts { id, name, .. } => SubagentResult { session: Some(id), name, ..result },
        _ => result,
    }
}

/// Closes the workspace of a child that has ended. External changes of a successful child are recorded first.
async fn close(child: ToolRunner, is_done: bool) {
    if is_done {
        let _turn = child.runtime().lock_workspace().await;
        if let Err(error) = child.machine().record_drift(child.session(), Extent::All).await {
            tracing::warn!(%error, "external changes of a child are not merged");
        }
    }
    let closed = tokio::task::spawn_blocking(move || child.close()).await;
    if let Ok(Err(error)) = closed {
        tracing::warn!(%error, "failed to record the end of a child's workspace");
    }
}

/// Waits for a permit and works; returns the permit for the cleanup. The work's context is dropped with this.
async fn worked<F, W>(
    work: Arc<F>,
    context: ChildContext,
    mut place: Pin<Box<MaybeDone<impl Future<Output = Result<OwnedSemaphorePermit, AcquireError>>>>>,
) -> (SubagentOutcome, Option<OwnedSemaphorePermit>)
where
    F: Fn(ChildContext) -> W,
    W: Future<Output = Result<Value, String>>,
{
    let cancel = context.cancel.clone();
    tokio::select! {
        biased;
        () = cancel.cancelled() => return (SubagentOutcome::Cancelled, None),
        () = &mut place => {}
    }
    let Some(Ok(place)) = place.as_mut().take_output() else { return (SubagentOutcome::Cancelled, None) };
    // The callback may panic before it returns a future.
    let working = AssertUnwindSafe(async move { work(context).await }).catch_unwind();
    let outcome = tokio::select! {
        biased;
        outcome = working => match outcome {
            Ok(Ok(result)) => SubagentOutcome::Done { result },
            Ok(Err(reason)) => SubagentOutcome::Failed { reason },
            Err(panic) => panicked(panic.as_ref()),
        },
        () = cancel.cancelled() => SubagentOutcome::Cancelled,
    };
    (outcome, Some(place))
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> SubagentOutcome {
    let words = panic.downcast_ref::<&str>().map(|words| (*words).to_owned());
    let words = words.or_else(|| panic.downcast_ref::<String>().cloned());
    SubagentOutcome::Panicked { reason: words.unwrap_or_else(|| "no message".to_owned()) }
}

async fn merge_all(
    parent: &ToolRunner,
    results: Vec<(SubagentResult, Option<ToolRunner>)>,
    choices: &MergeChoices,
) -> Vec<SubagentResult> {
    let mut merged = Vec::with_capacity(results.len());
    for (mut result, child) in results {
        if let Some(child) = child {
            let report = merge_child(parent, child.session(), choices).await;
            result.merge = Some(report.map_err(|error| error.to_string()));
        }
        merged.push(result);
    }
    merged
}
