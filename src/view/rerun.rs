//! Calls that were made again, and their divergences.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::{ChangeDocument, change_between, subject};
use crate::engine::id::Seq;
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::tools::{CallReport, CallVerdict, Divergence};

const SUBJECT_MAX: usize = 200;

/// A call that was made again.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct RerunCall {
    /// The call in the recorded session.
    pub call: Option<Seq>,
    /// The call in the fresh session; null if it was not made.
    pub rerun: Option<Seq>,
    /// The tool.
    pub tool: String,
    /// The agent that made it.
    #[schemars(with = "String")]
    pub agent: Arc<str>,
    /// Its subject in one line: a command, a path, a pattern. Misleading characters are escaped.
    pub summary: String,
    /// `same`, `diverged`, `skipped` or, for a call of a script, `made`.
    pub verdict: &'static str,
    /// The reason why it was skipped.
    pub reason: Option<String>,
    /// The differences.
    pub divergences: Vec<DivergenceDocument>,
}

/// A difference between two runs.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(rename = "Divergence")]
pub struct DivergenceDocument {
    /// `call`, `status`, `message`, `result`, `event` (an own event of the call) or `file`.
    pub differs: &'static str,
    /// The place in the result, or in the list of the call's own events, as a JSON pointer; empty for the whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// The recorded value; null for a place in a result without a value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub was: Option<Value>,
    /// The new value; null for a place in a result without a value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is: Option<Value>,
    /// The change of a file, from the recorded state to the new one.
    #[serde(flatten)]
    pub change: Option<ChangeDocument>,
}

/// Returns a divergence between two sessions as a document.
pub fn divergence(was: &Session, is: &Session, one: &Divergence) -> Result<DivergenceDocument, SessionError> {
    let document = |differs, at: Option<&String>, (was, is): (Value, Value)| DivergenceDocument {
        differs,
        at: at.cloned(),
        was: Some(was),
        is: Some(is),
        change: None,
    };
    Ok(match one {
        Divergence::Call { was, is } => document("call", None, (was.clone(), is.clone())),
        Divergence::Status { was, is } => document("status", None, (was.word().into(), is.word().into())),
        Divergence::Message { was, is } => document("message", None, (was.as_str().into(), is.as_str().into())),
        Divergence::Result { at, was, is } => document("result", Some(at), (was.clone(), is.clone())),
        Divergence::Event { at, was, is } => document("event", Some(at), (was.clone(), is.clone())),
        Divergence::File { change } => {
            let change = Some(change_between(was, is, change)?);
            DivergenceDocument { differs: "file", at: None, was: None, is: None, change }
        }
    })
}

/// Returns a call that was made again as a document, with at most `most` divergences.
pub fn rerun_call(was: &Session, is: &Session, call: &CallReport, most: usize) -> Result<RerunCall, SessionError> {
    let divergences: &[Divergence] = match &call.verdict {
        CallVerdict::Diverged { divergences } => divergences,
        _ => &[],
    };
    let divergences: Result<Vec<_>, _> = divergences.iter().take(most).map(|one| divergence(was, is, one)).collect();
    Ok(RerunCall {
        call: call.call,
        rerun: call.rerun,
        tool: call.tool.clone(),
        agent: Arc::clone(&call.agent),
        summary: subject(was, &call.params, SUBJECT_MAX),
        verdict: match &call.verdict {
            CallVerdict::Same => "same",
            CallVerdict::Diverged { .. } => "diverged",
            CallVerdict::Skipped { .. } => "skipped",
            CallVerdict::Made { .. } => "made",
        },
        reason: match &call.verdict {
            CallVerdict::Skipped { reason } => Some(reason.clone()),
            _ => None,
        },
        divergences: divergences?,
    })
}
