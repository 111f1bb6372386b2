//! Records what must be known before a look at the disk: which calls run, which ended, and which may never have run.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::observer::{Arrival, CODELESS, Observer, agent_name, id_of, note_of, open, record_of};
use super::report::{HookKind, HookReport, ReportedCall, ReportedEnd};
use crate::backends::agent_process::process_ended;
use crate::engine::clock::Timestamp;
use crate::engine::event::{CallStatus, ObservedAccess};
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::reducers::{AgentRuns, ObservedCall};
use crate::tools::call::error::ToolError;
use crate::tools::off_thread::off_thread;
use crate::tools::transcript::call_events::{ObservedEnd, push_end};
use crate::tools::transcript::step::content_text;

/// Time between the end of a command and the start of its hook.
const SLACK_MILLIS: i64 = 1_000;
/// Bytes at the end of a transcript that are searched for refusals.
const TAIL: u64 = 1 << 20;
/// Parts of the outputs of calls that Codex refused itself. These changed nothing.
const REFUSALS: [&str; 4] =
    ["exec_command failed", "apply_patch verification failed", "reject command", "rejected by user"];

/// Records what decides who changed the files that a look at the disk will find: calls whose beginning is reported late,
/// and open calls that may not run any more.
///
/// # Errors
/// Nothing can be recorded.
pub(crate) async fn prepare_look(session: Session, root: PathBuf, arrivals: Vec<Arrival>) -> Result<(), ToolError> {
    let turn = session.turn().await;
    let prepared = off_thread(turn, ToolError::new("the recording of a report was stopped"), move || {
        doubt(&session, "its agent's process has ended", |call| process_ended(&call.process))?;
        close_refused(&session)?;
        for arrival in arrivals {
            Observer::new(&session, root.clone(), arrival).prepare_look()?;
        }
        Ok::<_, SessionError>(())
    });
    prepared.await
}

/// Returns true if nothing ends by a report. Such a report is recorded before a look at the disk if it comes late.
pub(crate) fn only_begins(kind: &HookKind) -> bool {
    matches!(
        kind,
        HookKind::RunBegan
            | HookKind::Prompted { .. }
            | HookKind::CallBegan(_)
            | HookKind::Asked
            | HookKind::SubagentBegan
            | HookKind::Other
    )
}

/// Returns true if the call that another report began is over by this report.
pub(crate) fn ends(report: &HookReport, begun: &HookReport) -> bool {
    let HookKind::CallBegan(call) = &begun.kind else { return false };
    let is_it = |other: &ReportedCall| id_of(other) == id_of(call);
    report.run == begun.run
        && match &report.kind {
            HookKind::CallEnded(ended, _) => is_it(ended),
            HookKind::Batch(calls) => calls.iter().any(|(ended, _)| is_it(ended)),
            HookKind::RunEnded { .. } => true,
            HookKind::Prompted { .. } | HookKind::Paused { .. } | HookKind::SubagentEnded => {
                agent_name(report) == agent_name(begun)
            }
            _ => false,
        }
}

/// Records that it is uncertain whether these open calls run, and why. Only calls that may write matter.
fn doubt(session: &Session, why: &str, is_it: impl Fn(&ObservedCall) -> bool) -> Result<(), SessionError> {
    let state = session.state()?;
    let open = state.slice::<AgentRuns>().into_iter().flat_map(|runs| &runs.open);
    let mut doubted = open.filter(|(_, call)| !call.doubt && call.access != ObservedAccess::None && is_it(call));
    doubted.try_for_each(|(seq, call)| {
        note_of(session, *seq, call, ("doubt", json!(why)))?.wait()?;
        Ok(())
    })
}

/// Closes the calls that an agent refused itself. Its hooks never report their ends, but its transcript has them.
fn close_refused(session: &Session) -> Result<(), SessionError> {
    let runs = session.state()?.slice::<AgentRuns>().cloned().unwrap_or_default();
    for (seq, call) in &runs.open {
        let known = runs.runs.get(&call.run).filter(|known| known.agent == CODELESS);
        let path = known.and_then(|known| known.facts.get("transcript_path")?.as_str());
        let Some(message) = path.and_then(|path| refusal(Path::new(path), &call.id)) else { continue };
        let end = ObservedEnd { status: CallStatus::Error, result: Value::Null, message, micros: 0 };
        record_of(session, *seq, call, |commit| push_end(commit, end))?.wait()?;
    }
    Ok(())
}

