//! Clients that take what others need.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use foldspace::http::ServerLimits;
use serde_json::json;

use super::{LONG, Served};

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_are_opened_and_left_are_closed() {
    let limits = ServerLimits { connections: 4, head: Duration::from_millis(100), ..ServerLimits::default() };
    let served = Served::with(limits).await;
    let mut left = Vec::new();
    for number in 0..20 {
        let mut stream = UnixStream::connect(&served.socket).unwrap();
        // Some say nothing, some a little.
        if number % 2 == 0 {
            stream.write_all(b"GET /v1/sess").unwrap();
        }
        left.push(stream);
    }
    // More than there is room for; whoever comes behind them is served when they are closed.
    let answer = tokio::time::timeout(LONG, served.ask("GET", "/healthz", None)).await.unwrap();
    assert_eq!(answer.status, 200);
    for mut stream in left {
        let mut said = Vec::new();
        // Reset or closed: both end it.
        stream.set_read_timeout(Some(LONG)).unwrap();
        if let Err(error) = stream.read_to_end(&mut said) {
            assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "it waits");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_reads_nothing_is_given_up() {
    let limits = ServerLimits { stall: Duration::from_millis(100), ..ServerLimits::default() };
    let served = Served::with(limits).await;
    served.session("demo").await;
    let content = "x".repeat(40_000);
    for number in 0..40 {
        let params = json!({ "file_path": format!("{number}.txt"), "content": content });
        let call = json!({ "tool": "write_file", "params": params });
        assert_eq!(served.ask("POST", "/v1/sessions/demo/calls", Some(&call)).await.json()["status"], "ok");
    }
    // The same file again and again, over one connection, and no answer is read.
    let mut stream = UnixStream::connect(&served.socket).unwrap();
    let request = b"GET /v1/sessions/demo/files/1.txt HTTP/1.1\r\nhost: x\r\n\r\n".repeat(1000);
    stream.set_write_timeout(Some(LONG)).unwrap();
    // A write fails when the other side has closed.
    let given_up = std::iter::repeat_with(|| stream.write_all(&request)).find_map(Result::err).unwrap();
    assert_ne!(given_up.kind(), std::io::ErrorKind::WouldBlock, "it waits");
    assert_eq!(served.ask("GET", "/healthz", None).await.status, 200);
}
