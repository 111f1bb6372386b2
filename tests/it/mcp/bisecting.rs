//! `session_bisect`: what is found, who may have commands run for it, and what is asked.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::asking::modern;
use super::orchestrate::with_history;
use super::{McpClient, write};
use crate::rig::{Program, eventually};

/// What the edit breaks, in the history of [`with_history`].
fn broken() -> Value {
    json!({ "session": "s", "command": "grep -q one a.txt", "good": 4 })
}

impl Program {
    fn all_decisions(&self, session: &str) -> Vec<Value> {
        let events = self.json_lines(&["log", session]);
        let decided = events.iter().filter(|event| event["kind"] == "CommandDecided");
        decided.map(|event| event["event"].clone()).collect()
    }

    fn mark(&self) -> PathBuf {
        self.path("mark")
    }

    fn touch(&self) -> Value {
        json!({ "session": "s", "command": format!("touch {}; false", self.mark().display()), "good": 4 })
    }
}

#[test]
fn session_bisect_finds_breaking_change() {
    let program = Program::with_files();
    let mut client = with_history(&program);
    let request = json!({ "name": "session_bisect", "arguments": broken(), "_meta": { "progressToken": "b" } });
    let id = client.request("tools/call", request);
    let found = client.answer(id)["result"].clone();
    assert_eq!(found["structuredContent"]["bad"][0]["call"]["event"]["tool"], "edit_file", "{found}");
    let probes = client.aside.iter().filter(|message| message["method"] == "notifications/progress").count();
    assert!(probes >= 2, "the ends at least");
    let by_slice = client.done("session_bisect", json!({ "predicate": "count(VirtualFileSystem) >= 2" }));
    assert_eq!(by_slice["bad"][0]["call"]["event"]["params"]["file_path"], "b.txt");
    assert!(client.failed("session_bisect", json!({})).contains("either a command or a predicate"));
    let refused = client.failed("session_bisect", json!({ "command": "cargo test" }));
    assert!(refused.contains("nothing allows cargo") && refused.contains("ask the person"), "{refused}");
    client.leave();
    let decided = program.all_decisions("s");
    let decided: Vec<_> = decided.iter().map(|event| [&event["command"], &event["decision"], &event["by"]]).collect();
    assert_eq!(decided, [["grep -q one a.txt", "allow", "policy"], ["cargo test", "deny", "nobody"]]);
}

#[test]
fn session_bisect_needs_permission_for_commands() {
    let program = Program::with_files();
    with_history(&program).leave();
    let mut client = program.on_host(&["--tools", "files,sessions", "--session", "s", "--yes"]);
    let refused = client.failed("session_bisect", program.touch());
    assert!(refused.contains("commands are not offered here"), "{refused}");
    client.done("session_bisect", json!({ "predicate": "count(VirtualFileSystem) >= 2" }));
    assert!(!program.mark().exists());
}

#[test]
fn session_bisect_runs_nothing_without_shell() {
    let program = Program::with_files();
    with_history(&program).leave();
    let mut client = program.client(&["--tools", "all", "--session", "in-memory", "--yes"]);
    client.done("write_file", write("a.txt", "one\n"));
    let own = json!({ "command": program.touch()["command"] });
    let refused = client.failed("session_bisect", own);
    assert!(refused.contains("in-memory is in memory, where no command can run"), "{refused}");
    let refused = client.failed("session_bisect", program.touch());
    assert!(refused.contains("session s works on the machine itself"), "{refused}");
    assert!(!program.mark().exists());
}

