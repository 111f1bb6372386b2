//! Calls as they are made: a bar on a terminal, lines elsewhere, or JSON.

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;

use foldspace::{CallStatus, ToolOutcome, Workspace};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use super::super::exit::Failure;
use super::super::output::{BAD, DIM, GOOD, ODD, Out};
use super::super::{events, text};
use super::script::{Expect, Script, Step};

/// How often a bar moves by itself.
const TICK: Duration = Duration::from_millis(120);

/// Tells of calls as they are made.
pub(super) struct Report<'a> {
    out: &'a mut Out,
    bar: Option<ProgressBar>,
    place: &'a str,
}

impl<'a> Report<'a> {
    pub(super) fn new(out: &'a mut Out, script: &'a Script) -> Self {
        let watched = out.is_terminal() && std::io::stderr().is_terminal() && !out.is_json();
        let bar = watched.then(|| {
            let bar = ProgressBar::new(script.steps.len() as u64);
            // The template is known to be right; the bar's own style would do, too.
            let style = ProgressStyle::with_template("{spinner} {bar:24} {pos}/{len}  {wide_msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.enable_steady_tick(TICK);
            bar
        });
        Self { out, bar, place: &script.place }
    }

    /// What a workspace waits for is shown beside the bar, where one can be drawn.
    pub(super) fn watch(&self, workspace: &dyn Workspace) {
        if let Some(bar) = self.bar.clone().filter(|bar| !bar.is_hidden()) {
            workspace.watch_progress(Arc::new(move |line: &str| bar.set_message(text::one_line(line, 200))));
        }
    }

    /// A call is under way.
    pub(super) fn begin(&self, step: &Step) {
        if let Some(bar) = &self.bar {
            let (tool, subject) = (text::one_line(&step.tool, 100), events::subject(&step.params));
            bar.set_message(format!("{tool} {subject}"));
        }
    }

    /// It has ended.
    pub(super) fn end(&mut self, step: &Step, agent: &str, outcome: &ToolOutcome, right: bool) -> Result<(), Failure> {
        if self.out.is_json() {
            return self.out.json_line(&as_json(step, agent, outcome, right));
        }
        match &self.bar {
            None => self.show(step, outcome, right),
            Some(bar) => {
                bar.inc(1);
                if right { Ok(()) } else { bar.clone().suspend(|| self.show(step, outcome, right)) }
            }
        }
    }

    fn show(&mut self, step: &Step, outcome: &ToolOutcome, right: bool) -> Result<(), Failure> {
        let status = events::status_word(outcome.status);
        let style = match (outcome.status, right) {
            (CallStatus::Ok, true) => GOOD,
            (_, true) => ODD,
            (_, false) => BAD.bold(),
        };
        let status = self.out.paint(style, format!("{status:<5}"));
        let (tool, subject) = (text::one_line(&step.tool, 100), events::subject(&step.params));
        let duration = self.out.paint(DIM, format!("({})", text::duration(outcome.micros)));
        let mut line = format!("{:>5}  {status}  {tool:<10}  {subject}  {duration}", outcome.call);
        if step.expect == Expect::Error && right {
            line.push_str("  as expected");
        }
        self.out.line(line)?;
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

    /// All calls are made.
    pub(super) fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}

fn as_json(step: &Step, agent: &str, outcome: &ToolOutcome, right: bool) -> serde_json::Value {
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
