//! Arbitrary lines, and messages that are broken somewhere, through the server as a client meets it.

use std::collections::BTreeMap;

use foldspace::mcp::{McpOptions, McpServer};
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

use super::together::server;

/// Messages that a client may send.
fn messages() -> Vec<Value> {
    let call = |tool: &str, arguments: Value| json!({ "name": tool, "arguments": arguments });
    let path = json!({ "file_path": "a" });
    let requests = [
        ("ping", json!({})),
        ("initialize", hello()["params"].clone()),
        ("tools/list", json!({ "cursor": "1" })),
        ("tools/call", call("write_file", json!({ "file_path": "a", "content": "x" }))),
        ("tools/call", call("read_file", path)),
        ("tools/call", call("shell_execute", json!({ "command": ["ls", "-l"], "timeout_seconds": 1 }))),
        ("tools/call", json!({ "name": "ls", "requestState": "x", "inputResponses": {} })),
        ("resources/list", json!({})),
        ("resources/read", json!({ "uri": "foldspace://x/files/..%2f..?at=-1" })),
        ("resources/subscribe", json!({ "uri": "foldspace://x/log" })),
        ("prompts/get", json!({ "name": "workspace", "arguments": {} })),
        (
            "completion/complete",
            json!({ "ref": { "type": "ref/prompt", "name": "x" }, "argument": { "name": "a", "value": "b" } }),
        ),
        ("logging/setLevel", json!({ "level": "debug" })),
        ("server/discover", super::asking::modern(json!({}))),
    ];
    let requests =
        requests.map(|(method, params)| json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }));
    let others = [
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1, "reason": "x" } }),
        json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": { "progressToken": 1, "progress": 0.5 } }),
        json!({ "jsonrpc": "2.0", "id": 1, "result": { "action": "accept", "content": { "answer": "once" } } }),
        json!({ "jsonrpc": "2.0", "id": 1, "error": { "code": -1, "message": "x" } }),
        json!([{ "jsonrpc": "2.0", "id": 1, "method": "ping" }]),
    ];
    requests.into_iter().chain(others).collect()
}

fn hello() -> Value {
    let params =
        json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "x", "version": "1" } });
    json!({ "jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": params })
}

/// A change of one place of a line.
#[derive(Debug, Clone)]
enum Break {
    Set(prop::sample::Index, u8),
    Cut(prop::sample::Index, prop::sample::Index),
    Double(prop::sample::Index, prop::sample::Index),
}

fn breaks() -> impl Strategy<Value = Break> {
    let byte = prop_oneof![any::<u8>(), prop::sample::select(b"{}[]\",:0-1.eEnul\\\x00\xff ".to_vec())];
    prop_oneof![
        (any::<prop::sample::Index>(), byte).prop_map(|(at, byte)| Break::Set(at, byte)),
        any::<(prop::sample::Index, prop::sample::Index)>().prop_map(|(from, to)| Break::Cut(from, to)),
        any::<(prop::sample::Index, prop::sample::Index)>().prop_map(|(from, to)| Break::Double(from, to)),
    ]
}

fn broken(mut line: Vec<u8>, breaks: &[Break]) -> Vec<u8> {
    for change in breaks {
        if line.is_empty() {
            break;
        }
        let ends = |from: &prop::sample::Index, to: &prop::sample::Index| {
            let (a, b) = (from.index(line.len()), to.index(line.len()));
            a.min(b)..a.max(b)
        };
        match change {
            Break::Set(at, byte) => {
                let at = at.index(line.len());
                line[at] = *byte;
            }
            Break::Cut(from, to) => drop(line.drain(ends(from, to))),
            Break::Double(from, to) => {
                let piece = line[ends(from, to)].to_vec();
                line.extend(piece);
            }
        }
    }
    line
}

fn line() -> impl Strategy<Value = Vec<u8>> {
    let message = prop::sample::select(messages()).prop_map(|message| message.to_string().into_bytes());
    let json = any::<bool>().prop_map(|_| Value::Null).prop_recursive(4, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::btree_map("id|method|params|jsonrpc|result|error", inner, 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            any::<f64>().prop_map(|number| json!(number)),
            "[a-z/]{0,8}".prop_map(Value::String),
        ]
    });
    prop_oneof![
        1 => prop::collection::vec(any::<u8>(), 0..80),
        1 => json.prop_map(|value| value.to_string().into_bytes()),
        6 => (message, prop::collection::vec(breaks(), 0..4)).prop_map(|(line, breaks)| broken(line, &breaks)),
    ]
}

/// Returns the server's answers to these lines, each followed by a ping, until it has nothing more to say.
async fn said_to(server: &McpServer, lines: &[Vec<u8>]) -> Vec<Value> {
    let (theirs, ours) = tokio::io::duplex(1 << 12);
    let ((input, output), server) = (tokio::io::split(ours), server.clone());
    let serving = tokio::spawn(async move { server.serve(input, output, CancellationToken::new()).await });
    let (mut output, mut input) = tokio::io::split(theirs);
    let mut bytes = format!("{}\n", hello()).into_bytes();
    for (number, line) in lines.iter().enumerate() {
        bytes.extend_from_slice(line);
        bytes.extend(
            format!("\n{}\n", json!({ "jsonrpc": "2.0", "id": format!("ping {number}"), "method": "ping" })).bytes(),
        );
    }
    let mut said = String::new();
    let (read, written) = tokio::join!(output.read_to_string(&mut said), async {
        input.write_all(&bytes).await.unwrap();
        input.shutdown().await
    });
    written.unwrap();
    read.unwrap();
    serving.await.unwrap().unwrap();
    said.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn fuzzed_lines_are_answered_by_protocol() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (_directory, _hub, server) = runtime.block_on(async { server(McpOptions::default()) });
    let config = ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(lines in prop::collection::vec(line(), 1..12))| {
        let said = runtime.block_on(said_to(&server, &lines));
        let mut answers: BTreeMap<String, usize> = BTreeMap::new();
        for message in &said {
            prop_assert_eq!(&message["jsonrpc"], "2.0", "{}", message);
            let is_answer = message.get("result").is_some() != message.get("error").is_some();
            prop_assert!(is_answer != message.get("method").is_some(), "{}", message);
            *answers.entry(message["id"].to_string()).or_default() += usize::from(is_answer);
        }
        for number in 0..lines.len() {
            let id = json!(format!("ping {number}")).to_string();
            prop_assert_eq!(answers.get(&id), Some(&1), "{} of {:?}", id, said);
        }
        // A line has one answer at most.
        let all: usize = answers.values().sum();
        let pieces: usize = lines.iter().map(|line| 1 + line.iter().filter(|byte| **byte == b'\n').count()).sum();
        prop_assert!(all <= 1 + lines.len() + pieces, "{:?}", said);
    });
}
