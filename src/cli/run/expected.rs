//! A run compared with an expected session.

use clap::{Arg, Args};
use foldspace::tools::{CallVerdict, Expectation, roots_of};
use foldspace::{Seq, Session, WorkspaceSpec};

use super::super::rerun::{RerunPrinter, RuleFileArgs};
use crate::cli::{Failure, FoundSession, Globals, OpenedStore, Out, open, text, workspace};

/// The options for the expected result of a run.
#[derive(Debug, Args)]
#[command(next_help_heading = "Regression")]
pub(super) struct ExpectArgs {
    /// Fails if the calls, their outcomes or the files differ from SESSION, and shows the differences
    #[arg(long, value_name = "SESSION")]
    expect: Option<String>,
    #[command(flatten)]
    rules: RuleFileArgs,
}

pub(super) struct ExpectedRun {
    found: FoundSession,
    expectation: Expectation,
}

/// Makes the options for accepted differences require `--expect`.
pub(super) fn wants_session(arg: Arg) -> Arg {
    match arg.get_id().as_str() {
        "file" | "no_default_rules" => arg.requires("expect"),
        _ => arg,
    }
}

impl ExpectArgs {
    pub(super) fn find(&self, globals: &Globals, opened: &OpenedStore) -> Result<Option<ExpectedRun>, Failure> {
        let Some(wanted) = &self.expect else { return Ok(None) };
        let found = opened.find(wanted)?;
        let rules = self.rules.rules()?.with_roots(roots_of(&found.session, &open::directory(globals)?)?);
        let expectation = Expectation::of(&found.session).with_rules(rules);
        Ok(Some(ExpectedRun { found, expectation }))
    }
}

impl ExpectedRun {
    /// Returns the workspace for a new run: like that of the expected session.
    pub(super) fn spec(&self, globals: &Globals) -> Result<WorkspaceSpec, Failure> {
        Ok(workspace::spec_for_copy(globals, &self.found.session)?.forked())
    }

    pub(super) fn compare(self, is: &Session, from: Seq, globals: &Globals, out: &mut Out) -> Result<bool, Failure> {
        let was = &self.found.session;
        let compared = self.expectation.compare(is, from, &roots_of(is, &open::directory(globals)?)?)?;
        let mut report = RerunPrinter::new(was, is);
        if !out.is_json() {
            out.line(format!("\ncompared with session {}:", text::one_line(&self.found.name, 80)))?;
        }
        let shows_all = out.is_json();
        for call in compared.calls.iter().filter(|call| shows_all || !matches!(call.verdict, CallVerdict::Same)) {
            report.call(call, out)?;
        }
        report.end(&compared, "expectation", out)?;
        Ok(compared.is_same())
    }
}
