//! Several clients of one server.

use std::sync::Arc;

use foldspace::hub::HubOptions;
use foldspace::mcp::{McpOptions, McpServer};
use foldspace::reducers::ToolCalls;
use foldspace::{Hub, Registry, Sessions};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A client in this process.
struct DuplexClient {
    output: tokio::io::Lines<BufReader<ReadHalf<DuplexStream>>>,
    input: WriteHalf<DuplexStream>,
    serving: JoinHandle<()>,
    last_id: u64,
}

impl DuplexClient {
    async fn new(server: &McpServer) -> Self {
        let (theirs, ours) = tokio::io::duplex(1 << 16);
        let ((input, output), server) = (tokio::io::split(ours), server.clone());
        let serving = tokio::spawn(async move {
            server.serve(input, output, CancellationToken::new()).await.unwrap();
        });
        let (output, input) = tokio::io::split(theirs);
        let mut client = Self { output: BufReader::new(output).lines(), input, serving, last_id: 0 };
        let info = json!({ "name": "cursor", "version": "1" });
        client
            .ask("initialize", json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info }))
            .await;
        client
    }

    async fn ask(&mut self, method: &str, params: Value) -> Value {
        self.last_id += 1;
        let message = json!({ "jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params });
        self.input.write_all(format!("{message}\n").as_bytes()).await.unwrap();
        loop {
            let line = self.output.next_line().await.unwrap().unwrap();
            let answer: Value = serde_json::from_str(&line).unwrap();
            if answer["id"] == self.last_id {
                return answer;
            }
        }
    }

    async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.ask("tools/call", json!({ "name": tool, "arguments": arguments })).await["result"].clone()
    }

    async fn leave(mut self) {
        self.input.shutdown().await.unwrap();
        self.serving.await.unwrap();
    }
}

pub(super) fn server(options: McpOptions) -> (tempfile::TempDir, Hub, McpServer) {
    let directory = tempfile::tempdir().unwrap();
    let sessions = Sessions::open(directory.path(), Registry::standard()).unwrap();
    let hub = Hub::new(sessions, HubOptions::new(directory.path()));
    let server = McpServer::new(hub.clone(), options);
    (directory, hub, server)
}

pub(super) fn names(hub: &Hub) -> Vec<String> {
    hub.sessions().list().unwrap().iter().map(|entry| entry.name()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_one_session_are_separate_agents() {
    let (_directory, hub, server) = server(McpOptions { session: Some("shared".to_owned()), ..McpOptions::default() });
    let (mut first, mut second) = (DuplexClient::new(&server).await, DuplexClient::new(&server).await);
    let written = first.call("write_file", json!({ "file_path": "a.txt", "content": "one" })).await;
    assert_eq!(written["isError"], false, "{written}");
    let read = second.call("read_file", json!({ "file_path": "a.txt" })).await;
    assert_eq!(read["structuredContent"]["content"], "one");
    second.leave().await;
    let mut third = DuplexClient::new(&server).await;
    third.call("ls", json!({})).await;
    let entry = hub.sessions().find("shared").unwrap();
    let state = hub.sessions().session(entry.id).unwrap().state().unwrap();
    let agents: Vec<Arc<str>> = state.slice::<ToolCalls>().unwrap().iter().map(|call| call.agent.clone()).collect();
    assert_eq!(agents.iter().map(|agent| &**agent).collect::<Vec<_>>(), ["cursor", "cursor-2", "cursor-2"]);
    assert_eq!(names(&hub), ["shared"]);
    first.leave().await;
    third.leave().await;
    assert_eq!(hub.close_unused(std::time::Duration::ZERO).await, 1, "nobody has it open any more");
}

#[tokio::test(flavor = "multi_thread")]
async fn unnamed_clients_have_own_sessions() {
    let (_directory, hub, server) = server(McpOptions::default());
    let (mut first, mut second) = (DuplexClient::new(&server).await, DuplexClient::new(&server).await);
    first.call("write_file", json!({ "file_path": "a.txt", "content": "one" })).await;
    let nothing = second.call("read_file", json!({ "file_path": "a.txt" })).await;
    assert_eq!(nothing["isError"], true);
    assert_eq!(names(&hub), ["cursor", "cursor-2"]);
    let uri = "foldspace://cursor/files/a.txt";
    let other = second.ask("resources/read", json!({ "uri": uri })).await;
    assert_eq!(other["error"]["code"], -32002, "it is another's");
}
