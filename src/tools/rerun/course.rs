//! Steps of a rerun, and their execution in order.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::RerunReport;
use super::compare::{Divergence, RunComparison};
use super::effects::go_offline;
use super::foreign::{ForeignRun, OwnCall};
use super::past::{PastRun, RecordedCall, RerunStep, ScriptedCall};
use super::rules::NormalRules;
use super::session::RerunSession;
use crate::backends::{Workspace, WorkspaceSpec};
use crate::engine::event::{CallStatus, PolicyDecision, REVERT_TOOL, UNDO_TOOL};
use crate::engine::id::Seq;
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::reducers::{Allowances, OnFailure};
use crate::tools::builtin::execute_script::ScriptTool;
use crate::tools::builtin::files::TEXT_MAX;
use crate::tools::builtin::processes::PROCESS_TOOLS;
use crate::tools::builtin::shell_execute::ShellTool;
use crate::tools::builtin::unrunnable::unrunnable;
use crate::tools::call::file_work::FileWork;
use crate::tools::call::tool::Tool;
use crate::tools::call::tool_call::{ToolCall, ToolOutcome};
use crate::tools::call::tool_runner::{END_PROCESS, ToolRunner};
use crate::tools::call::toolset::Tools;
use crate::tools::error::WorkspaceError;
use crate::tools::policy::rules::ShellRules;

/// One call of a rerun.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CallReport {
    /// The call in the recorded session; `None` for a scripted call.
    pub call: Option<Seq>,
    /// The call in the fresh session; `None` if it was not made.
    pub rerun: Option<Seq>,
    /// The tool.
    pub tool: String,
    /// Agent that made it.
    pub agent: Arc<str>,
    /// Its parameters.
    pub params: Value,
    /// Verdict on the call.
    #[serde(flatten)]
    pub verdict: CallVerdict,
}

/// Verdict on a rerun call.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "verdict", rename_all = "lowercase")]
pub enum CallVerdict {
    /// Equal to the recording.
    Same,
    /// Different from the recording.
    Diverged {
        /// Every difference.
        divergences: Vec<Divergence>,
    },
    /// Not rerun; its recorded changes of the files were applied.
    Skipped {
        /// Reason.
        reason: String,
    },
    /// A scripted call, without a recording to compare with.
    Made {
        /// Outcome of the call.
        outcome: ToolOutcome,
    },
}

impl CallReport {
    pub(super) fn of(was: Option<&RecordedCall>, is: Option<&RecordedCall>, verdict: CallVerdict) -> Self {
        let shown = is.or(was);
        Self {
            call: was.map(|call| call.call),
            rerun: is.map(|call| call.call),
            tool: shown.map(|call| call.tool.clone()).unwrap_or_default(),
            agent: shown.map_or_else(|| Arc::from(""), |call| Arc::clone(&call.agent)),
            params: shown.map(|call| call.params.clone()).unwrap_or_default(),
            verdict,
        }
    }
}

impl CallVerdict {
    pub(super) fn of(divergences: Vec<Divergence>) -> Self {
        if divergences.is_empty() { Self::Same } else { Self::Diverged { divergences } }
    }
}

/// Callback for each call of a rerun.
pub type CallWatch<'a> = &'a mut (dyn FnMut(&CallReport) + Send);

/// Workspace for a rerun: a new session with an empty workspace. For a [`WhatIf`](super::WhatIf) it may be a fork of
/// the recorded session at its position, which then is part of its lineage.
pub struct RerunWorkspace {
    /// Session. It must have only its first event, and its parent's history.
    pub session: Session,
    /// Its workspace, which must be empty.
    pub workspace: Arc<dyn Workspace>,
    /// The tools. A call of any other tool fails.
    pub tools: Arc<Tools>,
    /// Rules for commands. If approval is needed, the recorded answer to the same question counts; without one the
    /// rules' own approver decides. Without a sandbox recorded approvals don't count, since a history may come from
    /// anywhere. Allowances of the recorded session don't apply.
    pub rules: ShellRules,
    /// Ends the rerun between two calls, and cancels the call in flight.
    pub cancel: CancellationToken,
}

pub(super) struct Course<'a> {
    pub(super) past: &'a PastRun,
    /// The event that the initial files follow.
    pub(super) start: Seq,
    pub(super) steps: Vec<RerunStep>,
    /// True to replay recorded HTTP responses.
    pub(super) offline: bool,
    /// The position to compare the final files with.
    pub(super) end: Seq,
    pub(super) rules: &'a NormalRules,
    /// The session to take the initial files from, instead of the recorded session.
    pub(super) base: Option<&'a PastRun>,
}

