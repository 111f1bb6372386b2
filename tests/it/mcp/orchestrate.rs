//! The tools for sessions as a whole.

use serde_json::{Value, json};

use super::{McpClient, write};
use crate::rig::Program;

/// A client with a session of two files, whose first call is at 2.
pub(super) fn with_history(program: &Program) -> McpClient {
    let mut client = program.on_host(&["--tools", "all", "--session", "s", "--allow", "grep"]);
    client.done("write_file", write("a.txt", "one\n"));
    client.done("write_file", write("b.txt", "two\n"));
    let edit = json!({ "file_path": "a.txt", "old_string": "one", "new_string": "eins" });
    client.done("edit_file", edit);
    client
}

#[test]
fn session_tools_read_any_seq() {
    let program = Program::with_files();
    let mut client = with_history(&program);
    let log = client.done("session_log", json!({}));
    let tools: Vec<_> = log["calls"].as_array().unwrap().iter().map(|call| call["tool"].clone()).collect();
    assert_eq!(tools, ["write_file", "write_file", "edit_file"]);
    assert_eq!((&log["name"], &log["next"]), (&json!("s"), &Value::Null));
    let first = client.done("session_log", json!({ "from": 1, "limit": 1 }));
    let next = first["next"].as_u64().unwrap();
    assert_eq!(client.done("session_log", json!({ "from": next }))["calls"].as_array().unwrap().len(), 2);
    let events = client.done("session_log", json!({ "events": true, "from": 1, "limit": 2 }));
    assert_eq!(events["events"][0]["kind"], "SessionStarted");
    assert_eq!(events["next"], 3);

    let state = client.done("session_state", json!({ "slice": "Usage", "at": 4 }));
    assert_eq!((&state["value"]["calls"], &state["seq"]), (&json!(1), &json!(4)));
    let early = client.failed("session_state", json!({ "slice": "Usage", "at": "1h ago" }));
    assert!(early.contains("the session began at"), "{early}");
    assert_eq!(client.done("session_log", json!({ "events": true, "from": -999 }))["events"][0]["seq"], 1);
    let part = json!({ "slice": "virtualfilesystem", "pointer": "/a.txt/size" });
    assert_eq!(client.done("session_state", part)["value"], 5);
    assert!(client.done("session_state", json!({}))["slices"].as_array().unwrap().len() > 5);

    let diff = client.done("session_diff", json!({ "from": 4, "path": "a.txt" }));
    assert_eq!(diff["changes"][0]["lines_removed"], 1);
    assert_eq!(client.done("session_diff", json!({ "from": "-0" }))["changes"], json!([]));
}

#[test]
fn session_clone_can_be_merged() {
    let program = Program::with_files();
    let mut client = with_history(&program);
    let limits =
        json!({ "at": 4, "name": "worker", "agent": "w", "max_calls": 5, "tools": ["write_file"], "deny": ["rm"] });
    let clone = client.done("session_clone", limits);
    assert_eq!((&clone["name"], &clone["at"], &clone["limits"]["calls"]), (&json!("worker"), &json!(4), &json!(5)));
    client.leave();

    let mut worker = program.client(&["--session", "worker", "--tools", "files,sessions"]);
    let tools = worker.ask("tools/list", json!({}));
    assert_eq!(tools["result"]["tools"].as_array().unwrap().len(), 1, "what the clone may use");
    assert_eq!(worker.ask("tools/call", json!({ "name": "session_log" }))["error"]["code"], -32602);
    worker.done("write_file", write("c.txt", "three\n"));
    worker.leave();

    let mut client = program.client(&["--tools", "sessions"]);
    assert_eq!(client.done("session_merge", json!({ "child": "worker", "dry_run": true }))["seq"], Value::Null);
    client.leave();
    assert_eq!(program.sessions(), ["s", "worker"], "who only merges needs no session");
    let mut client = program.client(&["--session", "s", "--tools", "sessions"]);
    let merged = client.done("session_merge", json!({ "child": "worker" }));
    assert_eq!((&merged["outcome"], &merged["into_name"]), (&json!("merged"), &json!("s")));
    assert_eq!(client.done("session_merge", json!({ "child": "worker" }))["outcome"], "nothing");
    let nothing = client.failed("session_merge", json!({ "child": "s" }));
    assert!(nothing.contains("has no parent to merge into"), "{nothing}");
}

