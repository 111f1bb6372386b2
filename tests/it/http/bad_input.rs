//! Whatever a client sends, it is told what was wrong, and nothing else happens.

use std::io::{Read, Write};

use serde_json::{Value, json};
use tokio::net::UnixStream;

use crate::rig::{Answer, Server, WAIT_LIMIT, sent, taken};

/// What a request must not come to.
fn check(answer: &Answer, kind: &str, what: &str) {
    assert!((400..500).contains(&answer.status), "{what}: {answer:?}");
    assert_eq!(answer.json()["kind"], kind, "{what}: {answer:?}");
    assert_eq!(answer.header("content-type"), "application/problem+json", "{what}");
    let problem = answer.json();
    assert_eq!(problem["status"], answer.status, "{what}");
    for field in ["type", "kind", "title", "detail"] {
        assert!(problem[field].as_str().is_some_and(|text| !text.is_empty()), "{what}: {problem}");
    }
}

/// Bodies with one mistake each: the kind of problem, the path, the body.
fn wrong_bodies() -> Vec<(&'static str, &'static str, Value)> {
    let long = "x".repeat(5000);
    vec![
        ("unusable", "", json!({ "name": "../x" })),
        ("unusable", "", json!({ "name": "" })),
        ("unusable", "", json!({ "name": long })),
        ("unusable", "", json!({ "name": 7 })),
        ("unusable", "", json!({ "nmae": "x" })),
        ("unusable", "", json!({ "backend": "other" })),
        ("unusable", "", json!({ "backend": "host", "options": { "directroy": "/" } })),
        ("unusable", "", json!({ "backend": "podman", "options": { "cpus": -1 } })),
        ("unusable", "", json!({ "backend": "podman", "options": [] })),
        ("not_found", "", json!({ "mounts": [{ "host_path": "/nowhere-at-all" }] })),
        ("unusable", "", json!({ "mounts": [{ "host_path": "/", "mount_path": "../x" }] })),
        ("bad_request", "", json!([])),
        ("bad_request", "", json!(null)),
        ("unusable", "/demo/calls", json!({})),
        ("unusable", "/demo/calls", json!({ "tool": 1 })),
        ("unusable", "/demo/calls", json!({ "tool": "ls", "params": [] })),
        ("unusable", "/demo/calls", json!({ "tool": "ls", "params": null })),
        ("unusable", "/demo/calls", json!({ "tool": "ls", "agent": long })),
        ("unusable", "/demo/calls", json!({ "tool": "ls", "timeout_seconds": 0 })),
        ("unusable", "/demo/calls", json!({ "tool": "ls", "timeout_seconds": -1e300 })),
        ("unusable", "/demo/calls", json!({ "tool": "ls", "timeout_seconds": 1e300 })),
        ("unusable", "/demo/calls", json!({ "tool": "ls", "extra": true })),
        ("not_found", "/none/calls", json!({ "tool": "ls" })),
        ("not_found", "/%00/calls", json!({ "tool": "ls" })),
        ("not_found", "/demo/calls/0/answer", json!({ "answer": "once" })),
        ("bad_request", "/demo/calls/x/answer", json!({ "answer": "once" })),
        ("unusable", "/demo/children", json!({ "limits": { "cals": 1 } })),
        ("unusable", "/demo/children", json!({ "at": "soon" })),
        ("unusable", "/demo/children", json!({ "at": 1e30 })),
        ("unusable", "/demo/children", json!({ "name": "a/b" })),
        ("not_found", "/demo/merge", json!({ "child": "none" })),
        ("unusable", "/demo/merge", json!({ "child": "demo", "ours": ["a"], "theirs": ["a"] })),
        ("unusable", "/demo/merge", json!({ "child": "demo", "ours": ["a/../b"] })),
        ("not_found", "/demo/rewind", json!({ "to": 18_446_744_073_709_551_615_u64 })),
        ("unusable", "/demo/rewind", json!({ "to": "soon" })),
        ("unusable", "/demo/bisect", json!({})),
        ("unusable", "/demo/bisect", json!({ "slice": "x", "command": "y" })),
        ("unusable", "/demo/bisect", json!({ "slice": "(((" })),
        ("unusable", "/demo/bisect", json!({ "slice": "Usage.calls > 0", "good": 3, "bad": 1 })),
        ("unusable", "/demo/bisect", broken("jobs", json!(0))),
        ("unusable", "/demo/bisect", broken("timeout_seconds", json!(1e300))),
        ("unusable", "/demo/bisect", broken("timeout_seconds", json!(-5))),
        ("unusable", "/demo/bisect", broken("timeout_seconds", json!(0.01))),
        ("unusable", "/demo/bisect", broken("timeout_seconds", json!(601))),
        ("unusable", "/demo/bisect", json!({ "command": "" })),
    ]
}

/// A body that is right but for that field.
fn broken(field: &str, value: Value) -> Value {
    let mut body = json!({ "command": "test ! -e b.txt", "auto_confirm": true });
    body[field] = value;
    body
}

