//! Clients over HTTP, with connections and without.

use std::net::SocketAddr;

use axum::Router;
use foldspace::backends::HostOptions;
use foldspace::event::CallStatus;
use foldspace::http::{HttpServer, ServerLimits};
use foldspace::mcp::{McpOptions, McpServer};
use foldspace::reducers::ToolCalls;
use foldspace::tools::{CommandPolicy, ShellRules};
use foldspace::{Hub, WorkspaceSpec};
use hyper::Response;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use super::asking::modern_by;
use super::together::{names, server};
use crate::rig::{Answer, eventually_async, sent, taken};

/// A server of clients over HTTP.
pub(super) struct McpServed {
    pub(super) address: SocketAddr,
    end: CancellationToken,
}

impl McpServed {
    pub(super) async fn begin(server: &McpServer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, end) = (listener.local_addr().unwrap(), CancellationToken::new());
        let router = Router::new().route_service("/mcp", server.streamable_http(end.clone()));
        tokio::spawn(async move { HttpServer::new(ServerLimits::default()).serve_tcp(listener, router).await });
        Self { address, end }
    }

    pub(super) async fn post(&self, path: &str, message: &Value, more: &[(&str, &str)]) -> Answer {
        taken(self.posted(path, message, more).await).await
    }

    /// The same, whose answer is not waited for.
    pub(super) async fn posted(&self, path: &str, message: &Value, more: &[(&str, &str)]) -> Response<Incoming> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let accept = ("accept", "application/json, text/event-stream");
        let headers = [&[accept, ("content-type", "application/json")], more].concat();
        sent(TokioIo::new(stream), "POST", path, message.to_string().into(), &headers).await
    }

    /// A request of a client of that name, which keeps no connection.
    pub(super) async fn ask(&self, name: &str, path: &str, method: &str, params: Value) -> Value {
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": modern_by(name, params) });
        let mut headers = vec![("mcp-protocol-version", "2026-07-28"), ("mcp-method", method)];
        let tool = message["params"]["name"].as_str().unwrap_or_default().to_owned();
        if !tool.is_empty() {
            headers.push(("mcp-name", &tool));
        }
        answered(&self.post(path, &message, &headers).await)
    }

    async fn call(&self, name: &str, path: &str, tool: &str, arguments: Value) -> Value {
        self.ask(name, path, "tools/call", json!({ "name": tool, "arguments": arguments })).await["result"].clone()
    }
}

/// The last message of an answer, which is a stream of events or a document.
pub(super) fn answered(answer: &Answer) -> Value {
    let text = String::from_utf8_lossy(&answer.body);
    let last = text.lines().filter_map(|line| line.strip_prefix("data:")).rfind(|data| !data.trim().is_empty());
    serde_json::from_str(last.unwrap_or(&text)).unwrap_or_else(|error| panic!("{error}: {answer:?}"))
}

/// A client that keeps a connection.
pub(super) struct Connected<'a> {
    pub(super) served: &'a McpServed,
    pub(super) id: String,
}

impl<'a> Connected<'a> {
    pub(super) async fn new(served: &'a McpServed, path: &str) -> (Self, Value) {
        Self::that(served, path, json!({})).await
    }

    /// A client that can show forms or not.
    pub(super) async fn that(served: &'a McpServed, path: &str, can: Value) -> (Self, Value) {
        let info = json!({ "name": "cursor", "version": "1" });
        let hello = json!({ "protocolVersion": "2025-06-18", "capabilities": can, "clientInfo": info });
        let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello });
        let answer = served.post(path, &hello, &[]).await;
        let client = Self { served, id: answer.header("mcp-session-id").to_owned() };
        (client, answered(&answer)["result"].clone())
    }

    async fn begin(&self, tool: &str, arguments: Value) -> Answer {
        let params = json!({ "name": tool, "arguments": arguments });
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        self.served.post("/mcp", &message, &[("mcp-session-id", &self.id)]).await
    }

    pub(super) async fn call(&self, tool: &str, arguments: Value) -> Value {
        answered(&self.begin(tool, arguments).await)["result"].clone()
    }
}

fn written(content: &str) -> Value {
    json!({ "file_path": "a.txt", "content": content })
}

fn read() -> Value {
    json!({ "file_path": "a.txt" })
}

