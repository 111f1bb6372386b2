//! Calls that are sent without waiting for answers.

use serde_json::{Value, json};

use super::{McpClient, write};
use crate::rig::{Program, eventually};

/// Sends calls in one write and gives the id of the first.
fn send(client: &mut McpClient, calls: &[(&str, Value)]) -> u64 {
    let first = client.last_id + 1;
    let mut bytes = Vec::new();
    for (tool, arguments) in calls {
        client.last_id += 1;
        let params = json!({ "name": tool, "arguments": arguments });
        let call = json!({ "jsonrpc": "2.0", "id": client.last_id, "method": "tools/call", "params": params });
        bytes.extend_from_slice(format!("{call}\n").as_bytes());
    }
    client.say_raw(&bytes);
    first
}

fn edit(path: &str, old: &str, new: &str) -> Value {
    json!({ "file_path": path, "old_string": old, "new_string": new })
}

fn read(path: &str) -> Value {
    json!({ "file_path": path })
}

/// Checks that writes, edits and reads of one write ran in order.
fn check_order(client: &mut McpClient) {
    for round in 0..20 {
        let path = format!("f{round}");
        let calls = [
            ("write_file", write(&path, "a")),
            ("edit_file", edit(&path, "a", "b")),
            ("edit_file", edit(&path, "b", "c")),
            ("read_file", read(&path)),
            ("read_file", read(&path)),
        ];
        let first = send(client, &calls);
        for (id, (tool, _)) in (first..).zip(&calls) {
            let result = client.answer(id)["result"].clone();
            assert_eq!(result["isError"], false, "round {round}, {tool}: {result}");
            if *tool == "read_file" {
                assert_eq!(result["structuredContent"]["content"], "c", "round {round}");
            }
        }
    }
}

#[test]
fn pipelined_calls_run_in_order() {
    let program = Program::with_files();
    check_order(&mut program.client(&[]));
    check_order(&mut program.on_host(&[]));
}

/// A command that runs until the file `go` is there, and then writes `out`.
fn until_go() -> Value {
    json!({ "command": "until [ -e go ]; do sleep 0.01; done; echo done > out" })
}

#[test]
fn read_waits_for_command_while_ping_passes() {
    let program = Program::with_files();
    let mut client = program.on_host(&["--yes"]);
    let calls = [("shell_execute", until_go()), ("read_file", read("out")), ("rm", json!({ "path": "out" }))];
    let command = send(&mut client, &calls);
    client.notify("notifications/cancelled", json!({ "requestId": command + 2 }));
    let more: Vec<_> = (0..100).map(|_| ("read_file", read("out"))).collect();
    let last = send(&mut client, &more) + 99;
    assert!(client.ask("ping", json!({})).get("result").is_some(), "however many calls wait");
    assert!(client.aside.is_empty(), "{:?}", client.aside);
    std::fs::write(program.files().join("go"), "").unwrap();
    for id in (command..=last).filter(|id| *id != command + 2) {
        let answer = client.answer(id);
        assert_eq!(answer["result"]["isError"], false, "{answer}");
    }
    assert!(client.aside.is_empty(), "a cancelled call that did not begin is not answered: {:?}", client.aside);
    assert_eq!(client.done("read_file", read("out"))["content"], "done\n", "it did not run either");
}

#[test]
fn cancelled_command_lets_next_call_start() {
    let program = Program::with_files();
    let mut client = program.on_host(&["--yes"]);
    let command = send(&mut client, &[("shell_execute", until_go()), ("write_file", write("next", "x"))]);
    client.notify("notifications/cancelled", json!({ "requestId": command }));
    assert_eq!(client.answer(command + 1)["result"]["isError"], false);
}

#[test]
fn call_behind_question_waits_for_answer() {
    let program = Program::with_files();
    let files = program.files().to_string_lossy().into_owned();
    let arguments = ["--backend", "host", "--dir", &files];
    let mut client = program.client_that(json!({ "elicitation": {} }), &arguments);
    for (content, text) in [(json!({ "answer": "once" }), "x"), (json!({ "answer": "deny" }), "x")] {
        let command = json!({ "command": "printf x > asked" });
        let first = send(&mut client, &[("shell_execute", command), ("read_file", read("asked"))]);
        let question = client.wait_for(|message| message["method"] == "elicitation/create");
        assert!(client.ask("ping", json!({})).get("result").is_some());
        assert!(client.aside.is_empty(), "{:?}", client.aside);
        let result = json!({ "action": "accept", "content": content });
        client.say(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": result }));
        client.answer(first);
        assert_eq!(client.answer(first + 1)["result"]["structuredContent"]["content"], text);
    }
}

#[test]
fn waiting_calls_do_not_delay_shutdown() {
    let program = Program::with_files();
    let mut client = program.on_host(&["--yes"]);
    let first = send(&mut client, &[("shell_execute", until_go()), ("write_file", write("late", "x"))]);
    eventually("the session has begun", || program.sessions().contains(&"test-client".to_owned()));
    let id = rustix::process::Pid::from_raw(i32::try_from(client.child.0.id()).unwrap()).unwrap();
    rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    assert_eq!(client.answer(first)["result"]["isError"], true);
    assert!(client.child.0.wait().unwrap().success());
    assert!(!program.files().join("late").exists());
}
