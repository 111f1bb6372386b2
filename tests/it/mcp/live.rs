//! Calls that take a while: what they print, and how they are taken back.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};

use super::McpClient;
use crate::rig::{Program, eventually};

/// Begins a command that prints its process and then runs until `go` is there; gives the request and the process.
fn begin(client: &mut McpClient) -> (u64, String) {
    let command = "echo $$; while [ ! -e go ]; do sleep 0.02; done; echo over";
    let params =
        json!({ "name": "shell_execute", "arguments": { "command": command }, "_meta": { "progressToken": "p" } });
    let id = client.request("tools/call", params);
    let progress = client.wait_for(|message| message["method"] == "notifications/progress");
    assert_eq!(progress["params"]["progressToken"], "p");
    (id, progress["params"]["message"].as_str().unwrap().trim().to_owned())
}

fn is_gone(process: &str) -> bool {
    !Path::new("/proc").join(process).exists()
}

#[test]
fn output_is_sent_as_progress() {
    let program = Program::with_files();
    let mut client = program.on_host(&["--yes"]);
    let (id, process) = begin(&mut client);
    std::fs::write(program.files().join("go"), "").unwrap();
    let answer = client.answer(id);
    assert_eq!(answer["result"]["structuredContent"]["stdout"], format!("{process}\nover\n"));
    let told: Vec<&Value> =
        client.aside.iter().filter(|message| message["method"] == "notifications/progress").collect();
    let text: String = told.iter().filter_map(|message| message["params"]["message"].as_str()).collect();
    assert_eq!(text, "over\n");
    let last = told.last().unwrap()["params"]["progress"].as_f64().unwrap();
    assert_eq!(last as usize, process.len() + "\nover\n".len());
}

/// What a call's progress says, after the call: each number with its text.
fn told(client: &McpClient) -> Vec<(f64, String)> {
    let of = |message: &&Value| message["method"] == "notifications/progress";
    let told = client.aside.iter().filter(of).map(|message| {
        let params = &message["params"];
        (params["progress"].as_f64().unwrap(), params["message"].as_str().unwrap().to_owned())
    });
    told.collect()
}

#[test]
fn large_output_is_sent_in_part() {
    let program = Program::with_files();
    for bytes in [64_usize << 10, 20_000_000] {
        let mut client = program.on_host(&["--allow", "yes", "--allow", "head"]);
        let arguments = json!({ "command": format!("yes | head -c {bytes}") });
        let params = json!({ "name": "shell_execute", "arguments": arguments, "_meta": { "progressToken": 1 } });
        let id = client.request("tools/call", params);
        assert_eq!(client.answer(id)["result"]["structuredContent"]["exit_code"], 0);
        let told = told(&client);
        assert!(told.iter().map(|(_, text)| text.len()).sum::<usize>() <= (1 << 20) + 1000 * told.len());
        assert!(told[0].1.starts_with("y\ny\n"));
        assert!(told.is_sorted_by(|before, after| before.0 < after.0), "{told:?}");
        // Who is told may miss some of what comes fast, and is told of no more than there is.
        let last = told.last().unwrap().0 as usize;
        assert!(told.len() > 1 && (32 << 10..=bytes).contains(&last), "{last}");
        client.leave();
    }
}

#[test]
fn progress_does_not_split_characters() {
    let program = Program::with_files();
    let mut client = program.on_host(&["--yes"]);
    let command = r"printf 'x\303'; while [ ! -e go ]; do sleep 0.02; done; printf '\251\342\202'";
    let params =
        json!({ "name": "shell_execute", "arguments": { "command": command }, "_meta": { "progressToken": 1 } });
    let id = client.request("tools/call", params);
    let first = client.wait_for(|message| message["method"] == "notifications/progress");
    assert_eq!(first["params"]["message"], "x");
    std::fs::write(program.files().join("go"), "").unwrap();
    client.answer(id);
    let text: String = told(&client).into_iter().map(|(_, text)| text).collect();
    assert_eq!(text, "é\u{fffd}");
}

/// A client that reads no more than it must to know the process.
#[test]
fn cancel_kills_command_of_blocked_client() {
    let program = Program::with_files();
    let files = program.files().to_string_lossy().into_owned();
    let mut command = program.command(&["mcp", "--backend", "host", "--dir", &files, "--allow", "yes"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut say = |message: Value| input.write_all(format!("{message}\n").as_bytes()).unwrap();
    let hello =
        json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "x", "version": "1" } });
    say(json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello }));
    let arguments = json!({ "command": "echo $$; yes" });
    let params = json!({ "name": "shell_execute", "arguments": arguments, "_meta": { "progressToken": 1 } });
    say(json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params }));
    // Nothing is read beyond a line.
    let mut output = BufReader::with_capacity(1, child.stdout.take().unwrap());
    let mut line = || {
        let mut read = String::new();
        output.read_line(&mut read).unwrap();
        serde_json::from_str::<Value>(&read).unwrap()
    };
    assert_eq!(line()["id"], 1);
    let first = line()["params"]["message"].as_str().unwrap().to_owned();
    let process = first.lines().next().unwrap();
    let (mut before, mut same) = (0, 0);
    // The time is the subject: a second in which nothing more came, though there is more.
    while same < 50 || before < 40_000 {
        let waiting = rustix::io::ioctl_fionread(output.get_ref()).unwrap();
        same = if waiting == before { same + 1 } else { 0 };
        before = waiting;
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(!is_gone(process));
    say(json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 2 } }));
    eventually("the command has ended", || is_gone(process));
    drop(output);
    drop(input);
    assert!(child.wait().unwrap().success());
}

#[test]
fn cancel_kills_command() {
    let program = Program::with_files();
    let mut client = program.on_host(&["--yes", "--session", "s"]);
    let (id, process) = begin(&mut client);
    client.notify("notifications/cancelled", json!({ "requestId": id }));
    eventually("the command has ended", || is_gone(&process));
    // The next call waits for the end of this one.
    client.done("write_file", super::write("next.txt", "x"));
    client.leave();
    let calls = program.json_lines(&["log", "s", "--calls"]);
    assert_eq!([&calls[0]["status"], &calls[1]["status"]], ["interrupted", "ok"]);
}

#[test]
fn client_gone_cancels_its_call() {
    let program = Program::with_files();
    let mut client = program.on_host(&["--yes", "--session", "s"]);
    let (_, process) = begin(&mut client);
    client.input = None;
    assert!(client.child.0.wait().unwrap().success());
    eventually("the command has ended", || is_gone(&process));
    let calls = program.json_lines(&["log", "s", "--calls"]);
    assert_eq!((calls.len(), &calls[0]["status"]), (1, &json!("interrupted")));
}

#[test]
fn server_terminated_cancels_its_calls() {
    let program = Program::with_files();
    let mut client = program.on_host(&["--yes", "--session", "s"]);
    let (_, process) = begin(&mut client);
    let server = rustix::process::Pid::from_child(&client.child.0);
    rustix::process::kill_process(server, rustix::process::Signal::TERM).unwrap();
    assert!(client.child.0.wait().unwrap().success());
    eventually("the command has ended", || is_gone(&process));
    assert_eq!(program.json_lines(&["log", "s", "--calls"])[0]["status"], "interrupted");
}