impl Course<'_> {
    pub(super) async fn run(&self, fresh: RerunWorkspace, watch: CallWatch<'_>) -> Result<RerunReport, WorkspaceError> {
        let RerunWorkspace { session, workspace, tools, rules, cancel } = fresh;
        let mut place = RerunSession::new(self.past, self.start, session.clone(), workspace, tools, rules)?;
        place.begin(self.base)?;
        if self.offline {
            go_offline(self.past, self.start, place.tool_runner.workspace().as_ref())?;
        }
        let is = PastRun::of(&session);
        let transcripts: Vec<&ForeignRun> = self.steps.iter().filter_map(RerunStep::transcript).collect();
        let directories: BTreeSet<&String> = transcripts.iter().filter_map(|run| run.directory.as_ref()).collect();
        let root = place.tool_runner.workspace().root().into_iter().chain(directories.iter().copied().cloned());
        let rules = self.rules.clone().with_roots(directories.iter().copied().cloned());
        let comparison = RunComparison::between(self.past, &is, &rules, &root.collect::<Vec<_>>());
        let is_partial = !transcripts.is_empty();
        let mut report = RerunReport { start: self.start, end: self.end, is_partial, ..RerunReport::default() };
        for step in &self.steps {
            if cancel.is_cancelled() {
                report.interrupted = true;
                break;
            }
            let made = match step {
                RerunStep::Outside(outside) => {
                    place.apply(outside)?;
                    continue;
                }
                RerunStep::Scripted(call) => self.scripted(&mut place, call, &cancel).await?,
                RerunStep::Recorded(call) => self.recorded(&mut place, &comparison, call, &cancel).await?,
            };
            watch(&made);
            report.calls.push(made);
        }
        place.tool_runner.close()?;
        if !report.interrupted && !is_partial {
            report.files = comparison.files(self.end, session.head()?)?;
        }
        report.environment = comparison.environment((self.start, self.end), session.head()?)?;
        report.missing = place.missing.into_iter().collect();
        Ok(report)
    }

    async fn scripted(
        &self,
        place: &mut RerunSession<'_>,
        call: &ScriptedCall,
        cancel: &CancellationToken,
    ) -> Result<CallReport, SessionError> {
        place.answers.hold(Vec::new());
        let tool_runner = place.under(&self.past.limits())?;
        let outcome = make(&tool_runner, (&call.tool, &call.params), &call.agent, OnFailure::Keep, cancel).await?;
        Ok(CallReport {
            call: None,
            rerun: Some(outcome.call),
            tool: call.tool.clone(),
            agent: call.agent.as_str().into(),
            params: call.params.clone(),
            verdict: CallVerdict::Made { outcome },
        })
    }

    async fn recorded(
        &self,
        place: &mut RerunSession<'_>,
        comparison: &RunComparison<'_>,
        call: &RecordedCall,
        cancel: &CancellationToken,
    ) -> Result<CallReport, WorkspaceError> {
        if let Some(reason) = skipped_because(call) {
            place.apply(&call.changes)?;
            return Ok(CallReport::of(Some(call), None, CallVerdict::Skipped { reason: reason.to_owned() }));
        }
        if let Some(run) = &call.foreign {
            return self.foreign(place, comparison, (call, run), cancel).await;
        }
        place.answers.hold(call.decisions.clone());
        let mut tool_runner = place.under(&call.limits)?;
        if had_long_text(call) {
            let rules = ShellRules::clone(&tool_runner.machine().rules);
            tool_runner = tool_runner.with_shell_rules(ShellRules { text_chars: Some(usize::MAX), ..rules });
        }
        let was_undone = call.outcome.as_ref().is_some_and(|(_, end)| end.result["undone"].is_u64());
        let on_failure = if was_undone { OnFailure::Undo } else { OnFailure::Keep };
        let outcome = make(&tool_runner, (&call.tool, &call.params), &call.agent, on_failure, cancel).await?;
        let again = comparison.is.ended_call(outcome.call, outcome.finished)?;
        let divergences = again.map_or(Ok(Vec::new()), |again| comparison.calls(call, &again))?;
        let report = CallReport::of(Some(call), None, CallVerdict::of(divergences));
        Ok(CallReport { rerun: Some(outcome.call), ..report })
    }

    /// Makes a call of another program with the tools available here. If the call can't be made, writes the files that
    /// the transcript states, so that later calls find them.
    async fn foreign(
        &self,
        place: &mut RerunSession<'_>,
        comparison: &RunComparison<'_>,
        (call, run): (&RecordedCall, &ForeignRun),
        cancel: &CancellationToken,
    ) -> Result<CallReport, WorkspaceError> {
        let read = |path: &_| comparison.is.text(path);
        let end = call.outcome.as_ref().map(|(_, end)| end);
        let own = run.own_calls((&call.tool, &call.params), end, &read, place.most);
        let own = own.and_then(|own| if own.is_empty() { Err("it does nothing".to_owned()) } else { Ok(own) });
        let own = match own {
            Ok(own) => own,
            Err(reason) => {
                place.apply(&call.changes)?;
                return Ok(CallReport::of(Some(call), None, CallVerdict::Skipped { reason }));
            }
        };
        place.answers.hold(call.decisions.clone());
        let tool_runner = place.under(&call.limits)?;
        let (mut first, mut divergences) = (None, Vec::new());
        let count = own.len();
        for (number, OwnCall { tool, params }) in own.into_iter().enumerate() {
            let outcome = make(&tool_runner, (tool, &params), &call.agent, OnFailure::Keep, cancel).await?;
            first.get_or_insert(outcome.call);
            let has_failed = outcome.status != CallStatus::Ok;
            if has_failed {
                place.apply(&call.changes)?;
            }
            if has_failed || number + 1 == count {
                let again = comparison.is.ended_call(outcome.call, outcome.finished)?;
                divergences = again.map_or(Ok(Vec::new()), |again| comparison.foreign(call, &again))?;
                break;
            }
        }
        let report = CallReport::of(Some(call), None, CallVerdict::of(divergences));
        Ok(CallReport { rerun: first, ..report })
    }
}

