//! Trajectories of mini-swe-agent, versions 1 and 2: a document with messages, or a bare list of messages.

use serde_json::{Value, json};

use super::messages::{AskedCall, CALLS_MAX, OPEN_MAX, begun_in};
use super::step::{EndedCall, StepReceiver, content_text, text, time_of};
use super::{SourceRun, Transcript};
use crate::engine::id::Digest;

#[derive(Default)]
pub(super) struct MiniSweAgent {
    begun: u64,
    /// The calls waiting for output, oldest first.
    open: std::collections::VecDeque<String>,
}

/// Returns the run of a mini-swe-agent document.
pub(super) fn run_of(document: &Value) -> Option<SourceRun> {
    let messages = messages_of(document)?;
    let is_stated = text(document, "trajectory_format").starts_with("mini-swe-agent")
        || document["info"]["mini_version"].is_string();
    if !(is_stated || document.is_array() && messages.first()?["role"] == "system") {
        return None;
    }
    let began = messages.iter().find_map(|message| time_of(&message["extra"]["timestamp"]));
    // The format lacks ids, so the task and the time identify a run.
    let task = messages.iter().take(2).map(|message| content_text(&message["content"])).collect::<String>();
    let id = Digest::of(format!("{task}{began:?}").as_bytes()).to_string()[..16].to_owned();
    let directory = document["info"]["config"]["environment"]["cwd"].as_str().filter(|cwd| !cwd.is_empty());
    Some(SourceRun {
        agent: "mini-swe-agent".to_owned(),
        id,
        parent: None,
        began,
        directory: directory.map(str::to_owned),
    })
}

fn messages_of(document: &Value) -> Option<&Vec<Value>> {
    document.as_array().or_else(|| document["messages"].as_array())
}

impl Transcript for MiniSweAgent {
    fn line(&mut self, document: Value, steps: &mut StepReceiver<'_>) {
        let info = &document["info"];
        let stated = [
            ("model", &info["config"]["model"]["model_name"]),
            ("version", &info["mini_version"]),
            ("cwd", &info["config"]["environment"]["cwd"]),
        ];
        let is_stated = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
        steps.facts(None, stated.into_iter().filter(|(_, value)| is_stated(value)));
        for message in messages_of(&document).into_iter().flatten() {
            self.message(message, steps);
        }
        if info.is_object() {
            steps.record(None, json!({ "info": info }));
        }
    }
}

impl MiniSweAgent {
    fn message(&mut self, message: &Value, steps: &mut StepReceiver<'_>) {
        let at = time_of(&message["extra"]["timestamp"]);
        let is_turn = message["role"] == "assistant" || message["object"] == "response";
        if let Some(ended) = self.ended(message) {
            return steps.end(at, ended);
        }
        steps.record(at, message.clone());
        if is_turn {
            for (id, tool, params) in calls_in(message) {
                self.begun += 1;
                let id = id.unwrap_or_else(|| format!("action-{}", self.begun));
                self.open.push_back(id.clone());
                if self.open.len() > OPEN_MAX {
                    self.open.pop_front();
                }
                steps.begin(at, (id, tool), params);
            }
        }
    }

    fn ended(&mut self, message: &Value) -> Option<EndedCall> {
        if !matches!(text(message, "role"), "tool" | "user") {
            return None;
        }
        let (extra, shown) = (&message["extra"], content_text(&message["content"]));
        let id = match message["tool_call_id"].as_str() {
            Some(id) => {
                self.open.retain(|open| open != id);
                id.to_owned()
            }
            None if extra["returncode"].is_i64() || shown.starts_with("<returncode>") => self.open.pop_front()?,
            None => return None,
        };
        let stated = |name: &str| {
            let rest = shown.split_once(&format!("<{name}>"))?.1;
            Some(rest.rsplit_once(&format!("</{name}>"))?.0)
        };
        let code = extra["returncode"].as_i64().or_else(|| stated("returncode")?.trim().parse().ok());
        let output = extra["raw_output"].as_str().or_else(|| stated("output")).unwrap_or(&shown);
        if let Some(problem) = extra["exception_info"].as_str().filter(|problem| !problem.is_empty()) {
            return Some(EndedCall::failed(id, problem));
        }
        Some(EndedCall::ok(id, json!({ "output": output })).with_code(code))
    }
}

/// Returns the calls in a message.
fn calls_in(message: &Value) -> Vec<AskedCall> {
    let stated = |id: &Value| id.as_str().map(str::to_owned);
    let bash = |id, command: Value| (id, "bash".to_owned(), json!({ "command": command }));
    if let Some(calls) = message["tool_calls"].as_array() {
        return calls.iter().filter_map(begun_in).take(CALLS_MAX).collect();
    }
    if let Some(actions) = message["extra"]["actions"].as_array() {
        return actions.iter().map(|action| bash(stated(&action["tool_call_id"]), action["command"].clone())).collect();
    }
    let shown = content_text(&message["content"]);
    let blocks = shown.split("```bash\n").skip(1).filter_map(|rest| rest.split("\n```").next());
    // mini-swe-agent runs only answers with a single block.
    match blocks.collect::<Vec<_>>()[..] {
        [command] => vec![bash(None, command.into())],
        _ => Vec::new(),
    }
}
