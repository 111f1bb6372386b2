//! Trajectories of SWE-agent: a document with actions and observations.

use serde_json::{Value, json};

use super::SourceRun;
use super::step::{EndedCall, StepReceiver, taken, text};
use crate::engine::id::Digest;

const MICROS: f64 = 1e6;

/// Returns the run of a SWE-agent document.
pub(super) fn run_of(document: &Value) -> Option<SourceRun> {
    let steps = document["trajectory"].as_array()?;
    if !steps.is_empty() && !steps[0]["action"].is_string() {
        return None;
    }
    // The format has neither ids nor times.
    let begin = steps.iter().take(2).map(|step| text(step, "response")).collect::<String>();
    let task = document["history"].as_array().into_iter().flatten().take(3).map(Value::to_string).collect::<String>();
    let id = Digest::of(format!("{task}{begin}").as_bytes()).to_string()[..16].to_owned();
    Some(SourceRun { agent: "swe-agent".to_owned(), id, parent: None, began: None, directory: None })
}

/// Emits the steps of a document.
pub(super) fn steps_of(mut document: Value, steps: &mut StepReceiver<'_>) {
    steps.facts(None, [("environment", &document["environment"])]);
    for (number, step) in taken(&mut document, "trajectory").iter().enumerate() {
        let id = format!("step-{}", number + 1);
        let said = json!({ "thought": step["thought"], "response": step["response"], "state": step["state"] });
        steps.record(None, said);
        let action = text(step, "action");
        if action.trim().is_empty() {
            continue;
        }
        steps.begin(None, (&*id, "bash"), json!({ "command": action }));
        let micros = step["execution_time"].as_f64().map(|seconds| (seconds.max(0.0) * MICROS) as u64);
        let result = json!({ "output": step["observation"] });
        steps.end(None, EndedCall { micros, ..EndedCall::ok(id, result) });
    }
    steps.record(None, document);
}
