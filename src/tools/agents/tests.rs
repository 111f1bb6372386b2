use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Value, json};

use super::kind::AgentKind;
use super::read_report;
use super::report::{HookKind, HookReport, ReportedCall, ReportedEnd};
use crate::engine::event::CallStatus;
use crate::tools::transcript::tool_access::ToolAccess;

fn read(agent: AgentKind, payload: Value) -> HookReport {
    read_report(agent, None, &payload)
}

fn claude(payload: Value) -> HookReport {
    read(AgentKind::Claude, payload)
}

fn began(report: HookReport) -> ReportedCall {
    let HookKind::CallBegan(call) = report.kind else { panic!("no beginning: {report:?}") };
    call
}

fn ended(report: HookReport) -> (ReportedCall, ReportedEnd) {
    let HookKind::CallEnded(call, end) = report.kind else { panic!("no end: {report:?}") };
    (call, end)
}

fn short(text: &str) -> String {
    let line = text.replace('\n', "\\n");
    if line.chars().count() > 60 { line.chars().take(60).chain(['…']).collect() } else { line }
}

fn shown_call(call: &ReportedCall) -> String {
    let id = call.id.as_deref().unwrap_or("no id");
    let mut shown = format!("{} ({id}) {:?} {}", call.tool, call.access, short(&call.params.to_string()));
    call.declared.iter().for_each(|path| write!(shown, "\n      {path}").unwrap());
    shown
}

fn shown_end(end: &ReportedEnd) -> String {
    let ReportedEnd { status, result, message, exit_code, micros, background, child } = end;
    let mut shown = format!("{status:?}");
    let stated = [
        ("exit", exit_code.map(|code| code.to_string())),
        ("micros", micros.map(|micros| micros.to_string())),
        ("background", background.clone()),
        ("child", child.clone()),
        ("message", Some(short(message)).filter(|message| !message.is_empty())),
        ("result", Some(short(&result.to_string())).filter(|_| !result.is_null())),
    ];
    for (name, value) in stated {
        if let Some(value) = value {
            write!(shown, " {name} {value}").unwrap();
        }
    }
    shown
}

fn shown(report: &HookReport) -> String {
    let kind = match &report.kind {
        HookKind::CallBegan(call) => format!("began {}", shown_call(call)),
        HookKind::CallEnded(call, end) => format!("ended {}\n      {}", shown_call(call), shown_end(end)),
        HookKind::Batch(calls) => calls.iter().fold("batch".to_owned(), |shown, (call, end)| {
            shown + &format!("\n    {}\n      {}", shown_call(call), shown_end(end))
        }),
        other => format!("{other:?}"),
    };
    let by = report.subagent.as_ref().map_or(String::new(), |by| format!(" by {by}"));
    let of = report.parent.as_ref().map_or(String::new(), |parent| format!(" of {parent}"));
    format!("{} {}{of}{by}: {kind}", report.agent, report.run)
}

/// Reads the samples in a file and compares the reports.
#[expect(clippy::disallowed_methods, reason = "a test reads its fixtures")]
fn check(agent: AgentKind, name: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/hooks").join(format!("{name}.jsonl"));
    let samples = std::fs::read_to_string(path).unwrap();
    let reports: Vec<_> = samples
        .lines()
        .map(|line| {
            let sample: Value = serde_json::from_str(line).unwrap();
            read_report(agent, sample["event"].as_str(), &sample["payload"])
        })
        .collect();
    let mut text = format!("{:?} {}\n", reports[0].directory, Value::from(reports[0].facts.clone()));
    reports.iter().for_each(|report| writeln!(text, "{}", shown(report)).unwrap());
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_snapshot!(name, text);
    });
}

#[test]
fn report_of_every_sample_is_as_recorded() {
    check(AgentKind::Claude, "claude");
    check(AgentKind::Codex, "codex");
    check(AgentKind::Codex, "codex-codemode");
    check(AgentKind::Codex, "codex-long-running");
    check(AgentKind::Copilot, "copilot");
    check(AgentKind::Copilot, "copilot-claude-spelling");
    check(AgentKind::Gemini, "gemini");
    check(AgentKind::OpenCode, "opencode");
}

