//! Chats of Gemini CLI: one JSON document, or JSON lines in which a message comes again when it has grown.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::step::{BegunCall, EndedCall, StatedChange, StatedFile, StepKind, TranscriptStep, text, time_of};
use super::{SourceRun, Transcript};

/// Lines at the end of a command's output in which its exit code may stand.
const TAIL: usize = 8;

#[derive(Default)]
pub(super) struct GeminiCli {
    model: Option<Value>,
    begun: BTreeSet<String>,
    ended: BTreeSet<String>,
}

/// Returns the run of the first line, or of the document.
pub(super) fn run_of(head: &Value) -> Option<SourceRun> {
    let id = head["sessionId"].as_str().filter(|_| head["projectHash"].is_string())?;
    let directory = head["directories"][0].as_str().map(str::to_owned);
    let is_child = head["kind"] == "subagent";
    Some(SourceRun {
        agent: "gemini".to_owned(),
        id: id.to_owned(),
        parent: head["parentSessionId"].as_str().filter(|_| is_child).map(str::to_owned),
        began: time_of(&head["startTime"]),
        directory,
    })
}

impl Transcript for GeminiCli {
    fn line(&mut self, line: Value, give: &mut dyn FnMut(TranscriptStep)) {
        if line["directories"][0].is_string() {
            let facts = Map::from_iter([("cwd".to_owned(), line["directories"][0].clone())]);
            give(TranscriptStep::new(time_of(&line["startTime"]), StepKind::Facts(facts)));
        }
        match line.get("messages").and_then(Value::as_array).cloned() {
            // The document of older versions.
            Some(messages) => messages.into_iter().for_each(|message| self.message(message, give)),
            None => self.message(line, give),
        }
    }
}

impl GeminiCli {
    fn message(&mut self, message: Value, give: &mut dyn FnMut(TranscriptStep)) {
        let at = time_of(&message["timestamp"]);
        let model = &message["model"];
        if model.is_string() && self.model.as_ref() != Some(model) {
            self.model = Some(model.clone());
            let mut facts = Map::new();
            facts.insert("model".to_owned(), model.clone());
            give(TranscriptStep::new(at, StepKind::Facts(facts)));
        }
        let calls = message["toolCalls"].as_array().cloned().unwrap_or_default();
        for call in &calls {
            self.call(call, at, give);
        }
        if calls.is_empty() {
            give(TranscriptStep::new(at, StepKind::Record(message)));
        }
    }

    fn call(
        &mut self,
        call: &Value,
        at: Option<crate::engine::clock::Timestamp>,
        give: &mut dyn FnMut(TranscriptStep),
    ) {
        let (id, tool) = (text(call, "id").to_owned(), text(call, "name").to_owned());
        if self.begun.insert(id.clone()) {
            let params = call["args"].clone();
            give(TranscriptStep::new(at, StepKind::Begun(BegunCall { id: id.clone(), tool: tool.clone(), params })));
        }
        let status = text(call, "status");
        if !matches!(status, "success" | "error" | "cancelled") || !self.ended.insert(id.clone()) {
            return;
        }
        let response = &call["result"][0]["functionResponse"]["response"];
        let ended = match status {
            "success" => {
                let child = call["agentId"].as_str().map(str::to_owned);
                let mut result = match response {
                    Value::Object(_) => response.clone(),
                    other => json!({ "output": other }),
                };
                let shown = response["output"].as_str().unwrap_or_default();
                if let Some(code) = exit_code(shown) {
                    result["exit_code"] = code.into();
                }
                EndedCall { files: changed(&call["resultDisplay"]), child, ..EndedCall::ok(id, result) }
            }
            _ => {
                let error = response["error"].as_str().or_else(|| call["resultDisplay"].as_str());
                EndedCall::failed(id, error.unwrap_or(status))
            }
        };
        // The time of a call is that of its end.
        give(TranscriptStep::new(time_of(&call["timestamp"]).or(at), StepKind::Ended(ended)));
    }
}

/// Returns the exit code in the text of a command's result. There is none for 0.
pub(crate) fn exit_code(shown: &str) -> Option<i64> {
    let stated = shown.lines().rev().take(TAIL).find_map(|line| line.strip_prefix("Exit Code: "))?;
    stated.trim().parse().ok()
}

/// Returns the file that an edit shows.
pub(crate) fn changed(shown: &Value) -> Vec<StatedFile> {
    let (Some(path), Some(contents)) = (shown["filePath"].as_str(), shown["newContent"].as_str()) else {
        return Vec::new();
    };
    vec![StatedFile { path: path.to_owned(), change: StatedChange::Whole(contents.to_owned()) }]
}
