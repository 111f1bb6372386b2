//! `foldspace serve`, as a person or the system's manager starts and ends it.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::rig::{Program, Running, eventually, eventually_stuck};

/// A server that is running; it ends with this.
pub(super) struct ServeProcess {
    child: Running,
    lines: BufReader<std::process::ChildStdout>,
    socket: std::path::PathBuf,
}

impl ServeProcess {
    pub(super) fn begin(program: &Program, arguments: &[&str], prepare: impl FnOnce(&mut Command)) -> Self {
        let mut command = program.command(&[&["serve"], arguments].concat());
        prepare(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
        let mut child = Running(command.spawn().unwrap());
        let mut lines = BufReader::new(child.0.stdout.take().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        assert!(line.starts_with("serving on "), "{line}");
        Self { child, lines, socket: program.data().join("http.sock") }
    }

    pub(super) fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// A request on the unix socket: its status and its body.
    pub(super) fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        asked(UnixStream::connect(&self.socket).unwrap(), method, path, body, "")
    }

    pub(super) fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.child.0)
    }

    pub(super) fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(self.pid(), signal).unwrap();
    }

    /// Waits until it exits. Returns its exit code and its error output.
    pub(super) fn ended(mut self) -> (Option<i32>, String) {
        let mut said = String::new();
        self.child.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (self.child.0.wait().unwrap().code(), said)
    }

    /// Ends it with SIGTERM. Returns its exit code and its error output.
    pub(super) fn end(self) -> (Option<i32>, String) {
        self.signal(rustix::process::Signal::TERM);
        self.ended()
    }
}

pub(super) fn asked(
    mut stream: impl Read + Write,
    method: &str,
    path: &str,
    body: Option<&Value>,
    headers: &str,
) -> (u16, Value) {
    let body = body.map(Value::to_string).unwrap_or_default();
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}");
    write!(stream, "{head}content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap_or_else(|_| Value::String(body.to_owned())))
}

#[test]
fn serve_works_beside_cli_and_ends_cleanly() {
    let program = Program::new();
    let serving = ServeProcess::begin(&program, &[], |_| ());
    assert_eq!(serving.ask("POST", "/v1/sessions", Some(&json!({ "name": "demo" }))).0, 201);
    let call = json!({ "tool": "write_file", "params": { "file_path": "a.txt", "content": "x" } });
    assert_eq!(serving.ask("POST", "/v1/sessions/demo/calls", Some(&call)).1["status"], "ok");
    assert_eq!(program.printed(&["ls", "demo"]), "a.txt\n");
    let second = program.run(&["serve"]);
    assert!(second.contains("is in use by process") && second.ends_with("[exit 4]"), "{second}");
    let (code, said) = serving.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(!program.data().join("http.sock").exists());
    assert!(program.printed(&["verify"]).contains("all is as the events say"));
}

#[test]
fn serve_tcp_token_is_private() {
    use std::os::unix::fs::PermissionsExt;
    let program = Program::new();
    let mut serving = ServeProcess::begin(&program, &["--http", "127.0.0.1:0"], |_| ());
    let address = serving.line().strip_prefix("serving on http://").unwrap().to_owned();
    let told = serving.line();
    let path = program.data().join("http.token");
    let token = std::fs::read_to_string(&path).unwrap();
    assert_eq!(told, format!("the token is in {}", path.display()), "it may be a journal that others read");
    assert_eq!(token.trim().len(), 64);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let get =
        |headers: &str| asked(std::net::TcpStream::connect(&address).unwrap(), "GET", "/v1/sessions", None, headers).0;
    assert_eq!((get(""), get(&format!("authorization: Bearer {}\r\n", token.trim()))), (401, 200));
    drop(serving);
    let file = program.file("token", "short\n");
    let refused = program.run(&["serve", "--http", "127.0.0.1:0", "--token-file", &file]);
    assert!(refused.contains("at least 16") && refused.ends_with("[exit 2]"), "{refused}");
    let given = |command: &mut Command| _ = command.env("FOLDSPACE_TOKEN", "0123456789abcdef");
    let mut serving = ServeProcess::begin(&program, &["--http", "127.0.0.1:0"], given);
    let address = serving.line().strip_prefix("serving on http://").unwrap().to_owned();
    let get = |token: &str| {
        let headers = format!("authorization: Bearer {token}\r\n");
        asked(std::net::TcpStream::connect(&address).unwrap(), "GET", "/v1/sessions", None, &headers).0
    };
    assert_eq!((get(token.trim()), get("0123456789abcdef")), (401, 200));
}

