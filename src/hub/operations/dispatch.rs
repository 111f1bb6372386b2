//! A batch of children with calls to make.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::annotate::Annotate;
use super::clone_session::{check_child, check_tools, landing};
use super::{
    Operation, OperationContext, OperationEffect, OperationError, OperationRoute, OperationTool, TooLong, reading,
};
use crate::engine::event::{CallStatus, ChildLimits, Isolation};
use crate::engine::id::{Seq, SessionId};
use crate::engine::lock::lock;
use crate::engine::path::EntryPath;
use crate::engine::session::Session;
use crate::engine::session::children::ForkOptions;
use crate::engine::session::error::SessionError;
use crate::hub::{OpenSession, blocking};
use crate::reducers::MergeChoices;
use crate::tools::{
    ChildContext, DenyRule, MergeOutcome, ShellRules, Subagent, SubagentOutcome, SubagentResult, Subagents, ToolCall,
    ToolOutcome,
};
use crate::view::{Position, one_line, path_of};

const CHILDREN: usize = 100;
/// Limit for the calls of all children.
const CALLS: usize = 10_000;
const PARALLEL: usize = 16;
/// Limits for the returned texts of all calls together, and of one call, in bytes.
const TEXTS: (usize, usize) = (4 << 20, 4096);
/// Limit for the returned paths of a child.
const PATHS: usize = 1000;
const SECONDS: std::ops::RangeInclusive<f64> = 0.1..=86_400.0;
const REASON: usize = 300;
const ADVICE: &str = "name the program in `allow`, or set `auto_confirm` to allow every command that needs approval";

/// Creates a batch of children, makes the given calls in each, several children at a time, and returns the result of
/// each child. All children begin before the first call, so forks of the present are equal. A child that fails or can't
/// be created does not affect the others. The children's sessions stay. Cancelling the request cancels all children.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "DispatchRequest")]
#[serde(deny_unknown_fields)]
pub struct Dispatch {
    /// From 1 to 100 children, with at most 10,000 calls together.
    pub children: Vec<NewSubagent>,
    /// The number of children that work at the same time, from 1 to 16.
    #[serde(default = "usual")]
    #[schemars(range(min = 1, max = 16))]
    pub parallel: usize,
    /// True to merge the children that are done and have their own session, one after the other, in this order.
    #[serde(default)]
    pub merge: bool,
    /// Paths and globs where the child's side wins conflicts, as for a merge.
    #[serde(default)]
    pub theirs: Vec<String>,
    /// Paths and globs where the parent's side wins conflicts, as for a merge.
    #[serde(default)]
    pub ours: Vec<String>,
    /// Programs, or programs with their first arguments, that commands may run without a question.
    #[serde(default)]
    pub allow: Vec<String>,
    /// Programs, or programs with their first arguments, that commands may not run.
    #[serde(default)]
    pub deny: Vec<String>,
    /// True to answer every question about a command with yes.
    #[serde(default)]
    pub auto_confirm: bool,
}

fn usual() -> usize {
    4
}

fn fork() -> Isolation {
    Isolation::Fork
}

/// A child to create, and its calls.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSubagent {
    /// The part of the session that the child gets: `fork` (the default), the history and files up to a position;
    /// `full`, only fresh copies of the mounts; `shared`, everything: the same session, under another agent name.
    #[serde(default = "fork")]
    #[schemars(with = "String", extend("enum" = ["fork", "full", "shared"]))]
    pub isolation: Isolation,
    /// The position to fork at; the current state by default.
    pub at: Option<Position>,
    /// The child's name; by default the session's name with a number.
    pub name: Option<String>,
    /// The agent who works in it; required for a shared child.
    pub agent: Option<String>,
    /// Limits of the child: `calls`, `wall_millis`, `bytes_written`, `depth`, `tools`, `deny`.
    #[serde(default)]
    #[schemars(with = "Map<String, Value>")]
    pub limits: ChildLimits,
    /// The calls to make, in order.
    #[serde(default)]
    pub calls: Vec<SubagentCall>,
    /// True to continue after a failed call. Otherwise the child fails, and its other calls are not made. A command
    /// fails if it exits non-zero or times out.
    #[serde(default)]
    pub go_on: bool,
    /// Annotations of the child's session, recorded before its calls.
    #[serde(default)]
    pub annotations: Vec<Annotate>,
}