/// Finds the output of a refused call at the end of a transcript, if that can be read.
#[expect(clippy::disallowed_methods, reason = "the agent writes the transcript")]
fn refusal(transcript: &Path, id: &str) -> Option<String> {
    let mut file = File::open(transcript).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL))).ok()?;
    let mut bytes = Vec::new();
    file.take(TAIL).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let outputs = text.lines().rev().filter(|line| line.contains(id) && line.contains("_output\""));
    let payloads =
        outputs.filter_map(|line| Some(serde_json::from_str::<Value>(line).ok()?.get_mut("payload")?.take()));
    let output = content_text(&payloads.into_iter().find(|payload| payload["call_id"] == id)?["output"]);
    let has_run = ["Process exited", "Process running", "Exit code:"].iter().any(|words| output.contains(words));
    (!has_run && REFUSALS.iter().any(|words| output.contains(words))).then_some(output)
}

impl Observer {
    fn is_own(&self, call: &ObservedCall) -> bool {
        call.run == self.run_id() && call.agent == self.name
    }

    /// Returns true for an open call that is over by this report.
    pub(super) fn is_over(&self, call: &ObservedCall) -> bool {
        match self.arrival.report.kind {
            HookKind::RunBegan if self.is_sequential() => {
                let process = &self.arrival.process;
                call.run != self.run_id() && call.process == *process && !process.is_empty()
            }
            HookKind::RunEnded { .. } => call.run == self.run_id(),
            HookKind::Prompted { .. } | HookKind::Paused { .. } => self.is_own(call),
            HookKind::SubagentEnded => call.agent == self.name,
            _ => false,
        }
    }

    /// Returns true for an open call that is over because its agent begins another one.
    pub(super) fn precedes(&self, call: &ObservedCall, begun: &ReportedCall) -> bool {
        let both_write = call.access != ObservedAccess::None && self.access(begun).0 != ObservedAccess::None;
        self.is_sequential() && both_write && self.is_own(call) && call.id != id_of(begun)
    }

    fn prepare_look(mut self) -> Result<(), SessionError> {
        let (session, unended) = (self.session.clone(), "no hook reported its end");
        match self.arrival.report.kind.clone() {
            HookKind::Asked => doubt(&session, "it asked for a permission", |call| self.is_own(call)),
            HookKind::CallEnded(call, end) => self.date(&call, &end),
            kind if self.arrival.waited > 0 && only_begins(&kind) => self.record_kind(false),
            _ if self.arrival.waited > 0 => Ok(()),
            HookKind::CallBegan(begun) => doubt(&session, unended, |call| self.precedes(call, &begun)),
            HookKind::Batch(calls) => {
                let is_in = |known: &ObservedCall| calls.iter().any(|(call, _)| id_of(call) == known.id);
                doubt(&session, unended, |call| self.is_own(call) && is_in(call))
            }
            _ => doubt(&session, unended, |call| self.is_over(call)),
        }
    }

    /// Records when a call that asked for a permission began to run, if its agent reports how long it took.
    fn date(&mut self, call: &ReportedCall, end: &ReportedEnd) -> Result<(), SessionError> {
        let (id, runs) = (id_of(call), self.runs()?);
        let Some(((seq, open), micros)) = open(&runs, &id).zip(end.micros) else { return Ok(()) };
        if !open.doubt {
            return Ok(());
        }
        let passed = i64::try_from(micros.saturating_add(self.micros_since())).unwrap_or(i64::MAX) / 1000;
        let since = Timestamp(self.session.now().0.saturating_sub(passed).saturating_sub(SLACK_MILLIS));
        note_of(&self.session, seq, open, ("since", json!(since)))?.wait()?;
        Ok(())
    }
}