#[test]
fn serve_with_few_files_answers_beside_idle_connections() {
    let program = Program::new();
    let mut serving = ServeProcess::begin(&program, &["--http", "127.0.0.1:0"], |command| {
        let mut shell = Command::new("sh");
        shell.args(["-c", "ulimit -n 48; exec \"$@\"", "sh"]).arg(command.get_program()).args(command.get_args());
        shell.env_clear().envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        *command = shell;
        command.current_dir(program.path("")).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    });
    let address = serving.line().strip_prefix("serving on http://").unwrap().to_owned();
    let connect = || std::net::TcpStream::connect(&address).unwrap();
    let mut idle: Vec<_> = (0..120).map(|_| connect()).collect();
    // Each has 30 seconds for its head; an older one may be closed for it already.
    idle.iter_mut().for_each(|stream| drop(stream.write(b"G")));
    let stream = connect();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    assert_eq!(asked(stream, "GET", "/healthz", None, "").0, 200);
    assert_eq!(serving.ask("GET", "/healthz", None).0, 200);
    drop(idle);
}

#[test]
fn serve_non_loopback_needs_explicit_option() {
    let program = Program::new();
    let refused = program.run(&["serve", "--http", "0.0.0.0:0"]);
    assert!(refused.contains("--allow-remote") && refused.ends_with("[exit 2]"), "{refused}");
    assert!(!program.data().exists(), "nothing was made");
}

#[test]
fn serve_removes_only_stale_socket() {
    let program = Program::with_story();
    let socket = program.data().join("http.sock");
    drop(UnixListener::bind(&socket).unwrap());
    assert!(socket.exists());
    assert_eq!(ServeProcess::begin(&program, &[], |_| ()).ask("GET", "/healthz", None).0, 200);
    let first = ServeProcess::begin(&program, &[], |_| ());
    let refused = program.run(&["serve"]);
    assert!(refused.contains("is in use by process") && refused.ends_with("[exit 4]"), "{refused}");
    assert_eq!(first.ask("GET", "/healthz", None).0, 200);
    drop(first);
    // It was killed, and left its socket.
    std::fs::remove_file(&socket).unwrap();
    std::fs::write(&socket, "mine").unwrap();
    let refused = program.run(&["serve"]);
    assert!(refused.ends_with("[exit 4]") || refused.ends_with("[exit 6]"), "{refused}");
    assert_eq!(std::fs::read_to_string(&socket).unwrap(), "mine");
}

#[test]
fn serve_shutdown_cancels_calls_after_grace() {
    let program = Program::new();
    let serving = ServeProcess::begin(&program, &["--grace", "0", "--allow", "sleep"], |_| ());
    let new = json!({ "name": "demo", "backend": "host" });
    assert_eq!(serving.ask("POST", "/v1/sessions", Some(&new)).0, 201);
    let stream = UnixStream::connect(&serving.socket).unwrap();
    let call = std::thread::spawn(move || {
        let call = json!({ "tool": "shell_execute", "params": { "command": "sleep 100" } });
        asked(stream, "POST", "/v1/sessions/demo/calls", Some(&call), "")
    });
    eventually("the call has begun", || program.printed(&["log", "demo", "--calls"]).contains("running"));
    let (code, said) = serving.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("1 call in flight cancelled"), "{said}");
    assert_eq!(call.join().unwrap().1["status"], "interrupted");
    let calls = program.json_lines(&["log", "demo", "--calls"]);
    assert_eq!((&calls[0]["status"], calls[0]["finished"].is_u64()), (&json!("interrupted"), true));
}

/// Takes traces: its URL, and all that it is sent.
fn collector() -> (String, Arc<Mutex<Vec<u8>>>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let sent = Arc::new(Mutex::new(Vec::new()));
    let taken = Arc::clone(&sent);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let (mut head, mut length) = (String::new(), 0);
            while !head.ends_with("\r\n\r\n") {
                let from = head.len();
                assert!(stream.read_line(&mut head).unwrap() > 0, "{head}");
                let line = head[from..].to_ascii_lowercase();
                length = line.strip_prefix("content-length:").map_or(length, |length| length.trim().parse().unwrap());
            }
            let mut body = vec![0; length];
            stream.read_exact(&mut body).unwrap();
            taken.lock().unwrap().extend([head.as_bytes(), &body].concat());
            stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
        }
    });
    (url, sent)
}

