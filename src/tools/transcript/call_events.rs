//! Events of calls that other programs make, as they are put into commits.

use serde_json::{Value, json};

use crate::engine::commit::{Commit, CommitError, Content};
use crate::engine::event::{CallFinished, CallObserved, CallReason, CallStarted, CallStatus, TranscriptRecord};
use crate::tools::call::content_params::lift;

/// Characters of a tool's name that are recorded.
const TOOL_MAX: usize = 100;
/// Characters of a problem that are recorded.
pub(super) const MESSAGE_MAX: usize = 64 << 10;

/// Adds the beginning of a call to a commit that opens it. Long texts become contents.
pub(in crate::tools) fn push_begin(
    commit: &mut Commit,
    observed: &CallObserved,
    tool: &str,
    params: Value,
) -> Result<(), CommitError> {
    let mut contents = Vec::new();
    let params = lift(params, &mut contents);
    let mut started = CallStarted { tool: tool.chars().take(TOOL_MAX).collect(), params };
    if let Err(CommitError::TooLarge { .. }) = commit.push(&started) {
        started.params = json!({ "params": packed(&started.params, &mut contents) });
        commit.push(&started)?;
    }
    commit.push(observed)?;
    contents.into_iter().for_each(|content| commit.keep(content));
    Ok(())
}

/// The end of a call.
pub(in crate::tools) struct ObservedEnd {
    pub(in crate::tools) status: CallStatus,
    pub(in crate::tools) result: Value,
    pub(in crate::tools) message: String,
    pub(in crate::tools) micros: u64,
}

/// Adds the end of a call to a commit of that call. Long texts become contents.
pub(in crate::tools) fn push_end(commit: &mut Commit, end: ObservedEnd) -> Result<(), CommitError> {
    let ObservedEnd { status, result, message, micros } = end;
    let mut contents = Vec::new();
    let has_failed = status != CallStatus::Ok;
    let result = if has_failed { Value::Null } else { lift(result, &mut contents) };
    let reason = has_failed.then_some(CallReason::Other);
    let message = message.chars().take(MESSAGE_MAX).collect();
    let mut finished = CallFinished { status, result, message, micros, reason };
    if let Err(CommitError::TooLarge { .. }) = commit.push(&finished) {
        finished.result = json!({ "result": packed(&finished.result, &mut contents) });
        commit.push(&finished)?;
    }
    contents.into_iter().for_each(|content| commit.keep(content));
    Ok(())
}

/// Adds a record of a run that is neither a call nor its outcome. Long texts become contents.
pub(in crate::tools) fn push_record(commit: &mut Commit, run: String, record: Value) -> Result<(), CommitError> {
    let mut contents = Vec::new();
    let mut record = TranscriptRecord { run, record: lift(record, &mut contents) };
    if let Err(CommitError::TooLarge { .. }) = commit.push(&record) {
        record.record = json!({ "record": packed(&record.record, &mut contents) });
        commit.push(&record)?;
    }
    contents.into_iter().for_each(|content| commit.keep(content));
    Ok(())
}

/// Returns a mark in place of a value that has no long texts, and is too large all the same: it becomes a text.
fn packed(value: &Value, contents: &mut Vec<Content>) -> Value {
    lift(Value::String(value.to_string()), contents)
}
