//! Samples of Inspect's logs: the tool events of one sample are a run, or the calls in its messages.

use serde_json::{Map, Value, json};

use super::messages::MessageReader;
use super::step::{BegunCall, EndedCall, StepKind, TranscriptStep, params_of, text, time_of};
use super::{SourceRun, Transcript};

#[derive(Default)]
pub(super) struct Inspect;

/// Returns the run of a sample; none where it is none.
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

/// Returns the samples of a log.
pub(super) fn samples_of(log: &mut Value) -> Option<Vec<Value>> {
    log["eval"]["task"].as_str()?;
    let model = log["eval"]["model"].clone();
    let Value::Array(mut samples) = log["samples"].take() else { return Some(Vec::new()) };
    state_model(&mut samples, &model);
    Some(samples)
}

/// Notes the model of the whole log in each of its samples.
pub(super) fn state_model(samples: &mut [Value], model: &Value) {
    for sample in samples.iter_mut().filter_map(Value::as_object_mut) {
        sample.insert("model".to_owned(), model.clone());
    }
}

impl Transcript for Inspect {
    fn line(&mut self, mut sample: Value, give: &mut dyn FnMut(TranscriptStep)) {
        let events = sample.get_mut("events").map(Value::take).unwrap_or_default();
        let mut facts = Map::new();
        let stated = ["model", "id", "epoch"].into_iter().filter(|name| !sample[*name].is_null());
        facts.extend(stated.map(|name| (name.to_owned(), sample[name].clone())));
        let mut ended = Vec::new();
        let at = events[0].get("timestamp").or(sample.get("started_at")).and_then(time_of);
        give(TranscriptStep::new(at, StepKind::Facts(facts)));
        if events.get(0).is_none() {
            // A log may have been written without them.
            let messages = sample.get_mut("messages").map(Value::take).unwrap_or_default();
            let mut reader = MessageReader::default();
            let messages = if let Value::Array(messages) = messages { messages } else { Vec::new() };
            messages.into_iter().for_each(|message| reader.message(message, give));
        }
        for event in events.as_array().into_iter().flatten() {
            let at = time_of(&event["timestamp"]);
            // An outcome stands in the event of the call, and comes when it came.
            give_ended(&mut ended, at, give);
            if event["event"] != "tool" {
                give(TranscriptStep::new(at, StepKind::Record(event.clone())));
                continue;
            }
            let (id, tool) = (text(event, "id").to_owned(), text(event, "function").to_owned());
            give(TranscriptStep::new(
                at,
                StepKind::Begun(BegunCall { id: id.clone(), tool, params: params_of(&event["arguments"]) }),
            ));
            if event["pending"] != true {
                ended.push((time_of(&event["completed"]).or(at), outcome(id, event)));
            }
        }
        give_ended(&mut ended, Some(crate::engine::clock::Timestamp(i64::MAX)), give);
        give(TranscriptStep::new(None, StepKind::Record(sample)));
    }
}

fn outcome(id: String, event: &Value) -> EndedCall {
    let micros = event["working_time"].as_f64().map(|seconds| (seconds.max(0.0) * 1e6) as u64);
    match event["error"]["message"].as_str() {
        Some(message) => EndedCall { micros, ..EndedCall::failed(id, message) },
        None => EndedCall { micros, ..EndedCall::ok(id, json!({ "output": event["result"] })) },
    }
}

pub(super) type Outcomes = Vec<(Option<crate::engine::clock::Timestamp>, EndedCall)>;

pub(super) fn give_ended(
    ended: &mut Outcomes,
    until: Option<crate::engine::clock::Timestamp>,
    give: &mut dyn FnMut(TranscriptStep),
) {
    let mut due: Outcomes = ended.extract_if(.., |(at, _)| *at <= until).collect();
    due.sort_by_key(|(at, _)| *at);
    due.into_iter().for_each(|(at, outcome)| give(TranscriptStep::new(at, StepKind::Ended(outcome))));
}