/// A call to make in a child.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SubagentCall {
    /// The tool.
    pub tool: String,
    /// Its parameters.
    #[serde(default)]
    pub params: Map<String, Value>,
    /// The time limit of the whole call in seconds, from 0.1 to 86,400; by default the tool's.
    pub timeout_seconds: Option<f64>,
}

/// The results of a batch.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Dispatched {
    /// The results, in the order of the children.
    pub children: Vec<DispatchedChild>,
}

/// The result of a child.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct DispatchedChild {
    /// The child's session; with shared isolation the parent's; null if it was not created.
    #[schemars(with = "Option<String>")]
    pub session: Option<SessionId>,
    /// The name of the session; empty if it was not created.
    pub name: String,
    /// `done`; `failed`, at a call or an annotation; `not_started`, because it could not be created; or `cancelled`.
    pub status: String,
    /// The reason if it is not done; the reason if its merge failed.
    pub reason: Option<String>,
    /// The calls that ended, in order.
    pub calls: Vec<DispatchedCall>,
    /// At most 1,000 paths that its calls changed, sorted.
    #[schemars(with = "Vec<String>")]
    pub changed: Vec<EntryPath>,
    /// True if its calls changed more paths.
    pub more: bool,
    /// `merged`, `nothing` if there was nothing to merge, `conflicted` or `failed`; null if it was not to be merged.
    pub merge: Option<String>,
    /// The paths in conflict, at most 1,000.
    #[schemars(with = "Vec<String>")]
    pub conflicts: Vec<EntryPath>,
}

/// A call of a child, and its outcome.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct DispatchedCall {
    /// The position of its intent in the child's session.
    pub call: Seq,
    /// The tool.
    pub tool: String,
    /// `ok`, `error` or `interrupted`.
    #[schemars(with = "String")]
    pub status: CallStatus,
    /// The exit code in its result.
    pub exit_code: Option<i64>,
    /// True if the call failed, or its command did.
    pub failed: bool,
    /// The result or the error, as text for a model, cut at 4 KiB; shorter in batches of more than 1,024 calls.
    pub text: String,
    /// Its duration in microseconds.
    pub micros: u64,
}

impl Operation for Dispatch {
    const NAME: &'static str = "dispatch_subagents";
    const ROUTE: Option<OperationRoute> = OperationRoute::post("children", "/v1/sessions/{session}/subagents", 200);
    const TOOL: Option<OperationTool> = Some(
        OperationTool::new(
            "dispatch_subagents",
            OperationEffect::Runs,
            TooLong::Cut("session_log of a child shows its calls"),
        )
        .hiding(&["allow", "deny", "auto_confirm"]),
    );
    type Output = Dispatched;

    async fn run(self, context: &OperationContext<'_>) -> Result<Dispatched, OperationError> {
        self.check(context)?;
        let rules = rules_of_batch(context, self.auto_confirm, &self.allow, &self.deny)?;
        let options = Subagents {
            parallel: self.parallel,
            merge: self.merge.then(|| MergeChoices::of_texts(&self.ours, &self.theirs)).transpose()?,
            cancel: context.cancel.clone(),
        };
        let parent = context.open().await?.with_shell_rules(rules);
        let (looked, children) = (parent.session().clone(), Arc::new(self.children));
        let batch = {
            let children = Arc::clone(&children);
            reading(move || children.iter().map(|child| child.subagent(&looked)).collect::<Result<Vec<_>, _>>()).await?
        };
        let calls: usize = children.iter().map(|child| child.calls.len()).sum();
        let done: Arc<Vec<Mutex<Vec<DispatchedCall>>>> = Arc::new(children.iter().map(|_| Mutex::default()).collect());
        let (seen, progress) = (Arc::clone(&done), context.progress.clone());
        let work = move |open: OpenSession, child: ChildContext| {
            let new = children[child.number].clone();
            let work = ChildWork {
                annotations: new.annotations,
                calls: new.calls,
                go_on: new.go_on,
                text_max: text_max(calls),
                progress: progress.clone(),
            };
            let seen = Arc::clone(&seen);
            async move { work.run(&open, &child.cancel, &seen[child.number]).await.map(|()| Value::Null) }
        };
        let hub = context.hub_within(Vec::new()).await?;
        let (lead, sessions) = (parent.session().id(), hub.sessions().clone());
        let results = hub.dispatch(parent, batch, options, work).await?;
        reading(move || {
            let children = results.into_iter().zip(&*done).map(|(result, calls)| {
                let calls = std::mem::take(&mut *lock(calls));
                let session = result.session.map(|id| sessions.session(id)).transpose()?;
                dispatched(result, calls, session.as_ref(), lead)
            });
            Ok(Dispatched { children: children.collect::<Result<_, _>>()? })
        })
        .await
    }

