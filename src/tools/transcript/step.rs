//! The steps of a run in the order of its transcript, common to all formats.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::json_piece::packed;
use crate::engine::clock::Timestamp;
use crate::engine::event::CallStatus;

/// A step of a run.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TranscriptStep {
    /// The time of the step, if the transcript states it.
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

/// The beginning of a call.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct BegunCall {
    /// The transcript's own id of the call.
    pub(super) id: String,
    pub(super) tool: String,
    pub(super) params: Value,
    /// The files that the parameters say are changed. They count if the call succeeds and its end states no files.
    pub(super) files: Vec<StatedFile>,
}

/// The end of a call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct EndedCall {
    pub(crate) id: String,
    pub(crate) status: CallStatus,
    /// The result, for a success.
    pub(crate) result: Value,
    /// The error message, for a failure.
    pub(crate) message: String,
    /// The duration, if the transcript states it.
    pub(crate) micros: Option<u64>,
    /// The files that the call changed according to the transcript.
    pub(crate) files: Vec<StatedFile>,
    /// The id of the subagent's run that the call began.
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

    /// Adds the exit code of a command to the result.
    pub(super) fn with_code(mut self, code: Option<i64>) -> Self {
        if let (Some(code), Some(fields)) = (code, self.result.as_object_mut()) {
            fields.insert("exit_code".to_owned(), code.into());
        }
        self
    }
}

/// A change of a file by a call, as a transcript states it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StatedFile {
    /// The path, absolute or below the run's directory.
    pub(crate) path: String,
    pub(crate) change: StatedChange,
}

impl StatedFile {
    /// Returns the approximate memory in bytes.
    pub(super) fn size(&self) -> usize {
        let change = match &self.change {
            StatedChange::Whole(contents) => contents.len(),
            StatedChange::Replaced { before, old, new, .. } => {
                before.as_ref().map_or(0, String::len) + old.len() + new.len()
            }
            StatedChange::Patched { diff, .. } => diff.len(),
            StatedChange::Removed => 0,
        };
        EACH + self.path.len() + change
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StatedChange {
    /// The file has these contents now.
    Whole(String),
    /// One text was replaced by another, in `before` or in the known contents of the file.
    Replaced {
        before: Option<String>,
        old: String,
        new: String,
        all: bool,
    },
    /// A unified diff was applied, and the file may have been moved.
    Patched {
        diff: String,
        moved_to: Option<String>,
    },
    Removed,
}

/// The limit for the values of open calls, in bytes. A single value may exceed it.
const KEPT_MAX: usize = 8 << 20;
/// The bytes of memory for each entry, besides its id and its value.
const EACH: usize = 200;

/// Values by call id, until the calls end. Values over the limit are dropped; the changes of such a call count as
/// unknown.
#[derive(Debug)]
pub(super) struct KeptByCall<T> {
    kept: BTreeMap<String, (T, usize)>,
    bytes: usize,
}

impl<T> Default for KeptByCall<T> {
    fn default() -> Self {
        Self { kept: BTreeMap::new(), bytes: 0 }
    }
}

impl<T> KeptByCall<T> {
    /// Stores a value of approximately `bytes` bytes.
    pub(super) fn keep(&mut self, id: &str, value: T, bytes: usize) {
        let bytes = bytes + id.len() + EACH;
        self.take(id);
        if self.kept.is_empty() || self.bytes + bytes <= KEPT_MAX {
            self.bytes += bytes;
            self.kept.insert(id.to_owned(), (value, bytes));
        }
    }

    pub(super) fn get(&self, id: &str) -> Option<&T> {
        self.kept.get(id).map(|(value, _)| value)
    }

    pub(super) fn take(&mut self, id: &str) -> Option<T> {
        let (value, bytes) = self.kept.remove(id)?;
        self.bytes -= bytes;
        Some(value)
    }
}

/// The receiver of the steps of a run. A step without a time has the time of the previous step.
pub(super) struct StepReceiver<'s>(pub(super) &'s mut dyn FnMut(TranscriptStep));

impl StepReceiver<'_> {
    pub(super) fn give(&mut self, at: Option<Timestamp>, kind: StepKind) {
        (self.0)(TranscriptStep { at, kind });
    }

    /// Emits the facts about the run that are not null.
    pub(super) fn facts<'v>(&mut self, at: Option<Timestamp>, stated: impl IntoIterator<Item = (&'v str, &'v Value)>) {
        let stated = stated.into_iter().filter(|(_, value)| !value.is_null());
        self.give(at, StepKind::Facts(stated.map(|(name, value)| (name.to_owned(), value.clone())).collect()));
    }

    pub(super) fn begin(
        &mut self,
        at: Option<Timestamp>,
        (id, tool): (impl Into<String>, impl Into<String>),
        params: Value,
    ) {
        let (id, tool) = (id.into(), tool.into());
        self.give(at, StepKind::Begun(BegunCall { id, tool, params, files: Vec::new() }));
    }

    pub(super) fn end(&mut self, at: Option<Timestamp>, call: EndedCall) {
        self.give(at, StepKind::Ended(call));
    }

    pub(super) fn record(&mut self, at: Option<Timestamp>, record: Value) {
        self.give(at, StepKind::Record(record));
    }
}

/// Parses a time: ISO 8601, or seconds or milliseconds since 1970. A time without a zone counts as UTC.
pub(super) fn time_of(value: &Value) -> Option<Timestamp> {
    match value {
        Value::String(text) => text.parse().or_else(|_| format!("{text}Z").parse()).ok(),
        Value::Number(seconds) => {
            let seconds = seconds.as_f64()?;
            // As seconds, larger numbers would be after the year 5138.
            let millis = if seconds.abs() < 1e11 { seconds * 1000.0 } else { seconds };
            // jiff supports no times beyond this.
            (millis.abs() < 2.5e14).then_some(Timestamp(millis as i64))
        }
        _ => None,
    }
}

/// Returns a string field; empty if it is missing or not a string.
pub(crate) fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value[name].as_str().unwrap_or_default()
}

/// Takes the elements of an array out of a field, and leaves null.
pub(super) fn taken(value: &mut Value, name: &str) -> Vec<Value> {
    match value.get_mut(name).map(Value::take) {
        Some(Value::Array(elements)) => elements,
        _ => Vec::new(),
    }
}

/// Returns the parameters in a field, which may hold them as JSON in a string.
pub(crate) fn params_of(value: &Value) -> Value {
    match value {
        Value::String(text) => match packed(text) {
            Some(params @ Value::Object(_)) => params,
            _ => serde_json::json!({ "input": text }),
        },
        Value::Null => Value::Object(Map::new()),
        other => other.clone(),
    }
}

/// Returns the text of a message's content, which is a string or a list of parts with texts.
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
