//! Clients that take what others need.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use foldspace::http::{HttpOptions, ServerLimits};
use serde_json::json;

use crate::rig::{Server, TOKEN, WAIT_LIMIT};

#[tokio::test(flavor = "multi_thread")]
async fn idle_connection_is_closed() {
    let limits = ServerLimits { connections: 4, head: Duration::from_millis(100), ..ServerLimits::default() };
    let served = Server::with(limits).await;
    let mut left = Vec::new();
    for number in 0..20 {
        let mut stream = UnixStream::connect(&served.socket).unwrap();
        // Some say nothing, some a little, and some have asked for something before.
        match number % 3 {
            0 => stream.write_all(b"GET /v1/sess").unwrap(),
            1 => stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").unwrap(),
            _ => {}
        }
        left.push(stream);
    }
    // More than there is room for; whoever comes behind them is served when they are closed.
    let answer = tokio::time::timeout(WAIT_LIMIT, served.ask("GET", "/healthz", None)).await.unwrap();
    assert_eq!(answer.status, 200);
    for mut stream in left {
        let mut said = Vec::new();
        // Reset or closed: both end it.
        stream.set_read_timeout(Some(WAIT_LIMIT)).unwrap();
        if let Err(error) = stream.read_to_end(&mut said) {
            assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "it waits");
        }
    }
}

