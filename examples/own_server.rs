//! A custom server: the HTTP API for its owner and for token holders, MCP next to it, an approval over the socket.
//!
//! `cargo run --example own_server`

#![expect(clippy::print_stdout, reason = "an example prints")]

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use foldspace::backends::{HostOptions, ProgressWatch};
use foldspace::http::{
    Access, CallEvent, CallRequest, ClientError, HttpClient, HttpFace, HttpOptions, HttpProblem, HttpServer,
    ServerLimits, Token, bind_unix, exchange,
};
use foldspace::hub::{CallFigures, HubError, HubOptions, OpenSession};
use foldspace::mcp::{McpError, McpOptions, McpServer, ToolGroup};
use foldspace::{Hub, Registry, Sessions, ToolOutcome, WorkspaceSpec};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

fn problem(HttpProblem { status, detail, hint, .. }: &HttpProblem) -> String {
    let hint = hint.as_deref().unwrap_or("no advice");
    format!("{status}: {detail} ({hint})")
}

/// Makes a call as the owner, and approves it.
async fn use_socket(client: &HttpClient) -> Result<(), Box<dyn Error>> {
    let (asked, mut questions) = tokio::sync::mpsc::unbounded_channel();
    let answering = client.clone();
    tokio::spawn(async move {
        while let Some(call) = questions.recv().await {
            if let Err(error) = answering.answer("demo", call, "once", None).await {
                println!("failed to answer: {error}");
            }
        }
    });
    let call = json!({ "tool": "shell_execute", "params": { "command": "uname" } });
    let call: CallRequest = serde_json::from_value(call)?;
    let mut begun = 0;
    let done: ToolOutcome = client
        .call("demo", &call, |event| match event {
            CallEvent::Begun(call) => begun = call,
            CallEvent::Question(question) => {
                println!("may it run? {}", question["command"]);
                let _ = asked.send(begun);
            }
            CallEvent::Output { bytes, .. } => println!("{} bytes of output", bytes.len()),
            CallEvent::Missed(bytes) => println!("{bytes} bytes were missed"),
            CallEvent::Progress(text) => println!("preparing: {text}"),
            CallEvent::Ended(_) => {}
        })
        .await?;
    println!("{:?}", done.status);
    if let Err(ClientError::Refused(refused)) = client.get::<Value>("/v1/sessions/other").await {
        println!("{}", problem(&refused));
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let sessions = Sessions::open(directory.path(), Registry::standard())?;
    let progress: ProgressWatch = Arc::new(|line| println!("preparing: {line}"));
    let options = HubOptions { progress: Some(progress), ..HubOptions::new(directory.path()) };
    let hub = Hub::new(sessions, options);
    let opened: Result<OpenSession, HubError> =
        hub.create(Some("demo".to_owned()), &WorkspaceSpec::Host(HostOptions::default()), &[]).await;
    println!("opened {}", opened?.session().name());

    // MCP with only the file tools, next to the API, for clients with the token.
    let ending = CancellationToken::new();
    let groups = [ToolGroup::Files].into();
    let mcp = McpServer::new(hub.clone(), McpOptions { groups, ..McpOptions::default() });
    let (over_tcp, over_socket) = (HttpFace::new(hub.clone()), HttpFace::new(hub.clone()));
    let access = Access::Token { token: Token::new("a-secret-of-many-characters")?, names: Vec::new() };
    let beside = Router::new().nest_service("/mcp", mcp.streamable_http(ending.clone()));
    let guarded = over_tcp.router_with(HttpOptions { access, ..HttpOptions::default() }, beside);
    let server = HttpServer::new(ServerLimits::default());
    let (tcp, socket) = (TcpListener::bind("127.0.0.1:0").await?, directory.path().join("socket"));
    let (address, listener) = (tcp.local_addr()?, bind_unix(&socket)?);
    let owner = over_socket.router(HttpOptions::default());
    let (first, second) = (server.clone(), server.clone());
    tokio::spawn(async move { first.serve_tcp(tcp, guarded).await });
    tokio::spawn(async move { second.serve_unix(listener, owner).await });

    // A client without the token is refused.
    let request = http::Request::get("/v1/sessions").header("host", address.to_string()).body(Default::default())?;
    println!("without a token: {}", exchange(TcpStream::connect(address).await?, request).await?.status());

    use_socket(&HttpClient::at(&socket)).await?;
    for CallFigures { tool, durations, .. } in hub.call_figures() {
        println!("{tool}: {} calls in {} us", durations.count, durations.micros);
    }

    // MCP works on any two streams; a client with another protocol is refused.
    let served: Result<(), McpError> = mcp.serve(&b"no protocol\n"[..], tokio::io::sink(), ending.clone()).await;
    println!("MCP: {served:?}");

    ending.cancel();
    over_tcp.end();
    over_socket.end();
    server.stop(Duration::from_secs(1)).await;
    hub.close().await;
    Ok(())
}
