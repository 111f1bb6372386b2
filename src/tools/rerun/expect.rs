//! Comparison of a session with an expected one.

use super::RerunReport;
use super::compare::{Divergence, RunComparison};
use super::course::{CallReport, CallVerdict};
use super::past::{PastRun, RecordedCall};
use super::rules::NormalRules;
use crate::engine::id::Seq;
use crate::engine::session::Session;
use crate::tools::error::WorkspaceError;
use serde_json::{Value, json};

/// Comparison of a session with an expected one: calls in the order of their start, with parameters, outcomes and
/// files; and the final files. Both sessions are only read.
#[derive(Debug, Clone)]
pub struct Expectation {
    past: PastRun,
    rules: NormalRules,
}

impl Expectation {
    /// Expects the calls and files of that session, with the default rules.
    pub fn of(session: &Session) -> Self {
        Self { past: PastRun::of(session), rules: NormalRules::default() }
    }

    /// Sets the rules of the comparison.
    #[must_use]
    pub fn with_rules(mut self, rules: NormalRules) -> Self {
        self.rules = rules;
        self
    }

    /// Compares the calls of a session after `from` with the expected calls. A call that only one session has is a
    /// difference; a call that was interrupted in either is skipped. Its commands saw the workspace's root at any of
    /// `roots`.
    pub fn compare(&self, session: &Session, from: Seq, roots: &[String]) -> Result<RerunReport, WorkspaceError> {
        let is = PastRun::of(session);
        let comparison = RunComparison::between(&self.past, &is, &self.rules, roots);
        let (expected, made) = (self.past.calls(0)?, is.calls(from)?);
        let end = self.past.head()?;
        let mut report = RerunReport { start: from, end, ..RerunReport::default() };
        for at in 0..expected.len().max(made.len()) {
            report.calls.push(compared(&comparison, expected.get(at), made.get(at))?);
        }
        report.files = comparison.files(end, is.head()?)?;
        report.environment = comparison.environment((0, end), is.head()?)?;
        Ok(report)
    }
}

fn compared(
    comparison: &RunComparison<'_>,
    was: Option<&RecordedCall>,
    is: Option<&RecordedCall>,
) -> Result<CallReport, WorkspaceError> {
    let verdict = match (was, is) {
        (Some(was), Some(is)) => match was.obstacle().or(is.obstacle()) {
            Some(reason) if was.tool == is.tool => CallVerdict::Skipped { reason: reason.to_owned() },
            _ => {
                let mut divergences = comparison.calls(was, is)?;
                divergences.splice(0..0, comparison.asks(was, is));
                CallVerdict::of(divergences)
            }
        },
        _ => CallVerdict::Diverged { divergences: vec![Divergence::Call { was: asked(was), is: asked(is) }] },
    };
    Ok(CallReport::of(was, is, verdict))
}

fn asked(call: Option<&RecordedCall>) -> Value {
    call.map_or(Value::Null, |call| json!({ "tool": call.tool, "params": call.params }))
}
