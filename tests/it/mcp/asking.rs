//! Questions of the command policy, put to the person behind the client.

use serde_json::{Value, json};

use super::McpClient;
use crate::rig::Program;

fn asking(program: &Program) -> McpClient {
    let files = program.files().to_string_lossy().into_owned();
    let can = json!({ "elicitation": {} });
    program.client_that(can, &["--session", "s", "--backend", "host", "--dir", &files])
}

/// Begins a command and gives the request with the question that comes.
fn begin(client: &mut McpClient, command: &str) -> (u64, Value) {
    let params = json!({ "name": "shell_execute", "arguments": { "command": command } });
    let id = client.request("tools/call", params);
    (id, client.wait_for(|message| message["method"] == "elicitation/create"))
}

fn run(client: &mut McpClient, command: &str, result: Value) -> Value {
    let (id, question) = begin(client, command);
    client.say(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": result }));
    client.answer(id)["result"].clone()
}

#[test]
fn elicitation_allows_once_or_for_session() {
    let program = Program::with_files();
    let mut client = asking(&program);
    let (id, question) = begin(&mut client, "touch one");
    let text = question["params"]["message"].as_str().unwrap();
    assert_eq!(text, "Test Client wants to run, in session s:\n  touch one");
    let choices = &question["params"]["requestedSchema"]["properties"]["answer"]["oneOf"];
    let choices: Vec<_> = choices.as_array().unwrap().iter().map(|choice| choice["const"].clone()).collect();
    assert_eq!(choices, ["once", "session", "everything", "deny"]);
    let answer = json!({ "action": "accept", "content": { "answer": "once" } });
    client.say(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": answer }));
    assert_eq!(client.answer(id)["result"]["isError"], false);
    let session = json!({ "action": "accept", "content": { "answer": "session" } });
    assert_eq!(run(&mut client, "touch two", session)["isError"], false);
    client.done("shell_execute", json!({ "command": "touch three" }));
    client.leave();
    let events = program.json_lines(&["log", "s"]);
    let decided: Vec<_> = events.iter().filter(|event| event["kind"] == "CommandDecided").collect();
    let by: Vec<_> = decided.iter().map(|event| event["event"]["by"].as_str().unwrap()).collect();
    assert_eq!(by, ["answer", "answer", "session"]);
    assert!(events.iter().any(|event| event["kind"] == "SessionAllow"));
}

#[test]
fn elicitation_other_answers_deny() {
    let program = Program::with_files();
    let mut client = asking(&program);
    let answers = [
        (json!({ "action": "decline" }), "the person said no"),
        (json!({ "action": "accept", "content": { "answer": "deny" } }), "the person said no"),
        (json!({ "action": "cancel" }), "the person did not answer"),
        (json!({ "action": "accept" }), "the person gave no clear answer"),
        (json!({ "action": "accept", "content": { "answer": 5 } }), "the person gave no clear answer"),
        (json!({ "what": "is this" }), "the client answered something else"),
    ];
    for (answer, words) in answers {
        let result = run(&mut client, "touch x", answer);
        assert_eq!(result["isError"], true);
        assert!(result["content"][0]["text"].as_str().unwrap().contains(words), "{result}");
    }
    let (id, question) = begin(&mut client, "touch x");
    let error = json!({ "code": -32603, "message": "no" });
    client.say(&json!({ "jsonrpc": "2.0", "id": question["id"], "error": error }));
    assert_eq!(client.answer(id)["result"]["isError"], true);
    assert!(!program.files().join("x").exists());
}

#[test]
fn elicitation_shows_whole_command() {
    let program = Program::with_files();
    let mut client = asking(&program);
    let command = format!("touch one {}\nwith HOME=/x\u{61c}\ntouch last", "x".repeat(3990));
    let (id, question) = begin(&mut client, &command);
    let text = question["params"]["message"].as_str().unwrap();
    assert!(text.ends_with("x\n  with HOME=/x\\u{61c}\n  touch last"), "{}", &text[4000..]);
    client.say(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "action": "decline" } }));
    client.answer(id);
    let stdin = format!("first{}last", "x".repeat(40_000));
    let params = json!({ "name": "shell_execute", "arguments": { "command": "touch one", "stdin": stdin } });
    client.request("tools/call", params);
    let question = client.wait_for(|message| message["method"] == "elicitation/create");
    let text = question["params"]["message"].as_str().unwrap();
    assert!(text.contains("38009 of its 40009 characters, in the middle, are not shown"), "{text}");
    assert!(text.contains("\n  firstx") && text.ends_with("xlast"), "{text}");
}

