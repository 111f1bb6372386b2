//! Rollouts: scored runs in forks of a session.

use std::cmp::Ordering;
use std::sync::{Arc, Mutex};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::annotate::Annotate;
use super::dispatch::{ChildWork, call_of, changed_paths, rules_of_batch, text_max};
use super::{
    DispatchedCall, ForkSession, Operation, OperationContext, OperationError, OperationRoute, SubagentCall, reading,
};
use crate::engine::event::ChildLimits;
use crate::engine::id::SessionId;
use crate::engine::lock::lock;
use crate::engine::path::EntryPath;
use crate::engine::session::Session;
use crate::hub::{Hub, joined};
use crate::reducers::ToolPolicy;
use crate::tools::ShellRules;
use crate::view::Position;

const PARALLEL_MAX: usize = 64;
const CALLS_MAX: usize = 10_000;

/// Forks a session at one position and makes calls in each fork, several forks at a time. Scores each fork, records the
/// score as its annotation `score`, and removes all but the best. Cancelling the request cancels all rollouts.
///
/// A client that accepts a stream of events gets each rollout as an event `result` when it ends.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "RolloutsRequest")]
#[serde(deny_unknown_fields)]
pub struct Rollouts {
    /// The calls to make: one list for all rollouts, or a list for each. A rollout fails at its first failed call, or
    /// at a command that exits non-zero or times out.
    pub run: Vec<Vec<SubagentCall>>,
    /// The number of rollouts, from 1 to 1,000; by default the number of lists in `run`.
    #[schemars(range(min = 1, max = 1000))]
    pub count: Option<u32>,
    /// The position to fork at; the current state by default.
    pub at: Option<Position>,
    /// A command that prints the score as the last line of its output. It runs after the calls, even if one failed. By
    /// default the score is 1 if all calls succeeded, and 0 otherwise.
    pub score: Option<SubagentCall>,
    /// The number of best rollouts to keep; all by default. The sessions of the others are removed.
    pub keep: Option<usize>,
    /// The number of rollouts that work at the same time, from 1 to 64; 4 by default.
    #[serde(default = "usual")]
    #[schemars(range(min = 1, max = 64))]
    pub parallel: usize,
    /// True for forks of a session on the host with their files in mounts. The server must be root.
    #[serde(default)]
    pub mount: bool,
    /// Name prefix; the forks are numbered from 1. Default: the session's name and free numbers.
    pub name: Option<String>,
    /// The agent who works in the forks.
    pub agent: Option<String>,
    /// Limits of each fork: `calls`, `wall_millis`, `bytes_written`, `depth`, `tools`, `deny`.
    #[serde(default)]
    #[schemars(with = "Map<String, Value>")]
    pub limits: ChildLimits,
    /// A policy for tools that binds each fork, in addition to the session's.
    pub policy: Option<ToolPolicy>,
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

/// The rollouts of a session.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct RolloutsDocument {
    /// The rollouts, in the order of `run`.
    pub rollouts: Vec<RolloutDocument>,
}

/// A rollout.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Rollout")]
pub struct RolloutDocument {
    /// Its number, from 0.
    pub number: usize,
    /// The fork.
    #[schemars(with = "String")]
    pub session: SessionId,
    /// The fork's name.
    pub name: String,
    /// `done`, `failed` or `cancelled`.
    pub status: String,
    /// The reason for a failure or a missing score.
    pub reason: Option<String>,
    /// The calls that ended, in order; the score's call last.
    pub calls: Vec<DispatchedCall>,
    /// At most 1,000 paths that its calls changed, sorted.
    #[schemars(with = "Vec<String>")]
    pub changed: Vec<EntryPath>,
    /// True if its calls changed more paths.
    pub more: bool,
    /// The score.
    pub score: Option<f64>,
    /// False if the fork was removed. In an event `result` it may still become false.
    pub kept: bool,
}

