//! Sessions of OpenCode, as its `export` writes them: a document with messages, of which each part is a step.

use serde_json::{Map, Value, json};

use super::edits::stated_files;
use super::inspect::{Outcomes, give_ended};
use super::step::{BegunCall, EndedCall, StepKind, TranscriptStep, params_of, text, time_of};
use super::{SourceRun, Transcript};
use crate::engine::clock::Timestamp;

#[derive(Default)]
pub(super) struct OpenCode;

/// Returns the run of a document; none where it is none of this program.
pub(super) fn run_of(document: &Value) -> Option<SourceRun> {
    let info = &document["info"];
    let messages = document["messages"].as_array()?;
    if messages.first().is_some_and(|message| !message["parts"].is_array()) {
        return None;
    }
    Some(SourceRun {
        agent: "opencode".to_owned(),
        id: info["id"].as_str()?.to_owned(),
        parent: info["parentID"].as_str().map(str::to_owned),
        began: time_of(&info["time"]["created"]),
        directory: info["directory"].as_str().map(str::to_owned),
    })
}

impl Transcript for OpenCode {
    fn line(&mut self, mut document: Value, give: &mut dyn FnMut(TranscriptStep)) {
        let info = &document["info"];
        // Its model, title, totals and times of changes are others when the session has grown.
        let stated = [("cwd", &info["directory"]), ("version", &info["version"])];
        give_facts(&stated, time_of(&info["time"]["created"]), give);
        let messages = taken(&mut document, "messages");
        let (count, mut ended, mut model) = (messages.len(), Vec::new(), Value::Null);
        for (number, mut message) in messages.into_iter().enumerate() {
            let parts = taken(&mut message, "parts");
            let mut info = message.get_mut("info").map(Value::take).unwrap_or_default();
            let created = time_of(&info["time"]["created"]);
            if info["modelID"] != model {
                model = info["modelID"].clone();
                give_facts(&[("model", &model)], created, give);
            }
            let may_grow = number + 1 == count && info["role"] == "assistant" && info["time"]["completed"].is_null();
            for part in parts {
                let status = text(&part["state"], "status").to_owned();
                let is_final = match part["type"] == "tool" {
                    true => matches!(&*status, "completed" | "error"),
                    false => part["time"]["start"].is_null() || !part["time"]["end"].is_null(),
                };
                if is_final || !may_grow || status == "running" {
                    give_part(part, created, &mut ended, give);
                }
                // What stands behind it may come before it when the session is exported again.
                if !is_final && may_grow {
                    return give_ended(&mut ended, Some(Timestamp(i64::MAX)), give);
                }
            }
            give_ended(&mut ended, Some(Timestamp(i64::MAX)), give);
            if let Some(info) = info.as_object_mut().filter(|info| info.get("role").is_some_and(|role| role == "user"))
            {
                // What has changed since the prompt is counted here, again and again.
                info.remove("summary");
            }
            if !may_grow {
                give(TranscriptStep::new(created, StepKind::Record(json!({ "info": info }))));
            }
        }
    }
}

fn give_facts(stated: &[(&str, &Value)], at: Option<Timestamp>, give: &mut dyn FnMut(TranscriptStep)) {
    let stated = stated.iter().filter(|(_, value)| value.is_string());
    let facts: Map<_, _> = stated.map(|(name, value)| ((*name).to_owned(), (*value).clone())).collect();
    give(TranscriptStep::new(at, StepKind::Facts(facts)));
}

fn taken(value: &mut Value, name: &str) -> Vec<Value> {
    value.get_mut(name).and_then(Value::as_array_mut).map(std::mem::take).unwrap_or_default()
}

fn give_part(part: Value, created: Option<Timestamp>, ended: &mut Outcomes, give: &mut dyn FnMut(TranscriptStep)) {
    let state = &part["state"];
    if part["type"] != "tool" || state["status"] == "pending" {
        return give(TranscriptStep::new(time_of(&part["time"]["start"]), StepKind::Record(part)));
    }
    let begun = time_of(&state["time"]["start"]).or(created);
    give_ended(ended, begun, give);
    let (id, tool) = (text(&part, "callID").to_owned(), text(&part, "tool").to_owned());
    ended.extend(outcome(&id, &tool, state).map(|outcome| (time_of(&state["time"]["end"]).or(begun), outcome)));
    give(TranscriptStep::new(begun, StepKind::Begun(BegunCall { id, tool, params: params_of(&state["input"]) })));
}

fn outcome(id: &str, tool: &str, state: &Value) -> Option<EndedCall> {
    let metadata = &state["metadata"];
    match text(state, "status") {
        "completed" => {
            let mut result = json!({ "output": state["output"], "title": state["title"], "metadata": metadata });
            if metadata["exit"].is_i64() {
                result["exit_code"] = metadata["exit"].clone();
            }
            let child = metadata["sessionId"].as_str().map(str::to_owned);
            Some(EndedCall { files: stated_files(tool, &state["input"]), child, ..EndedCall::ok(id, result) })
        }
        "error" => Some(EndedCall::failed(id, text(state, "error"))),
        _ => None,
    }
}