#[test]
fn session_bisect_keeps_denials_of_client() {
    let program = Program::with_files();
    let mut client = with_history(&program);
    client.done("session_clone", json!({ "name": "worker", "deny": ["grep"] }));
    client.leave();
    let mut worker = program.client(&["--tools", "all", "--session", "worker", "--yes"]);
    let refused = worker.failed("session_bisect", broken());
    assert!(refused.contains("the command is not allowed"), "{refused}");
    worker.leave();
    let decided = program.all_decisions("worker");
    assert_eq!((&decided[0]["decision"], &decided[0]["by"]), (&json!("deny"), &json!("policy")));
    assert!(decided[0]["reason"].as_str().unwrap().starts_with("to bisect session s: "), "{decided:?}");
}

/// A client that can be asked, in a session of its own beside the one that is bisected.
fn asked(program: &Program) -> McpClient {
    with_history(program).leave();
    let can = json!({ "elicitation": {} });
    program.client_that(can, &["--backend", "host", "--session", "own", "--tools", "all"])
}

#[test]
fn session_bisect_asks_once_for_all_probes() {
    let program = Program::with_files();
    let mut client = asked(&program);
    let bisect = |client: &mut McpClient, answer: Value| {
        let id = client.request("tools/call", json!({ "name": "session_bisect", "arguments": broken() }));
        let question = client.wait_for(|message| message["method"] == "elicitation/create");
        client.say(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": answer }));
        (question["params"].clone(), client.answer(id)["result"].clone())
    };
    let accept = |answer: &str| json!({ "action": "accept", "content": { "answer": answer } });
    let (question, found) = bisect(&mut client, accept("once"));
    let words = "Test Client wants to run, in throw-away copies of session s, at up to 3 of its positions:\n  \
                 grep -q one a.txt";
    assert_eq!(question["message"], words);
    let choices = question["requestedSchema"]["properties"]["answer"]["oneOf"].as_array().unwrap().iter();
    assert_eq!(choices.map(|choice| choice["const"].clone()).collect::<Vec<_>>(), ["once", "deny"]);
    assert_eq!(found["structuredContent"]["bad"][0]["call"]["event"]["tool"], "edit_file", "{found}");
    for no in [accept("deny"), accept("session"), json!({ "action": "decline" }), json!({ "action": "cancel" })] {
        let (_, refused) = bisect(&mut client, no);
        assert_eq!(refused["isError"], true);
        assert!(!refused["content"][0]["text"].as_str().unwrap().contains("--"), "{refused}");
    }
    client.leave();
    let decided = program.all_decisions("own");
    let decided: Vec<_> = decided.iter().map(|event| event["decision"].as_str().unwrap()).collect();
    assert_eq!(decided, ["allow", "deny", "deny", "deny", "deny"]);
    assert!(program.all_decisions("s").is_empty(), "it is only read");
}

#[test]
fn session_bisect_without_answers_gives_hint() {
    let program = Program::with_files();
    with_history(&program).leave();
    let files = program.files().to_string_lossy().into_owned();
    let mut client = program.start(&["--backend", "host", "--dir", &files, "--session", "s", "--tools", "all"]);
    let call = json!({ "name": "session_bisect", "arguments": broken() });
    let refused = client.ask("tools/call", modern(call))["result"].clone();
    let text = refused["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("a bisection can't ask") && text.contains("ask the person"), "{refused}");
}

#[test]
fn session_bisect_cancelled_leaves_nothing() {
    let program = Program::with_files();
    with_history(&program).leave();
    let mut client = program.on_host(&["--tools", "all", "--session", "s", "--yes"]);
    let command = format!("touch {}; sleep 1000", program.mark().display());
    let params = json!({ "command": command, "good": 4, "timeout_seconds": 600 });
    let id = client.request("tools/call", json!({ "name": "session_bisect", "arguments": params }));
    let probes = program.path("data/probes");
    eventually("a probe runs", || program.mark().exists());
    assert_ne!(std::fs::read_dir(&probes).unwrap().count(), 0);
    client.notify("notifications/cancelled", json!({ "requestId": id }));
    eventually("the probes are gone", || std::fs::read_dir(&probes).unwrap().count() == 0);
    client.done("ls", json!({}));
}
