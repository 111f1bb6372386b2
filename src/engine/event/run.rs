//! Events of runs that other programs made, and that are recorded by looking on or from their transcripts.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Event of an agent's run that begins in a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunBegan {
    /// Id that the agent gives its run.
    pub run: String,
    /// Kind of agent, such as `claude` or `codex`.
    pub agent: String,
    /// Format of the transcript that it is from; empty for none.
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

/// Event of a call that another program made. It is in the commit of its [`CallStarted`](super::CallStarted).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallObserved {
    /// Id of the run.
    pub run: String,
    /// Id that the agent gives the call.
    pub id: String,
}

/// Event of a call of which it is not known which files it changed. It is in the commit of its outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangesUnknown {
    /// Id of the run.
    pub run: String,
    /// Paths that it is known to have changed, in a way that is not known.
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
