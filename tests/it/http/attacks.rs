//! Attacks on the HTTP side: over TCP as a stranger, and with the token as a client that means harm.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use foldspace::http::ServerLimits;
use serde_json::{Value, json};

use crate::rig::{Server, TOKEN, WAIT_LIMIT};

/// Gives what the server says to these bytes until it closes. It need not say anything; it must not go on waiting.
fn told_to(served: &Server, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(served.address).unwrap();
    stream.set_read_timeout(Some(WAIT_LIMIT)).unwrap();
    drop(stream.write_all(bytes));
    let mut said = Vec::new();
    if let Err(error) = stream.read_to_end(&mut said) {
        assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "it waits");
    }
    String::from_utf8_lossy(&said).into_owned()
}

/// Gives the status of the answer to a `GET` with the token and these lines.
fn status(served: &Server, target: &str, lines: &str) -> u16 {
    let head = format!("GET {target} HTTP/1.1\r\nauthorization: Bearer {TOKEN}\r\nconnection: close\r\n{lines}\r\n");
    let said = told_to(served, head.as_bytes());
    said.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{lines}: {said}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn host_that_is_no_name_of_the_server_is_refused() {
    let served = Server::begin().await;
    let own = served.address.to_string();
    for host in ["localhost", "LOCALHOST:80", "127.0.0.1", "[::1]", "[::1]:80", "10.0.0.1:1", "box.example", &own] {
        assert_eq!(status(&served, "/v1/sessions", &format!("host: {host}\r\n")), 200, "{host}");
    }
    for host in [
        "",
        " ",
        ".",
        "localhost.",
        "localhost.evil.example",
        "evil.example",
        "127.0.0.1.evil.example",
        "127.1",
        "0x7f.0.0.1",
        "2130706433",
        "[::1",
        "::1]",
        "[::1]x",
        "[::1]:x",
        "[]",
        "localhost:x",
        "localhost:80@evil.example",
        "evil.example:80:80",
        "localhost@evil.example",
        "localhost, evil.example",
        "localhost/evil",
        "xn--lcalhost-54a",
        "lo\u{441}alhost",
    ] {
        let refused = status(&served, "/v1/sessions", &format!("host: {host}\r\n"));
        assert!([400, 403].contains(&refused), "{host}: {refused}");
    }
    let forwarded = "host: evil.example\r\nx-forwarded-host: localhost\r\nforwarded: host=localhost\r\n";
    for (lines, wanted) in [("", 400), ("host: localhost\r\nhost: localhost\r\n", 400), (forwarded, 403)] {
        assert_eq!(status(&served, "/v1/sessions", lines), wanted, "{lines}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn origin_of_another_page_is_refused() {
    let served = Server::begin().await;
    let others =
        ["null", "file://", "", "http://localhost.evil.example", "http://localhost:1", "https://", "localhost", "*"];
    for origin in others {
        assert_eq!(
            status(&served, "/v1/sessions", &format!("host: localhost\r\norigin: {origin}\r\n")),
            403,
            "{origin}"
        );
    }
    let preflight = "OPTIONS /v1/sessions HTTP/1.1\r\nhost: localhost\r\norigin: http://evil.example\r\n\
                     access-control-request-method: POST\r\nconnection: close\r\n\r\n";
    let said = told_to(&served, preflight.as_bytes());
    assert!(said.starts_with("HTTP/1.1 403 ") && !said.contains("access-control-allow"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn target_of_another_host_is_refused() {
    let served = Server::begin().await;
    assert_eq!(status(&served, "http://localhost/v1/sessions", "host: localhost\r\n"), 200);
    for target in
        ["http://evil.example/v1/sessions", "http://localhost:1/v1/sessions", "http://x@localhost/v1/sessions"]
    {
        assert_eq!(status(&served, target, "host: localhost\r\n"), 400, "{target}");
    }
    assert_eq!(status(&served, "http://evil.example/v1/sessions", "host: evil.example\r\n"), 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn head_beyond_64_kib_is_refused() {
    let served = Server::begin().await;
    let status = |bytes: usize| {
        let lines = format!("host: localhost\r\nx-long: {}\r\n", "x".repeat(bytes));
        status(&served, "/v1/sessions", &lines)
    };
    assert_eq!(status(65_000), 200);
    assert_eq!([status(65_600), status(100_000), status(300_000)], [431; 3]);
    let target = format!("/v1/sessions/{}", "x".repeat(65_600));
    let head = format!("GET {target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    let said = told_to(&served, head.as_bytes());
    assert!(said.starts_with("HTTP/1.1 414 ") || said.starts_with("HTTP/1.1 431 "), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn token_elsewhere_or_spelt_otherwise_is_refused() {
    let served = Server::begin().await;
    let no = "x".repeat(32);
    for lines in [
        String::new(),
        format!("authorization: Bearer{TOKEN}\r\n"),
        format!("authorization: Bearer\t{TOKEN}\r\n"),
        format!("authorization: Token {TOKEN}\r\n"),
        format!("authorization: Bearer \"{TOKEN}\"\r\n"),
        format!("authorization: Bearer {TOKEN},{TOKEN}\r\n"),
        format!("authorization: Bearer {no}\r\nauthorization: Bearer {TOKEN}\r\n"),
        format!("proxy-authorization: Bearer {TOKEN}\r\n"),
        format!("x-authorization: Bearer {TOKEN}\r\n"),
        format!("cookie: token={TOKEN}; authorization=Bearer {TOKEN}\r\n"),
    ] {
        for path in ["/v1/sessions", "/metrics", "/openapi.json", "/mcp", &format!("/v1/tools?token={TOKEN}")] {
            let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{lines}\r\n");
            let said = told_to(&served, head.as_bytes());
            assert!(said.starts_with("HTTP/1.1 401 ") && !said.contains(TOKEN), "{path} {lines:?}: {said}");
        }
    }
}

/// A request that is not HTTP, or is two requests to two readers, is refused, and nothing behind it is read.
#[tokio::test(flavor = "multi_thread")]
async fn malformed_request_ends_the_connection() {
    let served = Server::with(ServerLimits { head: Duration::from_millis(500), ..ServerLimits::default() }).await;
    let second = format!("GET /v1/sessions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\n\r\n");
    let post = format!(
        "POST /v1/sessions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\ncontent-type: application/json\r\n"
    );
    for raw in [
        format!("{post}content-length: 5\r\ncontent-length: 6\r\n\r\n{{}}   {second}"),
        format!("{post}content-length: 5, 6\r\n\r\n{{}}   {second}"),
        format!("{post}content-length: +2\r\n\r\n{{}}{second}"),
        format!("{post}content-length: 0x2\r\n\r\n{{}}{second}"),
        format!("{post}content-length: 18446744073709551616\r\n\r\n{{}}"),
        format!("{post}transfer-encoding: xchunked\r\n\r\n0\r\n\r\n{second}"),
        format!("{post}transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n{second}"),
        format!("{post}transfer-encoding : chunked\r\n\r\n0\r\n\r\n{second}"),
        format!("{post}transfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\n{second}"),
        format!("{post}transfer-encoding: chunked\r\n\r\n-1\r\n{second}"),
        format!("{post}x: a\r\n folded\r\n\r\n{second}"),
        format!("{post}x: \0\r\n\r\n{second}"),
        format!("{post}: x\r\n\r\n{second}"),
        format!("GET  /v1/sessions HTTP/1.1\r\nhost: localhost\r\n\r\n{second}"),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
        "\u{16}\u{3}\u{1}\u{2}\0\u{1}\0".to_owned(),
    ] {
        let said = told_to(&served, raw.as_bytes());
        let answers = said.matches("HTTP/1.1 ").count();
        assert!(answers <= 1 && (said.is_empty() || said.starts_with("HTTP/1.1 4")), "{raw:?}: {said}");
    }
    // Both lengths: the chunks count, and what a reader of the other would take for a request is not one.
    let both = format!("{post}content-length: {}\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", second.len() + 5);
    let said = told_to(&served, format!("{both}{second}").as_bytes());
    assert!(said.starts_with("HTTP/1.1 4") && said.matches("HTTP/1.1 ").count() <= 2, "{said}");
    assert_eq!(served.ask("GET", "/v1/sessions", None).await.json(), json!([]), "nothing came of any");
}

/// Clients that have not shown the token, and say nothing, or have said something.
#[tokio::test(flavor = "multi_thread")]
async fn idle_strangers_do_not_keep_out_a_client_with_the_token() {
    let limits = ServerLimits { connections: 16, first: WAIT_LIMIT, head: 2 * WAIT_LIMIT, ..ServerLimits::default() };
    let served = Server::with(limits).await;
    let mut idle = Vec::new();
    let mut known = TcpStream::connect(served.address).unwrap();
    known.set_read_timeout(Some(WAIT_LIMIT)).unwrap();
    let request = format!("GET /v1/sessions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\n\r\n");
    let mut asked = || {
        known.write_all(request.as_bytes()).unwrap();
        let mut said = [0; 15];
        known.read_exact(&mut said).unwrap();
        let mut rest = Vec::new();
        while !rest.ends_with(b"[]") {
            let mut byte = [0];
            known.read_exact(&mut byte).unwrap();
            rest.push(byte[0]);
        }
        assert_eq!(said, *b"HTTP/1.1 200 OK");
    };
    asked();
    for number in 0..100 {
        let mut stream = TcpStream::connect(served.address).unwrap();
        match number % 3 {
            0 => stream.write_all(b"GET /v1/sess").unwrap(),
            1 => stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap(),
            _ => {}
        }
        idle.push(stream);
    }
    let authorization = format!("Bearer {TOKEN}");
    let headers = [("authorization", authorization.as_str())];
    for _ in 0..20 {
        let answer = tokio::time::timeout(WAIT_LIMIT / 2, served.ask_tcp("/v1/sessions", &headers)).await.unwrap();
        assert_eq!(answer.status, 200);
    }
    asked();
}

#[tokio::test(flavor = "multi_thread")]
async fn stranger_that_says_nothing_is_closed_early() {
    let limits = ServerLimits { first: Duration::from_millis(50), head: 2 * WAIT_LIMIT, ..ServerLimits::default() };
    let served = Server::with(limits).await;
    let mut silent = TcpStream::connect(served.address).unwrap();
    silent.set_read_timeout(Some(WAIT_LIMIT)).unwrap();
    let mut owners = std::os::unix::net::UnixStream::connect(&served.socket).unwrap();
    owners.set_read_timeout(Some(WAIT_LIMIT)).unwrap();
    assert_eq!(silent.read(&mut [0]).unwrap_or(0), 0, "closed, or reset");
    owners.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    assert_eq!(owners.read(&mut [0]).unwrap(), 1, "who owns the server may think");
}

#[tokio::test(flavor = "multi_thread")]
async fn pipelined_calls_run_in_order() {
    let served = Server::begin().await;
    served.session("demo").await;
    let mut bytes = Vec::new();
    for round in 0..10 {
        let path = format!("f{round}");
        let edit = |old: &str, new: &str| json!({ "file_path": path, "old_string": old, "new_string": new });
        let calls = [
            ("write_file", json!({ "file_path": path, "content": "a" })),
            ("edit_file", edit("a", "b")),
            ("edit_file", edit("b", "c")),
            ("read_file", json!({ "file_path": path })),
        ];
        for (tool, params) in calls {
            let body = json!({ "tool": tool, "params": params }).to_string();
            let head = format!(
                "authorization: Bearer {TOKEN}\r\ncontent-type: application/json\r\ncontent-length: {}",
                body.len()
            );
            bytes.extend(
                format!("POST /v1/sessions/demo/calls HTTP/1.1\r\nhost: localhost\r\n{head}\r\n\r\n{body}")
                    .into_bytes(),
            );
        }
    }
    bytes.extend_from_slice(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    let said = told_to(&served, &bytes);
    assert_eq!(said.matches("\"status\":\"ok\"").count(), 41, "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_query_parameter_is_refused_at_every_path() {
    let served = Server::begin().await;
    served.session("demo").await;
    let description: Value = serde_json::from_str(&foldspace::http::openapi()).unwrap();
    let mut tried = 0;
    for (path, methods) in description["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let place = path
                .replace("{session}", "demo")
                .replace("{call}", "1")
                .replace("{slice}", "Usage")
                .replace("{stream}", "stdout");
            let place = place.replace("{path}", "a/b");
            let body = (method == "post").then(|| json!({ "tool": "ls", "answer": "once", "child": "c", "to": 1 }));
            let refused = served.ask(&method.to_uppercase(), &format!("{place}?nope=1"), body.as_ref()).await;
            let problem = refused.json();
            assert_eq!((refused.status, &problem["kind"]), (400, &json!("bad_request")), "{method} {path}: {problem}");
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            for name in parameters.filter(|known| known["in"] == "query").map(|known| known["name"].as_str().unwrap()) {
                assert!(problem["hint"].as_str().unwrap().contains(name), "{method} {path}: {problem}");
            }
            tried += 1;
        }
    }
    assert_eq!(tried, 92);
    assert_eq!(served.ask("GET", "/v1/sessions/demo", None).await.json()["events"], 1, "and nothing is done");
}

#[tokio::test(flavor = "multi_thread")]
async fn names_and_paths_never_lead_out() {
    let served = Server::begin().await;
    served.session("demo").await;
    served.write("demo", "a.txt").await;
    for name in [
        "",
        ".",
        "..",
        "/",
        "../x",
        "a/b",
        "a\\b",
        "-rf",
        "a b",
        " a",
        "a\n",
        "a\0",
        "\u{1b}[31m",
        "ü",
        "a%2fb",
        "~",
        "$HOME",
        "a;b",
        "*",
        "a:b",
        "\u{202e}a",
        "a?",
        "CON\u{0}",
        &"x".repeat(81),
    ] {
        let refused = served.ask("POST", "/v1/sessions", Some(&json!({ "name": name }))).await;
        assert_eq!(refused.status, 422, "{name:?}: {refused:?}");
    }
    for path in [
        "..",
        "../..",
        "%2e%2e/%2e%2e/etc/passwd",
        "..%2f..%2fetc%2fpasswd",
        "a.txt/..",
        "./a.txt/../../x",
        "%2fetc%2fpasswd",
        "etc/passwd",
        "a.txt/x",
        "a.txt%00",
        "%00",
        "%ff",
        "a%5c..%5cb",
        "%c0%ae%c0%ae/x",
        "....//x",
        "a.txt%20",
        "proc/self/environ",
    ] {
        let answer = served.ask("GET", &format!("/v1/sessions/demo/files/{path}"), None).await;
        assert!((400..500).contains(&answer.status), "{path}: {answer:?}");
    }
    assert_eq!(served.ask("GET", "/v1/sessions/demo/files/%2fa.txt", None).await.body, "one\n");
    assert_eq!(served.ask("GET", "/v1/sessions", None).await.json().as_array().unwrap().len(), 1);
}
