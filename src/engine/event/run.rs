//! Events of runs made by other programs, recorded by observation or from their transcripts.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::engine::{Digest, EntryPath, Seq, Timestamp};

/// Event of an agent's run that begins in a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunBegan {
    /// Id that the agent assigned to its run.
    pub run: String,
    /// Kind of agent, such as `claude` or `codex`.
    pub agent: String,
    /// Format of the transcript that it comes from; empty for none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub format: String,
}

/// Event of facts about a run, such as its model. Later ones replace earlier ones of the same name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunNoted {
    /// Id of the run.
    pub run: String,
    /// Facts by name.
    pub facts: Map<String, Value>,
}

/// Event of a run that ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEnded {
    /// Id of the run.
    pub run: String,
    /// Reason that its agent reported; empty for none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// Event of a person's request to an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunPrompted {
    /// Id of the run.
    pub run: String,
    /// Id that the agent assigned to the request; empty for none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// First line of the request, of at most 200 characters.
    pub line: String,
    /// Digest of the whole request, which only some runs store.
    pub digest: Digest,
}

/// Event of a call that another program made. It is in the commit of its [`CallStarted`](super::CallStarted).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallObserved {
    /// Id of the run.
    pub run: String,
    /// Id that the agent assigned to the call, or one derived from its tool and parameters.
    pub id: String,
    /// File changes that the call may make while it is open.
    #[serde(default, skip_serializing_if = "ObservedAccess::is_none")]
    pub access: ObservedAccess,
    /// Paths that the call declares to change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<EntryPath>,
    /// Process of its agent, which outlives the call; empty if unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub process: String,
    /// Time of its end, if the call was reported after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// File changes that an observed call may make.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ObservedAccess {
    /// None.
    #[default]
    None,
    /// Changes of the paths that it names.
    Named,
    /// Any changes.
    Any,
}

impl ObservedAccess {
    fn is_none(&self) -> bool {
        *self == Self::None
    }
}

/// Event of further facts about an observed call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallNoted {
    /// Id of the run.
    pub run: String,
    /// Id that the agent assigned to the call.
    pub id: String,
    /// Facts by name, such as `exit_code`. `doubt` is the reason why an open call may not be running, `since` the time
    /// from when it certainly ran.
    pub facts: Map<String, Value>,
}

/// Event of a report that was recorded after the observed call had continued. File changes may stem from later calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportLate {
    /// Id of the run.
    pub run: String,
    /// Id that the agent assigned to the call; empty if the report concerns none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// Time from the report to its record, in microseconds.
    pub micros: u64,
}

/// Event of a background task that an observed call started, and that may change files after the call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskObserved {
    /// Id of the run.
    pub run: String,
    /// Id that the agent assigned to the task.
    pub task: String,
    /// Call that started it.
    pub call: Seq,
    /// True at its start, false at its end.
    pub running: bool,
}

/// Event of file changes, in the same commit, that one or more of several calls made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangesShared {
    /// Calls that may have made them, in order.
    pub calls: Vec<Seq>,
}

/// Event of a change of a git worktree's commit, branch or index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GitMoved {
    /// Id of the commit that is checked out; empty before the first one.
    pub head: String,
    /// Name of the branch; empty for none.
    pub branch: String,
    /// Digest of the index's list of files.
    pub index: Digest,
}

/// Event of a call with unknown file changes, in the commit of its outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangesUnknown {
    /// Id of the run.
    pub run: String,
    /// Paths that it certainly changed, in an unknown way.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
}

/// Event of a record of a transcript that is neither a call nor its outcome, such as a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TranscriptRecord {
    /// Id of the run.
    pub run: String,
    /// Record, with long texts replaced as in [`CallStarted::params`](super::CallStarted::params).
    pub record: Value,
}
