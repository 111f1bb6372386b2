//! The shapes of docs/JSON.md.

use serde_json::Value;

use crate::rig::Program;

/// The names of an object's fields, in order.
fn fields(value: &Value) -> Vec<&str> {
    value.as_object().unwrap_or_else(|| panic!("no object: {value}")).keys().map(String::as_str).collect()
}

const EVENT: [&str; 8] = ["session", "seq", "time", "call", "agent", "kind", "version", "event"];
const FILE: [&str; 10] =
    ["path", "node", "content", "size", "executable", "permissions", "text", "version", "created_at", "updated_at"];
const CALL: [&str; 17] = [
    "call",
    "tool",
    "agent",
    "started_at",
    "status",
    "exit_code",
    "timed_out",
    "finished",
    "micros",
    "message",
    "params",
    "events",
    "paths",
    "changed",
    "shared",
    "not_kept",
    "lost",
];

#[test]
fn json_of_history_commands_is_stable() {
    let program = Program::with_story();
    let sessions = program.json(&["sessions"]);
    let names = ["session", "name", "parent", "backend", "events", "calls", "created", "updated"];
    assert_eq!(fields(&sessions[0]), names);
    let events = program.json_lines(&["log", "story"]);
    assert_eq!(events.len(), 15);
    assert!(events.iter().all(|event| fields(event) == EVENT));
    assert_eq!(events[0]["call"], Value::Null);
    let calls = program.json_lines(&["log", "story", "--calls"]);
    assert_eq!(calls.len(), 5);
    assert!(calls.iter().all(|call| fields(call) == CALL));
    assert_eq!((&calls[4]["agent"], &calls[4]["paths"][0]), (&"tidy".into(), &"a.txt".into()));
    let event = program.json(&["show", "story", "3"]);
    assert_eq!(fields(&event), ["event", "call", "messages", "by", "changes"]);
    assert_eq!((fields(&event["event"]), &event["call"]), (EVENT.to_vec(), &Value::Null));
    let call = program.json(&["show", "story", "8"]);
    assert_eq!(fields(&call["call"]), [&CALL[..], &["result"]].concat());
    assert!(call["call"]["events"].as_array().unwrap().iter().all(|event| fields(event) == EVENT));
    let change = ["change", "path", "before", "after", "binary", "lines_added", "lines_removed", "patch"];
    assert_eq!(fields(&call["changes"][0]), change);
}

#[test]
fn json_of_state_commands_is_stable() {
    let program = Program::with_story();
    let state = program.json(&["state", "story"]);
    assert_eq!(fields(&state), ["session", "name", "seq", "time", "unreadable", "slices"]);
    assert_eq!(fields(&state["slices"][0]), ["slice", "version", "on_rewind", "json_bytes", "digest"]);
    assert_eq!(program.json(&["state", "story", "--at", "0"])["time"], Value::Null);
    assert_eq!(program.json(&["state", "story", "Usage"])["calls"], 5);
    assert!(program.json(&["state", "story", "VirtualFileSystem"])["src"].is_object());
    let list = program.json(&["ls", "story", "-R"]);
    assert_eq!(fields(&list[1]), FILE);
    assert_eq!(fields(&list[0]), ["path", "node", "permissions", "version", "created_at", "updated_at"]);
    assert_eq!(fields(&program.json(&["stat", "story", "src/main.rs"])), [&FILE[..], &["written_by"]].concat());
    assert_eq!(program.json(&["stat", "story", "src"])["written_by"], Value::Null);
    let cat = program.json(&["cat", "story", "src/main.rs"]);
    assert_eq!(fields(&cat[0]), [&FILE[..], &["contents_text"]].concat());
    assert_eq!(cat[0]["contents_text"], "fn main() {}\n");
    let grep = program.json(&["grep", "story", "main"]);
    assert_eq!(fields(&grep[0]), ["path", "line_number", "line"]);
    assert_eq!(program.json(&["grep", "story", "main", "-l"]), serde_json::json!([{ "path": "src/main.rs" }]));
    let diff = program.json(&["diff", "story", ".."]);
    assert_eq!((&diff[0]["path"], &diff[0]["change"]), (&"src".into(), &"added".into()));
    assert_eq!(diff[1]["lines_added"], 1);
}

#[test]
fn json_of_store_commands_is_stable() {
    let program = Program::with_story();
    let verified = program.json(&["verify"]);
    let names = ["sessions", "events", "snapshots", "contents", "unreadable", "lost", "differences", "loss"];
    assert_eq!(fields(&verified), names);
    let checked = program.json(&["fsck"]);
    let names = [
        "segments",
        "commits",
        "events",
        "contents",
        "sessions",
        "problems",
        "repaired",
        "loss",
        "gaps",
        "contradictions",
        "problems_left",
    ];
    assert_eq!(fields(&checked), names);
    let collected = program.json(&["gc", "--dry-run"]);
    let names = ["commits", "contents", "bytes", "segments", "snapshot_blocks", "leftovers", "torn"];
    let more = [
        "containers",
        "containers_elsewhere",
        "containers_failed",
        "engine_unasked",
        "abandoned",
        "probes",
        "sandboxes",
    ];
    assert_eq!(fields(&collected), [&names[..], &more].concat());
    let used = program.json(&["du"]);
    let names = ["kinds", "sessions", "store", "written_bytes", "kept_bytes", "dedup_ratio"];
    assert_eq!(fields(&used), names);
    assert_eq!(fields(&used["store"][0]), ["what", "count", "raw_bytes", "disk_bytes"]);
    let summary = ["session", "name", "events", "added", "contents", "bytes"];
    assert_eq!(fields(&program.json(&["export", "story", "story.fold"])), summary);
    assert_eq!(fields(&program.json(&["import", "story.fold"])), summary);
    let tools = program.json(&["tools"]);
    assert_eq!(fields(&tools[0]), ["name", "description", "effect", "params", "output"]);
    assert_eq!(program.json(&["tools", "rm"])["name"], "rm");
    assert_eq!(fields(&program.json(&["remove", "story", "--yes"])), ["removed", "name", "events", "children"]);
    assert_eq!(program.json(&["sessions"]), serde_json::json!([]));
}
