//! Tool calls: the intent before the effect, the outcome after it.

use rkyv::{Archive, Serialize as Archivable};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::codec::{archive, validated};
use super::{CodecError, Event};
use crate::engine::error::ErrorKind;

/// Event of a tool call that begins. Recorded before the call has any effect; its position is the call id.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallStarted {
    /// Name of the tool.
    pub tool: String,
    /// Parameters of the call. A long text in them is replaced by `{"$content": digest, "bytes": n}`.
    pub params: Value,
}

/// Event of a tool call that ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallFinished {
    /// Status of the call.
    pub status: CallStatus,
    /// Result of a success, else null. Long texts are replaced as in [`CallStarted::params`].
    pub result: Value,
    /// Problem, for the caller; empty after a success.
    pub message: String,
    /// Duration from intent to outcome, in microseconds of the monotonic clock.
    pub micros: u64,
    /// Reason for the failure; `None` after a success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<CallReason>,
}

/// Reason of a call that did not succeed, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallReason {
    /// The parameters were too large to be recorded.
    TooLarge,
    /// A limit of the session or the agent is exhausted.
    OverLimit,
    /// A parameter is invalid.
    Invalid,
    /// A named entry does not exist.
    NotFound,
    /// The tool or a rule refused.
    Refused,
    /// The store, the workspace or its backend failed.
    Failed,
    /// The call took longer than its limit.
    TimedOut,
    /// The caller cancelled the call.
    Cancelled,
    /// The process that ran the call ended before the call did.
    Abandoned,
    /// Only a newer program knows the reason.
    #[serde(other)]
    Other,
}

impl From<ErrorKind> for CallReason {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Invalid => Self::Invalid,
            ErrorKind::NotFound | ErrorKind::ContentMissing | ErrorKind::Ambiguous => Self::NotFound,
            ErrorKind::Conflict | ErrorKind::Refused | ErrorKind::Forbidden => Self::Refused,
            ErrorKind::Busy | ErrorKind::OtherHost | ErrorKind::Unavailable => Self::Failed,
            ErrorKind::Damaged | ErrorKind::Newer => Self::Failed,
            ErrorKind::Io | ErrorKind::Full | ErrorKind::Backend | ErrorKind::Broken => Self::Failed,
            ErrorKind::TimedOut => Self::TimedOut,
            ErrorKind::Cancelled => Self::Cancelled,
        }
    }
}

impl CallFinished {
    #[doc(hidden)]
    pub fn without_success(status: CallStatus, reason: CallReason, message: String, micros: u64) -> Self {
        Self { status, result: Value::Null, message, micros, reason: Some(reason) }
    }
}

/// Status of a call that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CallStatus {
    /// The call succeeded.
    Ok = 0,
    /// The call failed and changed nothing.
    Error = 1,
    /// The call was cut off: it was cancelled, or its process ended.
    Interrupted = 2,
}

/// Statuses by their code in a journal.
const STATUSES: [CallStatus; 3] = [CallStatus::Ok, CallStatus::Error, CallStatus::Interrupted];

impl CallStatus {
    /// Returns its name in documents.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Error => "error",
            Self::Interrupted => "interrupted",
        }
    }
}

/// Key of a reason that is stored in place of a result.
const REASON: &str = "$reason";

/// Frozen: stored in journals.
#[derive(Archive, Archivable)]
struct CallStartedV1 {
    tool: String,
    params: String,
}

/// Frozen: stored in journals.
#[derive(Archive, Archivable)]
struct CallFinishedV1 {
    status: u8,
    result: String,
    message: String,
    micros: u64,
}

impl Event for CallStarted {
    const KIND: &'static str = "CallStarted";

    fn encode(&self, out: &mut Vec<u8>) -> Result<(), CodecError> {
        let frozen = CallStartedV1 { tool: self.tool.clone(), params: self.params.to_string() };
        archive(Self::KIND, Self::VERSION, &frozen, out)
    }

    fn decode(version: u16, bytes: &[u8]) -> Result<Self, CodecError> {
        Ok(Self {
            tool: started_tool(version, bytes)?.to_owned(),
            params: json(Self::KIND, version, &started(version, bytes)?.params)?,
        })
    }
}

/// Tool name of calls that are undos.
pub const UNDO_TOOL: &str = "undo";
/// Tool name of calls that restore earlier entries of paths.
pub const REVERT_TOOL: &str = "revert";

/// Returns true if calls of a tool restore earlier versions, so that lines keep their authors.
pub fn takes_back(tool: &str) -> bool {
    [UNDO_TOOL, REVERT_TOOL].contains(&tool)
}

fn started(version: u16, bytes: &[u8]) -> Result<&ArchivedCallStartedV1, CodecError> {
    validated::<CallStartedV1>(CallStarted::KIND, version, bytes)
}

#[doc(hidden)]
pub fn started_tool(version: u16, bytes: &[u8]) -> Result<&str, CodecError> {
    started(version, bytes).map(|frozen| frozen.tool.as_str())
}

#[doc(hidden)]
pub fn started_params(version: u16, bytes: &[u8]) -> Result<&str, CodecError> {
    started(version, bytes).map(|frozen| frozen.params.as_str())
}

fn json(kind: &str, version: u16, text: &str) -> Result<Value, CodecError> {
    serde_json::from_str(text).map_err(|e| CodecError::new(kind, version, e))
}

#[derive(Debug, Clone, Copy)]
#[doc(hidden)]
pub struct FinishedView<'a> {
    pub status: CallStatus,
    pub message: &'a str,
    pub micros: u64,
}

#[doc(hidden)]
pub fn finished_view(version: u16, bytes: &[u8]) -> Result<FinishedView<'_>, CodecError> {
    let frozen = finished(version, bytes)?;
    let unknown = || CodecError::new(CallFinished::KIND, version, "unknown status");
    let status = *STATUSES.get(usize::from(frozen.status)).ok_or_else(unknown)?;
    Ok(FinishedView { status, message: &frozen.message, micros: frozen.micros.to_native() })
}

#[doc(hidden)]
pub fn finished_result(version: u16, bytes: &[u8]) -> Result<&str, CodecError> {
    finished(version, bytes).map(|frozen| frozen.result.as_str())
}

fn finished(version: u16, bytes: &[u8]) -> Result<&ArchivedCallFinishedV1, CodecError> {
    validated::<CallFinishedV1>(CallFinished::KIND, version, bytes)
}

impl Event for CallFinished {
    const KIND: &'static str = "CallFinished";

    fn encode(&self, out: &mut Vec<u8>) -> Result<(), CodecError> {
        let frozen = CallFinishedV1 {
            status: self.status as u8,
            result: match self.reason {
                None => self.result.to_string(),
                Some(reason) => serde_json::json!({ REASON: reason }).to_string(),
            },
            message: self.message.clone(),
            micros: self.micros,
        };
        archive(Self::KIND, Self::VERSION, &frozen, out)
    }

    fn decode(version: u16, bytes: &[u8]) -> Result<Self, CodecError> {
        let view = finished_view(version, bytes)?;
        let mut result = json(Self::KIND, version, &finished(version, bytes)?.result)?;
        // Only a successful call has a result, so the key can't clash.
        let marked = result.get_mut(REASON).filter(|_| view.status != CallStatus::Ok).map(Value::take);
        let reason =
            marked.map(serde_json::from_value).transpose().map_err(|e| CodecError::new(Self::KIND, version, e))?;
        if reason.is_some() {
            result = Value::Null;
        }
        Ok(Self { status: view.status, message: view.message.to_owned(), micros: view.micros, result, reason })
    }
}
