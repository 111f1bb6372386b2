//! Sessions from OpenCode's `export`: a document with messages. The parts of the messages are the steps.

use serde_json::{Value, json};

use super::SourceRun;
use super::inspect::Outcomes;
use super::step::{EndedCall, StepReceiver, params_of, taken, text, time_of};
use crate::engine::clock::Timestamp;

/// Returns the run of an OpenCode document.
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

/// Emits the steps of a document.
pub(super) fn steps_of(mut document: Value, steps: &mut StepReceiver<'_>) {
    let info = &document["info"];
    // Leave out the model, title, totals and change times: they change as the session grows.
    let stated = [("cwd", &info["directory"]), ("version", &info["version"])];
    steps.facts(time_of(&info["time"]["created"]), stated);
    let messages = taken(&mut document, "messages");
    let (count, mut ended) = (messages.len(), Outcomes::default());
    for (number, mut message) in messages.into_iter().enumerate() {
        let parts = taken(&mut message, "parts");
        let mut info = message.get_mut("info").map(Value::take).unwrap_or_default();
        let created = time_of(&info["time"]["created"]);
        steps.facts(created, [("model", &info["modelID"])]);
        let may_grow = number + 1 == count && info["role"] == "assistant" && info["time"]["completed"].is_null();
        for part in parts {
            let status = text(&part["state"], "status").to_owned();
            let is_final = match part["type"] == "tool" {
                true => matches!(&*status, "completed" | "error"),
                false => part["time"]["start"].is_null() || !part["time"]["end"].is_null(),
            };
            if is_final || !may_grow || status == "running" {
                give_part(part, created, &mut ended, steps);
            }
            // In a later export, the following parts may come before the end of this one.
            if !is_final && may_grow {
                return ended.give_until(Some(Timestamp(i64::MAX)), steps);
            }
        }
        ended.give_until(Some(Timestamp(i64::MAX)), steps);
        if let Some(info) = info.as_object_mut().filter(|info| info.get("role").is_some_and(|role| role == "user")) {
            // The summary counts changes since the prompt, so it differs in each export.
            info.remove("summary");
        }
        if !may_grow {
            steps.record(created, json!({ "info": info }));
        }
    }
}

fn give_part(part: Value, created: Option<Timestamp>, ended: &mut Outcomes, steps: &mut StepReceiver<'_>) {
    let state = &part["state"];
    if part["type"] != "tool" || state["status"] == "pending" {
        return steps.record(time_of(&part["time"]["start"]), part);
    }
    let begun = time_of(&state["time"]["start"]).or(created);
    ended.give_until(begun, steps);
    let (id, tool) = (text(&part, "callID").to_owned(), text(&part, "tool").to_owned());
    if let Some(outcome) = outcome(&id, state) {
        ended.add(time_of(&state["time"]["end"]).or(begun), outcome);
    }
    steps.begin_edit(begun, id, tool, params_of(&state["input"]));
}

fn outcome(id: &str, state: &Value) -> Option<EndedCall> {
    let metadata = &state["metadata"];
    match text(state, "status") {
        "completed" => {
            let result = json!({ "output": state["output"], "title": state["title"], "metadata": metadata });
            let child = metadata["sessionId"].as_str().map(str::to_owned);
            Some(EndedCall { child, ..EndedCall::ok(id, result).with_code(metadata["exit"].as_i64()) })
        }
        "error" => Some(EndedCall::failed(id, text(state, "error"))),
        _ => None,
    }
}
