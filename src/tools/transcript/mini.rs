//! Trajectories of mini-swe-agent, versions 1 and 2: a document with messages, or a bare list of them.

use serde_json::{Map, Value, json};

use super::step::{BegunCall, EndedCall, StepKind, TranscriptStep, content_text, params_of, text, time_of};
use super::{SourceRun, Transcript};
use crate::engine::id::Digest;

#[derive(Default)]
pub(super) struct MiniSweAgent {
    begun: u64,
    /// Calls that wait for their output, the oldest first.
    open: std::collections::VecDeque<String>,
}

/// Returns the run of a document; none where it is none of this program.
pub(super) fn run_of(document: &Value) -> Option<SourceRun> {
    let messages = messages_of(document)?;
    let is_stated = text(document, "trajectory_format").starts_with("mini-swe-agent")
        || document["info"]["mini_version"].is_string();
    if !(is_stated || document.is_array() && messages.first()?["role"] == "system") {
        return None;
    }
    let began = messages.iter().find_map(|message| time_of(&message["extra"]["timestamp"]));
    // It has no id of its own. The task and the time tell runs apart.
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
    fn line(&mut self, document: Value, give: &mut dyn FnMut(TranscriptStep)) {
        let mut facts = Map::new();
        let info = &document["info"];
        let stated = [
            ("model", &info["config"]["model"]["model_name"]),
            ("version", &info["mini_version"]),
            ("cwd", &info["config"]["environment"]["cwd"]),
        ];
        let is_stated = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
        facts.extend(stated.into_iter().filter(|(_, value)| is_stated(value)).map(|(n, v)| (n.to_owned(), v.clone())));
        give(TranscriptStep::new(None, StepKind::Facts(facts)));
        for message in messages_of(&document).into_iter().flatten() {
            self.message(message, give);
        }
        if info.is_object() {
            give(TranscriptStep::new(None, StepKind::Record(json!({ "info": info }))));
        }
    }
}

impl MiniSweAgent {
    fn message(&mut self, message: &Value, give: &mut dyn FnMut(TranscriptStep)) {
        let at = time_of(&message["extra"]["timestamp"]);
        let is_turn = message["role"] == "assistant" || message["object"] == "response";
        if let Some(ended) = self.ended(message) {
            return give(TranscriptStep::new(at, StepKind::Ended(ended)));
        }
        give(TranscriptStep::new(at, StepKind::Record(message.clone())));
        if is_turn {
            for call in self.calls(message) {
                self.open.push_back(call.id.clone());
                give(TranscriptStep::new(at, StepKind::Begun(call)));
            }
        }
    }

    fn calls(&mut self, message: &Value) -> Vec<BegunCall> {
        let mut next = |id: &Value| {
            self.begun += 1;
            id.as_str().map_or_else(|| format!("action-{}", self.begun), str::to_owned)
        };
        if let Some(calls) = message["tool_calls"].as_array() {
            let call = |call: &Value| {
                let function = &call["function"];
                let tool = text(function, "name").to_owned();
                BegunCall { id: next(&call["id"]), tool, params: params_of(&function["arguments"]) }
            };
            return calls.iter().map(call).collect();
        }
        if let Some(actions) = message["extra"]["actions"].as_array() {
            let call = |action: &Value| {
                let params = json!({ "command": action["command"] });
                BegunCall { id: next(&action["tool_call_id"]), tool: "bash".to_owned(), params }
            };
            return actions.iter().map(call).collect();
        }
        let shown = content_text(&message["content"]);
        let blocks = shown.split("```bash\n").skip(1).filter_map(|rest| rest.split("\n```").next());
        // It runs an answer with one block only.
        match blocks.collect::<Vec<_>>()[..] {
            [command] => {
                let params = json!({ "command": command });
                vec![BegunCall { id: next(&Value::Null), tool: "bash".to_owned(), params }]
            }
            _ => Vec::new(),
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
        let mut result = json!({ "output": output });
        if let Some(code) = code {
            result["exit_code"] = code.into();
        }
        Some(EndedCall::ok(id, result))
    }
}
