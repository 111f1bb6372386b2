//! Trajectories in the Agent Trajectory Interchange Format (ATIF), versions 1.4 to 1.9: one JSON document.

use serde_json::{Value, json};

use super::SourceRun;
use super::step::{EndedCall, StepKind, StepReceiver, content_text, params_of, taken, text, time_of};

/// Returns the run of a document in this format.
pub(super) fn run_of(document: &Value) -> Option<SourceRun> {
    if !text(document, "schema_version").starts_with("ATIF-v1.") {
        return None;
    }
    let ids = [&document["trajectory_id"], &document["session_id"]];
    let steps = document["steps"].as_array()?;
    Some(SourceRun {
        agent: document["agent"]["name"].as_str().unwrap_or("agent").to_owned(),
        id: ids.into_iter().find_map(Value::as_str)?.to_owned(),
        parent: None,
        began: steps.iter().find_map(|step| time_of(&step["timestamp"])),
        directory: None,
    })
}

/// Takes the documents of subagents out of a document.
pub(super) fn children_of(document: &mut Value) -> Vec<Value> {
    match document["subagent_trajectories"].take() {
        Value::Array(children) => children,
        _ => Vec::new(),
    }
}

/// Emits the steps of a document.
pub(super) fn steps_of(mut document: Value, steps: &mut StepReceiver<'_>) {
    let all = taken(&mut document, "steps");
    let mut facts = document["agent"].as_object().cloned().unwrap_or_default();
    if let Some(model) = facts.remove("model_name") {
        facts.insert("model".to_owned(), model);
    }
    let at = all.first().and_then(|step| time_of(&step["timestamp"]));
    steps.give(at, StepKind::Facts(facts));
    all.into_iter().for_each(|step| give_step(step, steps));
    steps.record(None, document);
}

fn give_step(mut step: Value, steps: &mut StepReceiver<'_>) {
    let at = time_of(&step["timestamp"]);
    let calls = taken(&mut step, "tool_calls");
    let observation = step.get_mut("observation").map(Value::take).unwrap_or_default();
    // The message comes before the calls that follow from it.
    steps.record(at, step);
    for call in &calls {
        let of = (text(call, "tool_call_id"), text(call, "function_name"));
        steps.begin(at, of, params_of(&call["arguments"]));
    }
    for result in observation["results"].as_array().into_iter().flatten() {
        // A result without an id belongs to the step's only call.
        let id = result["source_call_id"].as_str();
        match id.or_else(|| calls.first().filter(|_| calls.len() == 1).map(|call| text(call, "tool_call_id"))) {
            Some(id) => steps.end(at, ended(id, result)),
            None => steps.record(at, json!({ "observation": result })),
        }
    }
}

fn ended(id: &str, result: &Value) -> EndedCall {
    let shown = content_text(&result["content"]);
    let extra = &result["extra"];
    let child = result["subagent_trajectory_ref"][0]["trajectory_id"].as_str();
    let child = child.or_else(|| result["subagent_trajectory_ref"][0]["session_id"].as_str()).map(str::to_owned);
    let is_error = extra["is_error"] == true || extra["status"] == "error";
    if is_error && extra["exit_code"].is_null() {
        return EndedCall { child, ..EndedCall::failed(id, shown) };
    }
    let mut value = json!({ "content": shown });
    for name in ["exit_code", "stdout", "stderr"] {
        if !extra[name].is_null() {
            value[name] = extra[name].clone();
        }
    }
    EndedCall { child, ..EndedCall::ok(id, value) }
}
