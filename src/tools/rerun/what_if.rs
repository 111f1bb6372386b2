//! What would have come of other calls.

use std::collections::BTreeSet;

use super::course::{CallWatch, Course, RerunStep, RerunWorkspace, ScriptedCall};
use super::past::PastRun;
use super::rules::NormalRules;
use super::{RerunReport, steps};
use crate::engine::id::Seq;
use crate::engine::session::Session;
use crate::tools::error::WorkspaceError;

/// Runs other calls from a position on, then the recorded ones that followed, in another session that is fresh; and
/// compares them with what they were, and the files at both ends.
///
/// It begins with the files, and the slices that are state, as they were at the position. A call that was under way
/// there is not run again: what it had done by then stands. Recorded calls may be replaced; the script then runs in
/// place of the first of them, else at the beginning. As with [`Rerun`](super::Rerun), the recorded session is only
/// read.
#[derive(Debug, Clone)]
pub struct WhatIf {
    past: PastRun,
    at: Seq,
    script: Vec<ScriptedCall>,
    replaced: BTreeSet<Seq>,
    rules: NormalRules,
}

impl WhatIf {
    /// From the position on these calls, then all that followed.
    pub fn of(session: &Session, at: Seq, script: Vec<ScriptedCall>) -> Self {
        let past = PastRun::of(session);
        Self { past, at, script, replaced: BTreeSet::new(), rules: NormalRules::default() }
    }

    /// Leaves out these recorded calls, each named by the position of its intent.
    #[must_use]
    pub fn replacing(mut self, calls: impl IntoIterator<Item = Seq>) -> Self {
        self.replaced.extend(calls);
        self
    }

    /// By other rules.
    #[must_use]
    pub fn with_rules(mut self, rules: NormalRules) -> Self {
        self.rules = rules;
        self
    }

    /// Runs them, and shows each as it is made. In the report, calls of the script have no recorded one, and those
    /// that were replaced are not there.
    ///
    /// # Errors
    /// [`WorkspaceError`], above all [`NoCall`](WorkspaceError::NoCall) for a call that can't be replaced.
    pub async fn run(&self, fresh: RerunWorkspace, watch: CallWatch<'_>) -> Result<RerunReport, WorkspaceError> {
        let mut steps = steps(&self.past, self.at, None)?;
        let calls: BTreeSet<Seq> = steps.iter().filter_map(call_of).collect();
        if let Some(call) = self.replaced.iter().find(|call| !calls.contains(call)) {
            return Err(WorkspaceError::NoCall { call: *call, start: self.at });
        }
        let is_replaced = |step: &RerunStep| call_of(step).is_some_and(|call| self.replaced.contains(&call));
        let place = steps.iter().position(is_replaced).unwrap_or(0);
        let mut rest = steps.split_off(place);
        rest.retain(|step| !is_replaced(step));
        steps.extend(self.script.iter().cloned().map(RerunStep::Scripted));
        steps.extend(rest);
        let end = self.past.head()?;
        Course { past: &self.past, start: self.at, steps, end, rules: &self.rules }.run(fresh, watch).await
    }
}

fn call_of(step: &RerunStep) -> Option<Seq> {
    match step {
        RerunStep::Recorded(call) => Some(call.call),
        RerunStep::Scripted(_) | RerunStep::Outside(_) => None,
    }
}