/// A client that sends the head, and later the body.
fn asked_late(socket: &std::path::Path, head: &str, body: &str) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(WAIT_LIMIT)).unwrap();
    stream
        .write_all(
            format!("{head}\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len()).as_bytes(),
        )
        .unwrap();
    std::thread::sleep(Duration::from_millis(300));
    stream.write_all(body.as_bytes()).unwrap();
    let mut said = Vec::new();
    stream.read_to_end(&mut said).unwrap();
    String::from_utf8_lossy(&said).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn body_that_no_handler_reads_and_comes_late_costs_no_answer() {
    let served = Server::with(ServerLimits::default()).await;
    served.session("demo").await;
    let long = format!("\"{}\"", "x".repeat(60_000));
    for (request, body, status) in [
        ("POST /v1/sessions/demo/verify", "{}", "200"),
        ("GET /v1/sessions/demo", "{}", "200"),
        ("GET /healthz", long.as_str(), "200"),
        ("POST /v1/sessions", "{", "4"),
        ("POST /v1/nope", "{}", "404"),
        ("POST /v1/sessions/nope/verify", "{}", "404"),
        ("PUT /v1/sessions/demo/verify", &long, "405"),
        ("POST /v1/sessions/demo/calls", "text", "4"),
        ("DELETE /v1/sessions/demo", "{}", "2"),
    ] {
        let (socket, head) = (served.socket.clone(), format!("{request} HTTP/1.1"));
        let body = body.to_owned();
        let said = tokio::task::spawn_blocking(move || asked_late(&socket, &head, &body)).await.unwrap();
        assert!(said.starts_with(&format!("HTTP/1.1 {status}")), "{request}: {said}");
    }
    // Another version of this program is refused before its request is read.
    let (socket, head) = (served.socket.clone(), "POST /v1/sessions HTTP/1.1\r\nfoldspace-version: 0.0.0".to_owned());
    let said = tokio::task::spawn_blocking(move || asked_late(&socket, &head, "{}")).await.unwrap();
    assert!(said.starts_with("HTTP/1.1 4"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn client_that_announces_a_body_and_sends_none_is_answered() {
    let served = Server::with(ServerLimits { first: Duration::from_millis(100), ..ServerLimits::default() }).await;
    for expect in ["", "expect: 100-continue\r\n"] {
        let mut stream = UnixStream::connect(&served.socket).unwrap();
        stream.set_read_timeout(Some(WAIT_LIMIT)).unwrap();
        let head = format!("POST /v1/nope HTTP/1.1\r\nhost: x\r\n{expect}content-length: 2\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut said = Vec::new();
        tokio::task::block_in_place(|| stream.read_to_end(&mut said)).unwrap();
        assert!(said.starts_with(b"HTTP/1.1 404"), "{expect}: {}", String::from_utf8_lossy(&said));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn client_that_reads_nothing_is_disconnected() {
    let limits = ServerLimits { stall: Duration::from_millis(100), ..ServerLimits::default() };
    let served = Server::with(limits).await;
    served.session("demo").await;
    let content = "x".repeat(40_000);
    for number in 0..40 {
        let params = json!({ "file_path": format!("{number}.txt"), "content": content });
        let call = json!({ "tool": "write_file", "params": params });
        assert_eq!(served.ask("POST", "/v1/sessions/demo/calls", Some(&call)).await.json()["status"], "ok");
    }
    // The same file again and again, over one connection, and no answer is read.
    let mut stream = std::net::TcpStream::connect(served.address).unwrap();
    let head = format!(
        "GET /v1/sessions/demo/files/1.txt HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\n\r\n"
    );
    let request = head.as_bytes().repeat(1000);
    stream.set_write_timeout(Some(WAIT_LIMIT)).unwrap();
    // A write fails when the other side has closed.
    let given_up = std::iter::repeat_with(|| stream.write_all(&request)).find_map(Result::err).unwrap();
    assert_ne!(given_up.kind(), std::io::ErrorKind::WouldBlock, "it waits");
    assert_eq!(served.ask("GET", "/healthz", None).await.status, 200);
}

/// What takes a body, below `/v1/sessions`.
const TAKE_BODIES: [&str; 8] = [
    "",
    "/demo/calls",
    "/demo/calls/1/answer",
    "/demo/children",
    "/demo/merge",
    "/demo/rewind",
    "/demo/bisect",
    "/demo/rerun",
];

#[tokio::test(flavor = "multi_thread")]
async fn body_that_never_comes_times_out() {
    let options = HttpOptions { body_time: Duration::from_millis(100), ..HttpOptions::default() };
    let served = Server::made(tempfile::tempdir().unwrap(), ServerLimits::default(), options).await;
    served.session("demo").await;
    for path in TAKE_BODIES {
        for body in ["content-length: 1000\r\n\r\n{\"tool\": ", "transfer-encoding: chunked\r\n\r\n1\r\n{\r\n"] {
            let mut stream = UnixStream::connect(&served.socket).unwrap();
            stream.set_read_timeout(Some(WAIT_LIMIT)).unwrap();
            let head = format!("POST /v1/sessions{path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n");
            stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
            let mut said = String::new();
            stream.read_to_string(&mut said).unwrap();
            assert!(said.starts_with("HTTP/1.1 408 ") && said.contains("too_slow"), "{path} {body:?}: {said}");
        }
    }
    assert_eq!(served.ask("GET", "/v1/sessions/demo", None).await.json()["events"], 1, "nothing was recorded");
}

#[tokio::test(flavor = "multi_thread")]
async fn body_too_large_is_answered_while_sending() {
    let served = Server::begin().await;
    served.session("demo").await;
    let large = format!("{{\"name\": \"{}\"}}", "x".repeat(65 << 20));
    for path in TAKE_BODIES {
        let mut stream = UnixStream::connect(&served.socket).unwrap();
        stream.set_read_timeout(Some(WAIT_LIMIT)).unwrap();
        let head = format!("POST /v1/sessions{path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n");
        let head = format!("{head}connection: close\r\ncontent-length: {}\r\n\r\n", large.len());
        stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(large.as_bytes())).unwrap();
        let mut said = Vec::new();
        stream.read_to_end(&mut said).unwrap();
        let said = String::from_utf8_lossy(&said);
        assert!(said.starts_with("HTTP/1.1 413 ") && said.contains("too_large"), "{path}: {said}");
    }
}

/// Connections that are opened and left; fewer where no more files may be open.
const LEFT: usize = 10_000;

#[tokio::test(flavor = "multi_thread")]
async fn connection_limit_bounds_ten_thousand_clients() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    let files = maximum.map_or(usize::MAX, |files| usize::try_from(files).unwrap());
    let count = LEFT.min(files.saturating_sub(3000));
    assert!(count > 2000, "only {files} files may be open");
    let limits = ServerLimits::default();
    let room = limits.connections;
    let served = Server::with(limits).await;
    let mut left = Vec::new();
    for _ in 0..count {
        // Nobody waits until it is taken.
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        left.push(Box::pin(socket.connect(served.address)));
    }
    let (mut taken, mut connected) = (Vec::new(), 0);
    for connecting in &mut left {
        if let Ok(stream) = tokio::time::timeout(Duration::ZERO, connecting).await {
            connected += 1;
            taken.push(stream);
        }
    }
    assert!(connected > room, "{connected}");
    drop((left, taken));
    let answer = tokio::time::timeout(WAIT_LIMIT, served.ask_tcp("/healthz", &[])).await.unwrap();
    assert_eq!(answer.status, 200);
}