#[test]
fn dispatch_subagents_has_the_rules_of_the_server() {
    let program = Program::with_files();
    let mut client = with_history(&program);
    let new =
        |name: &str, tool: &str, params: Value| json!({ "name": name, "calls": [{ "tool": tool, "params": params }] });
    let grep = new("greps", "shell_execute", json!({ "command": "grep two b.txt" }));
    let children = json!([new("writes", "write_file", write("c.txt", "c\n")), grep]);
    let done = client.done("dispatch_subagents", json!({ "children": children, "merge": true }));
    assert_eq!(
        (&done["children"][0]["merge"], &done["children"][1]["calls"][0]["exit_code"]),
        (&json!("merged"), &json!(0))
    );
    let children = json!([new("touches", "shell_execute", json!({ "command": "touch x" }))]);
    let refused = client.failed("dispatch_subagents", json!({ "children": children }));
    assert!(refused.contains("\"status\": \"failed\"") && refused.contains("touch"), "{refused}");
    let hidden = client.failed("dispatch_subagents", json!({ "children": children, "auto_confirm": true }));
    assert!(hidden.contains("unknown field `auto_confirm`"), "{hidden}");
    client.leave();
    let mut client = program.client(&["--session", "s", "--tools", "sessions"]);
    let refused = client.failed("dispatch_subagents", json!({ "children": [new("none", "ls", json!({}))] }));
    assert!(refused.contains("children[0]: tool ls is not offered to this client"), "{refused}");
    assert_eq!(program.sessions(), ["s", "writes", "greps", "touches"]);
}

#[test]
fn session_merge_conflict_can_be_resolved() {
    let program = Program::with_files();
    let mut client = with_history(&program);
    client.done("session_clone", json!({ "name": "worker" }));
    let edit = |new: &str| json!({ "file_path": "a.txt", "old_string": "eins", "new_string": new });
    client.done("edit_file", edit("uno"));
    client.leave();
    let mut worker = program.client(&["--session", "worker"]);
    worker.done("edit_file", edit("un"));
    worker.leave();
    let mut client = program.client(&["--session", "s", "--tools", "files,sessions"]);
    let told = client.failed("session_merge", json!({ "child": "worker" }));
    assert!(told.contains("choose with ours or theirs") && told.contains("/a.txt"), "{told}");
    client.done("session_merge", json!({ "child": "worker", "theirs": ["a.txt"] }));
    assert_eq!(client.done("read_file", json!({ "file_path": "a.txt" }))["content"], "un\n");
}

#[test]
fn session_rewind_goes_back_and_forth() {
    let program = Program::with_files();
    let mut client = with_history(&program);
    let dry = client.done("session_rewind", json!({ "to": 4, "dry_run": true }));
    assert_eq!(dry["recorded"], Value::Null);
    let rewound = client.done("session_rewind", json!({ "to": 4 }));
    assert_eq!(client.done("glob", json!({ "pattern": "*" }))["matches"], json!(["/a.txt"]));
    client.done("session_rewind", json!({ "to": rewound["from"] }));
    assert_eq!(client.done("read_file", json!({ "file_path": "a.txt" }))["content"], "eins\n");
    assert!(client.failed("session_rewind", json!({ "to": 9999 })).contains("9999"));
}

#[test]
fn session_rewind_forced_records_drift() {
    let program = Program::with_files();
    let mine = program.files();
    std::fs::write(mine.join("own.txt"), "own").unwrap();
    let mut client = program.on_host(&["--tools", "files,sessions"]);
    client.done("write_file", json!({ "file_path": "new.txt", "content": "new" }));
    let told = client.failed("session_rewind", json!({ "to": 1, "force": true }));
    assert!(told.contains("1 entry that predates the session would be removed: /own.txt"), "{told}");
    assert!(mine.join("own.txt").exists() && mine.join("new.txt").exists());
    let cloned = client.done("session_clone", json!({ "at": 2, "name": "kid" }));
    assert_eq!((&cloned["at"], &cloned["asked"]), (&json!(3), &json!(2)));
    let rewound = client.done("session_rewind", json!({ "to": 2, "force": true }));
    assert_eq!((&rewound["to"], &rewound["asked"]), (&json!(3), &json!(2)));
    assert!(mine.join("own.txt").exists() && !mine.join("new.txt").exists());
}