#[test]
fn elicitation_of_any_length_is_answered() {
    let program = Program::with_files();
    let mut client = program.client_that(
        json!({ "elicitation": {} }),
        &["--session", "s", "--backend", "host", "--command-chars", "131072"],
    );
    for length in [1, 700, 870, 1_000, 4_096, 16 << 10, 64 << 10] {
        let command = format!("echo $(frobnicate) {}", "a".repeat(length));
        let refused = run(&mut client, &command, json!({ "action": "decline" }));
        assert!(refused["content"][0]["text"].as_str().unwrap().contains("the person said no"), "{length}: {refused}");
    }
}

#[test]
fn elicitation_is_cancelled_with_its_call() {
    let program = Program::with_files();
    let mut client = asking(&program);
    let (id, question) = begin(&mut client, "touch x");
    client.notify("notifications/cancelled", json!({ "requestId": id }));
    let withdrawn = client.wait_for(|message| message["method"] == "notifications/cancelled");
    assert_eq!(withdrawn["params"]["requestId"], question["id"]);
    // The next call waits for the end of this one.
    client.done("write_file", super::write("next.txt", "x"));
    client.leave();
    assert_eq!(program.json_lines(&["log", "s", "--calls"])[0]["status"], "interrupted");
}

#[test]
fn question_without_elicitation_is_refused_with_hint() {
    let program = Program::with_files();
    let mut client = program.on_host(&[]);
    let refused = client.failed("shell_execute", json!({ "command": "touch x" }));
    assert!(refused.contains("nothing allows touch"), "{refused}");
    assert!(refused.contains("ask the person who runs the server to allow it"), "{refused}");
    assert!(!refused.contains("--"), "the model has no flags: {refused}");
    client.leave();
    let mut client = program.on_host(&["--yes", "--session", "other"]);
    client.done("shell_execute", json!({ "command": "touch x" }));
    let denied = client.failed("shell_execute", json!({ "command": "rm -rf /" }));
    assert!(denied.contains("not allowed"), "{denied}");
}

/// What a request of the newest version brings with it.
pub(super) fn modern(extra: Value) -> Value {
    modern_by("modern", extra)
}

/// The same of a client of that name.
pub(super) fn modern_by(name: &str, extra: Value) -> Value {
    let mut params = extra;
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": name, "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": { "elicitation": { "form": {} } },
    });
    params
}

#[test]
fn newest_client_returns_with_the_answer() {
    let program = Program::with_files();
    let files = program.files().to_string_lossy().into_owned();
    let mut client = program.start(&["--backend", "host", "--dir", &files, "--session", "s"]);
    let versions = client.ask("server/discover", modern(json!({})))["result"]["supportedVersions"].clone();
    assert!(versions.as_array().unwrap().contains(&json!("2026-07-28")));
    let call = json!({ "name": "shell_execute", "arguments": { "command": "touch x" } });
    let asked = client.ask("tools/call", modern(call.clone()))["result"].clone();
    assert_eq!(asked["resultType"], "input_required");
    assert_eq!(asked["inputRequests"]["allow"]["method"], "elicitation/create");
    let mut again = call.clone();
    again["requestState"] = asked["requestState"].clone();
    again["inputResponses"] = json!({ "allow": { "action": "accept", "content": { "answer": "once" } } });
    let mut other = again.clone();
    other["name"] = json!("evaluate_python");
    assert_eq!(client.ask("tools/call", modern(other))["error"]["code"], -32602, "the call was of another tool");
    assert_eq!(client.ask("tools/call", modern(again.clone()))["result"]["isError"], false);
    assert!(program.files().join("x").exists());
    assert_eq!(client.ask("tools/call", modern(again))["error"]["code"], -32602, "it is answered");
    client.ask("tools/call", modern(call));
    client.leave();
    let calls = program.json_lines(&["log", "s", "--calls"]);
    let status: Vec<_> = calls.iter().map(|call| call["status"].as_str().unwrap()).collect();
    assert_eq!(status, ["ok", "interrupted"], "one call, however often it was asked for; and one that nobody answered");
}

#[test]
fn nothing_is_asked_where_no_engine_is() {
    let program = Program::with_files();
    let can = json!({ "elicitation": {} });
    let mut client = program.client_that(can, &["--backend", "podman", "--engine", "unix:///nowhere/podman.sock"]);
    let refused = client.failed("shell_execute", json!({ "command": "touch one" }));
    assert!(refused.contains("/nowhere/podman.sock"), "{refused}");
    assert!(client.aside.is_empty(), "{:?}", client.aside);
    client.leave();
}
