//! Payloads of hooks that are commands. Other agents have adopted Claude Code's names, with differences in spelling.

use serde_json::{Map, Value, json};

use super::kind::AgentKind;
use super::report::{HookKind, HookReport, ReportedCall, ReportedEnd};
use crate::engine::event::CallStatus;
use crate::tools::transcript::claude::{TOOL_ERROR, failed};
use crate::tools::transcript::copilot::shell_exit;
use crate::tools::transcript::gemini::exit_code;
use crate::tools::transcript::step::{content_text, params_of};
use crate::tools::transcript::tool_access::ToolAccess;

const FACTS: [(&str, &[&str]); 6] = [
    ("model", &["model"]),
    ("transcript_path", &["transcript_path", "transcriptPath"]),
    ("agent_transcript_path", &["agent_transcript_path"]),
    ("permission_mode", &["permission_mode"]),
    ("source", &["source"]),
    ("version", &["version", "cursor_version"]),
];

pub(super) fn read(agent: AgentKind, event: Option<&str>, payload: &Value) -> HookReport {
    // Cursor runs Claude Code's hooks, too.
    let roots = &payload["workspace_roots"];
    let is_cursor = roots.is_array() || payload["conversation_id"].is_string();
    let run = named(payload, &["session_id", "sessionId", "conversation_id"]).unwrap_or_default();
    let subagent = named(payload, &["agent_id", "agentId"]);
    let is_own = subagent.as_ref() == Some(&run);
    let event = payload["hook_event_name"].as_str().or(event).unwrap_or_default();
    let mut facts = Map::new();
    for (name, spellings) in FACTS {
        if let Some(fact) = named(payload, spellings) {
            facts.insert(name.to_owned(), fact.into());
        }
    }
    HookReport {
        agent: if is_cursor { "cursor".to_owned() } else { agent.name().to_owned() },
        run,
        parent: named(payload, &["parent_agent_id", "parentAgentId"]).filter(|_| is_own),
        subagent,
        directory: named(payload, &["cwd"]).or_else(|| roots[0].as_str().map(str::to_owned)),
        facts,
        kind: kind(event, payload),
    }
}

fn kind(event: &str, payload: &Value) -> HookKind {
    match event {
        "SessionStart" | "sessionStart" => HookKind::RunBegan,
        "SessionEnd" | "sessionEnd" => HookKind::RunEnded { reason: named(payload, &["reason"]) },
        "UserPromptSubmit" | "userPromptSubmitted" | "beforeSubmitPrompt" | "BeforeAgent" => HookKind::Prompted {
            prompt: named(payload, &["prompt"]).unwrap_or_default(),
            id: named(payload, &["prompt_id", "turn_id", "generation_id"]),
        },
        "PreToolUse" | "preToolUse" | "BeforeTool" => HookKind::CallBegan(call(payload)),
        "PermissionRequest" | "permissionRequest" => HookKind::Asked,
        "Notification" if payload["notification_type"] == "ToolPermission" => HookKind::Asked,
        // The call never ran.
        "PermissionDenied" => {
            let denied = ReportedEnd::failed(&named(payload, &["reason"]).unwrap_or_default());
            HookKind::Batch(vec![(call(payload), denied)])
        }
        "PostToolUse" | "postToolUse" | "AfterTool" | "PostToolUseFailure" | "postToolUseFailure" => {
            let answer = any(payload, &["tool_response", "tool_result", "toolResult", "tool_output"]);
            let call = call(payload);
            let end = ended(&call, payload, answer);
            HookKind::CallEnded(call, end)
        }
        "PostToolBatch" => {
            let calls = payload["tool_calls"].as_array().map(Vec::as_slice).unwrap_or_default();
            HookKind::Batch(calls.iter().map(|one| (call(one), shown(&one["tool_response"]))).collect())
        }
        "SubagentStart" | "subagentStart" => HookKind::SubagentBegan,
        "SubagentStop" | "subagentStop" => HookKind::SubagentEnded,
        "Stop" | "stop" | "agentStop" | "AfterAgent" | "Interrupt" => {
            let tasks = payload["background_tasks"].as_array();
            HookKind::Paused { background: tasks.map(|tasks| tasks.iter().map(task).collect()) }
        }
        _ => HookKind::Other,
    }
}

