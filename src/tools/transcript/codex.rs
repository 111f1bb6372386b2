//! Rollouts of Codex CLI: JSON lines of `{timestamp, type, payload}`.

use serde_json::{Value, json};

use super::json_piece::packed;
use super::step::{EndedCall, KeptByCall, StatedChange, StatedFile, StepReceiver, params_of, text, time_of};
use super::{SourceRun, Transcript};

const FACTS: [&str; 6] = ["cwd", "cli_version", "model", "originator", "source", "git"];
const EXITED: &str = "Process exited with code ";
const EXIT_CODE: &str = "Exit code: ";

#[derive(Default)]
pub(super) struct Codex {
    /// The ends of calls from events that precede the output.
    ends: KeptByCall<CodexEnd>,
}

#[derive(Default)]
struct CodexEnd {
    files: Vec<StatedFile>,
    exit_code: Option<i64>,
    micros: Option<u64>,
}

/// Returns the run that the first line of a rollout describes.
pub(super) fn run_of(line: &Value) -> Option<SourceRun> {
    if line["type"] != "session_meta" {
        return None;
    }
    let meta = &line["payload"];
    let parent = &meta["source"]["subagent"]["thread_spawn"]["parent_thread_id"];
    let parent = parent.as_str().or_else(|| meta["parent_thread_id"].as_str());
    Some(SourceRun {
        agent: "codex".to_owned(),
        id: meta["id"].as_str()?.to_owned(),
        parent: parent.map(str::to_owned),
        began: time_of(&line["timestamp"]).or_else(|| time_of(&meta["timestamp"])),
        directory: meta["cwd"].as_str().map(str::to_owned),
    })
}

impl Transcript for Codex {
    fn line(&mut self, line: Value, steps: &mut StepReceiver<'_>) {
        let at = time_of(&line["timestamp"]);
        let payload = &line["payload"];
        let mut begin = |params| {
            let id = payload["call_id"].as_str().unwrap_or_else(|| text(payload, "id"));
            steps.begin(at, (id, payload["name"].as_str().unwrap_or("local_shell")), params_of(params));
        };
        match (text(&line, "type"), text(payload, "type")) {
            ("response_item", "function_call") => return begin(&payload["arguments"]),
            ("response_item", "custom_tool_call") => return begin(&payload["input"]),
            ("response_item", "local_shell_call") => return begin(&payload["action"]),
            ("response_item", "function_call_output" | "custom_tool_call_output") => {
                return steps.end(at, self.ended(payload));
            }
            ("session_meta" | "turn_context", _) => steps.facts(at, FACTS.iter().map(|name| (*name, &payload[*name]))),
            ("event_msg", "item_completed") => {
                self.completed(&payload["item"], &payload["started_at_ms"], &payload["completed_at_ms"]);
            }
            ("event_msg", "patch_apply_end") => {
                self.note(text(payload, "call_id"), |end| end.files = patched(&payload["changes"]));
            }
            ("event_msg", "exec_command_end") => {
                self.note(text(payload, "call_id"), |end| end.exit_code = payload["exit_code"].as_i64());
            }
            _ => {}
        }
        steps.record(at, line);
    }
}

impl Codex {
    fn note(&mut self, call: &str, note: impl FnOnce(&mut CodexEnd)) {
        let mut end = self.ends.take(call).unwrap_or_default();
        note(&mut end);
        let bytes = end.files.iter().map(StatedFile::size).sum();
        self.ends.keep(call, end, bytes);
    }

    fn completed(&mut self, item: &Value, started: &Value, completed: &Value) {
        let Some(id) = item["id"].as_str() else { return };
        let millis = completed.as_u64().zip(started.as_u64()).map(|(end, start)| end.saturating_sub(start));
        match text(item, "type") {
            "FileChange" if item["status"] == "completed" => self.note(id, |end| end.files = patched(&item["changes"])),
            "CommandExecution" => self.note(id, |end| {
                end.exit_code = item["exit_code"].as_i64();
                end.micros = millis.map(|millis| millis.saturating_mul(1000));
            }),
            _ => {}
        }
    }

    fn ended(&mut self, payload: &Value) -> EndedCall {
        let id = text(payload, "call_id");
        let CodexEnd { files, exit_code, micros } = self.ends.take(id).unwrap_or_default();
        // Older rollouts have JSON in a string, with the exit code in it.
        let unpacked = payload["output"].as_str().and_then(packed);
        let unpacked = unpacked.filter(|value| value["output"].is_string());
        let output = match &unpacked {
            Some(value) => value["output"].clone(),
            None => payload["output"].clone(),
        };
        let shown = output.as_str().unwrap_or_default();
        let exit_code =
            exit_code.or_else(|| unpacked.as_ref()?["metadata"]["exit_code"].as_i64()).or_else(|| stated_code(shown));
        let has_failed = ["exec_command failed:", "apply_patch verification failed:", "failed in sandbox:"];
        let child = packed(shown).and_then(|value| Some(value["agent_id"].as_str()?.to_owned()));
        if has_failed.iter().any(|start| shown.starts_with(start)) {
            return EndedCall { micros, ..EndedCall::failed(id, shown) };
        }
        let ended = EndedCall::ok(id, json!({ "output": output })).with_code(exit_code);
        EndedCall { files, micros, child, ..ended }
    }
}

/// Returns the exit code stated at the head of an output.
pub(super) fn stated_code(output: &str) -> Option<i64> {
    let head = output.split("\nOutput:").next().unwrap_or_default();
    let code = head.lines().find_map(|line| line.strip_prefix(EXITED).or_else(|| line.strip_prefix(EXIT_CODE)))?;
    code.trim().parse().ok()
}

fn patched(changes: &Value) -> Vec<StatedFile> {
    let changes = changes.as_object().into_iter().flatten();
    let stated = changes.filter_map(|(path, change)| {
        // Older rollouts have the kind as the key of an inner object.
        let (kind, change) = match change["type"].as_str() {
            Some(kind) => (kind, change),
            None => change.as_object()?.iter().next().map(|(kind, change)| (kind.as_str(), change))?,
        };
        let change = match kind {
            "add" => StatedChange::Whole(text(change, "content").to_owned()),
            "delete" => StatedChange::Removed,
            "update" => StatedChange::Patched {
                diff: text(change, "unified_diff").to_owned(),
                moved_to: change["move_path"].as_str().map(str::to_owned),
            },
            _ => return None,
        };
        Some(StatedFile { path: path.clone(), change })
    });
    stated.collect()
}
