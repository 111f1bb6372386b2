//! Adding the events of observed calls to commits.

use serde_json::{Value, json};

use crate::engine::commit::{Commit, CommitError};
use crate::engine::event::{CallFinished, CallObserved, CallReason, CallStarted, CallStatus, Event, TranscriptRecord};
use crate::tools::call::content_params::lift;

/// The number of recorded characters of a tool's name.
const TOOL_MAX: usize = 100;
/// The number of recorded characters of an error message.
pub(super) const MESSAGE_MAX: usize = 64 << 10;

/// Adds the beginning of a call to the commit that opens it. Long texts become contents.
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

/// Adds an event. Long texts in its value become contents. A value that is still too large becomes one content.
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
