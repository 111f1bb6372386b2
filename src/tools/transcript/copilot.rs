//! Sessions of Copilot CLI: JSON lines of events, including the events of subagents.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::step::{EndedCall, KeptByCall, StepReceiver, params_of, text, time_of};
use super::{SourceRun, Transcript};

/// The text before the exit code in an output, for events without an exit code field.
const EXITED: &str = " exit code ";

#[derive(Default)]
pub(super) struct Copilot {
    /// The subagent to read the events of; `None` for the main agent.
    subagent: Option<String>,
    /// The subagents by the calls that began them.
    children: BTreeMap<String, String>,
}

/// Returns the run that the first line of a transcript describes.
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

/// Returns the subagent that a line starts, with the call that began it. `callers` maps calls to their subagents.
pub(super) fn subagent_of(
    line: &Value,
    session: &SourceRun,
    callers: &mut KeptByCall<String>,
) -> Option<(SourceRun, String)> {
    let (agent, call) = (line["agentId"].as_str()?.to_owned(), line["data"]["toolCallId"].as_str()?.to_owned());
    match text(line, "type") {
        "tool.execution_start" => callers.keep(&call, agent, 0),
        "subagent.started" => {
            let parent = callers.get(&call).unwrap_or(&session.id).clone();
            let began = time_of(&line["timestamp"]);
            return Some((SourceRun { id: agent, parent: Some(parent), began, ..session.clone() }, call));
        }
        _ => {}
    }
    None
}

/// Splits the displayed result of a command into its output and exit code.
pub(crate) fn shell_exit(shown: &str) -> Option<(&str, i64)> {
    let (before, code) = shown.trim_end().strip_suffix('>')?.rsplit_once(EXITED)?;
    Some((before.rsplit_once('<')?.0, code.parse().ok()?))
}

impl Copilot {
    pub(super) fn of(run: &SourceRun) -> Self {
        Self { subagent: run.parent.as_ref().map(|_| run.id.clone()), ..Self::default() }
    }

    fn ended(&mut self, data: &Value) -> EndedCall {
        let id = text(data, "toolCallId");
        let child = self.children.remove(id);
        if data["success"] == false {
            let error = data["error"]["message"].as_str().or_else(|| data["error"].as_str());
            return EndedCall { child, ..EndedCall::failed(id, error.unwrap_or("failed")) };
        }
        let shown = text(&data["result"], "content");
        let (output, told) = shell_exit(shown).unzip();
        let code = data["shellExecution"]["exitCode"].as_i64().or(told);
        let result = json!({ "output": output.unwrap_or(shown) });
        let mut ended = EndedCall { child, ..EndedCall::ok(id, result).with_code(code) };
        if data["result"]["detailedContent"].is_string() {
            ended.result["detailed"] = data["result"]["detailedContent"].clone();
        }
        ended
    }
}

impl Transcript for Copilot {
    fn line(&mut self, line: Value, steps: &mut StepReceiver<'_>) {
        let (at, data) = (time_of(&line["timestamp"]), &line["data"]);
        let kind = text(&line, "type");
        if kind == "subagent.started" {
            self.children.insert(text(data, "toolCallId").to_owned(), text(&line, "agentId").to_owned());
        }
        if line["agentId"].as_str() != self.subagent.as_deref() && !kind.starts_with("subagent.") {
            return;
        }
        let model = [&data["model"], &data["selectedModel"], &data["newModel"]].into_iter().find(|m| m.is_string());
        let (cwd, version) = (&data["context"]["cwd"], &data["copilotVersion"]);
        steps.facts(at, [("model", model.unwrap_or_default()), ("cwd", cwd), ("version", version)]);
        match kind {
            "tool.execution_start" => {
                let (id, tool) = (text(data, "toolCallId").to_owned(), text(data, "toolName").to_owned());
                steps.begin_edit(at, id, tool, params_of(&data["arguments"]));
            }
            "tool.execution_complete" => steps.end(at, self.ended(data)),
            _ => steps.record(at, line),
        }
    }
}
