//! Sessions of Copilot CLI: JSON lines of events, those of subagents among them.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::edits::stated_files;
use super::step::{BegunCall, EndedCall, StepKind, TranscriptStep, params_of, text, time_of};
use super::{SourceRun, Transcript};

/// The words before the exit code in an output, for events that do not state it.
const EXITED: &str = " exit code ";

#[derive(Default)]
pub(super) struct Copilot {
    /// The subagent whose events these are; none for the session's own.
    subagent: Option<String>,
    model: Option<Value>,
    /// Calls without an outcome that edit files.
    edits: BTreeMap<String, (String, Value)>,
    /// Subagents, by the calls that began them.
    children: BTreeMap<String, String>,
}

/// Returns the run of the first line; none where it is no such transcript.
pub(super) fn run_of(line: &Value) -> Option<SourceRun> {
    let data = &line["data"];
    if line["type"] != "session.start" {
        return None;
    }
    Some(SourceRun {
        agent: "copilot".to_owned(),
        id: data["sessionId"].as_str()?.to_owned(),
        parent: None,
        began: time_of(&line["timestamp"]),
        directory: data["context"]["cwd"].as_str().map(str::to_owned),
    })
}

/// Returns the subagent that a line tells of, with the call that began it. `callers` has the subagents by their calls.
pub(super) fn subagent_of(
    line: &Value,
    session: &SourceRun,
    callers: &mut BTreeMap<String, String>,
) -> Option<(SourceRun, String)> {
    let (agent, call) = (line["agentId"].as_str()?.to_owned(), line["data"]["toolCallId"].as_str()?.to_owned());
    match text(line, "type") {
        "tool.execution_start" => _ = callers.insert(call, agent),
        "subagent.started" => {
            let parent = callers.get(&call).unwrap_or(&session.id).clone();
            let began = time_of(&line["timestamp"]);
            return Some((SourceRun { id: agent, parent: Some(parent), began, ..session.clone() }, call));
        }
        _ => {}
    }
    None
}

impl Copilot {
    pub(super) fn of(run: &SourceRun) -> Self {
        Self { subagent: run.parent.as_ref().map(|_| run.id.clone()), ..Self::default() }
    }

    fn ended(&mut self, data: &Value) -> EndedCall {
        let id = text(data, "toolCallId");
        let edit = self.edits.remove(id);
        let child = self.children.remove(id);
        if data["success"] == false {
            let error = data["error"]["message"].as_str().or_else(|| data["error"].as_str());
            return EndedCall { child, ..EndedCall::failed(id, error.unwrap_or("failed")) };
        }
        let shown = data["result"]["content"].as_str().unwrap_or_default();
        let (output, told) = match shown.trim_end().strip_suffix('>').and_then(|shown| shown.rsplit_once(EXITED)) {
            Some((before, code)) => (before.rsplit_once('<').map(|(output, _)| output), code.parse::<i64>().ok()),
            None => (None, None),
        };
        let code = data["shellExecution"]["exitCode"].as_i64().or(told);
        let mut result = json!({ "output": output.filter(|_| code.is_some()).unwrap_or(shown) });
        if let Some(code) = code {
            result["exit_code"] = code.into();
        }
        if data["result"]["detailedContent"].is_string() {
            result["detailed"] = data["result"]["detailedContent"].clone();
        }
        let files = edit.map(|(tool, params)| stated_files(&tool, &params)).unwrap_or_default();
        EndedCall { files, child, ..EndedCall::ok(id, result) }
    }
}

impl Transcript for Copilot {
    fn line(&mut self, line: Value, give: &mut dyn FnMut(TranscriptStep)) {
        let (at, data) = (time_of(&line["timestamp"]), &line["data"]);
        let kind = text(&line, "type");
        if kind == "subagent.started" {
            self.children.insert(text(data, "toolCallId").to_owned(), text(&line, "agentId").to_owned());
        }
        if line["agentId"].as_str() != self.subagent.as_deref() && !kind.starts_with("subagent.") {
            return;
        }
        let model = [&data["model"], &data["selectedModel"], &data["newModel"]].into_iter().find(|m| m.is_string());
        let mut facts = Map::new();
        if model.is_some_and(|model| self.model.as_ref() != Some(model)) {
            self.model = model.cloned();
            facts.extend(model.map(|model| ("model".to_owned(), model.clone())));
        }
        let stated = [("cwd", &data["context"]["cwd"]), ("version", &data["copilotVersion"])];
        facts.extend(stated.into_iter().filter(|(_, v)| v.is_string()).map(|(name, v)| (name.to_owned(), v.clone())));
        give(TranscriptStep::new(at, StepKind::Facts(facts)));
        let step = match kind {
            "tool.execution_start" => {
                let (id, tool) = (text(data, "toolCallId").to_owned(), text(data, "toolName").to_owned());
                let params = params_of(&data["arguments"]);
                if !stated_files(&tool, &params).is_empty() {
                    self.edits.insert(id.clone(), (tool.clone(), params.clone()));
                }
                StepKind::Begun(BegunCall { id, tool, params })
            }
            "tool.execution_complete" => StepKind::Ended(self.ended(data)),
            _ => StepKind::Record(line),
        };
        give(TranscriptStep::new(at, step));
    }
}
