use std::path::PathBuf;

use foldspace::event::CallStatus;
use foldspace::reducers::Allowances;
use foldspace::tools::{CallVerdict, RerunReport, ScriptedCall, roots_of};
use foldspace::view::Position;
use foldspace::{Seq, Session, WorkspaceSpec};

use super::position::before;
use super::rerun::{AgainArgs, RerunTarget};
use super::run::{CallScript, ScriptStep};
use super::{BOLD, Exit, Failure, Globals, Out, open, output, workspace};

/// Runs other calls in place of recorded ones, and compares
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("start").args(["at", "before", "replace"]).multiple(true).required(true)))]
#[command(after_help = "\
The workspace and its commands have the options of `foldspace run`: --help lists them.

The session itself is only read. A throw-away session, or with --keep a fork of this one, starts with the \
files of that position. It first runs the calls of the script (written as for `foldspace run`), then the \
recorded calls that followed. Exits with 1 if these or the files at the end differ, or if a call of the script \
does not end as its `expect` says.

Examples:
  foldspace what-if NAME --at 42 --script more.jsonl
                      inserts other calls after call or event 42
  foldspace what-if NAME --replace 17 --script other.jsonl
                      makes other calls in place of call 17")]
#[command(mut_args(workspace::again))]
pub(super) struct WhatIfArgs {
    /// The session, by name or by the beginning of its id
    session: String,
    /// Starts with the files as they were at POSITION [default: before the first replaced call]
    #[arg(long, value_name = "POSITION", allow_hyphen_values = true)]
    at: Option<Position>,
    /// Starts with the files as they were before CALL
    #[arg(long, value_name = "CALL", conflicts_with = "at", value_parser = before)]
    before: Option<Position>,
    /// The calls, one a line; - is standard input
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    script: PathBuf,
    /// Leaves out the recorded call with this number; may be given several times: the script runs in place of the
    /// first such call
    #[arg(long, value_name = "CALL")]
    replace: Vec<Seq>,
    /// Leaves out no call; the default without --replace
    #[arg(long, conflicts_with = "replace")]
    insert: bool,
    #[command(flatten)]
    options: AgainArgs,
}

impl WhatIfArgs {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<Exit, Failure> {
        let (rules, asked) = (self.options.rules.rules()?, self.options.workspace()?);
        let script = CallScript::read(&self.script)?;
        let store = self.options.open(globals)?;
        let found = store.opened.find(&self.session)?;
        let mut at = self.at(&found.session)?;
        let asking = self.options.commands.again()?;
        let spec = asked.clone().map_or_else(|| workspace::spec_for_copy(globals, &found.session), Ok)?.forked();
        // Without a sandbox, recorded approvals don't count.
        let allowed = match &spec {
            WorkspaceSpec::Host(_) => Allowances::default(),
            _ => found.session.state_at(at)?.slice().cloned().unwrap_or_default(),
        };
        script.check_commands(&spec, &asking, &allowed)?;
        let what_if = |at| {
            let calls = script.steps.iter().map(scripted).collect();
            let what_if = foldspace::tools::WhatIf::of(&found.session, at, calls);
            let what_if = what_if.replacing(self.replace.iter().copied());
            if self.options.offline { what_if.offline() } else { what_if }
        };
        what_if(at).check(&spec, &asking)?;
        self.options.agreed(&what_if(at).repeats(&spec)?, out)?;
        let place = match self.options.keep.as_deref() {
            None => RerunTarget::open(store, spec, None, globals)?,
            Some(name) => {
                // A fork has at least the first event of its parent.
                at = found.session.commit_end(at.max(1))?;
                if let Some(asked) = self.start().map_or(Ok(None), |start| start.inside(&found.session))? {
                    output::note(&format!("event {asked} is inside a commit; this goes to its end, {at}"));
                }
                RerunTarget::fork(globals, store, &found.session, asked, (name, at))?
            }
        };
        let what_if = what_if(at).with_rules(rules.with_roots(roots_of(&found.session, &open::directory(globals)?)?));
        let done = place.report(&found.session, asking, out, async |fresh, watch| what_if.run(fresh, watch).await)?;
        let wrong = wrong(&script, &done);
        if !out.is_json() {
            for step in &wrong {
                let line = format!("line {} of {} did not end as expected", step.line, script.place);
                out.line(out.paint(BOLD, line))?;
            }
        }
        place.end(globals, out)?;
        Ok(match (done.interrupted, wrong.is_empty() && done.is_same()) {
            (true, _) => Exit::Interrupted,
            (false, true) => Exit::Ok,
            (false, false) => Exit::Failed,
        })
    }

    fn start(&self) -> Option<&Position> {
        self.at.as_ref().or(self.before.as_ref())
    }

    fn at(&self, session: &Session) -> Result<Seq, Failure> {
        match (self.start(), self.replace.iter().min()) {
            (Some(at), _) => Ok(at.resolve(session)?),
            (None, Some(first)) => {
                // The event must exist.
                session.event(*first)?;
                Ok(first.saturating_sub(1))
            }
            (None, None) => Ok(session.head()?),
        }
    }
}

fn scripted(step: &ScriptStep) -> ScriptedCall {
    let agent = step.agent.clone().unwrap_or_default();
    ScriptedCall { tool: step.tool.clone(), params: step.params.clone(), agent }
}

fn wrong<'a>(script: &'a CallScript, report: &RerunReport) -> Vec<&'a ScriptStep> {
    let made = report.calls.iter().filter_map(|call| match &call.verdict {
        CallVerdict::Made { outcome } => Some(outcome.status),
        _ => None,
    });
    let is_wrong = |(step, status): &(&ScriptStep, CallStatus)| !step.expect.is_met(*status);
    script.steps.iter().zip(made).filter(is_wrong).map(|(step, _)| step).collect()
}