#[tokio::test(flavor = "multi_thread")]
async fn connected_clients_have_own_sessions() {
    let (_directory, hub, server) = server(McpOptions::default());
    let served = McpServed::begin(&server).await;
    let ((first, _), (second, _)) = (Connected::new(&served, "/mcp").await, Connected::new(&served, "/mcp").await);
    assert_eq!(first.call("write_file", written("one")).await["isError"], false);
    assert_eq!(second.call("read_file", read()).await["isError"], true);
    let (third, _) = Connected::new(&served, "/mcp?session=cursor").await;
    assert_eq!(third.call("read_file", read()).await["structuredContent"]["content"], "one");
    assert_eq!(names(&hub), ["cursor", "cursor-2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn sessionless_clients_are_told_apart_by_name() {
    let (_directory, hub, server) = server(McpOptions::default());
    let served = McpServed::begin(&server).await;
    assert_eq!(served.call("one", "/mcp", "write_file", written("one")).await["isError"], false);
    assert_eq!(served.call("one", "/mcp", "read_file", read()).await["structuredContent"]["content"], "one");
    assert_eq!(served.call("two", "/mcp", "read_file", read()).await["isError"], true);
    let other = "/mcp?session=other";
    assert_eq!(served.call("one", other, "read_file", read()).await["isError"], true, "it asks for another session");
    assert_eq!(served.call("two", "/mcp?session=one", "read_file", read()).await["isError"], false);
    assert_eq!(names(&hub), ["one", "two", "other"]);
}

/// More clients than are known at once.
#[tokio::test(flavor = "multi_thread")]
async fn client_table_evicts_oldest_for_new_clients() {
    let options = McpOptions { session: Some("shared".to_owned()), ..McpOptions::default() };
    let (_directory, hub, server) = server(options);
    let served = McpServed::begin(&server).await;
    for number in 0..1100 {
        let name = format!("asks {number}");
        let listed = served.ask(&name, "/mcp", "tools/list", json!({})).await;
        assert!(listed["result"]["tools"].is_array(), "{listed}");
    }
    assert!(names(&hub).is_empty());
    for number in 0..1030 {
        let result = served.call(&format!("works {number}"), "/mcp", "ls", json!({})).await;
        assert_eq!(result["isError"], false, "{number}: {result}");
    }
}

/// Options of a workspace on this machine, in which `sleep` may run.
pub(super) fn on_host(directory: &std::path::Path) -> McpOptions {
    let workspace =
        Some(WorkspaceSpec::Host(HostOptions { directory: Some(directory.to_owned()), ..Default::default() }));
    let policy = CommandPolicy { allow: vec!["sleep".to_owned()], ..CommandPolicy::default() };
    let rules = ShellRules { policy, ..ShellRules::default() };
    McpOptions { workspace, rules, session: Some("host".to_owned()), ..McpOptions::default() }
}

/// How the last call ended, if there is one and it has.
fn status(hub: &Hub, session: &str) -> Option<Option<CallStatus>> {
    let entry = hub.sessions().find(session).ok()?;
    let state = hub.sessions().session(entry.id).ok()?.state().ok()?;
    state.slice::<ToolCalls>()?.iter().last().map(|call| call.status)
}

pub(super) async fn eventually_status(hub: &Hub, session: &str, wanted: Option<CallStatus>) {
    eventually_async(&format!("a call is {wanted:?}"), async || status(hub, session) == Some(wanted)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn http_server_shutdown_cancels_calls() {
    let files = tempfile::tempdir().unwrap();
    let (_directory, hub, server) = server(on_host(files.path()));
    let served = McpServed::begin(&server).await;
    let (client, told) = Connected::new(&served, "/mcp").await;
    assert!(told["instructions"].as_str().unwrap().contains("on this machine"));
    let sleep = json!({ "command": "sleep 1000" });
    let ends = async {
        eventually_status(&hub, "host", None).await;
        served.end.cancel();
        eventually_status(&hub, "host", Some(CallStatus::Interrupted)).await;
    };
    let call = async {
        client.begin("shell_execute", sleep).await;
        // What the connection's end looks like is no matter here.
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = ends => {}
        () = call => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn instructions_describe_the_requested_session() {
    let (_directory, hub, server) = server(McpOptions::default());
    let files = tempfile::tempdir().unwrap();
    let spec = WorkspaceSpec::Host(HostOptions { directory: Some(files.path().to_owned()), ..Default::default() });
    drop(hub.create(Some("host".to_owned()), &spec, &[]).await.unwrap());
    let served = McpServed::begin(&server).await;
    for (path, is_here) in [("/mcp", false), ("/mcp?session=host", true)] {
        let (_, told) = Connected::new(&served, path).await;
        let discovered = served.ask("one", path, "server/discover", json!({})).await["result"].clone();
        for told in [told, discovered] {
            assert_eq!(told["instructions"].as_str().unwrap().contains("on this machine"), is_here, "{path}: {told}");
        }
    }
}
