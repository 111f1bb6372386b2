//! Events of calls that other programs make, as they are put into commits.

use serde_json::{Value, json};

use crate::engine::commit::{Commit, CommitError};
use crate::engine::event::{CallFinished, CallObserved, CallReason, CallStarted, CallStatus, Event, TranscriptRecord};
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
    let started = CallStarted { tool: tool.chars().take(TOOL_MAX).collect(), params };
    push(commit, started, "params", |started| &mut started.params)?;
    commit.push(observed)
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
    let has_failed = status != CallStatus::Ok;
    let result = if has_failed { Value::Null } else { result };
    let reason = has_failed.then_some(CallReason::Other);
    let message = message.chars().take(MESSAGE_MAX).collect();
    let finished = CallFinished { status, result, message, micros, reason };
    push(commit, finished, "result", |finished| &mut finished.result)
}

/// Adds a record of a run that is neither a call nor its outcome. Long texts become contents.
pub(in crate::tools) fn push_record(commit: &mut Commit, run: String, record: Value) -> Result<(), CommitError> {
    push(commit, TranscriptRecord { run, record }, "record", |record| &mut record.record)
}

/// Adds an event whose long texts become contents. A value without such texts that is too large all the same becomes one.
fn push<E: Event>(
    commit: &mut Commit,
    mut event: E,
    name: &str,
    value: fn(&mut E) -> &mut Value,
) -> Result<(), CommitError> {
    let mut contents = Vec::new();
    let lifted = lift(value(&mut event).take(), &mut contents);
    *value(&mut event) = lifted;
    match commit.push(&event) {
        Err(CommitError::TooLarge { .. }) => {
            let packed = Value::String(value(&mut event).to_string());
            *value(&mut event) = json!({ name: lift(packed, &mut contents) });
            commit.push(&event)?;
        }
        pushed => pushed?,
    }
    contents.into_iter().for_each(|content| commit.keep(content));
    Ok(())
}
