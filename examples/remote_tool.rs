//! A tool in a program that does not own the store: the owner calls back.
//!
//! `cargo run --example remote_tool`

#![expect(clippy::print_stdout, reason = "an example prints")]

use std::error::Error;
use std::time::Duration;

use foldspace::event::CommandLine;
use foldspace::http::{
    CallRequest, HttpClient, HttpFace, HttpOptions, HttpServer, RemoteCommand, RemoteContext, RemoteEntry, RemoteRun,
    RemoteTools, ServerLimits, bind_unix,
};
use foldspace::hub::HubOptions;
use foldspace::tools::Effect;
use foldspace::{Event, Hub, Registry, Sessions, Tool, ToolError, WorkspaceSpec};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Writes a list of all files below a directory into a file.
struct Inventory;

#[derive(Deserialize, JsonSchema)]
struct Params {
    /// The directory to list.
    directory: String,
    /// The file to write.
    target: String,
}

#[derive(Serialize, JsonSchema)]
struct Output {
    /// The number of listed files.
    files: usize,
}

/// A custom event of this program, which the server does not know.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct InventoryTaken {
    files: usize,
}

impl Event for InventoryTaken {
    const KIND: &'static str = "InventoryTaken";
}

impl Tool<RemoteContext> for Inventory {
    const NAME: &'static str = "inventory";
    const DESCRIPTION: &'static str = "Writes a list of the files below a directory into a file.";
    const EFFECT: Effect = Effect::Destructive;
    type Params = Params;
    type Output = Output;

    async fn call(&self, context: &mut RemoteContext, params: Params) -> Result<Output, ToolError> {
        let entries: Vec<RemoteEntry> = context.list(&params.directory).await?;
        let mut text = String::new();
        let mut files = 0;
        for RemoteEntry { path, size, .. } in entries.iter().filter(|entry| entry.node == "file") {
            text.push_str(&format!("{size:6} {path}\n"));
            files += 1;
        }
        context.write(&params.target, text).await?;
        context.record(&InventoryTaken { files }).await?;
        let done = context.run(RemoteCommand::new(CommandLine::Shell("wc -l".to_owned()))).await;
        // A workspace in memory runs no commands; the file is written anyway.
        if let Ok(RemoteRun { stdout, .. }) = done {
            context.show(&stdout).await?;
        }
        match files {
            0 => Err(ToolError::new(format!("no files in {}", params.directory))),
            files => Ok(Output { files }),
        }
    }

    fn render(&self, output: &Output) -> String {
        format!("listed {} files", output.files)
    }
}

async fn call(client: &HttpClient, tool: &str, params: Value) -> Result<(), Box<dyn Error>> {
    let call: CallRequest = serde_json::from_value(json!({ "tool": tool, "params": params }))?;
    let outcome = client.call("demo", &call, |_| ()).await?;
    println!("call {:2}  {:?}  {tool}: {}", outcome.call, outcome.status, outcome.text.trim_end());
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // The owner, usually `foldspace serve`.
    let directory = tempfile::tempdir()?;
    let hub = Hub::new(Sessions::open(directory.path(), Registry::standard())?, HubOptions::new(directory.path()));
    let demo = hub.create(Some("demo".to_owned()), &WorkspaceSpec::Memory, &[]).await?;
    let (face, server, socket) = (HttpFace::new(hub.clone()), HttpServer::new(ServerLimits::default()), "http.sock");
    let socket = directory.path().join(socket);
    let (serving, listener, router) = (server.clone(), bind_unix(&socket)?, face.router(HttpOptions::default()));
    tokio::spawn(async move { serving.serve_unix(listener, router).await });

    // The program with the tool.
    let client = HttpClient::at(&socket);
    let registered = client.register_tools(&RemoteTools::new().with(Inventory)?, Some("demo")).await?;
    call(&client, "inventory", json!({ "directory": "/", "target": "list.txt" })).await?;
    call(&client, "write_file", json!({ "file_path": "/src/main.py", "content": "print('hi')\n" })).await?;
    call(&client, "inventory", json!({ "directory": "/src", "target": "list.txt" })).await?;
    call(&client, "read_file", json!({ "file_path": "list.txt" })).await?;
    for event in demo.session().events(1, 100)? {
        println!("event {:2}  {}", event.seq, event.event.kind);
    }
    drop(registered);

    drop(demo);
    face.end();
    server.stop(Duration::from_secs(1)).await;
    hub.close().await;
    Ok(())
}
