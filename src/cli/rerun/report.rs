//! Prints rerun calls, with every difference.

use std::collections::{BTreeMap, BTreeSet};

use foldspace::reducers::Change;
use foldspace::tools::{CallReport, CallVerdict, Divergence, RerunReport};
use foldspace::view::{self, Patch};
use foldspace::{EntryPath, Session};
use serde_json::{Value, json};

use crate::cli::{BAD, BOLD, DIM, Failure, GOOD, ODD, Out, diffs, events, text};

const SHOWN: usize = 50;

pub(in crate::cli) struct RerunPrinter {
    was: Session,
    is: Session,
    shown: BTreeSet<EntryPath>,
}

impl RerunPrinter {
    pub(in crate::cli) fn new(was: &Session, is: &Session) -> Self {
        Self { was: was.clone(), is: is.clone(), shown: BTreeSet::new() }
    }

    pub(in crate::cli) fn call(&mut self, call: &CallReport, out: &mut Out) -> Result<(), Failure> {
        if out.is_json() {
            return out.json_line(&self.as_json(call)?);
        }
        let (word, style) = match &call.verdict {
            CallVerdict::Same => ("same", GOOD),
            CallVerdict::Diverged { .. } => ("DIVERGED", BAD.bold()),
            CallVerdict::Skipped { .. } => ("skipped", ODD),
            CallVerdict::Made { outcome } if events::did_well(outcome.status, &outcome.result) => ("made", GOOD),
            CallVerdict::Made { .. } => ("made", ODD),
        };
        let number = |seq: Option<u64>| seq.map_or_else(|| "-".to_owned(), |seq| seq.to_string());
        let (was, is) = (number(call.call), number(call.rerun));
        let (tool, subject) = (text::one_line(&call.tool, 100), events::subject(&self.was, &call.params));
        let word = out.paint(style, format!("{word:<8}"));
        out.line(format!("{was:>5} {is:>5}  {word}  {tool:<10}  {subject}"))?;
        match &call.verdict {
            CallVerdict::Same => Ok(()),
            CallVerdict::Skipped { reason } => out.line(format!("             {}", out.paint(DIM, reason))),
            CallVerdict::Made { outcome } if events::did_well(outcome.status, &outcome.result) => Ok(()),
            CallVerdict::Made { outcome } => {
                let status = events::ending(outcome.status, &outcome.result);
                out.line(format!("             {status}: {}", text::one_line(&outcome.text, 300)))
            }
            CallVerdict::Diverged { divergences } => {
                for divergence in divergences {
                    if let Divergence::File { change } = divergence {
                        self.shown.insert(change.path().clone());
                    }
                    self.divergence(divergence, out)?;
                }
                Ok(())
            }
        }
    }

    fn divergence(&self, divergence: &Divergence, out: &mut Out) -> Result<(), Failure> {
        match divergence {
            Divergence::Call { was, is } => pair("call", &shown_call(was), &shown_call(is), out),
            Divergence::Status { was, is } => pair("status", was.word(), is.word(), out),
            Divergence::Message { was, is } => texts("message", was, is, out),
            Divergence::Result { at, was, is } | Divergence::Event { at, was, is } => {
                let is_event = matches!(divergence, Divergence::Event { .. });
                let name = match at.trim_start_matches('/') {
                    "" if !is_event => "result".to_owned(),
                    name if is_event => format!("event {name}").trim_end().to_owned(),
                    name => name.to_owned(),
                };
                let name = name.as_str();
                match (was.as_str(), is.as_str()) {
                    (Some(was), Some(is)) => texts(name, was, is, out),
                    _ => pair(name, &text::one_line(&was.to_string(), 200), &text::one_line(&is.to_string(), 200), out),
                }
            }
            Divergence::File { change } => self.file(change, out),
        }
    }

    fn file(&self, change: &Change, out: &mut Out) -> Result<(), Failure> {
        view::patches_between(&self.was, &self.is, change)?.iter().try_for_each(|patch| diffs::show(&patch.text, out))
    }

    fn files_at_end(&self, report: &RerunReport, out: &mut Out) -> Result<(), Failure> {
        if report.files.is_empty() {
            return Ok(());
        }
        out.line(format!("\n{}", out.paint(BOLD, "differences of the files at the end, from recorded to rerun:")))?;
        let (above, new): (Vec<_>, Vec<_>) = report.files.iter().partition(|change| self.shown.contains(change.path()));
        for change in new.iter().take(SHOWN) {
            self.file(change, out)?;
        }
        if new.len() > SHOWN {
            out.line(format!("and {} more", new.len() - SHOWN))?;
        }
        if let Some(first) = above.first() {
            let more = if above.len() > 1 { format!(" and {} more", above.len() - 1) } else { String::new() };
            out.line(format!("shown above with their calls: {}{more}", first.path()))?;
        }
        Ok(())
    }

