//! Calls that wait for a permission, and what a person changes meanwhile.

use std::thread::sleep;
use std::time::Duration;

use serde_json::{Value, json};

use super::Repository;
use super::hooking::{bash_call, runs};
use crate::rig::eventually;

#[test]
fn changes_while_a_call_waits_for_a_permission_stay_with_the_person() {
    let repository = Repository::with(&[("a.txt", "one\n")]);
    repository.claude("PreToolUse", bash_call("t1"));
    repository.claude("PermissionRequest", json!({ "tool_name": "Bash", "tool_input": { "command": "t1" } }));
    repository.write("mine.txt", "the person's\n");
    // Refused: Claude Code tells of it at the next request only.
    repository.claude("UserPromptSubmit", json!({ "prompt": "something else" }));
    let undone = repository.program.run(&["undo", "repo", "--yes"]);
    assert!(repository.has("mine.txt") && undone.starts_with("undoes #"), "{undone}");
    let drift = repository.events("DriftFound").pop().unwrap();
    assert_eq!(drift["event"]["perhaps"], json!([runs(&repository).ended[0].call]));
    let log = repository.program.printed(&["log", "repo", "--calls"]);
    assert!(log.contains("~1 perhaps"), "{log}");
}

#[test]
fn call_that_was_allowed_is_undone_and_what_changed_before_is_not() {
    let repository = Repository::with(&[("a.txt", "one\n"), ("b.txt", "two\n")]);
    repository.claude("PreToolUse", bash_call("t1"));
    repository.claude("PermissionRequest", json!({ "tool_name": "Bash", "tool_input": { "command": "t1" } }));
    repository.write("mine.txt", "the person's\n");
    let mine = repository.root().join("mine.txt");
    let age = || mine.metadata().unwrap().modified().unwrap().elapsed().unwrap_or_default();
    eventually("the person has thought about it", || age().as_millis() >= 3600);
    repository.write("a.txt", "by the call\n");
    repository.remove("b.txt");
    let mut done = bash_call("t1");
    done["tool_response"] = json!({ "stdout": "" });
    done["duration_ms"] = json!(3000);
    repository.claude("PostToolUse", done);
    let undone = repository.program.run(&["undo", "repo", "--yes"]);
    assert!(undone.contains("left     mine.txt  a person may have changed it;"), "{undone}");
    assert!(undone.ends_with("[exit 1]"), "{undone}");
    assert_eq!((repository.read("a.txt"), repository.read("b.txt")), ("one\n".to_owned(), "two\n".to_owned()));
    assert!(repository.has("mine.txt"));
}

fn gemini(repository: &Repository, event: &str, tool: &str, more: Value) {
    let mut payload =
        json!({ "session_id": "g1", "cwd": repository.root(), "hook_event_name": event, "tool_name": tool });
    payload.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    repository.hook(&["gemini"], &payload);
}

#[test]
fn edit_that_was_allowed_is_undone_if_it_alone_changed_the_file() {
    let repository = Repository::with(&[("a.txt", "one\ntwo\nthree\n"), ("b.txt", "x\ny\nz\n")]);
    for (file, old, by_person) in [("a.txt", "two", ""), ("b.txt", "y", "the person's\n")] {
        let params = json!({ "file_path": repository.root().join(file), "old_string": old, "new_string": "EDIT" });
        gemini(&repository, "BeforeTool", "replace", json!({ "tool_input": params }));
        gemini(&repository, "Notification", "", json!({ "notification_type": "ToolPermission", "message": "?" }));
        repository.write("mine.txt", &format!("{file}\n"));
        let edited = repository.read(file).replace(old, "EDIT") + by_person;
        repository.write(file, &edited);
        let answer = json!({ "tool_input": params, "tool_response": { "llmContent": "Modified" } });
        gemini(&repository, "AfterTool", "replace", answer);
    }
    let left = repository.program.run(&["undo", "repo", "--yes"]);
    assert!(left.contains("left     b.txt  a person may have changed it;"), "{left}");
    assert_eq!(repository.read("b.txt"), "x\nEDIT\nz\nthe person's\n");
    let call = runs(&repository).ended[0].call.to_string();
    repository.program.printed(&["undo", "repo", "--call", &call, "--yes"]);
    assert_eq!((repository.read("a.txt"), repository.read("mine.txt")), ("one\ntwo\nthree\n".into(), "b.txt\n".into()));
}

#[test]
fn answer_to_a_question_ends_the_doubt_of_a_call() {
    let repository = Repository::with(&[("a.txt", "one\n")]);
    let hook = |hook: &str, input: Value, output: Value| {
        let payload = json!({ "hook": hook, "directory": repository.root(), "input": input, "output": output });
        repository.hook(&["opencode"], &payload);
    };
    let call = json!({ "tool": "bash", "sessionID": "o1", "callID": "c1", "args": { "command": "x" } });
    let event = |name: &str, more: &str| {
        let properties = json!({ "sessionID": "o1", "id": "p1", "reply": more });
        hook("event", json!({ "type": name, "properties": properties }), Value::Null);
    };
    hook("tool.execute.before", call.clone(), json!({ "args": { "command": "x" } }));
    event("permission.asked", "");
    repository.write("mine.txt", "the person's\n");
    let mine = repository.root().join("mine.txt");
    let age = || mine.metadata().unwrap().modified().unwrap().elapsed().unwrap_or_default();
    eventually("the person has thought about it", || age().as_secs() >= 2);
    event("permission.replied", "once");
    repository.write("a.txt", "by the call\n");
    hook("tool.execute.after", call, json!({ "title": "x", "output": "", "metadata": { "exit": 0 } }));
    let undone = repository.program.run(&["undo", "repo", "--yes"]);
    assert!(undone.contains("left     mine.txt  a person may have changed it;"), "{undone}");
    assert_eq!((repository.read("a.txt"), repository.read("mine.txt")), ("one\n".into(), "the person's\n".into()));
}