#[tokio::test(flavor = "multi_thread")]
async fn http_wrong_values_are_refused() {
    let served = Server::begin().await;
    served.session("demo").await;
    served.write("demo", "a.txt").await;
    served.write("demo", "b.txt").await;
    let events = async || served.ask("GET", "/v1/sessions/demo", None).await.json()["events"].clone();
    let before = events().await;
    for (kind, path, body) in wrong_bodies() {
        check(&served.ask("POST", &format!("/v1/sessions{path}"), Some(&body)).await, kind, &format!("{path} {body}"));
    }
    assert_eq!(served.ask("GET", "/v1/sessions", None).await.json().as_array().unwrap().len(), 1, "nothing came of it");
    assert_eq!(events().await, before, "nothing was recorded");
    let right = served.ask("POST", "/v1/sessions/demo/bisect", Some(&broken("jobs", json!(1)))).await;
    assert_eq!((right.status, &right.json()["good"]), (200, &json!(3)), "{right:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn http_wrong_paths_are_refused() {
    let served = Server::begin().await;
    served.session("demo").await;
    for (kind, path) in [
        ("no_route", "/index.html"),
        ("no_route", "/v1"),
        ("no_route", "/v2/sessions"),
        ("no_route", "/v1/sessions/"),
        ("not_found", "/v1/sessions/none"),
        ("no_route", "/v1/sessions/demo/none"),
        ("bad_request", "/v1/sessions/demo/state?at=--1"),
        ("not_found", "/v1/sessions/demo/state?at=99"),
        ("bad_request", "/v1/sessions/demo/state?at=1&at=2"),
        ("bad_request", "/v1/sessions/demo/state?when=now"),
        ("bad_request", "/v1/sessions/demo/state/%FF"),
        ("not_found", "/v1/sessions/demo/state/none"),
        ("not_found", "/v1/sessions/demo/files?below=a"),
        ("bad_request", "/v1/sessions/demo/files?recursive=maybe"),
        ("unusable", "/v1/sessions/demo/files/../../etc/passwd"),
        ("unusable", "/v1/sessions/demo/files/%2e%2e/x"),
        ("unusable", "/v1/sessions/demo/files/a%00b"),
        ("bad_request", "/v1/sessions/demo/files/%ff%fe"),
        ("not_found", "/v1/sessions/demo/files/none"),
        ("not_found", "/v1/sessions/demo/diff?to=99"),
        ("unusable", "/v1/sessions/demo/events?limit=0"),
        ("unusable", "/v1/sessions/demo/events?limit=100000"),
        ("bad_request", "/v1/sessions/demo/events?from=99999999999999999999999"),
        ("method", "/v1/sessions/demo/merge"),
        ("bad_request", "/v1/sessions/demo/calls/-1"),
        ("not_found", "/v1/sessions/demo/calls/1"),
    ] {
        check(&served.ask("GET", path, None).await, kind, path);
    }
    for (method, path) in
        [("PUT", "/v1/sessions"), ("TRACE", "/healthz"), ("ODD", "/v1/tools"), ("PATCH", "/v1/sessions/demo")]
    {
        let refused = served.ask(method, path, None).await;
        check(&refused, "method", path);
        assert_eq!(refused.status, 405, "{method} {path}");
        assert!(!refused.header("allow").is_empty(), "{method} {path}: {refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn http_body_that_is_no_json_is_refused() {
    let served = Server::begin().await;
    served.session("demo").await;
    let post = async |body: &[u8], media: &str| {
        let stream = UnixStream::connect(&served.socket).await.unwrap();
        let headers = [("content-type", media)];
        let io = hyper_util::rt::TokioIo::new(stream);
        let path = "/v1/sessions/demo/calls";
        taken(sent(io, "POST", path, body.to_vec().into(), &headers).await).await
    };
    let deep = [b"[".repeat(200_000), b"]".repeat(200_000)].concat();
    let bodies: [&[u8]; 8] = [
        b"",
        b"{",
        b"{\"tool\": \"ls\"} {}",
        b"\xff\xfe",
        b"{\"tool\": \"\\ud800\"}",
        b"nul",
        &deep,
        b"{\"tool\":\"ls\",}",
    ];
    for body in bodies {
        check(
            &post(body, "application/json").await,
            "bad_request",
            &String::from_utf8_lossy(&body[..body.len().min(40)]),
        );
    }
    assert_eq!(post(b"{\"tool\": \"ls\"}", "text/plain").await.status, 415);
    let large = [b"{\"tool\": \"".to_vec(), vec![b'x'; 65 << 20], b"\"}".to_vec()].concat();
    assert_eq!(post(&large, "application/json").await.status, 413);
    // A tool's own refusal is an outcome, which is recorded.
    let unknown = post(b"{\"tool\": \"none\"}", "application/json").await;
    assert_eq!((unknown.status, &unknown.json()["status"]), (200, &json!("error")));
}

#[tokio::test(flavor = "multi_thread")]
async fn http_request_that_is_no_http_is_refused() {
    let served = Server::begin().await;
    let raws: [&[u8]; 8] = [
        b"\r\n\r\nHELO\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nbad header\r\n\r\n",
        b"POST /v1/sessions HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
        b"POST /v1/sessions HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nx",
        b"POST /v1/sessions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ];
    for raw in raws {
        let said = told_to(&served, raw);
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(said.is_empty() || said.starts_with("HTTP/1.1 4"), "{said}");
    }
    let mut head = b"GET /healthz HTTP/1.1\r\nhost: x\r\n".to_vec();
    head.extend((0..100_000).flat_map(|number| format!("x-{number}: y\r\n").into_bytes()));
    let said = told_to(&served, &head);
    assert!(said.is_empty() || said.starts_with(b"HTTP/1.1 431"), "{}", String::from_utf8_lossy(&said));
    assert_eq!(served.ask("GET", "/healthz", None).await.status, 200);
}

/// What the server says to these bytes. It may close before all of them were sent, and need not say anything; it must
/// not go on waiting.
fn told_to(served: &Server, bytes: &[u8]) -> Vec<u8> {
    let mut stream = std::os::unix::net::UnixStream::connect(&served.socket).unwrap();
    stream.set_read_timeout(Some(WAIT_LIMIT)).unwrap();
    let sent = stream.write_all(bytes);
    drop(sent.and_then(|()| stream.shutdown(std::net::Shutdown::Write)));
    let mut said = Vec::new();
    if let Err(error) = stream.read_to_end(&mut said) {
        assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "it waits");
    }
    said
}