#[test]
fn report_of_any_payload_is_given() {
    let odd =
        [json!(null), json!([]), json!("text"), json!({ "hook_event_name": 3, "session_id": {}, "tool_calls": 1 })];
    for agent in AgentKind::ALL {
        for payload in &odd {
            let report = read_report(agent, None, payload);
            assert_eq!((report.run.as_str(), report.subagent), ("", None));
            assert_eq!(report.kind, HookKind::Other);
        }
    }
    for event in ["PreToolUse", "PostToolUse", "PostToolUseFailure", "PostToolBatch", "Stop", "UserPromptSubmit"] {
        let kind = claude(json!({ "hook_event_name": event })).kind;
        assert!(!matches!(kind, HookKind::Other), "{event} is {kind:?}");
    }
    let unknown = claude(json!({ "hook_event_name": "MoonRose", "session_id": "s" }));
    assert_eq!(unknown.kind, HookKind::Other);
}

#[test]
fn tool_unknown_may_write_anything() {
    let call = began(claude(json!({
        "hook_event_name": "PreToolUse", "tool_name": "mcp__db__migrate", "tool_input": { "path": "a", "more": [1] },
    })));
    assert_eq!((call.access, call.id, call.declared.len()), (ToolAccess::Writes, None, 0));
    assert_eq!(call.params, json!({ "path": "a", "more": [1] }));
    // An edit without a file in its parameters may have written any file.
    let call =
        began(claude(json!({ "hook_event_name": "PreToolUse", "tool_name": "Edit", "tool_input": { "id": 3 } })));
    assert_eq!(call.access, ToolAccess::Writes);
}

#[test]
fn patch_states_its_duration() {
    let report = claude(json!({
        "hook_event_name": "PostToolUse", "tool_name": "apply_patch", "tool_use_id": "c1",
        "tool_input": { "command": "*** Begin Patch\n*** End Patch\n" },
        "tool_response": "Exit code: 0\nWall time: 1.5 seconds\nOutput:\nSuccess.\n",
    }));
    let HookKind::CallEnded(_, end) = report.kind else { panic!("no end") };
    assert_eq!(end.micros, Some(1_500_000));
}

#[test]
fn edit_refused_is_told_by_its_batch_only() {
    let report = claude(json!({
        "hook_event_name": "PostToolBatch",
        "tool_calls": [{
            "tool_name": "Edit", "tool_use_id": "t1",
            "tool_input": { "file_path": "/p/a", "old_string": "x", "new_string": "y" },
            "tool_response": "<tool_use_error>String to replace not found in file.</tool_use_error>",
        }],
    }));
    let HookKind::Batch(calls) = report.kind else { panic!("no batch") };
    let (call, end) = &calls[0];
    assert_eq!(call.declared, ["/p/a"]);
    assert_eq!((end.status, &*end.message), (CallStatus::Error, "String to replace not found in file."));
}

#[test]
fn failure_with_an_exit_code_is_an_end_of_the_command() {
    let failure = |error: &str, is_interrupt: bool| {
        let payload = json!({
            "hook_event_name": "PostToolUseFailure", "tool_name": "Bash", "tool_input": { "command": "x" },
            "error": error, "is_interrupt": is_interrupt,
        });
        ended(claude(payload)).1
    };
    let end = failure("Exit code 3\noops", false);
    assert_eq!((end.status, end.exit_code), (CallStatus::Ok, Some(3)));
    assert_eq!(end.result, json!({ "output": "oops", "exit_code": 3 }));
    let end = failure("no such shell", false);
    assert_eq!((end.status, end.exit_code, &*end.message), (CallStatus::Error, None, "no such shell"));
    assert_eq!(failure("stopped", true).status, CallStatus::Interrupted);
}

