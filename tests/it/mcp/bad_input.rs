//! What no client should say.

use std::io::Write;
use std::process::{Child, ChildStdin, ExitStatus, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::rig::{Program, eventually};

/// The code of an answer, and its id.
fn code(answer: &Value) -> (i64, Option<&Value>) {
    (answer["error"]["code"].as_i64().unwrap_or_default(), answer.get("id"))
}

#[test]
fn malformed_message_gets_an_error() {
    let program = Program::with_files();
    let mut client = program.client(&[]);
    let lines: [(&[u8], i64, Option<Value>); 9] = [
        (b"garbage", -32700, None),
        (b"\xff\xfe", -32700, None),
        (b"[]", -32600, None),
        (br#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, -32600, None),
        (b"\"text\"", -32600, None),
        (br#"{"jsonrpc":"2.0"}"#, -32600, None),
        (br#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, -32600, None),
        (br#"{"jsonrpc":"2.0","id":"a","method":7}"#, -32600, Some(json!("a"))),
        (br#"{"jsonrpc":"2.0","id":"b","method":"tools/list","params":[]}"#, -32602, Some(json!("b"))),
    ];
    for (line, wanted, id) in lines {
        client.say_raw(&[line, b"\n"].concat());
        let answer = client.next();
        assert_eq!(code(&answer), (wanted, id.as_ref()), "{}", String::from_utf8_lossy(line));
    }
    // Notifications are never answered, whatever they are.
    client.say_raw(b"\n\r\n{\"jsonrpc\":\"2.0\",\"method\":\"notifications/nope\"}\n");
    client.notify("notifications/cancelled", json!({ "requestId": 4711 }));
    client.notify("tools/call", json!([]));
    assert_eq!(client.ask("nope/nope", json!({}))["error"]["code"], -32601);
    assert!(client.ask("ping", json!({})).get("result").is_some());
    assert!(client.aside.is_empty(), "{:?}", client.aside);
}

#[test]
fn requests_before_initialize_are_refused() {
    let program = Program::with_files();
    let mut client = program.start(&[]);
    client.notify("notifications/initialized", json!({}));
    client.say_raw(b"garbage\n");
    assert_eq!(code(&client.next()).0, -32700);
    assert!(client.ask("ping", json!({})).get("result").is_some());
    assert_eq!(client.ask("tools/call", json!({ "name": "ls" }))["error"]["code"], -32602);
    let hello = json!({ "protocolVersion": "1999-01-01", "capabilities": {}, "clientInfo": { "name": "\u{1b}[31m", "version": "" } });
    assert_eq!(client.ask("initialize", hello)["result"]["protocolVersion"], "2025-11-25");
    client.done("ls", json!({}));
    client.leave();
    assert_eq!(program.sessions(), ["31m"]);
}

#[test]
fn message_over_the_limit_is_refused() {
    let program = Program::with_files();
    let mut client = program.client(&[]);
    let mut input = client.input.take().unwrap();
    input.write_all(br#"{"jsonrpc":"2.0","id":1,"method":"#).unwrap();
    for _ in 0..64 {
        input.write_all(&vec![b'x'; 1 << 20]).unwrap();
    }
    input.write_all(b"\n").unwrap();
    client.input = Some(input);
    let answer = client.next();
    assert_eq!(code(&answer).0, -32600);
    assert!(answer["error"]["message"].as_str().unwrap().contains("the limit is 67108864 bytes"), "{answer}");
    let big = client.failed("write_file", super::write("a", &"x".repeat(2 << 20)));
    assert!(big.contains("at most 1048576 are allowed"), "{big}");
    let nested = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    client.say_raw(format!("{{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"ping\",\"params\":{nested}}}\n").as_bytes());
    assert_eq!(code(&client.next()).0, -32700);
    let status = std::fs::read_to_string(format!("/proc/{}/status", client.child.0.id())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    // Five times the limit.
    assert!(peak < 5 * 65_536, "{peak} kB");
}

#[test]
fn request_id_in_flight_is_refused() {
    let program = Program::with_files();
    let files = program.files().to_string_lossy().into_owned();
    let can = json!({ "elicitation": {} });
    let mut client = program.client_that(can, &["--backend", "host", "--dir", &files]);
    let id = client.request("tools/call", json!({ "name": "shell_execute", "arguments": { "command": "touch x" } }));
    client.wait_for(|message| message["method"] == "elicitation/create");
    client.say(&json!({ "jsonrpc": "2.0", "id": id, "method": "ping" }));
    assert_eq!(client.answer(id)["error"]["message"], "a request with this id is already in flight");
}

/// Hostile lines of a client.
#[test]
fn hostile_messages_get_errors() {
    let program = Program::with_files();
    let mut client = program.client(&[]);
    let deep = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":{}{}}}",
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    let long = json!({ "jsonrpc": "2.0", "id": "x".repeat(3 << 20), "method": "nope" }).to_string();
    let mut lines: Vec<String> = vec![deep, long, format!("[{}]", "{},".repeat(1000) + "{}")];
    let ids =
        ["null", "true", "1.5", "-1.5", "1e400", "{}", "[]", "[1]", "99999999999999999999999", "-9223372036854775809"];
    lines.extend(ids.map(|id| format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"nope\"}}")));
    for version in ["\"1.0\"", "2.0", "null", "\"2\""] {
        lines.push(format!("{{\"jsonrpc\":{version},\"id\":1,\"method\":\"ping\"}}"));
    }
    lines.extend(
        ["{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\"}", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\\u0000\"}"]
            .map(str::to_owned),
    );
    for line in &lines {
        client.say_raw(format!("{line}\n").as_bytes());
        let answer = client.next();
        assert!(answer["error"]["code"].is_i64(), "{:.100}: {answer}", line);
    }
    for uri in [
        "foldspace://../files/etc/passwd",
        "foldspace://x/files/../../etc/passwd",
        "file:///etc/passwd",
        "",
        "foldspace://",
    ] {
        assert!(client.ask("resources/read", json!({ "uri": uri })).get("error").is_some(), "{uri}");
    }
    assert!(client.ask("ping", json!({})).get("result").is_some());
}

#[test]
fn hundreds_of_cancelled_requests_leave_nothing() {
    let program = Program::with_files();
    let mut client = program.on_host(&["--yes", "--session", "s"]);
    let mut bytes = Vec::new();
    for id in 1000..1300 {
        let params = json!({ "name": "shell_execute", "arguments": { "command": "exec sleep 1000" } });
        let call = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
        bytes.extend(format!("{call}\n").into_bytes());
    }
    // The one that runs is cancelled last: the turn of the others never comes.
    for id in (1000..1300).rev() {
        let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } });
        bytes.extend(format!("{cancel}\n").into_bytes());
    }
    client.say_raw(&bytes);
    client.done("write_file", super::write("after", "x"));
    client.leave();
    let calls = program.json_lines(&["log", "s", "--calls"]);
    assert!(calls.len() <= 2, "those that had not begun never do: {calls:?}");
    assert!(program.output(&["verify", "s"]).status.success());
}

#[test]
fn thousands_of_requests_are_all_answered() {
    const COUNT: u64 = 10_000;
    let program = Program::with_files();
    let mut client = program.client(&[]);
    let mut input = client.input.take().unwrap();
    let asking = std::thread::spawn(move || {
        for id in 0..COUNT {
            let method = if id % 100 == 0 { "tools/call" } else { "ping" };
            let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": { "name": "ls" } });
            input.write_all(format!("{message}\n").as_bytes()).unwrap();
        }
        input
    });
    let mut answered = std::collections::BTreeSet::new();
    while answered.len() < COUNT as usize {
        let answer = client.next();
        assert!(answer.get("result").is_some(), "{answer}");
        assert!(answered.insert(answer["id"].as_u64().unwrap()));
    }
    drop(asking.join().unwrap());
    assert!(client.child.0.wait().unwrap().success());
}

/// A server whose client writes requests until no more are taken, or so many, and reads nothing.
fn unread(program: &Program, most: u64) -> (Child, ChildStdin) {
    let mut child = program.command(&["mcp"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let input = child.stdin.take().unwrap();
    rustix::io::ioctl_fionbio(&input, true).unwrap();
    let hello =
        json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "x", "version": "1" } });
    let hello = json!({ "jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": hello });
    (&input).write_all(format!("{hello}\n").as_bytes()).unwrap();
    let (mut sent, mut refused) = (0_u64, 0);
    // The time is the subject: a second without room is no coincidence.
    while refused < 50 && sent < most {
        // Atomic, since it is shorter than a page.
        let message =
            json!({ "jsonrpc": "2.0", "id": sent, "method": "tools/list", "params": { "pad": "x".repeat(2000) } });
        match (&input).write(format!("{message}\n").as_bytes()) {
            Ok(_) => (sent, refused) = (sent + 1, 0),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                refused += 1;
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(error) => panic!("{error}"),
        }
        assert!(sent < 100_000, "it reads on and on");
    }
    (child, input)
}

/// Waits until the server has ended.
fn ended(child: &mut Child) -> ExitStatus {
    let mut status = None;
    eventually("the server ends", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.unwrap()
}

/// Requests whose answers nobody reads are not taken without end.
#[test]
fn client_that_reads_nothing_is_read_no_more() {
    let program = Program::with_files();
    let (mut child, input) = unread(&program, u64::MAX);
    drop(child.stdout.take());
    drop(input);
    assert!(ended(&mut child).success());
}

#[test]
fn client_that_reads_nothing_does_not_keep_the_server() {
    let program = Program::with_files();
    let (mut child, input) = unread(&program, u64::MAX);
    let server = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(server, rustix::process::Signal::TERM).unwrap();
    assert!(ended(&mut child).success(), "it is told to end");
    drop(input);
    let (mut child, input) = unread(&program, 200);
    drop(input);
    assert!(ended(&mut child).success(), "its client says no more");
}
