//! Calls for long lists: a few fields, read without decoding the others.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use regex::{Regex, RegexBuilder};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::path_of;
use crate::engine::clock::Timestamp;
use crate::engine::error::ValueError;
use crate::engine::event::{CallStatus, Common, finished_result, started_params, started_tool};
use crate::engine::history::OpenCalls;
use crate::engine::id::Seq;
use crate::engine::recorded::EventRef;
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::tools::PathGlob;

/// The field of a result with the duration of a command.
const DURATION: &str = "duration_seconds";

/// A filter of calls: a call passes if it fits every given field.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CallFilter {
    /// Only calls of this tool.
    pub tool: Option<String>,
    /// Only calls by this agent; empty for calls without an agent.
    pub agent: Option<String>,
    /// Only calls that failed, or with a command that did: it timed out, or its exit code is not 0.
    pub failed: bool,
    /// Only calls that changed files.
    pub changed: bool,
    /// Only calls that changed a path matching this glob.
    pub path: Option<String>,
    /// Only calls with this text in tool, parameters, result or error, ignoring case. Texts of more than 256 bytes,
    /// which are replaced by marks, are not searched.
    pub text: Option<String>,
}

/// A call in a long list.
#[derive(Debug, Clone, Default)]
pub struct CallRow {
    /// The position of its intent.
    pub call: Seq,
    /// The tool.
    pub tool: Arc<str>,
    /// The agent that made it.
    pub agent: Arc<str>,
    /// Its start time.
    pub started_at: Timestamp,
    /// The position of its outcome; `None` until it has ended.
    pub finished: Option<Seq>,
    /// Its status; `None` until it has ended.
    pub status: Option<CallStatus>,
    /// Its duration in microseconds.
    pub micros: u64,
    /// The exit code in its result.
    pub exit_code: Option<i64>,
    /// True if it failed, or its command did.
    pub failed: bool,
    /// The number of its changes of files.
    pub changed: u64,
    /// The parameters, if digests are on.
    pub params: Value,
    /// A digest of tool and parameters, if digests are on.
    pub key: String,
    /// A digest of the outcome, if digests are on.
    pub outcome: String,
    has_text: bool,
    has_path: bool,
}

/// The end of a command, from a result.
#[derive(Default, Deserialize)]
#[serde(default)]
struct CommandEnd {
    exit_code: Option<i64>,
    timed_out: Option<bool>,
}

/// Assembles rows from events.
pub struct CallRows<'a> {
    filter: &'a CallFilter,
    glob: Option<PathGlob>,
    text: Option<Regex>,
    has_digests: bool,
    own_names: Vec<(String, &'static str)>,
    running: BTreeSet<Seq>,
    names: BTreeSet<Arc<str>>,
    open: OpenCalls<CallRow>,
}

impl<'a> CallRows<'a> {
    /// Prepares a search. Calls without an outcome that are not among `running` have failed.
    pub fn new(filter: &'a CallFilter, running: BTreeSet<Seq>) -> Result<Self, ValueError> {
        let glob = filter.path.as_deref().map(PathGlob::new).transpose();
        let glob = glob.map_err(|error| ValueError::new(format!("path is not a glob: {}", error.kind())))?;
        // The events have the text as a JSON string.
        let text = filter.text.as_deref().map(|text| Value::from(text).to_string());
        let text = text.map(|text| regex::escape(&text[1..text.len() - 1]));
        let text = text.map(|text| RegexBuilder::new(&text).case_insensitive(true).build()).transpose();
        let text = text.map_err(|_| ValueError::new("text is too long to search for"))?;
        let (names, open) = (BTreeSet::new(), OpenCalls::default());
        Ok(Self { filter, glob, text, has_digests: false, own_names: Vec::new(), running, names, open })
    }

    /// Turns on digests of parameters and outcomes.
    #[must_use]
    pub fn with_digests(self) -> Self {
        Self { has_digests: true, ..self }
    }

    /// Turns on digests that are equal in sessions with other workspace roots and ids.
    #[must_use]
    pub fn with_common_digests(self, session: &Session, roots: Vec<String>) -> Self {
        let roots = roots.into_iter().map(|root| (root, "<root>"));
        let own_names = roots.chain([(session.id().to_string(), "<session>")]).collect();
        Self { own_names, ..self.with_digests() }
    }

    /// Visits the matching calls that begin at `from` or later, in order, with events up to `until`, until `take`
    /// breaks. Returns the position to continue from; `None` at the end of the history.
    pub fn visit(
        self,
        session: &Session,
        span: (Seq, Seq),
        take: &mut dyn FnMut(CallRow) -> ControlFlow<()>,
    ) -> Result<Option<Seq>, SessionError> {
        self.visit_with(session, span, &mut |_| (), take)
    }