#[test]
fn background_task_is_named_while_it_runs() {
    let (_, end) = ended(claude(json!({
        "hook_event_name": "PostToolUse", "tool_name": "Bash", "tool_input": { "command": "x" },
        "tool_response": { "stdout": "", "backgroundTaskId": "b1" },
    })));
    assert_eq!((end.status, end.background.as_deref()), (CallStatus::Ok, Some("b1")));
    let (_, end) = ended(read(
        AgentKind::Copilot,
        json!({
            "hook_event_name": "PostToolUse", "tool_name": "Bash", "tool_input": { "command": "x", "mode": "async" },
            "tool_result": { "text_result_for_llm": "<command started in background with shellId: 2>" },
        }),
    ));
    assert_eq!((end.exit_code, end.background.as_deref()), (None, Some("2")));
    let paused = |tasks: Value| claude(json!({ "hook_event_name": "Stop", "background_tasks": tasks })).kind;
    let background = |tasks: &[&str]| Some(tasks.iter().map(|&task| task.to_owned()).collect());
    assert_eq!(paused(json!([])), HookKind::Paused { background: background(&[]) });
    let running = json!(["b0", { "id": "b1", "status": "running" }]);
    assert_eq!(paused(running), HookKind::Paused { background: background(&["b0", "b1"]) });
    assert_eq!(paused(json!(null)), HookKind::Paused { background: None });
}

#[test]
fn cursor_with_hooks_of_claude_is_told_apart() {
    let payload = json!({
        "hook_event_name": "postToolUse", "conversation_id": "c1", "generation_id": "g1", "workspace_roots": ["/p"],
        "cursor_version": "3.1", "model": "m", "tool_name": "Write",
        "tool_input": { "path": "a.txt", "contents": "one\n" }, "tool_output": "{}", "duration": 12,
    });
    let report = claude(payload);
    assert_eq!((&*report.agent, &*report.run, report.directory.as_deref()), ("cursor", "c1", Some("/p")));
    assert_eq!(Value::from(report.facts.clone()), json!({ "model": "m", "version": "3.1" }));
    assert_eq!(ended(report).0.declared, ["a.txt"]);
    let call = began(claude(json!({
        "hook_event_name": "preToolUse", "conversation_id": "c1", "tool_name": "Delete", "tool_input": { "path": "a" },
    })));
    assert_eq!(call.declared, ["a"]);
}

#[test]
fn same_call_reported_twice_is_the_same_report() {
    let payload = json!({
        "hook_event_name": "PreToolUse", "session_id": "s", "tool_name": "Bash", "tool_use_id": "t1",
        "tool_input": { "command": "make" },
    });
    assert_eq!(claude(payload.clone()), claude(payload));
}

#[test]
fn patch_declares_each_file_that_it_names() {
    let patch = "*** Begin Patch\n*** Add File: a b.txt\n+one\n++two\n*** Update File: c.txt\n*** Move to: d.txt\n@@\n-x\n+y\n\
        *** Delete File: e.txt\n*** End Patch\n";
    let call = began(read(
        AgentKind::Codex,
        json!({ "hook_event_name": "PreToolUse", "tool_name": "apply_patch", "tool_input": { "command": patch } }),
    ));
    let files = ["a b.txt", "c.txt", "d.txt", "e.txt"].map(str::to_owned);
    assert_eq!((call.access, &*call.declared), (ToolAccess::Edits, &files[..]));
}

#[test]
fn call_that_throws_in_opencode_ends_by_its_part() {
    let (call, end) = ended(read(
        AgentKind::OpenCode,
        json!({ "hook": "event", "parent": "ses_0", "directory": "/p", "input": {
            "type": "message.part.updated",
            "properties": { "sessionID": "ses_1", "part": {
                "type": "tool", "callID": "c1", "tool": "edit",
                "state": { "status": "error", "input": { "filePath": "/p/a", "oldString": "x" }, "error": "not found" },
            } },
        } }),
    ));
    assert_eq!((call.id.as_deref(), &*call.tool), (Some("c1"), "edit"));
    assert_eq!((end.status, &*end.message), (CallStatus::Error, "not found"));
}

#[test]
fn agent_kind_is_read_by_its_name() {
    for agent in AgentKind::ALL {
        assert_eq!(agent.to_string().parse(), Ok(agent));
    }
    let problem = "aider".parse::<AgentKind>().unwrap_err().to_string();
    assert_eq!(problem, "unknown agent \"aider\"; supported agents are claude, codex, gemini, copilot and opencode");
}
