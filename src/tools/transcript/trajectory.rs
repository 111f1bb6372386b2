//! Exporting sessions as trajectories in the Agent Trajectory Interchange Format (ATIF).

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use serde_json::{Map, Value, json};

use super::family::{ExportedEvent, ExportedRun};
use super::step::{content_text, text};
use crate::engine::clock::Timestamp;
use crate::engine::event::{CallFinished, CallStatus, TranscriptRecord};
use crate::engine::id::{Digest, Seq};
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::engine::session::sessions::Sessions;
use crate::tools::call::content_params::lower;
use crate::tools::rerun::past::RecordedCall;

/// The written version. Its additions to 1.7 are not used here.
const VERSION: &str = "ATIF-v1.8";
/// The fields of an imported document that are exported unchanged.
const KEPT: [&str; 3] = ["notes", "final_metrics", "extra"];
const AGENT_KEPT: [&str; 2] = ["tool_definitions", "extra"];

/// Returns a session as a trajectory: the messages in its transcript, calls with their outcomes, and children as
/// subagents. An imported trajectory retains its ids.
///
/// # Errors
/// [`SessionError`]: a session can't be read.
pub fn trajectory_of(session: &Session, sessions: &Sessions) -> Result<Value, SessionError> {
    document(&ExportedRun::read(session.clone(), sessions)?)
}

fn id_of(run: &ExportedRun) -> String {
    run.transcript().map_or_else(|| run.session.id().to_string(), |(id, _)| id.clone())
}

fn document(run: &ExportedRun) -> Result<Value, SessionError> {
    let mut writing = Writing::of(run);
    let own = run.own_from();
    let mut records = records_of(&run.session, run.from)?;
    records.extend(run.events_of(None).iter().map(|event| (event.seq, event.at, step_of(event))));
    records.sort_by_key(|(seq, ..)| *seq);
    let mut records = records.into_iter().peekable();
    for call in &run.calls {
        while let Some((seq, at, record)) = records.next_if(|(seq, ..)| *seq < call.call) {
            writing.record(at, record, seq <= own);
        }
        writing.call(call, run.events_of(Some(call.call)), call.call <= own);
    }
    records.for_each(|(seq, at, record)| writing.record(at, record, seq <= own));
    let (name, model) = run.agent();
    let fact = |name: &str| run.run.as_ref().and_then(|(_, run)| run.facts.get(name));
    let version = ["version", "cli_version"].iter().find_map(|name| fact(name)?.as_str());
    let own_version = if run.run.is_some() { "unknown" } else { env!("CARGO_PKG_VERSION") };
    let mut agent = json!({ "name": name, "version": version.unwrap_or(own_version) });
    if let Some(model) = model {
        agent["model_name"] = json!(model);
    }
    for name in AGENT_KEPT {
        if let Some(value) = fact(name).filter(|_| writing.root.is_some()) {
            agent[name] = value.clone();
        }
    }
    let id = id_of(run);
    let root = writing.root.take().unwrap_or_default();
    let session = root["session_id"].as_str().unwrap_or(&id);
    let mut document = json!({ "schema_version": VERSION, "session_id": session, "trajectory_id": id, "agent": agent });
    for name in KEPT {
        if !root[name].is_null() {
            document[name] = root[name].clone();
        }
    }
    document["steps"] = writing.steps();
    let children: Result<Vec<Value>, _> = run.children.iter().map(|(child, _)| self::document(child)).collect();
    if !run.children.is_empty() {
        document["subagent_trajectories"] = json!(children?);
    }
    Ok(document)
}

/// Returns the records of a transcript after `from`, with long texts put back in place.
fn records_of(session: &Session, from: Seq) -> Result<Vec<(Seq, Timestamp, Value)>, SessionError> {
    let mut found = Vec::new();
    session.visit(from + 1, &mut |event| {
        if let Some(Ok(record)) = event.typed::<TranscriptRecord>() {
            found.push((event.seq, event.time, record.event.record));
        }
        ControlFlow::Continue(())
    })?;
    let mut read = |digest: &Digest| session.content(digest).ok().map(|bytes| bytes.to_vec());
    Ok(found.into_iter().map(|(seq, at, record)| (seq, at, lower(record, &mut read))).collect())
}

/// A trajectory under construction.
struct Writing<'a> {
    steps: Vec<Value>,
    /// The first end among the calls of the last step, or 0 if it takes none. A later call belongs to another turn.
    ended: Option<Seq>,
    /// The imported document, without its steps.
    root: Option<Value>,
    /// The children by the calls that began them.
    children: BTreeMap<Seq, Vec<&'a ExportedRun>>,
}

impl<'a> Writing<'a> {
    fn of(run: &'a ExportedRun) -> Self {
        let mut children: BTreeMap<Seq, Vec<&ExportedRun>> = BTreeMap::new();
        for (child, call) in &run.children {
            call.iter().for_each(|call| children.entry(*call).or_default().push(child));
        }
        Self { steps: Vec::new(), ended: Some(0), root: None, children }
    }

