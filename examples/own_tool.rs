//! A custom tool next to the built-in tools, recorded like them.
//!
//! `cargo run --example own_tool`

#![expect(clippy::print_stdout, reason = "an example prints")]

use std::error::Error;
use std::sync::Arc;

use foldspace::tools::Effect;
use foldspace::{
    EntryPath, MemoryWorkspace, NewSession, Registry, Replay, Sessions, Tool, ToolCall, ToolContext, ToolError,
    ToolRunner, Tools, VirtualFileSystem,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Writes a numbered list of all files below a directory into a file.
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

impl Tool for Inventory {
    const NAME: &'static str = "inventory";
    const DESCRIPTION: &'static str = "Writes a numbered list of the files below a directory into a file.";
    const EFFECT: Effect = Effect::Additive;
    type Params = Params;
    type Output = Output;

    async fn call(&self, context: &mut ToolContext, params: Params) -> Result<Output, ToolError> {
        let directory = EntryPath::lookup(&params.directory)?;
        let target = EntryPath::for_creation(&params.target)?;
        let tree = context.filesystem().tree();
        let files: Vec<_> = tree.below(&directory).filter(|(_, entry)| !entry.is_directory()).collect();
        if files.is_empty() {
            return Err(ToolError::new(format!("no files in {}", directory.rooted())));
        }
        let count = files.len();
        let lines = files.iter().enumerate().map(|(number, (path, _))| format!("{:3}. {path}\n", number + 1));
        let text: String = lines.collect();
        context.filesystem().create(&target, text)?;
        Ok(Output { files: count })
    }

    fn render(&self, output: &Output) -> String {
        format!("listed {} files", output.files)
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let sessions = Sessions::open(directory.path(), Registry::standard())?;
    let session = sessions.create(NewSession::named("tools"))?.as_agent("clerk");
    let tools = Tools::standard().with(Inventory)?;
    let tool_runner = ToolRunner::new(session.clone(), tools, Arc::new(MemoryWorkspace))?;

    let calls = [
        ("inventory", json!({ "directory": "/src", "target": "list.txt" })),
        ("write_file", json!({ "file_path": "/src/main.py", "content": "print('hi')\n" })),
        ("write_file", json!({ "file_path": "/src/util/text.py", "content": "" })),
        ("inventory", json!({ "directory": "/src", "target": "list.txt" })),
        ("read_file", json!({ "file_path": "list.txt" })),
    ];
    for (tool, params) in calls {
        let outcome = tool_runner.call(ToolCall::new(tool, params)).await?;
        println!("call {:2}  {:?}  {tool}: {}", outcome.call, outcome.status, outcome.text.trim_end());
    }

    let mut replay = Replay::at_start(&session)?;
    while let Some(event) = replay.step()? {
        let files = replay.state().slice::<VirtualFileSystem>().map_or(0, VirtualFileSystem::len);
        println!("event {:2}  {:14} by {:5}  {files} entries", event.seq, event.event.kind, event.agent);
    }
    Ok(())
}