/// Checks that the recorded commands can run in a workspace, with these rules.
pub(super) fn check_commands(
    steps: &[RerunStep],
    spec: &WorkspaceSpec,
    rules: &ShellRules,
) -> Result<(), WorkspaceError> {
    for call in steps.iter().filter_map(RerunStep::call).filter(|call| skipped_because(call).is_none()) {
        // Recorded approvals count only in a sandbox.
        let everything = call.foreign.is_none() && !matches!(spec, WorkspaceSpec::Host(_));
        let allowed = Allowances { everything, ..Allowances::default() };
        let end = call.outcome.as_ref().map(|(_, end)| end);
        let own = match &call.foreign {
            Some(run) => run.own_calls((&call.tool, &call.params), end, &|_| None, rules.time.most()),
            None => Ok(Vec::new()),
        };
        let own = own.unwrap_or_default();
        // A command that did not run in the recording does not run again.
        let ran = call.decisions.iter().any(|decided| decided.decision == PolicyDecision::Allow);
        let made = own.iter().map(|own| (own.tool, &own.params)).chain(ran.then_some((&*call.tool, &call.params)));
        for made in made {
            if let Some(why) = unrunnable(made, spec, rules, &allowed) {
                return Err(WorkspaceError::CantRerun { call: call.call, why });
            }
        }
    }
    Ok(())
}

/// Returns true if a text among the parameters was allowed to be longer than usual.
fn had_long_text(call: &RecordedCall) -> bool {
    let texts = || call.params.as_object().into_iter().flat_map(Map::values).filter_map(Value::as_str);
    call.outcome.as_ref().is_some_and(|(_, end)| end.status == CallStatus::Ok)
        && texts().any(|text| text.len() > TEXT_MAX)
}

fn skipped_because(call: &RecordedCall) -> Option<&'static str> {
    let over = call.was_over_limits().then_some("a limit of the session was used up");
    let is_command = [ShellTool::NAME, ScriptTool::NAME].contains(&&*call.tool);
    let was_left = is_command && call.outcome.as_ref().is_some_and(|(_, end)| end.result["process"].is_u64());
    let left = was_left.then_some("its command ran on in the background");
    call.obstacle().or(over).or(beside_tools(&call.tool)).or(left)
}

/// Returns the reason to skip a client's action that was not a call of a tool, or concerned a background process.
fn beside_tools(tool: &str) -> Option<&'static str> {
    match tool {
        // `start_process` in older histories.
        "start_process" | END_PROCESS => Some("it ran in the background"),
        tool if PROCESS_TOOLS.contains(&tool) => Some("it ran in the background"),
        UNDO_TOOL | REVERT_TOOL => Some("it undid other changes"),
        tool => FileWork::is_name(tool).then_some("a client changed the files directly"),
    }
}

async fn make(
    tool_runner: &ToolRunner,
    (tool, params): (&str, &Value),
    agent: &str,
    on_failure: OnFailure,
    cancel: &CancellationToken,
) -> Result<ToolOutcome, SessionError> {
    let mut call = ToolCall::new(tool, params.clone());
    call.cancel = cancel.child_token();
    call.on_failure = on_failure;
    tool_runner.as_agent(agent).call(call).await
}
