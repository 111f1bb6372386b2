//! Chats of Gemini CLI: one JSON document, or JSON lines that repeat a message when it has grown.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::step::{EndedCall, StatedChange, StatedFile, StepReceiver, text, time_of};
use super::{SourceRun, Transcript};
use crate::engine::clock::Timestamp;

/// The number of lines at the end of a command's output that may contain its exit code.
const TAIL: usize = 8;

#[derive(Default)]
pub(super) struct GeminiCli {
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
    fn line(&mut self, mut line: Value, steps: &mut StepReceiver<'_>) {
        steps.facts(time_of(&line["startTime"]), [("cwd", &line["directories"][0])]);
        match line.get_mut("messages").map(Value::take) {
            // A document of an older version.
            Some(Value::Array(messages)) => messages.into_iter().for_each(|message| self.message(message, steps)),
            Some(other) => {
                line["messages"] = other;
                self.message(line, steps);
            }
            None => self.message(line, steps),
        }
    }
}

impl GeminiCli {
    fn message(&mut self, message: Value, steps: &mut StepReceiver<'_>) {
        let at = time_of(&message["timestamp"]);
        steps.facts(at, [("model", &message["model"])]);
        match message["toolCalls"].as_array().filter(|calls| !calls.is_empty()) {
            Some(calls) => calls.iter().for_each(|call| self.call(call, at, steps)),
            None => steps.record(at, message),
        }
    }

    fn call(&mut self, call: &Value, at: Option<Timestamp>, steps: &mut StepReceiver<'_>) {
        let id = text(call, "id").to_owned();
        if self.begun.insert(id.clone()) {
            steps.begin(at, (&*id, text(call, "name")), call["args"].clone());
        }
        let status = text(call, "status");
        if !matches!(status, "success" | "error" | "cancelled") || !self.ended.insert(id.clone()) {
            return;
        }
        let response = &call["result"][0]["functionResponse"]["response"];
        let ended = match status {
            "success" => {
                let child = call["agentId"].as_str().map(str::to_owned);
                let result = match response {
                    Value::Object(_) => response.clone(),
                    other => json!({ "output": other }),
                };
                let ended = EndedCall::ok(id, result).with_code(exit_code(text(response, "output")));
                EndedCall { files: changed(&call["resultDisplay"]), child, ..ended }
            }
            _ => {
                let error = response["error"].as_str().or_else(|| call["resultDisplay"].as_str());
                EndedCall::failed(id, error.unwrap_or(status))
            }
        };
        // Gemini writes the time of a call at its end.
        steps.end(time_of(&call["timestamp"]).or(at), ended);
    }
}

/// Returns the exit code in the text of a command's result. The text has no code if it is 0.
pub(crate) fn exit_code(shown: &str) -> Option<i64> {
    let stated = shown.lines().rev().take(TAIL).find_map(|line| line.strip_prefix("Exit Code: "))?;
    stated.trim().parse().ok()
}

/// Returns the changed file from the display of an edit.
fn changed(shown: &Value) -> Vec<StatedFile> {
    let (Some(path), Some(contents)) = (shown["filePath"].as_str(), shown["newContent"].as_str()) else {
        return Vec::new();
    };
    vec![StatedFile { path: path.to_owned(), change: StatedChange::Whole(contents.to_owned()) }]
}
