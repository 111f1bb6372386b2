//! Conversations of OpenHands (version 1 of its SDK): a directory with a JSON file per event, or JSON lines.

use serde_json::{Map, Value, json};

use super::SourceRun;
use super::step::{EndedCall, StatedChange, StatedFile, StepReceiver, content_text, text, time_of};

/// Returns the run of its first event. `id` is the conversation's id, if known.
pub(super) fn run_of(event: &Value, id: Option<&str>) -> Option<SourceRun> {
    let kind = text(event, "kind");
    if !kind.ends_with("Event") && !kind.ends_with("Observation") || !event["source"].is_string() {
        return None;
    }
    Some(SourceRun {
        agent: "openhands".to_owned(),
        id: id.or_else(|| event["id"].as_str())?.to_owned(),
        parent: None,
        began: time_of(&event["timestamp"]),
        directory: None,
    })
}

/// Emits the steps of an event.
pub(super) fn steps_of(event: Value, steps: &mut StepReceiver<'_>) {
    let at = time_of(&event["timestamp"]);
    let id = event["tool_call_id"].as_str();
    match (text(&event, "kind"), id) {
        ("ActionEvent", Some(id)) => {
            let mut params = event["action"].as_object().cloned().unwrap_or_default();
            params.remove("kind");
            steps.begin(at, (id, text(&event, "tool_name")), params.into());
            let said: Map<_, _> = ["thought", "reasoning_content", "security_risk", "llm_response_id", "id"]
                .into_iter()
                .filter(|name| !event[*name].is_null())
                .map(|name| (name.to_owned(), event[name].clone()))
                .collect();
            steps.record(at, said.into());
        }
        ("ObservationEvent", Some(id)) => steps.end(at, observed(id, &event["observation"])),
        ("AgentErrorEvent", Some(id)) => steps.end(at, EndedCall::failed(id, text(&event, "error"))),
        ("UserRejectObservation", Some(id)) => {
            steps.end(at, EndedCall::failed(id, text(&event, "rejection_reason")));
        }
        _ => steps.record(at, event),
    }
}

fn observed(id: &str, observation: &Value) -> EndedCall {
    let shown = match observation["output"].as_str() {
        Some(output) => output.to_owned(),
        None => content_text(&observation["content"]),
    };
    let code = [&observation["exit_code"], &observation["metadata"]["exit_code"]];
    let code = code.into_iter().find_map(Value::as_i64);
    let is_error = observation["is_error"] == true || observation["error"].is_string();
    if is_error && code.is_none() {
        let error = observation["error"].as_str().unwrap_or(&shown);
        return EndedCall::failed(id, error);
    }
    let files = match (observation["path"].as_str(), observation["new_content"].as_str()) {
        (Some(path), Some(contents)) => {
            vec![StatedFile { path: path.to_owned(), change: StatedChange::Whole(contents.to_owned()) }]
        }
        _ => Vec::new(),
    };
    EndedCall { files, ..EndedCall::ok(id, json!({ "output": shown })).with_code(code) }
}
