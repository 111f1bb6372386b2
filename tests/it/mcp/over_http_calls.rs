//! Calls over HTTP: their order, their end, and what an address asks for.

use std::collections::BTreeMap;

use foldspace::mcp::McpOptions;
use foldspace::reducers::ToolCalls;
use foldspace::tools::CommandPolicy;
use http_body_util::BodyExt;
use hyper::Response;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::over_http::{Connected, McpServed, answered, eventually_status, on_host};
use super::together::{names, server};
use crate::rig::{Answer, eventually_async, sent, taken};

fn call(id: u64, tool: &str, arguments: Value) -> Value {
    let params = json!({ "name": tool, "arguments": arguments });
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
}

/// A request without a body.
async fn bare(served: &McpServed, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
    let stream = TcpStream::connect(served.address).await.unwrap();
    taken(sent(TokioIo::new(stream), method, path, Vec::new().into(), headers).await).await
}

/// Reads a stream until it says something.
async fn until(response: &mut Response<Incoming>, what: &str) -> String {
    let mut read = String::new();
    while !read.contains(what) {
        let frame = response.frame().await.unwrap_or_else(|| panic!("no {what} in {read}")).unwrap();
        read.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
    }
    read
}

/// Options of a workspace on this machine where everything may run.
fn allowed(directory: &std::path::Path) -> McpOptions {
    let mut options = on_host(directory);
    options.rules.policy = CommandPolicy { auto_confirm: true, ..CommandPolicy::default() };
    options
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_calls_run_in_order() {
    let files = tempfile::tempdir().unwrap();
    let (_directory, hub, server) = server(allowed(files.path()));
    let served = McpServed::begin(&server).await;
    let (client, _) = Connected::new(&served, "/mcp").await;
    let session = [("mcp-session-id", client.id.as_str())];
    let until_go = json!({ "command": "until [ -e go ]; do sleep 0.01; done; printf done > out" });
    let command = served.posted("/mcp", &call(1, "shell_execute", until_go), &session).await;
    eventually_status(&hub, "host", None).await;
    // On other TCP connections, all of them.
    let read = served.posted("/mcp", &call(2, "read_file", json!({ "file_path": "out" })), &session).await;
    let edit = json!({ "file_path": "out", "old_string": "done", "new_string": "edited" });
    let edit = served.posted("/mcp", &call(3, "edit_file", edit), &session).await;
    let rm = served.posted("/mcp", &call(4, "rm", json!({ "path": "out" })), &session).await;
    let ping = json!({ "jsonrpc": "2.0", "id": 5, "method": "ping" });
    assert!(answered(&served.post("/mcp", &ping, &session).await)["result"].is_object(), "it waits for nothing");
    let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 4 } });
    assert_eq!(served.post("/mcp", &cancel, &session).await.status, 202);
    let cancelled = answered(&taken(rm).await);
    assert_eq!(cancelled["result"]["content"][0]["text"], "the call was cancelled", "{cancelled}");
    // A client that goes away while its call waits.
    drop(served.posted("/mcp", &call(6, "rm", json!({ "path": "out" })), &session).await);
    std::fs::write(files.path().join("go"), "").unwrap();
    for (response, is_read) in [(command, false), (read, true), (edit, false)] {
        let result = answered(&taken(response).await)["result"].clone();
        assert_eq!(result["isError"], false, "{result}");
        assert!(!is_read || result["structuredContent"]["content"] == "done", "{result}");
    }
    let last = client.call("read_file", json!({ "file_path": "out" })).await;
    assert_eq!(last["structuredContent"]["content"], "edited", "{last}");
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_pipelined_messages_keep_order() {
    let (_directory, _, server) = server(McpOptions::default());
    let served = McpServed::begin(&server).await;
    let (client, _) = Connected::new(&served, "/mcp").await;
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    let mut bytes = Vec::new();
    for round in 0..10 {
        let edit =
            |old: &str, new: &str| json!({ "file_path": format!("f{round}"), "old_string": old, "new_string": new });
        let write = json!({ "file_path": format!("f{round}"), "content": "a" });
        let calls = [("write_file", write), ("edit_file", edit("a", "b")), ("edit_file", edit("b", "c"))];
        for (number, (tool, arguments)) in calls.into_iter().enumerate() {
            let body = call(10 * round + number as u64, tool, arguments).to_string();
            let is_last = round == 9 && number == 2;
            let close = if is_last { "connection: close\r\n" } else { "" };
            let head = "POST /mcp HTTP/1.1\r\nhost: localhost\r\naccept: application/json, text/event-stream\r\n";
            let head = format!("{head}content-type: application/json\r\nmcp-session-id: {}\r\n", client.id);
            bytes.extend(format!("{head}{close}content-length: {}\r\n\r\n{body}", body.len()).into_bytes());
        }
    }
    stream.write_all(&bytes).await.unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).await.unwrap();
    assert_eq!(said.matches("\"isError\":false").count(), 30, "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_cancelled_call_is_answered_once() {
    let files = tempfile::tempdir().unwrap();
    let (_directory, hub, server) = server(McpOptions { session: Some("asks".to_owned()), ..on_host(files.path()) });
    let served = McpServed::begin(&server).await;
    let (client, _) = Connected::that(&served, "/mcp", json!({ "elicitation": {} })).await;
    let session = [("mcp-session-id", client.id.as_str())];
    let command = json!({ "command": "touch begun; exec tail -f begun" });
    let mut stream = served.posted("/mcp", &call(1, "shell_execute", command), &session).await;
    let asked = until(&mut stream, "elicitation/create").await;
    let field =
        |name: &str| asked.lines().filter_map(|line| line.strip_prefix(name)).next_back().unwrap().trim().to_owned();
    let question: Value = serde_json::from_str(&field("data:")).unwrap();
    let result = json!({ "action": "accept", "content": { "answer": "once" } });
    let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": result });
    assert_eq!(served.post("/mcp", &answer, &session).await.status, 202);
    eventually_async("the command runs", async || files.path().join("begun").exists()).await;
    let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 } });
    served.post("/mcp", &cancel, &session).await;
    let last = answered(&taken(stream).await);
    // A result: some clients come back after an error as if the stream had broken.
    assert_eq!((&last["id"], &last["result"]["isError"]), (&json!(1), &json!(true)), "{last}");
    assert!(last["result"].get("resultType").is_none(), "{last}");
    eventually_status(&hub, "asks", Some(foldspace::event::CallStatus::Interrupted)).await;
    let again = field("id:");
    let headers = [session[0], ("accept", "text/event-stream"), ("last-event-id", &again)];
    let resumed = bare(&served, "GET", "/mcp", &headers).await;
    let told = String::from_utf8_lossy(&resumed.body);
    assert!(resumed.status == 200 && !told.contains("elicitation"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_delete_answers_200() {
    let (_directory, _, server) = server(McpOptions::default());
    let served = McpServed::begin(&server).await;
    let (client, _) = Connected::new(&served, "/mcp").await;
    let session = [("mcp-session-id", client.id.as_str())];
    assert_eq!(bare(&served, "DELETE", "/mcp", &session).await.status, 200);
    let gone = served.post("/mcp", &call(1, "ls", json!({})), &session).await;
    assert_eq!(gone.status, 404, "{gone:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_query_is_obeyed_or_refused() {
    let options = McpOptions { session: Some("team".to_owned()), ..McpOptions::default() };
    let (_directory, hub, server) = server(options);
    let served = McpServed::begin(&server).await;
    let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
    for (query, hint) in [
        ("session=lgp", "--session team"),
        ("sesion=team", "use session, agent and tools"),
        ("session=", "no value"),
        ("tools=sessions", "--tools sessions"),
        ("tools=nothing", "\"nothing\" not found"),
        ("agent=", "no value"),
    ] {
        let refused = served.post(&format!("/mcp?{query}"), &ping, &[]).await;
        let said = String::from_utf8_lossy(&refused.body).into_owned();
        assert!(refused.status == 400 && said.contains(hint), "{query}: {} {said}", refused.status);
    }
    // In memory there is no shell, but Python.
    for (path, tools) in [("/mcp?session=team&agent=bob&tools=files", 7), ("/mcp?agent=carol&tools=all", 8)] {
        let (client, _) = Connected::new(&served, path).await;
        client.call("write_file", json!({ "file_path": client.id, "content": "" })).await;
        let listed = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" });
        let listed = answered(&served.post(path, &listed, &[("mcp-session-id", &client.id)]).await);
        assert_eq!(listed["result"]["tools"].as_array().unwrap().len(), tools, "{listed}");
    }
    let narrow = served.ask("dora", "/mcp?agent=eve&tools=shell", "tools/list", json!({})).await;
    assert_eq!(narrow["result"]["tools"], json!([]), "nothing of that can work in memory");
    assert_eq!(names(&hub), ["team"]);
    let session = hub.sessions().session(hub.sessions().find("team").unwrap().id).unwrap();
    let state = session.state().unwrap();
    let calls = state.slice::<ToolCalls>().unwrap().iter().map(|call| (call.agent.to_string(), call.tool.to_string()));
    let wrote = |name: &str| (name.to_owned(), "write_file".to_owned());
    assert_eq!(calls.collect::<BTreeMap<_, _>>(), BTreeMap::from([wrote("bob"), wrote("carol")]));
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_left_without_an_answer_cancels_its_call() {
    let files = tempfile::tempdir().unwrap();
    let (_directory, hub, server) = server(McpOptions { session: Some("left".to_owned()), ..allowed(files.path()) });
    let served = McpServed::begin(&server).await;
    let (client, _) = Connected::new(&served, "/mcp").await;
    let session = [("mcp-session-id", client.id.as_str())];
    let command = json!({ "command": "touch begun; exec tail -f begun" });
    let stream = served.posted("/mcp", &call(1, "shell_execute", command), &session).await;
    eventually_async("the command runs", async || files.path().join("begun").exists()).await;
    drop(stream);
    eventually_status(&hub, "left", Some(foldspace::event::CallStatus::Interrupted)).await;
    // With another id: the first request's may not have come to its end everywhere.
    let next = answered(&served.post("/mcp", &call(2, "ls", json!({})), &session).await);
    assert_eq!(next["result"]["isError"], false, "it may go on: {next}");
}