#[test]
fn command_that_was_allowed_stays_in_doubt_if_nothing_tells_when_it_began() {
    let repository = Repository::with(&[("a.txt", "one\n")]);
    repository.command("before", |repository| repository.write("c.txt", "x\n"));
    let call =
        json!({ "sessionId": "k1", "cwd": repository.root(), "toolName": "bash", "toolArgs": { "command": "x" } });
    repository.hook(&["copilot", "preToolUse"], &call);
    repository.hook(&["copilot", "permissionRequest"], &call);
    repository.write("a.txt", "by whom?\n");
    let mut done = call;
    done["toolResult"] =
        json!({ "resultType": "success", "textResultForLlm": "<shellId: 0 completed with exit code 0>" });
    repository.hook(&["copilot", "postToolUse"], &done);
    repository.command("later", |repository| repository.write("b.txt", "x\n"));
    repository.program.printed(&["undo", "repo", "--yes"]);
    // It is named, and no earlier call is undone in its place.
    let left = repository.program.run(&["undo", "repo", "--yes"]);
    assert!(left.starts_with("undoes #") && left.contains(" bash x by copilot"), "{left}");
    assert!(left.contains("left     a.txt  a person may have changed it;"), "{left}");
    repository.program.printed(&["undo", "repo", "--overwrite", "--yes"]);
    assert_eq!(repository.read("a.txt"), "one\n");
}

#[test]
fn call_that_only_a_batch_ends_has_changed_nothing_for_certain() {
    let repository = Repository::with(&[("a.txt", "one\n")]);
    repository.claude("PreToolUse", bash_call("n1"));
    repository.write("mine.txt", "the person's\n");
    let mut refused = bash_call("n1");
    refused["tool_response"] = json!("refused");
    repository.claude("PostToolBatch", json!({ "tool_calls": [refused] }));
    repository.claude("Stop", json!({}));
    repository.program.run(&["undo", "repo", "--yes"]);
    assert!(repository.has("mine.txt"));
}

/// Longer than the time that a call's end states for it, so that what happened before counts as before the call.
const THOUGHT: Duration = Duration::from_millis(3600);

fn ask(repository: &Repository) {
    repository.claude("PreToolUse", bash_call("t1"));
    repository.claude("PermissionRequest", json!({ "tool_name": "Bash", "tool_input": { "command": "t1" } }));
}

fn end(repository: &Repository) {
    let mut done = bash_call("t1");
    done["tool_response"] = json!({ "stdout": "" });
    done["duration_ms"] = json!(3000);
    repository.claude("PostToolUse", done);
}

#[test]
fn undo_leaves_what_a_person_wrote_during_the_question_in_files_that_the_call_changed() {
    let repository = Repository::with(&[("a.txt", "one\n"), ("d/b.txt", "two\n"), ("d/c.txt", "three\n")]);
    ask(&repository);
    repository.write("a.txt", "one\nthe person's\n");
    repository.write("d/b.txt", "two\nthe person's\n");
    repository.write("d/new.txt", "the person's\n");
    sleep(THOUGHT);
    repository.write("a.txt", "one\nthe person's\nby the call\n");
    std::fs::remove_dir_all(repository.root().join("d")).unwrap();
    // The call runs on, and is looked at meanwhile.
    sleep(Duration::from_millis(500));
    repository.write("e.txt", "by the call\n");
    end(&repository);
    let undone = repository.program.run(&["undo", "repo", "--yes"]);
    let files = ["a.txt", "d/b.txt", "d/c.txt", "d/new.txt"].map(|path| repository.read(path));
    assert_eq!(files, ["one\nthe person's\n", "two\nthe person's\n", "three\n", "the person's\n"], "{undone}");
    assert!(!repository.has("e.txt"), "{undone}");
    let log = repository.program.printed(&["log", "repo", "--calls"]);
    assert!(log.contains("~3 perhaps"), "{log}");
}

#[test]
fn owner_that_ends_during_a_question_leaves_all_changes_in_doubt() {
    let repository = Repository::with(&[("a.txt", "one\n")]);
    ask(&repository);
    repository.write("a.txt", "one\nthe person's\n");
    sleep(Duration::from_millis(500));
    repository.program.printed(&["stop"]);
    sleep(THOUGHT);
    repository.write("a.txt", "one\nthe person's\nby the call\n");
    end(&repository);
    let undone = repository.program.run(&["undo", "repo", "--yes"]);
    assert!(undone.contains("left     a.txt  a person may have changed it;"), "{undone}");
    assert_eq!(repository.read("a.txt"), "one\nthe person's\nby the call\n");
}
