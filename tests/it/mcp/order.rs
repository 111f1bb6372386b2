//! Calls that are sent without waiting for answers.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Client, World, write};

/// Sends calls in one write and gives the id of the first.
fn send(client: &mut Client, calls: &[(&str, Value)]) -> u64 {
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
fn check_order(client: &mut Client) {
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
fn calls_sent_at_once_run_in_order() {
    let world = World::new();
    check_order(&mut world.client(&[]));
    check_order(&mut world.on_host(&[]));
}

/// A command that runs until the file `go` is there, and then writes `out`.
fn until_go() -> Value {
    json!({ "command": "until [ -e go ]; do sleep 0.01; done; echo done > out" })
}

#[test]
fn read_after_command_waits_while_ping_passes() {
    let world = World::new();
    let mut client = world.on_host(&["--yes"]);
    let calls = [("shell_execute", until_go()), ("read_file", read("out")), ("rm", json!({ "path": "out" }))];
    let command = send(&mut client, &calls);
    client.notify("notifications/cancelled", json!({ "requestId": command + 2 }));
    let more: Vec<_> = (0..100).map(|_| ("read_file", read("out"))).collect();
    let last = send(&mut client, &more) + 99;
    assert!(client.ask("ping", json!({})).get("result").is_some(), "however many calls wait");
    assert!(client.aside.is_empty(), "{:?}", client.aside);
    std::fs::write(world.files().join("go"), "").unwrap();
    for id in (command..=last).filter(|id| *id != command + 2) {
        let answer = client.answer(id);
        assert_eq!(answer["result"]["isError"], false, "{answer}");
    }
    assert!(client.aside.is_empty(), "a cancelled call that did not begin is not answered: {:?}", client.aside);
    assert_eq!(client.done("read_file", read("out"))["content"], "done\n", "it did not run either");
}

#[test]
fn cancelled_command_lets_the_next_call_begin() {
    let world = World::new();
    let mut client = world.on_host(&["--yes"]);
    let command = send(&mut client, &[("shell_execute", until_go()), ("write_file", write("next", "x"))]);
    client.notify("notifications/cancelled", json!({ "requestId": command }));
    assert_eq!(client.answer(command + 1)["result"]["isError"], false);
}

#[test]
fn call_behind_a_question_waits_for_its_answer() {
    let world = World::new();
    let files = world.files().to_string_lossy().into_owned();
    let arguments = ["--backend", "host", "--dir", &files];
    let mut client = world.client_that(json!({ "elicitation": {} }), &arguments);
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
fn calls_that_wait_do_not_hold_up_the_end() {
    let world = World::new();
    let mut client = world.on_host(&["--yes"]);
    let first = send(&mut client, &[("shell_execute", until_go()), ("write_file", write("late", "x"))]);
    while !world.sessions().contains(&"test-client".to_owned()) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let id = rustix::process::Pid::from_raw(i32::try_from(client.child.id()).unwrap()).unwrap();
    rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    assert_eq!(client.answer(first)["result"]["isError"], true);
    assert!(client.child.wait().unwrap().success());
    assert!(!world.files().join("late").exists());
}
