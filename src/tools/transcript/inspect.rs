//! Samples of Inspect's logs. The tool events of a sample are a run, or, without events, the calls in its messages.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::SourceRun;
use super::messages::MessageReader;
use super::step::{EndedCall, StepReceiver, params_of, taken, text, time_of};
use crate::engine::clock::Timestamp;

/// Returns the run of a sample.
pub(super) fn run_of(sample: &Value) -> Option<SourceRun> {
    let steps = ["events", "messages"].iter().find_map(|name| sample[*name].as_array().filter(|list| !list.is_empty()));
    let steps = steps.or(sample["events"].as_array())?;
    sample.get("epoch")?;
    let id = match sample["uuid"].as_str() {
        Some(id) => id.to_owned(),
        None => format!("{}-{}", sample["id"], sample["epoch"]),
    };
    Some(SourceRun {
        agent: "inspect".to_owned(),
        id,
        parent: None,
        began: steps.iter().find_map(|event| time_of(&event["timestamp"])).or_else(|| time_of(&sample["started_at"])),
        directory: None,
    })
}

/// Takes the samples out of a log.
pub(super) fn samples_of(log: &mut Value) -> Option<Vec<Value>> {
    log["eval"]["task"].as_str()?;
    let model = log["eval"]["model"].clone();
    let Value::Array(mut samples) = log["samples"].take() else { return Some(Vec::new()) };
    state_model(&mut samples, &model);
    Some(samples)
}

/// Adds the log's model to each of its samples.
pub(super) fn state_model(samples: &mut [Value], model: &Value) {
    for sample in samples.iter_mut().filter_map(Value::as_object_mut) {
        sample.insert("model".to_owned(), model.clone());
    }
}

/// Emits the steps of a sample.
pub(super) fn steps_of(mut sample: Value, steps: &mut StepReceiver<'_>) {
    let events = taken(&mut sample, "events");
    let first = events.first().and_then(|event| event.get("timestamp"));
    let at = first.or(sample.get("started_at")).and_then(time_of);
    steps.facts(at, ["model", "id", "epoch"].map(|name| (name, &sample[name])));
    if events.is_empty() {
        // Inspect can write a log without events.
        let mut reader = MessageReader::default();
        taken(&mut sample, "messages").into_iter().for_each(|message| reader.message(message, steps));
    }
    let mut ended = Outcomes::default();
    for event in &events {
        let at = time_of(&event["timestamp"]);
        // The event of a call contains its outcome, although that happened later.
        ended.give_until(at, steps);
        if event["event"] != "tool" {
            steps.record(at, event.clone());
            continue;
        }
        let id = text(event, "id");
        steps.begin(at, (id, text(event, "function")), params_of(&event["arguments"]));
        if event["pending"] != true {
            ended.add(time_of(&event["completed"]).or(at), outcome(id, event));
        }
    }
    ended.give_until(Some(Timestamp(i64::MAX)), steps);
    steps.record(None, sample);
}

fn outcome(id: &str, event: &Value) -> EndedCall {
    let micros = event["working_time"].as_f64().map(|seconds| (seconds.max(0.0) * 1e6) as u64);
    match event["error"]["message"].as_str() {
        Some(message) => EndedCall { micros, ..EndedCall::failed(id, message) },
        None => EndedCall { micros, ..EndedCall::ok(id, json!({ "output": event["result"] })) },
    }
}

/// The ends of calls that a transcript states with their beginnings, sorted by time.
#[derive(Default)]
pub(super) struct Outcomes {
    ended: BTreeMap<(Option<Timestamp>, usize), EndedCall>,
    count: usize,
}

impl Outcomes {
    pub(super) fn add(&mut self, at: Option<Timestamp>, outcome: EndedCall) {
        self.count += 1;
        self.ended.insert((at, self.count), outcome);
    }

    /// Emits the ends up to a time, in order.
    pub(super) fn give_until(&mut self, until: Option<Timestamp>, steps: &mut StepReceiver<'_>) {
        while let Some(first) = self.ended.first_entry().filter(|first| first.key().0 <= until) {
            let ((at, _), outcome) = first.remove_entry();
            steps.end(at, outcome);
        }
    }
}