    fn is_well(dispatched: &Dispatched) -> bool {
        let is_well = |child: &DispatchedChild| {
            child.status == "done" && !matches!(child.merge.as_deref(), Some("conflicted" | "failed"))
        };
        dispatched.children.iter().all(is_well)
    }
}

impl Dispatch {
    fn check(&self, context: &OperationContext<'_>) -> Result<(), OperationError> {
        let out_of = |what: &str, count: usize, least: usize, most: usize| match (least..=most).contains(&count) {
            true => Ok(()),
            false => Err(OperationError::invalid(format!("{count} {what}; the limits are {least} and {most}"))),
        };
        out_of("children", self.children.len(), 1, CHILDREN)?;
        out_of("children at the same time", self.parallel, 1, PARALLEL)?;
        out_of("calls", self.children.iter().map(|child| child.calls.len()).sum(), 0, CALLS)?;
        let has_sides = !self.ours.is_empty() || !self.theirs.is_empty();
        if has_sides && !self.merge {
            return Err(OperationError::invalid("`ours` and `theirs` need `merge`"));
        }
        for (number, child) in self.children.iter().enumerate() {
            child.check(context).map_err(|error| OperationError::invalid(format!("children[{number}]: {error}")))?;
        }
        Ok(())
    }
}

impl NewSubagent {
    fn check(&self, context: &OperationContext<'_>) -> Result<(), OperationError> {
        let agent = self.agent.as_deref().unwrap_or_default();
        check_child(self.isolation, agent, self.name.is_some(), self.at.is_some())?;
        check_tools(&context.hub.options().tools, self.limits.tools.iter().flatten())?;
        self.annotations.iter().try_for_each(Annotate::check)?;
        self.calls.iter().try_for_each(|call| call.check(context))
    }

    fn subagent(&self, parent: &Session) -> Result<Subagent, OperationError> {
        let at = landing(self.at.as_ref(), parent)?.0;
        let (name, agent) = (self.name.clone(), self.agent.clone().unwrap_or_default());
        let child = ForkOptions { at, name, agent, limits: self.limits.clone(), ..ForkOptions::new(self.isolation) };
        Ok(Subagent { child, task: Value::Null })
    }
}

impl SubagentCall {
    pub(super) fn made(self, cancel: &CancellationToken) -> ToolCall {
        let mut made = ToolCall::new(self.tool, Value::Object(self.params));
        (made.cancel, made.limit) = (cancel.clone(), self.timeout_seconds.map(Duration::from_secs_f64));
        made
    }

    pub(super) fn check(&self, context: &OperationContext<'_>) -> Result<(), OperationError> {
        if !context.caller.offers(&self.tool) {
            return Err(OperationError::invalid(format!("tool {} is not offered to this client", self.tool)));
        }
        match self.timeout_seconds.filter(|seconds| !SECONDS.contains(seconds)) {
            Some(wrong) => {
                Err(OperationError::invalid(format!("timeout_seconds is {wrong}; it must be from 0.1 to 86400")))
            }
            None => Ok(()),
        }
    }
}

/// Returns the rules for the calls of a batch, without an approver.
pub(super) fn rules_of_batch(
    context: &OperationContext<'_>,
    auto_confirm: bool,
    allow: &[String],
    deny: &[String],
) -> Result<ShellRules, OperationError> {
    let mut rules = ShellRules { asker: None, advice: Some(ADVICE.into()), ..context.caller.rules().clone() };
    rules.policy.auto_confirm |= auto_confirm;
    rules.policy.allow.extend(allow.iter().cloned());
    for words in deny {
        rules.policy.deny.push(DenyRule::words(words)?);
    }
    Ok(rules)
}

/// Returns the bytes that each call of a batch may return as text.
pub(super) fn text_max(calls: usize) -> usize {
    (TEXTS.0 / calls.max(1)).min(TEXTS.1)
}

/// The work of a child.
pub(super) struct ChildWork {
    pub(super) annotations: Vec<Annotate>,
    pub(super) calls: Vec<SubagentCall>,
    pub(super) go_on: bool,
    pub(super) text_max: usize,
    pub(super) progress: Option<mpsc::UnboundedSender<String>>,
}

