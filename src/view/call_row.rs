//! Calls as a long list needs them: few of their fields, read without decoding the others.

use std::borrow::Cow;
use std::collections::{BTreeSet, VecDeque};
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
use crate::engine::id::Seq;
use crate::engine::recorded::EventRef;
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::tools::PathGlob;

/// The field of a result with the time that a command took.
const DURATION: &str = "duration_seconds";

/// The calls that are wanted: those that fit every field that is given.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CallFilter {
    /// Only calls of this tool.
    pub tool: Option<String>,
    /// Only calls by this agent; empty for those that name none.
    pub agent: Option<String>,
    /// Only calls that failed, or whose command did: it took too long, or its exit code is not 0.
    pub failed: bool,
    /// Only calls that changed files.
    pub changed: bool,
    /// Only calls that changed a path which fits this glob.
    pub path: Option<String>,
    /// Only calls with this text in tool, parameters, result or error, in whichever case; not in texts of more than 256
    /// bytes, which stand there as marks.
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
    /// When it began.
    pub started_at: Timestamp,
    /// The position of its outcome; none while it has none.
    pub finished: Option<Seq>,
    /// Its status; none while it has no outcome.
    pub status: Option<CallStatus>,
    /// Its duration in microseconds.
    pub micros: u64,
    /// The exit code in its result.
    pub exit_code: Option<i64>,
    /// True where it failed, or its command did.
    pub failed: bool,
    /// The changes of files in it.
    pub changed: u64,
    /// The parameters, where digests are wanted.
    pub params: Value,
    /// A digest of tool and parameters, where digests are wanted.
    pub key: String,
    /// A digest of the outcome, where digests are wanted.
    pub outcome: String,
    has_text: bool,
    has_path: bool,
}

/// The end of a command, as a result tells it.
#[derive(Default, Deserialize)]
#[serde(default)]
struct CommandEnd {
    exit_code: Option<i64>,
    timed_out: Option<bool>,
}

/// Puts rows together from events.
pub struct CallRows<'a> {
    filter: &'a CallFilter,
    glob: Option<PathGlob>,
    text: Option<Regex>,
    has_digests: bool,
    may_run: bool,
    names: BTreeSet<Arc<str>>,
    open: VecDeque<CallRow>,
}

impl<'a> CallRows<'a> {
    /// Prepares a search. `may_run` is true if calls without an outcome may run; else they have failed.
    pub fn new(filter: &'a CallFilter, may_run: bool) -> Result<Self, ValueError> {
        let glob = filter.path.as_deref().map(PathGlob::new).transpose();
        let glob = glob.map_err(|error| ValueError::new(format!("path is no glob: {}", error.kind())))?;
        // In the events it stands as JSON has it.
        let text = filter.text.as_deref().map(|text| Value::from(text).to_string());
        let text = text.map(|text| regex::escape(&text[1..text.len() - 1]));
        let text = text.map(|text| RegexBuilder::new(&text).case_insensitive(true).build()).transpose();
        let text = text.map_err(|_| ValueError::new("text is too long to be searched for"))?;
        Ok(Self { filter, glob, text, has_digests: false, may_run, names: BTreeSet::new(), open: VecDeque::new() })
    }

    /// Makes digests of parameters and outcomes, too.
    #[must_use]
    pub fn with_digests(self) -> Self {
        Self { has_digests: true, ..self }
    }

    /// Visits the wanted calls that begin from `from` on, in that order, with events up to `until`, for as long as `take`
    /// says. Returns the position from which on to ask for more; none at the end of the history.
    pub fn visit(
        mut self,
        session: &Session,
        (from, until): (Seq, Seq),
        take: &mut dyn FnMut(CallRow) -> ControlFlow<()>,
    ) -> Result<Option<Seq>, SessionError> {
        let head = session.head()?;
        let (until, mut next) = (until.min(head), None);
        let mut is_first = true;
        if from <= until {
            session.visit(from, &mut |event| {
                self.take(event);
                while self.open.front().is_some_and(|row| row.status.is_some()) {
                    is_first = false;
                    next = next.or(self.pass_on(take));
                    if next.is_some() {
                        return ControlFlow::Break(());
                    }
                }
                if event.seq < until { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
        }
        // A call that may end behind `until` begins the next piece, unless it has begun this one already.
        while next.is_none()
            && let Some(row) = self.open.front()
        {
            match until < head && row.status.is_none() && !is_first {
                true => next = Some(row.call),
                false => next = self.pass_on(take),
            }
            is_first = false;
        }
        let next = next.or((until < head).then_some(until + 1));
        Ok(next.filter(|next| *next <= head))
    }

    /// Gives the first call away, if it is wanted; returns the position behind it where no more are.
    fn pass_on(&mut self, take: &mut dyn FnMut(CallRow) -> ControlFlow<()>) -> Option<Seq> {
        let mut row = self.open.pop_front()?;
        row.failed |= row.status.is_none() && !self.may_run;
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
        let at = event.call.and_then(|call| self.open.binary_search_by_key(&call, |row| row.call).ok());
        let Some(row) = at.and_then(|at| self.open.get_mut(at)).filter(|row| row.status.is_none()) else { return };
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
                // Most results say nothing of a command.
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
                    row.outcome = digest(&[end.status.word(), &without_duration(result), end.message]);
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
                let params: Value = serde_json::from_str(params).unwrap_or_default();
                let key = digest(&[tool, &in_order(params.clone())]);
                (params, key)
            }
            false => (Value::Null, String::new()),
        };
        let (tool, agent) = (self.name(tool), self.name(event.agent));
        self.open.push_back(CallRow {
            call: event.seq,
            tool,
            agent,
            started_at: event.time,
            params,
            key,
            has_text,
            ..CallRow::default()
        });
    }
}

/// Returns a result without the time that its command took, which is another one each time.
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

/// Returns JSON with its names in order: that in which a client writes them means nothing.
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