    fn record(&mut self, at: Timestamp, mut record: Value, is_copied: bool) {
        if text(&record, "schema_version").starts_with("ATIF-v1.") {
            self.root = Some(record);
            return;
        }
        if !record["step_id"].is_null() && record["source"].is_string() {
            // A step of an imported trajectory. Its calls are events.
            let fields = record.as_object_mut().map(std::mem::take).unwrap_or_default();
            let is_other = |name: &str| !matches!(name, "tool_calls" | "observation");
            let kept = fields.into_iter().filter(|(name, value)| is_other(name) && !value.is_null());
            let source = kept.collect::<Map<_, _>>();
            let is_agent = source.get("source").is_some_and(|source| source == "agent");
            self.push(source.into(), is_agent, is_copied);
        } else if let Some((source, message)) = message_of(&record) {
            let step = json!({ "timestamp": shown(at), "source": source, "message": message });
            self.push(step, source == "agent", is_copied);
        }
    }

    fn push(&mut self, mut step: Value, takes_calls: bool, is_copied: bool) {
        if is_copied {
            step["is_copied_context"] = json!(true);
        }
        self.steps.push(step);
        self.ended = (!takes_calls).then_some(0);
    }

    fn call(&mut self, call: &RecordedCall, events: &[ExportedEvent], is_copied: bool) {
        // A call that begins after another has ended belongs to a new turn.
        if self.steps.is_empty() || self.ended.is_some_and(|ended| ended < call.call) {
            self.push(json!({ "timestamp": shown(call.at), "source": "agent", "message": "" }), true, is_copied);
        }
        let Some(step) = self.steps.last_mut() else { return };
        let id = call.id.clone().unwrap_or_else(|| format!("call-{}", call.call));
        let arguments = match &call.params {
            params @ Value::Object(_) => params.clone(),
            Value::Null => json!({}),
            other => json!({ "input": other }),
        };
        add(step, "tool_calls", json!({ "tool_call_id": id, "function_name": call.tool, "arguments": arguments }));
        let Some((seq, end)) = &call.outcome else { return };
        self.ended = Some(self.ended.map_or(*seq, |ended| ended.min(*seq)));
        let mut result = json!({ "source_call_id": id, "content": content_of(end), "extra": extra_of(call, end) });
        if !events.is_empty() {
            result["extra"]["events"] = events.iter().map(shown_event).collect();
        }
        let children = self.children.get(&call.call).into_iter().flatten();
        let children: Vec<Value> = children.map(|child| json!({ "trajectory_id": id_of(child) })).collect();
        if !children.is_empty() {
            result["subagent_trajectory_ref"] = json!(children);
        }
        if step["observation"].is_null() {
            step["observation"] = json!({});
        }
        add(&mut step["observation"], "results", result);
    }

    /// Returns the numbered steps. A trajectory needs at least one.
    fn steps(mut self) -> Value {
        if self.steps.is_empty() {
            self.steps.push(json!({ "source": "system", "message": "" }));
        }
        for (number, step) in self.steps.iter_mut().enumerate() {
            step["step_id"] = json!(number + 1);
            if step["timestamp"].is_null()
                && let Some(fields) = step.as_object_mut()
            {
                fields.remove("timestamp");
            }
        }
        self.steps.into()
    }
}

fn shown_event(event: &ExportedEvent) -> Value {
    json!({ "kind": event.kind, "data": event.data })
}

/// Returns the step of an own event that belongs to no call.
fn step_of(event: &ExportedEvent) -> Value {
    let extra = json!({ "event": shown_event(event) });
    json!({ "step_id": 0, "timestamp": shown(event.at), "source": "system", "message": event.kind, "extra": extra })
}

fn add(to: &mut Value, list: &str, item: Value) {
    match to[list].as_array_mut() {
        Some(items) => items.push(item),
        None => to[list] = json!([item]),
    }
}

/// Formats a time in ISO 8601. `None` if its year does not have four digits.
fn shown(at: Timestamp) -> Option<String> {
    Some(at.to_string()).filter(|text| text.len() == "2026-11-23T00:04:07.107Z".len())
}

/// Returns the source and the text of a message in a transcript's record.
fn message_of(record: &Value) -> Option<(&'static str, String)> {
    for said in [record, &record["message"], &record["payload"], &record["llm_message"]] {
        let source = match (text(said, "role"), text(said, "type")) {
            ("user", _) | ("", "user") => "user",
            ("system" | "developer", _) => "system",
            ("assistant", _) | ("", "gemini") => "agent",
            _ => continue,
        };
        let message = content_text(&said["content"]);
        if !message.is_empty() {
            return Some((source, message));
        }
    }
    let response = [text(record, "response"), text(&record["output"], "completion")];
    response.into_iter().find(|text| !text.is_empty()).map(|text| ("agent", text.to_owned()))
}

/// Returns the result of a call as text.
fn content_of(end: &CallFinished) -> String {
    let result = &end.result;
    if end.status != CallStatus::Ok {
        return end.message.clone();
    }
    let said = [result, &result["content"], &result["output"]].into_iter().find_map(Value::as_str);
    match (said, result["stdout"].as_str()) {
        (Some(text), _) => text.to_owned(),
        (None, Some(stdout)) => [stdout, result["stderr"].as_str().unwrap_or_default()].concat(),
        (None, None) if result.is_null() => String::new(),
        (None, None) => result.to_string(),
    }
}

fn extra_of(call: &RecordedCall, end: &CallFinished) -> Value {
    let mut extra = json!({ "status": end.status.word(), "duration_micros": end.micros });
    if end.status != CallStatus::Ok {
        extra["is_error"] = json!(true);
    }
    if end.result["exit_code"].is_i64() {
        extra["exit_code"] = end.result["exit_code"].clone();
    }
    let changed: Vec<String> = call.paths().map(|path| path.rooted()).collect();
    if !changed.is_empty() {
        extra["changed"] = json!(changed);
    }
    extra
}
