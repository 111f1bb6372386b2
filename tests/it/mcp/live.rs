//! Calls that take a while: what they print, and how they are taken back.

use std::path::Path;

use serde_json::{Value, json};

use super::{Client, PATIENCE, World};

/// Begins a command that prints its process and then runs until `go` is there; gives the request and the process.
fn begin(client: &mut Client) -> (u64, String) {
    let command = "echo $$; while [ ! -e go ]; do sleep 0.02; done; echo over";
    let params =
        json!({ "name": "shell_execute", "arguments": { "command": command }, "_meta": { "progressToken": "p" } });
    let id = client.request("tools/call", params);
    let progress = client.wait_for(|message| message["method"] == "notifications/progress");
    assert_eq!(progress["params"]["progressToken"], "p");
    (id, progress["params"]["message"].as_str().unwrap().trim().to_owned())
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let since = std::time::Instant::now();
    while !is_so() {
        assert!(since.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

fn is_gone(process: &str) -> bool {
    !Path::new("/proc").join(process).exists()
}

#[test]
fn output_comes_as_progress() {
    let world = World::new();
    let mut client = world.on_host(&["--allow", "sleep"]);
    let (id, process) = begin(&mut client);
    std::fs::write(world.files().join("go"), "").unwrap();
    let answer = client.answer(id);
    assert_eq!(answer["result"]["structuredContent"]["stdout"], format!("{process}\nover\n"));
    let told: Vec<&Value> =
        client.aside.iter().filter(|message| message["method"] == "notifications/progress").collect();
    let text: String = told.iter().filter_map(|message| message["params"]["message"].as_str()).collect();
    assert_eq!(text, "over\n");
    let last = told.last().unwrap()["params"]["progress"].as_f64().unwrap();
    assert_eq!(last as usize, process.len() + "\nover\n".len());
}

#[test]
fn much_output_is_told_in_part() {
    let world = World::new();
    let mut client = world.on_host(&["--allow", "yes", "--allow", "head"]);
    let arguments = json!({ "command": "yes | head -c 20000000" });
    let params = json!({ "name": "shell_execute", "arguments": arguments, "_meta": { "progressToken": 1 } });
    let id = client.request("tools/call", params);
    assert_eq!(client.answer(id)["result"]["structuredContent"]["exit_code"], 0);
    let told = client.aside.iter().filter_map(|message| message["params"]["message"].as_str());
    assert!(told.map(str::len).sum::<usize>() <= (1 << 20) + 1000 * client.aside.len());
}

#[test]
fn cancelling_kills_the_command() {
    let world = World::new();
    let mut client = world.on_host(&["--allow", "sleep", "--session", "s"]);
    let (id, process) = begin(&mut client);
    client.notify("notifications/cancelled", json!({ "requestId": id }));
    wait_until("the command runs on", || is_gone(&process));
    // The next call waits for the end of this one.
    client.done("write_file", super::write("next.txt", "x"));
    client.leave();
    let calls = world.lines(&["log", "s", "--calls"]);
    assert_eq!([&calls[0]["status"], &calls[1]["status"]], ["interrupted", "ok"]);
}

#[test]
fn a_client_that_vanishes_in_a_call_ends_it() {
    let world = World::new();
    let mut client = world.on_host(&["--allow", "sleep", "--session", "s"]);
    let (_, process) = begin(&mut client);
    client.input = None;
    assert!(client.child.wait().unwrap().success());
    wait_until("the command runs on", || is_gone(&process));
    let calls = world.lines(&["log", "s", "--calls"]);
    assert_eq!((calls.len(), &calls[0]["status"]), (1, &json!("interrupted")));
}

#[test]
fn a_server_that_is_told_to_end_ends_its_calls() {
    let world = World::new();
    let mut client = world.on_host(&["--allow", "sleep", "--session", "s"]);
    let (_, process) = begin(&mut client);
    let server = rustix::process::Pid::from_child(&client.child);
    rustix::process::kill_process(server, rustix::process::Signal::TERM).unwrap();
    assert!(client.child.wait().unwrap().success());
    wait_until("the command runs on", || is_gone(&process));
    assert_eq!(world.lines(&["log", "s", "--calls"])[0]["status"], "interrupted");
}