#[test]
fn session_tools_refuse_wrong_parameters() {
    let program = Program::with_files();
    let mut client = with_history(&program);
    let wrong = [
        ("session_log", json!({ "session": "nobody" }), "no session is called \"nobody\""),
        ("session_log", json!({ "limit": 0 }), "from 1 to 1000"),
        ("session_log", json!({ "from": "yesterday" }), "a position is"),
        ("session_log", json!({ "from": 999 }), "no position 999"),
        ("session_log", json!({ "what": 1 }), "unknown field `what`"),
        ("session_state", json!({ "slice": "Nope" }), "there are VirtualFileSystem"),
        ("session_state", json!({ "at": -999 }), "999"),
        ("session_state", json!({ "slice": "Usage", "pointer": "x" }), "no value at x"),
        ("session_diff", json!({ "path": "../x" }), "are not allowed"),
        ("session_clone", json!({ "isolation": "shared" }), "needs an agent"),
        ("session_clone", json!({ "isolation": "full", "at": 2 }), "only a fork begins in the past"),
        ("session_clone", json!({ "tools": ["nope"] }), "tool \"nope\" not found"),
        ("session_clone", json!({ "name": "../x" }), "letters, digits"),
        ("session_bisect", json!({ "command": "true", "timeout_seconds": 1e9 }), "from 0.1 to 600"),
        ("session_bisect", json!({ "predicate": "nonsense ((" }), ""),
    ];
    for (tool, params, words) in wrong {
        let told = client.failed(tool, params);
        assert!(told.contains(words), "{tool}: {told}");
    }
}

#[test]
fn orchestrator_works_in_its_clones() {
    let program = Program::with_files();
    let mut client = with_history(&program);
    client.done("session_clone", json!({ "name": "worker", "tools": ["write_file", "shell_execute", "read_file"] }));
    let in_worker = |session: &str| json!({ "file_path": "c.txt", "content": "three\n", "session": session });
    client.done("write_file", in_worker("worker"));
    client.done("shell_execute", json!({ "command": "grep three c.txt", "session": "worker" }));
    assert!(client.failed("read_file", json!({ "file_path": "c.txt" })).contains("does not exist"));
    let refused = client.failed("rm", json!({ "path": "c.txt", "session": "worker" }));
    assert!(refused.contains("rm"), "the clone's limits hold: {refused}");
    assert!(client.failed("write_file", in_worker("wroker")).contains("did you mean worker?"));
    assert_eq!(client.done("session_merge", json!({ "child": "worker" }))["outcome"], "merged");
    assert_eq!(client.done("read_file", json!({ "file_path": "c.txt" }))["total_lines"], 1);
    client.leave();
    let mut client = program.on_host(&["--session", "s"]);
    let refused = client.failed("write_file", in_worker("worker"));
    assert!(refused.contains("unknown field `session`"), "only who has the tools for sessions: {refused}");
    client.leave();
}

#[test]
fn session_cancel_passes_the_call_that_it_ends() {
    let program = Program::with_files();
    let mut client = program.on_host(&["--tools", "all", "--yes", "--session", "s"]);
    assert_eq!(client.done("session_cancel", json!({}))["calls"], json!([]), "nothing is in flight");
    let missing = client.failed("session_cancel", json!({ "call": 99 }));
    assert!(missing.contains("call 99 is not in flight"), "{missing}");
    let arguments = json!({ "command": "touch begun; sleep 1000" });
    let command = client.request("tools/call", json!({ "name": "shell_execute", "arguments": arguments }));
    crate::rig::eventually("it has begun", || program.files().join("begun").exists());
    let cancelled = client.done("session_cancel", json!({}));
    assert_eq!(cancelled["calls"].as_array().unwrap().len(), 1, "{cancelled}");
    assert_eq!(client.answer(command)["result"]["isError"], true);
    client.leave();
    assert_eq!(program.json_lines(&["log", "s", "--calls"])[0]["status"], "interrupted");
}
