//! The summary of a run.

use foldspace::event::CallStatus;
use foldspace::reducers::Entry;
use foldspace::{Seq, VirtualFileSystem};
use serde_json::{Value, json};

use super::naming::OpenedSession;
use super::script::{CallScript, ScriptStep};
use crate::cli::{BAD, BOLD, DIM, Exit, Failure, GOOD, Globals, Out, open, text};

#[derive(Debug, Default)]
pub(super) struct Summary {
    pub(super) before: Seq,
    since: u64,
    total: u64,
    ok: u64,
    failed_as_expected: u64,
    wrong: u64,
    wrong_at: Option<u64>,
    pub(super) interrupted: bool,
}

struct RunEnd {
    head: Seq,
    files: u64,
    directories: u64,
    bytes: u64,
    micros: u64,
}

impl RunEnd {
    fn of(begun: &OpenedSession, since: u64) -> Result<Self, Failure> {
        let state = begun.session.state()?;
        let tree = VirtualFileSystem::of(&state);
        let directories = tree.iter().filter(|(_, entry)| entry.is_directory()).count() as u64;
        Ok(Self {
            head: state.seq(),
            files: tree.len() as u64 - directories,
            directories,
            bytes: tree.iter().map(|(_, entry)| Entry::size(entry)).sum(),
            micros: begun.session.steady_micros().saturating_sub(since),
        })
    }
}

impl Summary {
    pub(super) fn before(begun: &OpenedSession, script: &CallScript) -> Result<Self, Failure> {
        let (before, since) = (begun.session.head()?, begun.session.steady_micros());
        Ok(Self { before, since, total: script.steps.len() as u64, ..Self::default() })
    }

    pub(super) fn count(&mut self, step: &ScriptStep, status: CallStatus, right: bool) {
        match (right, status) {
            (true, CallStatus::Ok) => self.ok += 1,
            (true, _) => self.failed_as_expected += 1,
            (false, _) => {
                self.wrong += 1;
                self.wrong_at = Some(step.line);
            }
        }
    }

    fn not_made(&self) -> u64 {
        self.total - self.ok - self.failed_as_expected - self.wrong
    }

    pub(super) fn exit(&self) -> Exit {
        match (self.interrupted, self.wrong) {
            (true, _) => Exit::Interrupted,
            (false, 0) => Exit::Ok,
            (false, _) => Exit::Failed,
        }
    }

    pub(super) fn show(&self, begun: &OpenedSession, globals: &Globals, out: &mut Out) -> Result<(), Failure> {
        let end = RunEnd::of(begun, self.since)?;
        if out.is_json() {
            return out.json_line(&self.as_json(begun, &end));
        }
        let name = begun.session.name();
        out.line(format!("\nsession {} ({})", out.paint(BOLD, name), begun.session.id().short()))?;
        let directories = text::count(end.directories, "directory");
        let rows = [
            ("calls", self.calls(out)),
            ("events", end.head.to_string()),
            ("files", format!("{} in {directories}, {}", end.files, text::size(end.bytes))),
            ("time", text::duration(end.micros)),
        ];
        for (name, value) in rows {
            out.line(format!("  {}  {value}", out.paint(DIM, format!("{name:<7}"))))?;
        }
        let program = open::same_program(globals);
        out.line("\nlook further:")?;
        out.line(format!("  {program} log {name} --calls"))?;
        out.line(format!("  {program} diff {name} {}..", self.before))?;
        out.line(format!("  {program} ls {name} -R --at {}", self.before))
    }

    fn as_json(&self, begun: &OpenedSession, end: &RunEnd) -> Value {
        json!({
            "type": "summary",
            "session": begun.session.id(),
            "name": begun.session.name(),
            "is_new": begun.is_new,
            "calls": self.total,
            "ok": self.ok,
            "failed_as_expected": self.failed_as_expected,
            "wrong": self.wrong,
            "not_made": self.not_made(),
            "interrupted": self.interrupted,
            "before": self.before,
            "head": end.head,
            "files": end.files,
            "directories": end.directories,
            "bytes": end.bytes,
            "micros": end.micros,
        })
    }

    fn calls(&self, out: &Out) -> String {
        let mut words = vec![out.paint(GOOD, format!("{} ok", self.ok))];
        if self.failed_as_expected > 0 {
            words.push(format!("{} failed as expected", self.failed_as_expected));
        }
        if self.wrong > 0 {
            words.push(out.paint(BAD, format!("{} went wrong", self.wrong)));
        }
        if self.not_made() > 0 {
            words.push(format!("{} not made", self.not_made()));
        }
        let why = match (self.interrupted, self.not_made(), self.wrong_at) {
            (true, ..) => "; stopped by Ctrl-C".to_owned(),
            (false, 1.., Some(line)) => format!("; stopped at line {line}, --keep-going goes on"),
            _ => String::new(),
        };
        format!("{}: {}{why}", self.total, words.join(", "))
    }
}