    /// Does the same, and passes each event to `see` first.
    pub fn visit_with(
        mut self,
        session: &Session,
        (from, until): (Seq, Seq),
        see: &mut dyn FnMut(&EventRef<'_>),
        take: &mut dyn FnMut(CallRow) -> ControlFlow<()>,
    ) -> Result<Option<Seq>, SessionError> {
        let head = session.head()?;
        let (until, mut next) = (until.min(head), None);
        let mut is_first = true;
        session.visit_between(from, until, &mut |event| {
            see(event);
            self.take(event);
            while let Some(row) = self.open.next_ended() {
                is_first = false;
                next = self.pass_on(row, take);
                if next.is_some() {
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        })?;
        // A call that may end after `until` begins the next piece, unless it already began this one.
        while next.is_none()
            && let Some(row) = self.open.next_begun()
        {
            next = match until < head && row.status.is_none() && !is_first {
                true => Some(row.call),
                false => self.pass_on(row, take),
            };
            is_first = false;
        }
        let next = next.or((until < head).then_some(until + 1));
        Ok(next.filter(|next| *next <= head))
    }

    /// Passes on a call if it matches; returns the position after it if `take` breaks.
    fn pass_on(&self, mut row: CallRow, take: &mut dyn FnMut(CallRow) -> ControlFlow<()>) -> Option<Seq> {
        row.failed |= row.status.is_none() && !self.running.contains(&row.call);
        let (behind, filter) = (row.call + 1, self.filter);
        let is_wanted = filter.tool.as_deref().is_none_or(|tool| tool == &*row.tool)
            && filter.agent.as_deref().is_none_or(|agent| agent == &*row.agent)
            && (row.failed || !filter.failed)
            && (row.changed > 0 || !filter.changed)
            && (row.has_path || self.glob.is_none())
            && (row.has_text || self.text.is_none());
        (is_wanted && take(row).is_break()).then_some(behind)
    }

    fn name(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.names.get(name) {
            return Arc::clone(known);
        }
        let name: Arc<str> = name.into();
        self.names.insert(Arc::clone(&name));
        name
    }

    fn take(&mut self, event: &EventRef<'_>) {
        if event.common == Common::CallStarted {
            return self.begin(event);
        }
        let Some(row) = self.open.of(event) else { return };
        match event.common {
            Common::WriteFile | Common::DeleteEntry => {
                row.changed += 1;
                row.has_path = row.has_path
                    || self.glob.as_ref().is_some_and(|glob| path_of(event).is_some_and(|path| glob.fits(&path)));
            }
            Common::CallFinished => {
                let (Ok(end), Ok(result)) = (event.finished(), finished_result(event.version, event.payload)) else {
                    return;
                };
                // Most results are not of a command.
                let says = result.contains("\"exit_code\"") || result.contains("\"timed_out\"");
                let command: CommandEnd = says.then(|| serde_json::from_str(result).ok()).flatten().unwrap_or_default();
                row.finished = Some(event.seq);
                row.status = Some(end.status);
                row.micros = end.micros;
                row.exit_code = command.exit_code;
                row.failed = end.status != CallStatus::Ok
                    || command.timed_out == Some(true)
                    || command.exit_code.is_some_and(|code| code != 0);
                if let Some(text) = &self.text {
                    let message = Value::from(end.message).to_string();
                    row.has_text |= text.is_match(result) || text.is_match(&message);
                }
                if self.has_digests {
                    let (result, message) = (without_duration(result), common(&self.own_names, end.message));
                    row.outcome = digest(&[end.status.word(), &common(&self.own_names, &result), &message]);
                }
            }
            Common::CallStarted | Common::Other => {}
        }
    }

    fn begin(&mut self, event: &EventRef<'_>) {
        let (Ok(tool), Ok(params)) =
            (started_tool(event.version, event.payload), started_params(event.version, event.payload))
        else {
            return;
        };
        let has_text = self.text.as_ref().is_some_and(|text| text.is_match(params) || text.is_match(tool));
        let (params, key) = match self.has_digests {
            true => {
                let named = common(&self.own_names, params);
                let key = digest(&[tool, &in_order(serde_json::from_str(&named).unwrap_or_default())]);
                let params: Value = serde_json::from_str(params).unwrap_or_default();
                (params, key)
            }
            false => (Value::Null, String::new()),
        };
        let (tool, agent) = (self.name(tool), self.name(event.agent));
        let (call, started_at) = (event.seq, event.time);
        self.open.begin(call, CallRow { call, tool, agent, started_at, params, key, has_text, ..CallRow::default() });
    }
}

/// Replaces the names of a session, which differ between sessions.
fn common<'t>(names: &[(String, &str)], text: &'t str) -> Cow<'t, str> {
    let is_there = |(name, _): &&(String, &str)| name.len() > 1 && text.contains(name.as_str());
    let replaced = |text: Cow<'t, str>, (name, common): &(String, &str)| text.replace(name.as_str(), common).into();
    names.iter().filter(is_there).fold(text.into(), replaced)
}

/// Returns a result without its command's duration, which differs each time.
fn without_duration(result: &str) -> Cow<'_, str> {
    let is_timed = result.contains(DURATION);
    match is_timed.then(|| serde_json::from_str::<Value>(result)) {
        Some(Ok(Value::Object(mut fields))) => {
            fields.shift_remove(DURATION);
            Value::Object(fields).to_string().into()
        }
        _ => result.into(),
    }
}

/// Returns JSON with sorted names: a client's order is meaningless.
fn in_order(mut value: Value) -> String {
    value.sort_all_objects();
    value.to_string()
}

fn digest(parts: &[&str]) -> String {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.finalize().to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_differ_only_in_what_counts() {
        let one = without_duration(r#"{"stdout":"x","duration_seconds":0.1,"exit_code":0}"#);
        assert_eq!(one, without_duration(r#"{"stdout":"x","duration_seconds":0.25,"exit_code":0}"#));
        assert_ne!(one, without_duration(r#"{"stdout":"x","duration_seconds":0.1,"exit_code":1}"#));
        for other in [r#""duration_seconds""#, r#"["duration_seconds"]"#, r#"{"a":"duration_seconds"}"#, "null"] {
            assert_eq!(without_duration(other), other);
        }
    }
}
