//! The steps of a run, in the order of its transcript, whatever program wrote it.

use serde_json::{Map, Value};

use crate::engine::clock::Timestamp;
use crate::engine::event::CallStatus;

/// A step of a run.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TranscriptStep {
    /// Its time; none where the transcript gives none.
    pub(super) at: Option<Timestamp>,
    pub(super) kind: StepKind,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum StepKind {
    /// Facts about the run, such as its model.
    Facts(Map<String, Value>),
    Begun(BegunCall),
    Ended(EndedCall),
    /// Anything else, verbatim.
    Record(Value),
}

/// A call that begins.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct BegunCall {
    /// The transcript's own id of the call.
    pub(super) id: String,
    pub(super) tool: String,
    pub(super) params: Value,
}

/// A call that ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct EndedCall {
    pub(crate) id: String,
    pub(crate) status: CallStatus,
    /// The result of a success.
    pub(crate) result: Value,
    /// The problem of a failure.
    pub(crate) message: String,
    /// The duration, where the transcript states it.
    pub(crate) micros: Option<u64>,
    /// The files that it says the call has changed.
    pub(crate) files: Vec<StatedFile>,
    /// The id of the run that the call began, a subagent's.
    pub(crate) child: Option<String>,
}

impl EndedCall {
    pub(crate) fn ok(id: impl Into<String>, result: Value) -> Self {
        Self {
            id: id.into(),
            status: CallStatus::Ok,
            result,
            message: String::new(),
            micros: None,
            files: Vec::new(),
            child: None,
        }
    }

    pub(crate) fn failed(id: impl Into<String>, message: impl Into<String>) -> Self {
        Self { status: CallStatus::Error, message: message.into(), ..Self::ok(id, Value::Null) }
    }
}

/// A file as a transcript states it after a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StatedFile {
    /// Its path, absolute or below the run's directory.
    pub(crate) path: String,
    pub(crate) change: StatedChange,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StatedChange {
    /// The file has these contents now.
    Whole(String),
    /// One text was replaced by another, in `before` or in what is known of the file.
    Replaced {
        before: Option<String>,
        old: String,
        new: String,
        all: bool,
    },
    /// A unified diff was applied, and the file maybe moved.
    Patched {
        diff: String,
        moved_to: Option<String>,
    },
    Removed,
}

impl TranscriptStep {
    pub(super) fn new(at: Option<Timestamp>, kind: StepKind) -> Self {
        Self { at, kind }
    }
}

/// Returns the time in a field: ISO 8601, or seconds or milliseconds since 1970. A time without a zone counts as UTC.
pub(super) fn time_of(value: &Value) -> Option<Timestamp> {
    match value {
        Value::String(text) => text.parse().or_else(|_| format!("{text}Z").parse()).ok(),
        Value::Number(seconds) => {
            let seconds = seconds.as_f64()?;
            // Seconds beyond this are of the year 5138.
            let millis = if seconds.abs() < 1e11 { seconds * 1000.0 } else { seconds };
            // Beyond that jiff has no times.
            (millis.abs() < 2.5e14).then_some(Timestamp(millis as i64))
        }
        _ => None,
    }
}

/// Returns a text field; empty where it is missing or no text.
pub(crate) fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value[name].as_str().unwrap_or_default()
}

/// Returns the parameters in a field that may hold them as JSON in a text.
pub(crate) fn params_of(value: &Value) -> Value {
    match value {
        Value::String(text) => match serde_json::from_str::<Value>(text) {
            Ok(params @ Value::Object(_)) => params,
            _ => serde_json::json!({ "input": text }),
        },
        Value::Null => Value::Object(Map::new()),
        other => other.clone(),
    }
}

/// Returns the text of a message's content: a text, or a list of parts with texts.
pub(crate) fn content_text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts = parts.iter().map(|part| part.as_str().unwrap_or_else(|| text(part, "text")));
            texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}
