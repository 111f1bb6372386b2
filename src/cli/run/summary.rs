//! The summary of a run.

use std::path::Path;

use foldspace::ToolOutcome;
use foldspace::event::CallStatus;
use foldspace::reducers::Entry;
use foldspace::{Seq, Session, SessionId, VirtualFileSystem};
use serde::Serialize;

use super::script::{CallScript, ScriptStep};
use crate::cli::{BAD, BOLD, DIM, Exit, Failure, GOOD, Globals, Out, events, open, text};

#[derive(Debug, Default, Serialize)]
#[serde(tag = "type", rename = "summary")]
pub(super) struct Summary {
    session: Option<SessionId>,
    name: String,
    is_new: bool,
    calls: u64,
    ok: u64,
    exited_nonzero: u64,
    failed_as_expected: u64,
    wrong: u64,
    not_made: u64,
    pub(super) interrupted: bool,
    pub(super) before: Seq,
    head: Seq,
    files: u64,
    directories: u64,
    bytes: u64,
    micros: u64,
    #[serde(skip)]
    since: u64,
    #[serde(skip)]
    wrong_at: Option<u64>,
}

impl Summary {
    pub(super) fn before(session: &Session, is_new: bool, script: &CallScript) -> Result<Self, Failure> {
        let calls = script.steps.len() as u64;
        Ok(Self {
            session: Some(session.id()),
            name: session.name().to_owned(),
            is_new,
            calls,
            not_made: calls,
            before: session.head()?,
            since: session.steady_micros(),
            ..Self::default()
        })
    }

    pub(super) fn count(&mut self, step: &ScriptStep, outcome: &ToolOutcome, right: bool) {
        self.not_made -= 1;
        match (right, outcome.status) {
            (true, CallStatus::Ok) if !events::did_well(outcome.status, &outcome.result) => self.exited_nonzero += 1,
            (true, CallStatus::Ok) => self.ok += 1,
            (true, _) => self.failed_as_expected += 1,
            (false, _) => {
                self.wrong += 1;
                self.wrong_at = Some(step.line);
            }
        }
    }

    pub(super) fn exit(&self) -> Exit {
        match (self.interrupted, self.wrong) {
            (true, _) => Exit::Interrupted,
            (false, 0) => Exit::Ok,
            (false, _) => Exit::Failed,
        }
    }

    /// Shows the summary with the session's state.
    pub(super) fn show(
        mut self,
        session: &Session,
        script: &Path,
        globals: &Globals,
        out: &mut Out,
    ) -> Result<(), Failure> {
        let state = session.state()?;
        let tree = VirtualFileSystem::of(&state);
        self.head = state.seq();
        self.directories = tree.iter().filter(|(_, entry)| entry.is_directory()).count() as u64;
        self.files = tree.len() as u64 - self.directories;
        self.bytes = tree.iter().map(|(_, entry)| Entry::size(entry)).sum();
        self.micros = session.steady_micros().saturating_sub(self.since);
        if out.is_json() {
            return out.json_line(&self);
        }
        let name = session.name();
        out.line(format!("\nsession {} ({})", out.paint(BOLD, name), session.id().short()))?;
        let directories = text::count(self.directories, "directory");
        let rows = [
            ("calls", self.calls(out)),
            ("events", self.head.to_string()),
            ("files", format!("{} in {directories}, {}", self.files, text::size(self.bytes))),
            ("time", text::duration(self.micros)),
        ];
        for (name, value) in rows {
            out.line(format!("  {}  {value}", out.paint(DIM, format!("{name:<7}"))))?;
        }
        let program = open::same_program(globals);
        if let (false, 1.., Some(line)) = (self.interrupted, self.not_made, self.wrong_at) {
            let (script, next) = (script.to_string_lossy(), line + 1);
            let rest =
                format!("run {} --session {} --from-line {next}", text::shell_word(&script), open::named(session));
            out.line(format!("\n`{program} {rest}` continues"))?;
        }
        out.line("\nlook further:")?;
        out.line(format!("  {program} log {name} --calls"))?;
        out.line(format!("  {program} diff {name} {}..", self.before))?;
        out.line(format!("  {program} ls {name} -R --at {}", self.before))
    }

    fn calls(&self, out: &Out) -> String {
        let mut words = vec![out.paint(GOOD, format!("{} ok", self.ok))];
        if self.exited_nonzero > 0 {
            words.push(format!("{} exited non-zero", self.exited_nonzero));
        }
        if self.failed_as_expected > 0 {
            words.push(format!("{} failed as expected", self.failed_as_expected));
        }
        if self.wrong > 0 {
            words.push(out.paint(BAD, format!("{} went wrong", self.wrong)));
        }
        if self.not_made > 0 {
            words.push(format!("{} not made", self.not_made));
        }
        let why = match (self.interrupted, self.not_made, self.wrong_at) {
            (true, ..) => "; stopped by Ctrl-C".to_owned(),
            (false, 1.., Some(line)) => format!("; stopped at line {line}"),
            _ => String::new(),
        };
        format!("{}: {}{why}", self.calls, words.join(", "))
    }
}
