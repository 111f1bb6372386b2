//! Shows calls as they are made: a bar on a terminal, lines elsewhere, or JSON.

use std::io::IsTerminal;

use foldspace::event::CallStatus;
use foldspace::{Session, ToolOutcome};
use indicatif::ProgressBar;
use serde_json::json;

use super::script::{CallScript, Expect, ScriptStep};
use crate::cli::{BAD, DIM, Failure, GOOD, ODD, Out, bar, events, output, text};

pub(super) struct RunReport<'a> {
    out: &'a mut Out,
    bar: Option<ProgressBar>,
    place: &'a str,
    session: Session,
    shows_output: bool,
}

impl<'a> RunReport<'a> {
    pub(super) fn new(out: &'a mut Out, script: &'a CallScript, session: &Session, shows_output: bool) -> Self {
        let watched = out.is_terminal() && std::io::stderr().is_terminal() && !out.is_json();
        let bar = watched.then(|| bar::drawn(script.steps.len()));
        Self { out, bar, place: &script.place, session: session.clone(), shows_output }
    }

    pub(super) fn progress(&self, line: &str) {
        match self.bar.as_ref().filter(|bar| !bar.is_hidden()) {
            Some(bar) => bar.set_message(text::one_line(line, 200)),
            None => output::progress(line),
        }
    }

    pub(super) fn bar(&self) -> Option<ProgressBar> {
        self.bar.clone()
    }

    pub(super) fn begin(&self, step: &ScriptStep) {
        if let Some(bar) = &self.bar {
            let (tool, subject) = (text::one_line(&step.tool, 100), events::subject(&self.session, &step.params));
            bar.set_message(format!("{tool} {subject}"));
        }
    }

    pub(super) fn end(
        &mut self,
        step: &ScriptStep,
        agent: &str,
        outcome: &ToolOutcome,
        right: bool,
    ) -> Result<(), Failure> {
        if self.out.is_json() {
            return self.out.json_line(&as_json(step, agent, outcome, right));
        }
        match &self.bar {
            None => self.show(step, outcome, right),
            Some(bar) => {
                bar.inc(1);
                if right && !self.shows_output {
                    Ok(())
                } else {
                    bar.clone().suspend(|| self.show(step, outcome, right))
                }
            }
        }
    }

    fn show(&mut self, step: &ScriptStep, outcome: &ToolOutcome, right: bool) -> Result<(), Failure> {
        let status = events::ending(outcome.status, &outcome.result);
        let style = match (events::did_well(outcome.status, &outcome.result), right) {
            (true, true) => GOOD,
            (false, true) => ODD,
            (_, false) => BAD.bold(),
        };
        let status = self.out.paint(style, format!("{status:<9}"));
        let (tool, subject) = (text::one_line(&step.tool, 100), events::subject(&self.session, &step.params));
        let duration = self.out.paint(DIM, format!("({})", text::duration(outcome.micros)));
        let mut line = format!("{:>5}  {status}  {tool:<10}  {subject}  {duration}", outcome.call);
        if step.expect == Expect::Error && right {
            line.push_str("  as expected");
        }
        self.out.line(line)?;
        if self.shows_output {
            self.output(outcome)?;
        }
        if right {
            return Ok(());
        }
        let message = match outcome.status {
            CallStatus::Ok => "it was expected to fail".to_owned(),
            _ => text::one_line(&outcome.text, 300),
        };
        self.out.line(format!("       {}", self.out.paint(BAD, message)))?;
        self.out.line(format!("       line {} of {}", step.line, self.place))
    }

    /// Shows the output of a command.
    fn output(&mut self, outcome: &ToolOutcome) -> Result<(), Failure> {
        for stream in ["stdout", "stderr"] {
            let printed = outcome.result[stream].as_str().unwrap_or_default();
            printed.lines().try_for_each(|line| self.out.line(format!("       {}", text::visible(line))))?;
        }
        Ok(())
    }

    pub(super) fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}

fn as_json(step: &ScriptStep, agent: &str, outcome: &ToolOutcome, right: bool) -> serde_json::Value {
    let message = if outcome.is_ok() { "" } else { outcome.text.as_str() };
    json!({
        "type": "call",
        "line": step.line,
        "call": outcome.call,
        "finished": outcome.finished,
        "tool": step.tool,
        "agent": agent,
        "status": outcome.status,
        "as_expected": right,
        "micros": outcome.micros,
        "message": message,
        "result": outcome.result,
    })
}