/// Reads a file that is not there, over MCP and HTTP, as a part of a trace.
fn call_over_mcp(program: &Program, address: &str, parent: &str) {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "tracing", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
        "traceparent": parent,
    });
    let params = json!({ "name": "read_file", "arguments": { "file_path": "none" }, "_meta": meta });
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    let token = std::fs::read_to_string(program.data().join("http.token")).unwrap();
    let headers = format!(
        "authorization: Bearer {}\r\naccept: application/json, text/event-stream\r\n\
         mcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\nmcp-name: read_file\r\n",
        token.trim()
    );
    let stream = std::net::TcpStream::connect(address).unwrap();
    let (status, answer) = asked(stream, "POST", "/mcp", Some(&message), &headers);
    assert_eq!(status, 200, "{answer}");
}

/// Lists files over MCP by a process of its own, as a part of a trace.
fn call_beside(program: &Program, parent: &str) {
    let input = [
        json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": { "protocolVersion": "2025-06-18",
            "capabilities": {}, "clientInfo": { "name": "c", "version": "1" } } }),
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
        json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "ls", "arguments": {},
            "_meta": { "traceparent": parent } } }),
    ];
    let mut client = program.command(&["mcp", "--session", "demo"]);
    let mut client = client.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let lines: String = input.iter().map(|message| format!("{message}\n")).collect();
    client.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let output = client.wait_with_output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("\"entries\":[]"), "{output:?}");
}

#[test]
fn serve_exports_each_call_as_span_of_caller_trace() {
    let program = Program::new().through_owner();
    let (url, sent) = collector();
    let mut serving = ServeProcess::begin(&program, &["--otlp", &url, "--http", "127.0.0.1:0"], |_| ());
    let address = serving.line().strip_prefix("serving on http://").unwrap().to_owned();
    assert_eq!(serving.ask("POST", "/v1/sessions", Some(&json!({ "name": "demo" }))).0, 201);
    let path = "/v1/sessions/demo/calls";
    let call = |headers: &str| {
        let stream = UnixStream::connect(&serving.socket).unwrap();
        let call = json!({ "tool": "glob", "params": { "pattern": "*" } });
        assert_eq!(asked(stream, "POST", path, Some(&call), headers).0, 200, "{headers}");
    };
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let within = |parent: u8, flags: &str| format!("00-{trace}-{}-{flags}", format!("{parent:02x}").repeat(8));
    call("");
    call(&format!("traceparent: {}\r\ntracestate: vendor=one\r\n", within(0xa1, "01")));
    call(&format!("traceparent: {}\r\n", within(0xa2, "00")));
    call("traceparent: nothing of the kind\r\n");
    call_over_mcp(&program, &address, &within(0xa3, "01"));
    // Of a process without a collector.
    call_beside(&program, &within(0xa4, "01"));
    let figures = serving.ask("GET", "/metrics", None).1;
    for (tool, status, count) in [("glob", "ok", 4), ("ls", "ok", 1), ("read_file", "error", 1)] {
        let line = format!("foldspace_tool_call_duration_seconds_count{{tool=\"{tool}\",status=\"{status}\"}} {count}");
        assert!(figures.as_str().unwrap().lines().any(|found| found == line), "{line} is not in\n{figures}");
    }
    assert_eq!(serving.end().0, Some(0));
    let sent = sent.lock().unwrap();
    let has = |bytes: &[u8]| sent.windows(bytes.len()).filter(|found| *found == bytes).count();
    for text in ["POST /v1/traces HTTP/1.1", "application/x-protobuf", "foldspace", "vendor=one"] {
        assert!(has(text.as_bytes()) > 0, "{text}");
    }
    assert_eq!(has(b"tool_call"), 5, "all but the one that is not to be recorded");
    assert_eq!(has(&u128::from_str_radix(trace, 16).unwrap().to_be_bytes()), 3);
    assert_eq!([0xa1, 0xa2, 0xa3, 0xa4].map(|parent| has(&[parent; 8])), [1, 0, 1, 1]);
    let refused = program.run(&["serve", "--otlp", "https://collector.example"]);
    assert!(refused.contains("http://") && refused.ends_with("[exit 2]"), "{refused}");
}

#[test]
fn serve_unread_logs_block_no_call() {
    let program = Program::new();
    // Its error stream is a pipe that nobody reads before the end, and each call writes a line.
    let serving = ServeProcess::begin(&program, &["-v"], |_| ());
    assert_eq!(serving.ask("POST", "/v1/sessions", Some(&json!({ "name": "demo" }))).0, 201);
    let call = json!({ "tool": "ls", "agent": "a".repeat(200) });
    let mut written = 0;
    // More than a pipe holds.
    while written < 256 << 10 {
        let stream = UnixStream::connect(&serving.socket).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        assert_eq!(asked(stream, "POST", "/v1/sessions/demo/calls", Some(&call), "").1["status"], "ok");
        written += 200;
    }
    let (code, said) = serving.end();
    assert_eq!(code, Some(0));
    assert!(said.len() > 48 << 10 && said.contains("tool call"), "there was something to write: {}", said.len());
}

