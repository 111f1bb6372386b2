//! Transcripts of Claude Code: JSON lines, with the result of a call in a later line than the call.

use serde_json::{Value, json};

use super::step::{EndedCall, KeptByCall, StatedChange, StatedFile, StepReceiver, content_text, text, time_of};
use super::{SourceRun, Transcript};
use crate::engine::clock::Timestamp;
use crate::engine::event::CallStatus;

/// The fields of a line that describe the run.
const FACTS: [&str; 4] = ["cwd", "gitBranch", "version", "entrypoint"];

/// The start of the text that the model sees for a refused call.
pub(crate) const TOOL_ERROR: &str = "<tool_use_error>";

#[derive(Default)]
pub(super) struct ClaudeCode {
    /// The inputs of calls that edit files, until their results come.
    edits: KeptByCall<Value>,
}

/// Returns the run of a transcript's line.
pub(super) fn run_of(line: &Value) -> Option<SourceRun> {
    let session = line["sessionId"].as_str()?;
    line["type"].as_str()?;
    let agent = line["agentId"].as_str().filter(|_| line["isSidechain"] == true);
    Some(SourceRun {
        agent: "claude".to_owned(),
        id: agent.unwrap_or(session).to_owned(),
        parent: agent.map(|_| session.to_owned()),
        began: time_of(&line["timestamp"]),
        directory: line["cwd"].as_str().map(str::to_owned),
    })
}

/// Returns true if a line has all parts of a message. Lines converted from other formats lack some of them.
pub(super) fn is_message(line: &Value) -> bool {
    let has = |name: &str| line[name].is_string();
    matches!(text(line, "type"), "user" | "assistant")
        && ["uuid", "sessionId", "timestamp", "version"].iter().all(|name| has(name))
        && line.get("parentUuid").is_some()
        && line["isSidechain"].is_boolean()
        && line["message"]["role"] == line["type"]
        && !line["message"]["content"].is_null()
}

impl Transcript for ClaudeCode {
    fn line(&mut self, line: Value, steps: &mut StepReceiver<'_>) {
        let at = time_of(&line["timestamp"]);
        let stated = FACTS.iter().map(|name| (*name, &line[*name]));
        steps.facts(at, stated.chain([("model", &line["message"]["model"])]));
        let parts = line["message"]["content"].as_array().map(Vec::as_slice).unwrap_or_default();
        let (mut is_call, mut has_more) = (false, false);
        for part in parts {
            match text(part, "type") {
                "tool_use" => {
                    is_call = true;
                    self.begin(at, part, steps);
                }
                "tool_result" => {
                    is_call = true;
                    steps.end(at, self.ended(part, &line["toolUseResult"]));
                }
                _ => has_more = true,
            }
        }
        if !is_call || has_more {
            steps.record(at, line);
        }
    }
}

impl ClaudeCode {
    fn begin(&mut self, at: Option<Timestamp>, part: &Value, steps: &mut StepReceiver<'_>) {
        let (id, tool) = (text(part, "id"), text(part, "name"));
        if matches!(tool, "Write" | "Edit" | "MultiEdit") {
            let bytes = part["input"].to_string().len();
            self.edits.keep(id, part["input"].clone(), bytes);
        }
        steps.begin(at, (id, tool), part["input"].clone());
    }

    fn ended(&mut self, part: &Value, stated: &Value) -> EndedCall {
        let id = text(part, "tool_use_id");
        let edit = self.edits.take(id);
        let shown = content_text(&part["content"]);
        if part["is_error"] == true {
            return failed(id, &shown, stated["interrupted"] == true);
        }
        let result = match stated {
            Value::Object(_) => stated.clone(),
            _ => json!({ "content": shown }),
        };
        let files = edit.map(|input| edited(&input, stated)).unwrap_or_default();
        let child = stated["agentId"].as_str().map(str::to_owned);
        let micros = stated["totalDurationMs"].as_u64().map(|millis| millis.saturating_mul(1000));
        EndedCall { files, child, micros, ..EndedCall::ok(id, result) }
    }
}

/// Returns the end of a call that Claude Code reports as failed.
pub(crate) fn failed(id: &str, shown: &str, is_interrupted: bool) -> EndedCall {
    // Claude Code reports an exit code other than 0 as an error.
    let command = shown.strip_prefix("Exit code ").and_then(|rest| rest.split_once('\n').or(Some((rest, ""))));
    if let Some((Ok(code), output)) = command.map(|(code, output)| (code.parse::<i64>(), output)) {
        return EndedCall::ok(id, json!({ "output": output, "exit_code": code }));
    }
    let message = shown.trim_start_matches(TOOL_ERROR).trim_end_matches("</tool_use_error>");
    let status = if is_interrupted { CallStatus::Interrupted } else { CallStatus::Error };
    EndedCall { status, ..EndedCall::failed(id, message) }
}

/// Returns the files of an edit. Edits of a subagent have no `toolUseResult`, so the input states the change.
pub(super) fn edited(input: &Value, stated: &Value) -> Vec<StatedFile> {
    let path = stated["filePath"].as_str().unwrap_or_else(|| text(input, "file_path"));
    let mut before = stated["originalFile"].as_str().map(str::to_owned);
    let replaced = |edit: &Value| {
        let (before, mut old, new) = (before.take(), text(edit, "old_string").to_owned(), text(edit, "new_string"));
        // Claude Code removes the line end along with a whole line.
        let has_line = |before: &String| before.contains(&format!("{old}\n"));
        if new.is_empty() && !old.ends_with('\n') && before.as_ref().is_some_and(has_line) {
            old.push('\n');
        }
        StatedChange::Replaced { before, old, new: new.to_owned(), all: edit["replace_all"] == true }
    };
    let changes: Vec<StatedChange> = match (input["content"].as_str(), &input["edits"]) {
        (Some(content), _) => vec![StatedChange::Whole(content.to_owned())],
        (None, Value::Array(edits)) => edits.iter().map(replaced).collect(),
        (None, _) if input["old_string"].is_string() => [input].into_iter().map(replaced).collect(),
        _ => Vec::new(),
    };
    changes.into_iter().map(|change| StatedFile { path: path.to_owned(), change }).collect()
}
