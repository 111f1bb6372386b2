//! Rerun with other calls.

use std::collections::BTreeSet;

use super::RerunReport;
use super::course::{CallWatch, Course, RerunWorkspace, check_commands};
use super::effects::repeated;
use super::past::{PastRun, RerunStep, ScriptedCall};
use super::rules::NormalRules;
use crate::backends::WorkspaceSpec;
use crate::engine::id::Seq;
use crate::engine::session::Session;
use crate::reducers::EffectEntry;
use crate::tools::error::WorkspaceError;
use crate::tools::policy::rules::ShellRules;

/// Run of other calls from a position on, then of the recorded calls that followed, in a fresh session. It compares the
/// rerun calls and the final files with the recording.
///
/// It begins with the files, and the slices that are state, at the position. A call in flight there is not rerun; its
/// changes until then stay. Recorded calls may be replaced; the script then runs in place of the first replaced call,
/// else at the beginning. As with [`Rerun`](super::Rerun), the recorded session is only read.
#[derive(Debug, Clone)]
pub struct WhatIf {
    past: PastRun,
    at: Seq,
    script: Vec<ScriptedCall>,
    replaced: BTreeSet<Seq>,
    offline: bool,
    rules: NormalRules,
}

impl WhatIf {
    /// Runs these calls from the position on, then all recorded calls that followed.
    pub fn of(session: &Session, at: Seq, script: Vec<ScriptedCall>) -> Self {
        let past = PastRun::of(session);
        Self { past, at, script, replaced: BTreeSet::new(), offline: false, rules: NormalRules::default() }
    }

    /// Omits these recorded calls, given by their ids.
    #[must_use]
    pub fn replacing(mut self, calls: impl IntoIterator<Item = Seq>) -> Self {
        self.replaced.extend(calls);
        self
    }

    /// Replays recorded HTTP responses, like [`Rerun::offline`].
    ///
    /// [`Rerun::offline`]: super::Rerun::offline
    #[must_use]
    pub fn offline(mut self) -> Self {
        self.offline = true;
        self
    }

    /// Sets the rules of the comparison.
    #[must_use]
    pub fn with_rules(mut self, rules: NormalRules) -> Self {
        self.rules = rules;
        self
    }

    /// Checks that the command of each recorded call that is not replaced can run, like [`Rerun::check`].
    ///
    /// [`Rerun::check`]: super::Rerun::check
    ///
    /// # Errors
    /// [`WorkspaceError::CantRerun`] for the first call that can't run; [`WorkspaceError::NotOffline`] if it is offline and
    /// the workspace does not record HTTP.
    pub fn check(&self, spec: &WorkspaceSpec, rules: &ShellRules) -> Result<(), WorkspaceError> {
        if self.offline && !spec.records_http() {
            return Err(WorkspaceError::NotOffline);
        }
        let mut steps = self.past.steps(self.at, Seq::MAX)?;
        steps.retain(|step| step.call().is_some_and(|call| !self.replaced.contains(&call.call)));
        check_commands(&steps, spec, rules)
    }

    /// Returns the recorded effects that the calls may have again, like [`Rerun::repeats`].
    ///
    /// [`Rerun::repeats`]: super::Rerun::repeats
    ///
    /// # Errors
    /// Failure to read the session.
    pub fn repeats(&self, spec: &WorkspaceSpec) -> Result<Vec<EffectEntry>, WorkspaceError> {
        if self.offline {
            return Ok(Vec::new());
        }
        let mut steps = self.past.steps(self.at, Seq::MAX)?;
        steps.retain(|step| step.call().is_some_and(|call| !self.replaced.contains(&call.call)));
        Ok(repeated(&self.past, &steps, spec)?)
    }

    /// Runs the calls, and passes each to `watch`. In the report, scripted calls have no recorded call, and replaced
    /// calls are absent.
    ///
    /// # Errors
    /// [`WorkspaceError`], above all [`NoCall`](WorkspaceError::NoCall) for a call that can't be replaced.
    pub async fn run(&self, fresh: RerunWorkspace, watch: CallWatch<'_>) -> Result<RerunReport, WorkspaceError> {
        let mut steps = self.past.steps(self.at, Seq::MAX)?;
        let calls: BTreeSet<Seq> = steps.iter().filter_map(RerunStep::call).map(|call| call.call).collect();
        if let Some(call) = self.replaced.iter().find(|call| !calls.contains(call)) {
            return Err(WorkspaceError::NoCall { call: *call, start: self.at });
        }
        let is_replaced = |step: &RerunStep| step.call().is_some_and(|call| self.replaced.contains(&call.call));
        let place = steps.iter().position(is_replaced).unwrap_or(0);
        let mut rest = steps.split_off(place);
        rest.retain(|step| !is_replaced(step));
        steps.extend(self.script.iter().cloned().map(RerunStep::Scripted));
        steps.extend(rest);
        let end = self.past.head()?;
        let (past, rules, offline) = (&self.past, &self.rules, self.offline);
        Course { past, start: self.at, steps, offline, end, rules, base: None }.run(fresh, watch).await
    }
}