#[test]
fn serve_output_is_complete_for_slow_reader() {
    const PRINTED: u64 = 24 << 20;
    let program = Program::new().through_owner();
    let serving = ServeProcess::begin(&program, &[], |_| ());
    let new = json!({ "name": "demo", "backend": "host" });
    assert_eq!(serving.ask("POST", "/v1/sessions", Some(&new)).0, 201);
    let printing = ["exec", "demo", "--yes", "--", "head", "-c", &PRINTED.to_string(), "/dev/zero"];
    let mut reader = program.spawn(&printing);
    eventually_stuck(&format!("head -c {PRINTED} /dev/zero"));
    let mut read = Vec::new();
    reader.0.stdout.take().unwrap().read_to_end(&mut read).unwrap();
    assert_eq!((read.len() as u64, reader.0.wait().unwrap().code()), (PRINTED, Some(0)));
    assert_eq!(serving.end().0, Some(0));
}

#[test]
fn serve_notifies_systemd_and_logs_json() {
    let program = Program::new();
    let path = program.path("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    let serving = ServeProcess::begin(&program, &["--log-format", "json", "-v"], |command| {
        command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "60000");
    });
    let mut told = [0; 64];
    let mut heard = || {
        let length = manager.recv(&mut told).unwrap();
        String::from_utf8_lossy(&told[..length]).into_owned()
    };
    assert_eq!((heard(), heard()), ("READY=1".to_owned(), "WATCHDOG=1".to_owned()));
    assert_eq!(serving.ask("POST", "/v1/sessions", Some(&json!({ "name": "demo" }))).0, 201);
    serving.ask("POST", "/v1/sessions/demo/calls", Some(&json!({ "tool": "ls", "agent": "tidy" })));
    let (_, said) = serving.end();
    let logs: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let call = logs.iter().find(|log| log["fields"]["message"] == "tool call").unwrap();
    assert_eq!(
        (&call["span"]["tool"], &call["span"]["agent"], &call["span"]["status"]),
        (&json!("ls"), &json!("tidy"), &json!("ok"))
    );
    while heard() != "STOPPING=1" {}
}

#[test]
fn serve_image_from_environment_is_default() {
    let Some(program) = Program::with_container() else { return };
    let serving = ServeProcess::begin(&program, &[], |_| {});
    let backend = crate::engine::kind().name();
    let create = |name: &str, backend: &str, options: Value| {
        let asked = json!({ "name": name, "backend": backend, "options": options });
        serving.ask("POST", "/v1/sessions", Some(&asked))
    };
    let (own, none) = (create("unnamed", backend, json!({ "pids": 64 })), create("none", "memory", json!({})));
    assert_eq!((own.0, none.0), (201, 201), "{} {}", own.1, none.1);
    let image = |name: &str| {
        let events = serving.ask("GET", &format!("/v1/sessions/{name}/events"), None).1;
        events["events"][0]["event"]["options"]["image"].clone()
    };
    let usual = program.engine.iter().find(|(name, _)| *name == "FOLDSPACE_IMAGE").unwrap();
    assert_eq!((image("unnamed"), image("none")), (json!(usual.1), Value::Null));
    // An image that is named replaces it, and must be there.
    let (status, refused) = create("named", backend, json!({ "image": "localhost/other:2" }));
    assert_eq!(status, 424, "{refused}");
    assert!(refused["detail"].as_str().unwrap().contains("has no image localhost/other:2"), "{refused}");
    assert_eq!(serving.ask("GET", "/v1/sessions/named", None).0, 404);
}

#[test]
fn serve_takes_the_place_of_an_idle_owner_in_the_background() {
    let program = Program::new().through_owner();
    program.printed(&["run", &program.file("demo.jsonl", "")]);
    let owners = program.owners();
    assert_eq!(owners.len(), 1);
    let serving = ServeProcess::begin(&program, &["--http", "127.0.0.1:0"], |_| ());
    assert!(!program.owners().contains(&owners[0]));
    // It is in the foreground, so another does not end it.
    let refused = program.run(&["serve"]);
    assert!(refused.contains("is in use by process") && refused.ends_with("[exit 4]"), "{refused}");
    assert_eq!(serving.end().0, Some(0));
}
