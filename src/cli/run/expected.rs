//! A run measured by a session that is known to be right.

use clap::Args;
use foldspace::Seq;
use foldspace::tools::Expectation;

use super::super::rerun::{RerunPrinter, RuleFileArgs, roots_of};
use super::naming::OpenedSession;
use crate::cli::{Failure, FoundSession, Globals, OpenedStore, Out, text};

/// The options about what a run must come to.
#[derive(Debug, Args)]
#[command(next_help_heading = "Regression")]
pub(super) struct ExpectArgs {
    /// Fails when the calls, their outcomes or the files differ from SESSION, and shows the differences
    #[arg(long, value_name = "SESSION")]
    expect: Option<String>,
    #[command(flatten)]
    rules: RuleFileArgs,
}

pub(super) struct ExpectedRun {
    found: FoundSession,
    expectation: Expectation,
}

impl ExpectArgs {
    pub(super) fn check(&self) -> Result<(), Failure> {
        match (&self.expect, self.rules.given()) {
            (None, Some(option)) => {
                let what = format!("{option} is about what may differ from another session: --expect names that");
                Err(Failure::usage(what))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn find(&self, globals: &Globals, opened: &OpenedStore) -> Result<Option<ExpectedRun>, Failure> {
        let Some(wanted) = &self.expect else { return Ok(None) };
        let found = opened.find(wanted)?;
        let rules = self.rules.rules()?.with_roots(roots_of(globals, &found.session)?);
        let expectation = Expectation::of(&found.session).with_rules(rules);
        Ok(Some(ExpectedRun { found, expectation }))
    }
}

impl ExpectedRun {
    pub(super) fn compare(
        self,
        begun: &OpenedSession,
        from: Seq,
        globals: &Globals,
        out: &mut Out,
    ) -> Result<bool, Failure> {
        let (was, is) = (&self.found.session, &begun.session);
        let compared = self.expectation.compare(is, from, &roots_of(globals, is)?)?;
        let mut report = RerunPrinter::new(was, is);
        if !out.is_json() {
            out.line(format!("\ncompared with session {}:", text::one_line(&self.found.name, 80)))?;
        }
        for call in &compared.calls {
            report.differing(call, out)?;
        }
        report.end(&compared, "expectation", out)?;
        Ok(compared.is_same())
    }
}