fn call(payload: &Value) -> ReportedCall {
    let id = named(payload, &["tool_use_id", "toolUseId", "tool_call_id"]);
    let tool = named(payload, &["tool_name", "toolName"]).unwrap_or_default();
    ReportedCall::new(id, tool, params_of(any(payload, &["tool_input", "toolArgs"])))
}

/// Returns the end in the payload of a single call.
fn ended(call: &ReportedCall, payload: &Value, answer: &Value) -> ReportedEnd {
    let text = content_text(any(answer, &["llmContent", "text_result_for_llm", "textResultForLlm"]));
    let success = any(answer, &["result_type", "resultType"]).as_str().is_none_or(|kind| kind == "success");
    let error = payload["error"].as_str().or_else(|| answer["error"]["message"].as_str());
    let mut end = match error {
        Some(error) => failed("", error, payload["is_interrupt"] == true).into(),
        None if !success => ReportedEnd::failed(&text),
        None => ReportedEnd::ok(answer.clone()),
    };
    if answer["interrupted"] == true {
        end.status = CallStatus::Interrupted;
    }
    end.background = named(answer, &["backgroundTaskId"]);
    if call.access == ToolAccess::Writes {
        end.exit_code = end.exit_code.or_else(|| exit_code(&text)).or_else(|| Some(shell_exit(&text)?.1));
        end.background = end.background.or_else(|| left_in_background(&text));
    }
    end.micros = payload["duration_ms"]
        .as_u64()
        .map(|millis| millis.saturating_mul(1000))
        .or_else(|| wall_time(answer.as_str()?));
    end.child = named(answer, &["agentId"]).or_else(|| {
        let spawned: Value = serde_json::from_str(answer.as_str().filter(|_| call.tool == "spawn_agent")?).ok()?;
        named(&spawned, &["agent_id"])
    });
    end
}

/// Returns the end of a call in a batch, which contains only the text for the model.
fn shown(answer: &Value) -> ReportedEnd {
    let text = content_text(answer);
    if text.starts_with(TOOL_ERROR) || text.starts_with("Exit code ") {
        return failed("", &text, false).into();
    }
    ReportedEnd::ok(json!({ "content": text }))
}

/// Returns the duration of a patch in microseconds, from Codex's answer.
fn wall_time(text: &str) -> Option<u64> {
    let (_, rest) = text.strip_prefix("Exit code: ")?.split_once("\nWall time: ")?;
    let seconds: f64 = rest.split_once(" seconds\n")?.0.parse().ok()?;
    Some((seconds * 1e6) as u64)
}

/// Returns the process or shell that Gemini CLI or Copilot CLI left in the background.
fn left_in_background(text: &str) -> Option<String> {
    let (_, process) = text.split_once("Command moved to background (PID: ").unwrap_or_default();
    let (_, shell) = text.split_once("<command started in background with shellId: ").unwrap_or_default();
    let (id, _) = process.split_once(')').or_else(|| shell.split_once('>'))?;
    Some(id.to_owned())
}

/// Returns the id of a background task.
fn task(task: &Value) -> String {
    let id = task.as_str().map(str::to_owned).or_else(|| named(task, &["id", "task_id", "taskId"]));
    id.unwrap_or_else(|| task.to_string())
}

fn any<'v>(value: &'v Value, names: &[&str]) -> &'v Value {
    names.iter().map(|name| &value[*name]).find(|value| !value.is_null()).unwrap_or(&Value::Null)
}

fn named(value: &Value, names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| value[*name].as_str()).map(str::to_owned)
}