impl ChildWork {
    pub(super) async fn run(
        self,
        open: &OpenSession,
        cancel: &CancellationToken,
        done: &Mutex<Vec<DispatchedCall>>,
    ) -> Result<(), String> {
        let (session, annotations) = (open.session().clone(), self.annotations);
        let annotate = move || annotations.into_iter().try_for_each(|one| one.record(&session).map(drop));
        let annotated = blocking(annotate).await.map_err(OperationError::from).flatten();
        annotated.map_err(|error| format!("failed to annotate: {error}"))?;
        for (number, call) in (1..).zip(self.calls) {
            let made = call.made(cancel);
            let tool = made.tool.clone();
            let ended = open.call(made).await.map_err(|error| format!("call {number} ({tool}): {error}"))?;
            let ended = call_of(tool, ended, self.text_max);
            let (failed, word) = (ended.failed, if ended.failed { "failed" } else { "ok" });
            let line = format!("{}: call {number}, {} {word}", open.session().name(), one_line(&ended.tool, 80));
            let reason = format!("call {number} ({}) failed: {}", ended.tool, why(&ended));
            lock(done).push(ended);
            // The receiver may be gone.
            self.progress.iter().for_each(|progress| drop(progress.send(line.clone())));
            if failed && !self.go_on {
                return Err(reason);
            }
        }
        Ok(())
    }
}

pub(super) fn call_of(tool: String, ended: ToolOutcome, text_max: usize) -> DispatchedCall {
    let exit_code = ended.result["exit_code"].as_i64();
    let failed = !ended.is_ok() || exit_code.is_some_and(|code| code != 0) || ended.result["timed_out"] == true;
    let ToolOutcome { call, status, mut text, micros, .. } = ended;
    text.truncate(text.floor_char_boundary(text_max));
    DispatchedCall { call, tool, status, exit_code, failed, text, micros }
}

fn why(call: &DispatchedCall) -> String {
    match call.exit_code.filter(|code| *code != 0) {
        Some(code) => format!("exit {code}"),
        None => one_line(&call.text, REASON),
    }
}

fn dispatched(
    result: SubagentResult,
    calls: Vec<DispatchedCall>,
    session: Option<&Session>,
    parent: SessionId,
) -> Result<DispatchedChild, OperationError> {
    let (status, mut reason) = match result.outcome {
        SubagentOutcome::Done { .. } => ("done", None),
        SubagentOutcome::Failed { reason } | SubagentOutcome::Panicked { reason } => ("failed", Some(reason)),
        SubagentOutcome::NotStarted { reason } => ("not_started", Some(reason)),
        SubagentOutcome::Cancelled => ("cancelled", None),
    };
    let (merge, conflicts) = match result.merge {
        None => (None, Vec::new()),
        Some(Err(error)) => {
            reason = Some(error);
            (Some("failed"), Vec::new())
        }
        Some(Ok(report)) => match report.outcome {
            MergeOutcome::Nothing => (Some("nothing"), Vec::new()),
            MergeOutcome::Merged => (Some("merged"), Vec::new()),
            MergeOutcome::Conflicted => (Some("conflicted"), report.conflicts),
        },
    };
    let (changed, more) = match session {
        Some(session) => changed_paths(session, &calls, session.id() == parent)?,
        None => Default::default(),
    };
    Ok(DispatchedChild {
        session: result.session,
        name: result.name,
        status: status.to_owned(),
        reason,
        calls,
        changed,
        more,
        merge: merge.map(str::to_owned),
        conflicts: conflicts.into_iter().take(PATHS).map(|conflict| conflict.path).collect(),
    })
}

/// Returns the paths that a child's calls changed, and true if there are more. A shared child's calls are among others.
pub(super) fn changed_paths(
    session: &Session,
    calls: &[DispatchedCall],
    is_shared: bool,
) -> Result<(Vec<EntryPath>, bool), SessionError> {
    let own: BTreeSet<Seq> = calls.iter().map(|call| call.call).collect();
    let inherited = session.origin().filter(|origin| origin.isolation == Isolation::Fork).map_or(0, |origin| origin.at);
    let from = if is_shared { own.first().copied().unwrap_or(Seq::MAX) } else { inherited + 1 };
    let (mut paths, mut more) = (BTreeSet::new(), false);
    session.visit(from, &mut |event| {
        if event.call.is_some_and(|call| !is_shared || own.contains(&call)) {
            paths.extend(path_of(event));
        }
        more = paths.len() > PATHS;
        if more { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok((paths.into_iter().take(PATHS).collect(), more))
}
