//! Recording of what must be known before the disk is looked at: the calls that run, that have ended, or that may never
//! have run.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::observer::{Arrival, CODELESS, Observer, agent_name, id_of, open};
use super::report::{HookKind, HookReport, ReportedCall, ReportedEnd};
use crate::backends::agent_process::process_ended;
use crate::engine::clock::Timestamp;
use crate::engine::commit::CallLink;
use crate::engine::event::{CallNoted, CallStatus, ObservedAccess};
use crate::engine::id::Seq;
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::reducers::{AgentRuns, ObservedCall};
use crate::tools::call::error::ToolError;
use crate::tools::transcript::call_events::{ObservedEnd, push_end};
use crate::tools::transcript::step::content_text;

/// Time between the end of a command and the start of its hook.
const SLACK_MILLIS: i64 = 1_000;
/// Bytes at the end of a transcript that are searched for refusals.
const TAIL: u64 = 1 << 20;
/// Beginnings and parts of the outputs of calls that Codex has refused itself, so that they changed nothing.
const REFUSALS: [&str; 4] =
    ["exec_command failed", "apply_patch verification failed", "reject command", "rejected by user"];

/// Records what must be known before the disk is looked at, so that what changed gets the right author: the beginnings in
/// reports that come late, and whether the calls that are open still run.
///
/// # Errors
/// Nothing can be recorded.
pub(crate) async fn prepare_look(session: Session, root: PathBuf, arrivals: Vec<Arrival>) -> Result<(), ToolError> {
    let turn = session.turn().await;
    let prepared = tokio::task::spawn_blocking(move || {
        let gone = |call: &ObservedCall| !call.doubt && process_ended(&call.process);
        doubt(&session, "its agent's process has ended", gone)?;
        close_refused(&session)?;
        for arrival in arrivals {
            Observer::new(&session, root.clone(), arrival).prepare_look()?;
        }
        drop(turn);
        Ok::<_, SessionError>(())
    });
    Ok(prepared.await.map_err(|_| ToolError::new("the recording of a report was stopped"))??)
}

/// Returns true if a report is recorded before the disk is looked at when it comes late: nothing ends by it.
pub(crate) fn only_begins(kind: &HookKind) -> bool {
    matches!(
        kind,
        HookKind::RunBegan
            | HookKind::Prompted { .. }
            | HookKind::CallBegan(_)
            | HookKind::Asked
            | HookKind::SubagentBegan
            | HookKind::Other { .. }
    )
}

/// Returns true if a report says that the call that another one began is over.
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

/// Records that it is uncertain whether these open calls run, and why.
fn doubt(session: &Session, why: &str, is_it: impl Fn(&ObservedCall) -> bool) -> Result<(), SessionError> {
    let runs = session.state()?.slice::<AgentRuns>().cloned().unwrap_or_default();
    let doubted = runs.open.iter().filter(|(_, call)| is_it(call));
    doubted.map(|(seq, call)| note_open(session, *seq, call, ("doubt", json!(why)))).try_for_each(|noted| noted)
}

fn note_open(
    session: &Session,
    seq: Seq,
    call: &ObservedCall,
    (name, fact): (&str, Value),
) -> Result<(), SessionError> {
    let mut commit = session.as_agent(Arc::clone(&call.agent)).commit().of_call(CallLink::Of(seq));
    let facts = Map::from_iter([(name.to_owned(), fact)]);
    commit.push(&CallNoted { run: call.run.clone(), id: call.id.clone(), facts })?;
    session.submit(commit)?.wait()?;
    Ok(())
}

/// Closes the calls that an agent has refused itself, of which its hooks never report an end and its transcript does.
fn close_refused(session: &Session) -> Result<(), SessionError> {
    let runs = session.state()?.slice::<AgentRuns>().cloned().unwrap_or_default();
    for (seq, call) in &runs.open {
        let known = runs.runs.get(&call.run).filter(|known| known.agent == CODELESS);
        let path = known.and_then(|known| known.facts.get("transcript_path")?.as_str());
        let Some(message) = path.and_then(|path| refusal(Path::new(path), &call.id)) else { continue };
        let mut commit = session.as_agent(Arc::clone(&call.agent)).commit().of_call(CallLink::Of(*seq));
        let end = ObservedEnd { status: CallStatus::Error, result: Value::Null, message, micros: 0 };
        push_end(&mut commit, end)?;
        session.submit(commit)?.wait()?;
    }
    Ok(())
}

/// Finds the output of a refused call at the end of a transcript. One that can't be read tells nothing.
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
    fn prepare_look(mut self) -> Result<(), SessionError> {
        let (session, run, name) = (self.session.clone(), self.run_id(), Arc::clone(&self.name));
        let is_own = |call: &ObservedCall| !call.doubt && call.run == run && call.agent == name;
        let writes = |call: &ObservedCall| call.access != ObservedAccess::None;
        let unended = "no hook reported its end";
        match self.arrival.report.kind.clone() {
            HookKind::Asked => doubt(&session, "it asked for a permission", |call| is_own(call) && writes(call)),
            HookKind::CallEnded(call, end) => self.date(&call, &end),
            kind if self.arrival.waited > 0 => {
                if only_begins(&kind) {
                    self.record_kind(false)
                } else {
                    Ok(())
                }
            }
            HookKind::CallBegan(call) if self.is_sequential() && self.access(&call).0 != ObservedAccess::None => {
                let id = id_of(&call);
                doubt(&session, unended, |call| is_own(call) && writes(call) && call.id != id)
            }
            HookKind::Prompted { .. } | HookKind::Paused { .. } => {
                doubt(&session, unended, |call| is_own(call) && writes(call))
            }
            HookKind::SubagentEnded => doubt(&session, unended, |call| !call.doubt && call.agent == name),
            HookKind::RunEnded { .. } => doubt(&session, unended, |call| !call.doubt && call.run == run),
            HookKind::Batch(calls) => {
                let is_in = |known: &ObservedCall| calls.iter().any(|(call, _)| id_of(call) == known.id);
                doubt(&session, unended, |call| is_own(call) && is_in(call))
            }
            HookKind::RunBegan => {
                let process = self.conversing();
                doubt(&session, unended, |call| !call.doubt && call.is_of_earlier_run(&run, process.as_deref()))
            }
            HookKind::CallBegan(_) | HookKind::SubagentBegan | HookKind::Other { .. } => Ok(()),
        }
    }

    /// Records from when on a call ran that has asked for a permission, if its agent says how long it took.
    fn date(&mut self, call: &ReportedCall, end: &ReportedEnd) -> Result<(), SessionError> {
        let (id, runs) = (id_of(call), self.runs()?);
        let Some(((seq, open), micros)) = open(&runs, &id).zip(end.micros) else { return Ok(()) };
        if !open.doubt {
            return Ok(());
        }
        let passed = i64::try_from(micros.saturating_add(self.micros_since())).unwrap_or(i64::MAX) / 1000;
        let since = Timestamp(self.session.now().0.saturating_sub(passed).saturating_sub(SLACK_MILLIS));
        note_open(&self.session, seq, open, ("since", json!(since)))
    }
}