    pub(in crate::cli) fn end(&mut self, report: &RerunReport, kind: &str, out: &mut Out) -> Result<(), Failure> {
        if out.is_json() {
            return out.json_line(&self.summary(report, kind)?);
        }
        self.files_at_end(report, out)?;
        for path in &report.missing {
            out.line(format!("missing, because its contents were never stored: {path}"))?;
        }
        for difference in &report.environment {
            out.line(out.paint(ODD, text::one_line(&difference.to_string(), 300)))?;
        }
        let (total, diverged, skipped) = (report.calls.len(), report.diverged(), report.skipped());
        let calls = text::count(total as u64, "call");
        let files = match report.files.len() as u64 {
            0 => out.paint(GOOD, "files the same"),
            1 => out.paint(BAD, "1 entry differs"),
            count => out.paint(BAD, format!("{} differ", text::count(count, "entry"))),
        };
        let files = if report.is_partial { told_skipped(report) } else { files };
        let files = if report.interrupted { "stopped by Ctrl-C".to_owned() } else { files };
        let diverged = match diverged {
            0 => out.paint(GOOD, "none diverged"),
            count => out.paint(BAD, format!("{count} diverged")),
        };
        let skipped = if skipped == 0 { String::new() } else { format!(", {skipped} skipped") };
        out.line(format!("\n{calls}: {diverged}{skipped}; {files}"))
    }

    fn summary(&self, report: &RerunReport, kind: &str) -> Result<Value, Failure> {
        let files: Result<Vec<_>, _> =
            report.files.iter().map(|change| view::change_between(&self.was, &self.is, change)).collect();
        Ok(json!({
            "type": kind,
            "recorded": self.was.id(),
            "session": self.is.id(),
            "start": report.start,
            "end": report.end,
            "calls": report.calls.len(),
            "diverged": report.diverged(),
            "skipped": report.skipped(),
            "same": report.is_same(),
            "files": if report.is_partial { Value::Null } else { json!(files?) },
            "missing": report.missing,
            "environment": report.environment,
            "interrupted": report.interrupted,
        }))
    }

    fn as_json(&self, call: &CallReport) -> Result<Value, Failure> {
        let mut value = serde_json::to_value(call).unwrap_or_default();
        if let (Value::Object(fields), CallVerdict::Diverged { divergences }) = (&mut value, &call.verdict) {
            let list: Result<Vec<_>, _> =
                divergences.iter().map(|one| view::divergence(&self.was, &self.is, one)).collect();
            fields.insert("divergences".to_owned(), json!(list?));
        }
        if let Value::Object(fields) = &mut value {
            fields.shift_insert(0, "type".to_owned(), json!("call"));
        }
        Ok(value)
    }
}

/// Lists the tools of skipped calls.
fn told_skipped(report: &RerunReport) -> String {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for call in report.calls.iter().filter(|call| matches!(call.verdict, CallVerdict::Skipped { .. })) {
        *counts.entry(&call.tool).or_default() += 1;
    }
    let told: Vec<String> =
        counts.iter().map(|(tool, count)| format!("{count} {}", text::one_line(tool, 100))).collect();
    if told.is_empty() { "all were made".to_owned() } else { format!("not made: {}", told.join(", ")) }
}

fn texts(name: &str, was: &str, is: &str, out: &mut Out) -> Result<(), Failure> {
    if was.lines().count() <= 1 && is.lines().count() <= 1 {
        return pair(name, &text::one_line(was, 300), &text::one_line(is, 300), out);
    }
    diffs::show(&Patch::of_texts(name, was, is).text, out)
}

fn pair(name: &str, was: &str, is: &str, out: &mut Out) -> Result<(), Failure> {
    out.line(format!("             {}", out.paint(BOLD, name)))?;
    out.line(format!("             {}", out.paint(BAD, format!("- {was}"))))?;
    out.line(format!("             {}", out.paint(GOOD, format!("+ {is}"))))
}

fn shown_call(call: &Value) -> String {
    match call.get("tool").and_then(Value::as_str) {
        None => "no call".to_owned(),
        Some(tool) => {
            let params = call.get("params").map(Value::to_string).unwrap_or_default();
            format!("{} {}", text::one_line(tool, 100), text::one_line(&params, 300))
        }
    }
}
