//! A call, and its outcome.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::error::UsedLimit;
use super::trace::TraceContext;
use crate::backends::CommandInput;
use crate::engine::event::{CallReason, CallStatus, CommandLine};
use crate::engine::id::{CommitId, Seq};
use crate::reducers::OnFailure;

/// A call to make.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ToolCall {
    /// The tool's name.
    pub tool: String,
    /// Its parameters.
    #[serde(default)]
    pub params: Value,
    /// Treatment of its changes if it fails, or if its command exits non-zero.
    #[serde(default, skip_serializing_if = "OnFailure::is_keep")]
    pub on_failure: OnFailure,
    /// Time limit; by default the tool's, which excludes the time of a command with its own limit.
    #[serde(skip)]
    pub limit: Option<Duration>,
    /// Cancels the call.
    #[serde(skip)]
    pub cancel: CancellationToken,
    /// The trace that the call belongs to; by default a new one.
    #[serde(skip)]
    pub trace: Option<TraceContext>,
    /// The input of its command while that runs; not recorded.
    #[serde(skip)]
    pub input: Option<CommandInput>,
    /// The id of the request: a second call with it returns the outcome of the first.
    #[serde(skip)]
    pub id: Option<CommitId>,
}

impl ToolCall {
    /// Creates a call of that tool.
    pub fn new(tool: impl Into<String>, params: Value) -> Self {
        let cancel = CancellationToken::new();
        let on_failure = OnFailure::default();
        Self { tool: tool.into(), params, on_failure, limit: None, cancel, trace: None, input: None, id: None }
    }
}

/// The command of a call that ended, beside its result. It is not part of the record, which has it elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RanCommand {
    /// The command: a text, a list of arguments, or an object with `interpreter` and `script`.
    #[schemars(with = "Value")]
    pub command: CommandLine,
    /// The directory that it ran in, as commands see it: below the workspace's directory on the host, below
    /// `/workspace` in a container.
    pub directory: String,
    /// True if its exit code is 0.
    pub success: bool,
    /// The signal that ended it, else null.
    pub signal: Option<i32>,
}

/// Outcome of a call; a tool's own failure is an outcome, too.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "CallOutcome")]
pub struct ToolOutcome {
    /// The call's id: the position of its intent.
    pub call: Seq,
    /// The position of its outcome.
    pub finished: Seq,
    /// Status of the call: `ok`, `error` or `interrupted`.
    #[schemars(with = "String")]
    pub status: CallStatus,
    /// The result of a success, else null.
    pub result: Value,
    /// The result or the error, as text for a model.
    pub text: String,
    /// Duration, in microseconds.
    pub micros: u64,
    /// The reason for a failure, else null: `invalid`, `not_found`, `refused`, `over_limit`, `too_large`, `timed_out`,
    /// `cancelled`; or `failed` if the store, the workspace or its backend failed.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub reason: Option<CallReason>,
    /// The command that a success of `shell_execute` or `execute_script` ran to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ran: Option<RanCommand>,
    /// The limit that a failure with the reason `over_limit` exceeded. It is not part of the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Box<UsedLimit>>,
    /// True if an earlier request with the same `call_id` made the call. `text` is then the result as JSON.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repeated: bool,
}

impl ToolOutcome {
    /// Returns true if the call succeeded.
    pub fn is_ok(&self) -> bool {
        self.status == CallStatus::Ok
    }
}
