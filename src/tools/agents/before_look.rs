//! Records facts needed before a scan of the disk: running calls, ended calls, and calls that may never have run.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::observer::{Arrival, CODELESS, Observer, agent_name, id_of, is_lost, note_of, record_of};
use super::report::{HookKind, HookReport, ReportedCall, ReportedEnd};
use crate::backends::agent_process::process_ended;
use crate::engine::clock::Timestamp;
use crate::engine::event::{CallStatus, ObservedAccess};
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::reducers::{AgentRuns, ObservedCall, VirtualFileSystem};
use crate::tools::call::error::ToolError;
use crate::tools::call::tool_runner::ToolRunner;
use crate::tools::off_thread::{off_thread, own_state};
use crate::tools::transcript::call_events::{ObservedEnd, push_end};
use crate::tools::transcript::edits::stated_files;
use crate::tools::transcript::files::{KnownChange, StatedFiles};
use crate::tools::transcript::step::{StatedChange, StatedFile, content_text};
use crate::tools::workspace::runtime::SessionRuntime;

/// The longest assumed time between the end of a command and the start of its hook. The start of a command is computed
/// backwards from its hook. If a busy machine starts the hook later, the first changes of the command stay doubtful.
/// A larger value would attribute files to the command that a person saved just before permitting it.
const SLACK_MILLIS: i64 = 250;
/// The number of bytes at the end of a transcript that are searched for refusals.
const TAIL: u64 = 1 << 20;
/// Output fragments of calls that Codex itself refused. These calls changed nothing.
const REFUSALS: [&str; 4] =
    ["exec_command failed", "apply_patch verification failed", "reject command", "rejected by user"];

/// Records the facts that determine the authors of the changes in the next scan: calls with a late-reported beginning,
/// and open calls that may no longer run.
///
/// # Errors
/// Recording failed.
pub async fn prepare_look(session: Session, root: PathBuf, arrivals: Vec<Arrival>) -> Result<(), ToolError> {
    let turn = SessionRuntime::of(&session).lock_workspace().await;
    let prepared = off_thread(turn, ToolError::new("recording a report was interrupted"), move || {
        let has_end = |call: &ObservedCall| arrivals.iter().any(|arrival| is_end_of(&arrival.report, call));
        doubt(&session, "its agent's process has ended", |call| process_ended(&call.process) && !has_end(call))?;
        close_refused(&session)?;
        for arrival in arrivals {
            Observer::new(&session, root.clone(), arrival).prepare_look()?;
        }
        Ok::<_, SessionError>(())
    });
    prepared.await
}

impl ToolRunner {
    /// Scans the disk if a call waits for permission, which separates a person's changes from the call's. Returns false
    /// if no call waits.
    #[doc(hidden)]
    pub async fn look_while_asked(&self) -> Result<bool, ToolError> {
        let _turn = self.runtime().lock_workspace().await;
        let state = own_state(self.session()).await?;
        let waits = |call: &ObservedCall| call.doubt && call.since.is_none() && !is_lost(call, self.session().now());
        let is_asked = state.slice::<AgentRuns>().is_some_and(|runs| runs.open.values().any(waits));
        if is_asked {
            self.machine().hold_drift(self.session()).await?;
        }
        Ok(is_asked)
    }
}

/// Returns true if a report ends nothing. If such a report comes late, it is recorded before a scan of the disk.
pub fn only_begins(kind: &HookKind) -> bool {
    matches!(
        kind,
        HookKind::RunBegan
            | HookKind::Prompted { .. }
            | HookKind::CallBegan(_)
            | HookKind::Asked
            | HookKind::Allowed
            | HookKind::SubagentBegan
            | HookKind::Other
    )
}