impl Operation for Rollouts {
    const NAME: &'static str = "rollouts";
    const ROUTE: Option<OperationRoute> = OperationRoute::post("children", "/v1/sessions/{session}/rollouts", 200);
    type Output = RolloutsDocument;

    async fn run(self, context: &OperationContext<'_>) -> Result<RolloutsDocument, OperationError> {
        let count = self.check(context)?;
        let rules = rules_of_batch(context, self.auto_confirm, &self.allow, &self.deny)?;
        let calls = self.run.iter().map(|calls| calls.len() + 1).sum::<usize>() * count.div_ceil(self.run.len());
        let forks = ForkSession {
            count: u32::try_from(count).unwrap_or(u32::MAX),
            at: self.at,
            mount: self.mount,
            name: self.name,
            agent: self.agent.clone(),
            limits: self.limits,
            policy: self.policy,
            create_id: None,
        };
        let (_, forks, _) = forks.begin(context).await?;
        let batch = Arc::new(RolloutBatch {
            hub: context.hub.clone(),
            run: self.run,
            score: self.score,
            rules,
            text_max: text_max(calls),
            cancel: context.cancel.clone(),
            progress: context.progress.clone(),
        });
        let places = Arc::new(Semaphore::new(self.parallel));
        let mut working = JoinSet::new();
        for (number, fork) in forks.into_iter().enumerate() {
            let (batch, places) = (Arc::clone(&batch), Arc::clone(&places));
            working.spawn(async move {
                // It is never closed.
                let _place = places.acquire_owned().await;
                batch.rollout(number, fork).await
            });
        }
        let mut ended: Vec<RolloutDocument> = Vec::with_capacity(count);
        while let Some(rollout) = working.join_next().await {
            ended.push(joined(rollout)??);
            let last = batch.drop_worst(&mut ended, self.keep).await;
            // The receiver may be gone.
            let told = last.and_then(|last| serde_json::to_value(last).ok());
            context.results.iter().zip(told).for_each(|(results, told)| drop(results.send(told)));
        }
        ended.sort_by_key(|rollout| rollout.number);
        Ok(RolloutsDocument { rollouts: ended })
    }

    fn is_well(output: &RolloutsDocument) -> bool {
        output.rollouts.iter().all(|rollout| rollout.status == "done")
    }
}

impl Rollouts {
    /// Checks the parameters and returns the number of rollouts.
    fn check(&self, context: &OperationContext<'_>) -> Result<usize, OperationError> {
        let lists = self.run.len();
        let count = self.count.map_or(lists, |count| count as usize);
        if lists == 0 || (lists != 1 && lists != count) {
            let what = format!("`run` has {lists} lists of calls for {count} rollouts; it needs 1 or {count}");
            return Err(OperationError::invalid(what));
        }
        if !(1..=PARALLEL_MAX).contains(&self.parallel) {
            let what = format!("parallel is {}; it must be from 1 to {PARALLEL_MAX}", self.parallel);
            return Err(OperationError::invalid(what));
        }
        let calls = self.run.iter().map(Vec::len).sum::<usize>() * if lists == 1 { count } else { 1 };
        if calls > CALLS_MAX {
            return Err(OperationError::invalid(format!("{calls} calls; the limit is {CALLS_MAX} for all rollouts")));
        }
        self.run.iter().flatten().chain(&self.score).try_for_each(|call| call.check(context))?;
        Ok(count)
    }
}

/// The state that the rollouts of a request share.
struct RolloutBatch {
    hub: Hub,
    run: Vec<Vec<SubagentCall>>,
    score: Option<SubagentCall>,
    rules: ShellRules,
    text_max: usize,
    cancel: CancellationToken,
    progress: Option<mpsc::UnboundedSender<String>>,
}