/// Returns true if `report` shows that the call in `begun` is over.
pub fn ends(report: &HookReport, begun: &HookReport) -> bool {
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

/// Returns true if a report has the end of an open call.
fn is_end_of(report: &HookReport, open: &ObservedCall) -> bool {
    matches!(&report.kind, HookKind::CallEnded(call, _) if id_of(call) == open.id)
}

/// Records that the selected open calls may not be running, with the reason. Skips calls that can't write.
fn doubt(session: &Session, why: &str, is_it: impl Fn(&ObservedCall) -> bool) -> Result<(), SessionError> {
    let state = session.state()?;
    let open = state.slice::<AgentRuns>().into_iter().flat_map(|runs| &runs.open);
    let mut doubted = open.filter(|(_, call)| !call.doubt && call.access != ObservedAccess::None && is_it(call));
    doubted.try_for_each(|(seq, call)| {
        note_of(session, *seq, call, ("doubt", json!(why)))?.wait()?;
        Ok(())
    })
}

/// Closes the calls that Codex itself refused. Their ends are in its transcript, but not reported by hooks.
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

/// Finds the output of a refused call at the end of a transcript. `None` if it is absent or unreadable.
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

    /// Returns true if this report shows that an open call is over.
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

    /// Returns true if an open call must be over because its agent begins another call.
    pub(super) fn precedes(&self, call: &ObservedCall, begun: &ReportedCall) -> bool {
        let both_write = call.access != ObservedAccess::None && self.access(begun).0 != ObservedAccess::None;
        self.is_sequential() && both_write && self.is_own(call) && call.id != id_of(begun)
    }

    fn prepare_look(mut self) -> Result<(), SessionError> {
        let (session, unended) = (self.session.clone(), "no hook reported its end");
        match self.arrival.report.kind.clone() {
            HookKind::Asked => doubt(&session, "it asked for permission", |call| self.is_own(call)),
            HookKind::Allowed => self.date(|call| self.is_own(call), 0),
            HookKind::CallEnded(call, end) => self.date_ended(&call, &end),
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

    /// Records the start of calls that asked for permission: `micros` before the report.
    fn date(&self, is_it: impl Fn(&ObservedCall) -> bool, micros: u64) -> Result<(), SessionError> {
        let passed = i64::try_from(micros.saturating_add(self.micros_since())).unwrap_or(i64::MAX) / 1000;
        let since = Timestamp(self.session.now().0.saturating_sub(passed).saturating_sub(SLACK_MILLIS));
        self.note_since(is_it, since)
    }

    fn note_since(&self, is_it: impl Fn(&ObservedCall) -> bool, since: Timestamp) -> Result<(), SessionError> {
        let state = self.session.state()?;
        let open = state.slice::<AgentRuns>().into_iter().flat_map(|runs| &runs.open);
        let mut dated = open.filter(|(_, call)| call.doubt && call.since.is_none() && is_it(call));
        dated.try_for_each(|(seq, call)| {
            note_of(&self.session, *seq, call, ("since", json!(since)))?.wait()?;
            Ok(())
        })
    }

    /// Records the start of a call that asked for permission, if the report of its end shows it.
    fn date_ended(&self, call: &ReportedCall, end: &ReportedEnd) -> Result<(), SessionError> {
        let is_it = |known: &ObservedCall| known.run == self.run_id() && known.id == id_of(call);
        // The edit alone explains the contents, so nothing else changed since the last scan.
        if end.status == CallStatus::Ok && self.is_as_edited(call)? {
            return self.note_since(is_it, Timestamp(0));
        }
        end.micros.map_or(Ok(()), |micros| self.date(is_it, micros))
    }

    /// Returns true if the edit turns the recorded contents of its file into the current contents.
    #[expect(clippy::disallowed_methods, reason = "the agent writes the file")]
    fn is_as_edited(&self, call: &ReportedCall) -> Result<bool, SessionError> {
        let [file] = &call.declared[..] else { return Ok(false) };
        let Some(path) = self.paths(file).pop() else { return Ok(false) };
        let tree = VirtualFileSystem::of(&self.session.state()?);
        let recorded = tree.get(&path).and_then(|entry| entry.node.content());
        let recorded = recorded.map(|content| self.session.content(content)).transpose();
        let text = recorded.ok().flatten().and_then(|bytes| String::from_utf8(bytes.to_vec()).ok());
        let before = text.map(|text| StatedFile { path: file.clone(), change: StatedChange::Whole(text) });
        let stated = before.into_iter().chain(stated_files(&call.tool, &call.params)).collect();
        let Some(KnownChange::Written { contents, .. }) = StatedFiles::default().changes(stated).pop() else {
            return Ok(false);
        };
        Ok(std::fs::read(self.root.join(OsStr::from_bytes(path.as_bytes()))).is_ok_and(|found| found == contents))
    }
}