impl RolloutBatch {
    async fn rollout(&self, number: usize, fork: Session) -> Result<RolloutDocument, OperationError> {
        let done = Mutex::default();
        let (worked, score) = match self.cancel.is_cancelled() {
            true => (Err("cancelled".to_owned()), Ok(None)),
            false => self.work(number, &fork, &done).await,
        };
        self.hub.close_if_unused(fork.id()).await;
        let calls = std::mem::take(&mut *lock(&done));
        let status = match &worked {
            _ if self.cancel.is_cancelled() => "cancelled",
            Ok(()) => "done",
            Err(_) => "failed",
        };
        let (score, unscored) = score.map_or_else(|why| (None, Some(why)), |score| (score, None));
        let looked = fork.clone();
        let (calls, changed, more) = reading(move || {
            if let Some(score) = score {
                let (name, score) = ("score".to_owned(), Some(score));
                let annotation =
                    Annotate { name, at: None, score, note: None, value: Value::Null, agent: None, call_id: None };
                annotation.record(&looked)?;
            }
            let (changed, more) = changed_paths(&looked, &calls, false)?;
            Ok((calls, changed, more))
        })
        .await?;
        let (session, name, reason) = (fork.id(), fork.name().to_owned(), worked.err().or(unscored));
        let status = status.to_owned();
        Ok(RolloutDocument { number, session, name, status, reason, calls, changed, more, score, kept: true })
    }

    /// Makes the calls of a rollout, and its score's.
    async fn work(
        &self,
        number: usize,
        fork: &Session,
        done: &Mutex<Vec<DispatchedCall>>,
    ) -> (Result<(), String>, Result<Option<f64>, String>) {
        let open = match self.hub.open(fork.id()).await {
            Ok(open) => open.as_agent(fork.agent()).with_shell_rules(self.rules.clone()),
            Err(error) => return (Err(error.to_string()), Ok(None)),
        };
        let calls = self.run.get(number).or(self.run.first()).cloned().unwrap_or_default();
        let (text_max, progress) = (self.text_max, self.progress.clone());
        let work = ChildWork { annotations: Vec::new(), calls, go_on: false, text_max, progress };
        let worked = work.run(&open, &self.cancel, done).await;
        let Some(score) = self.score.clone() else {
            let score = if worked.is_ok() { 1.0 } else { 0.0 };
            return (worked, Ok((!self.cancel.is_cancelled()).then_some(score)));
        };
        let tool = score.tool.clone();
        let scored = match open.call(score.made(&self.cancel)).await {
            Ok(ended) => {
                let printed = ended.result["stdout"].as_str().and_then(last_number);
                let ended = call_of(tool, ended, self.text_max);
                let shown = crate::view::one_line(&ended.text, 200);
                lock(done).push(ended);
                printed.map(Some).ok_or_else(|| format!("the score's last line is no number: {shown}"))
            }
            Err(error) => Err(format!("the score's call: {error}")),
        };
        (worked, scored)
    }

    /// Removes the worst of the rollouts that stay, if they are too many. Returns the last one.
    async fn drop_worst<'a>(
        &self,
        ended: &'a mut [RolloutDocument],
        keep: Option<usize>,
    ) -> Option<&'a RolloutDocument> {
        let kept = ended.iter().filter(|rollout| rollout.kept).count();
        if keep.is_some_and(|keep| kept > keep)
            && let Some(worst) = ended.iter_mut().filter(|rollout| rollout.kept).min_by(|a, b| by_score(a, b))
        {
            match self.hub.remove(worst.session).await {
                Ok(()) => worst.kept = false,
                Err(error) => tracing::warn!(%error, "failed to remove a rollout"),
            }
        }
        ended.last()
    }
}

/// Orders rollouts by their scores; of equal ones the first is the better.
fn by_score(a: &RolloutDocument, b: &RolloutDocument) -> Ordering {
    let score = |rollout: &RolloutDocument| rollout.score.unwrap_or(f64::NEG_INFINITY);
    score(a).total_cmp(&score(b)).then(b.number.cmp(&a.number))
}

fn last_number(output: &str) -> Option<f64> {
    output.trim_end().lines().last()?.trim().parse().ok().filter(|score: &f64| score.is_finite())
}
