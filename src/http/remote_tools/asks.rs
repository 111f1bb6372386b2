//! Requests of a program's tool during a call, performed in the context of the call.

use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;

use super::wire::{EncodedBytes, MESSAGE_MAX, RemoteEntry, RemoteRun, RunCommand, ToolRequest};
use crate::backends::{HostCaller, OutputStream, ShellCommand};
use crate::engine::event::Node;
use crate::engine::path::EntryPath;
use crate::reducers::Entry;
use crate::tools::{CommandOutput, SessionRuntime, ToolContext, ToolError};

/// The most bytes of each output stream of a command.
const OUTPUT_MAX: usize = 1 << 20;

/// Performs a request of a program's tool.
pub(super) async fn perform(
    context: &mut ToolContext,
    ask: ToolRequest,
    program: &HostCaller,
) -> Result<Value, ToolError> {
    match ask {
        ToolRequest::Read { path } => {
            let path = context.path(&path)?;
            let bytes = context.filesystem().read(&path)?;
            value(&EncodedBytes::of(&bytes))
        }
        ToolRequest::Write { path, contents } => {
            context.check_may_change()?;
            // As for agents, the limits for new paths apply.
            let path = EntryPath::for_creation(context.below_root(&path)?)?;
            context.filesystem().write(&path, decoded(contents)?)?;
            Ok(Value::Null)
        }
        ToolRequest::Remove { path } => {
            context.check_may_change()?;
            let path = context.path(&path)?;
            context.filesystem().remove(&path)?;
            Ok(Value::Null)
        }
        ToolRequest::List { below } => {
            let below = context.path(&below)?;
            let below = context.filesystem().resolve(&below)?;
            let tree = context.filesystem().tree();
            if !tree.is_directory(&below) {
                return Err(ToolError::new(format!("directory {} does not exist", below.rooted())));
            }
            value(&tree.below(&below).map(entry).collect::<Vec<_>>())
        }
        ToolRequest::Run(command) => run(context, command, program).await,
        ToolRequest::Record { kind, version, payload } => {
            context.record_encoded(&kind, version, &decoded(payload)?)?;
            Ok(Value::Null)
        }
        ToolRequest::Show { text } => {
            let (call, stream) = (context.call(), OutputStream::Stdout);
            SessionRuntime::of(context.session()).show_output(|| CommandOutput { call, stream, bytes: text.into() });
            Ok(Value::Null)
        }
    }
}

async fn run(context: &mut ToolContext, asked: RunCommand, program: &HostCaller) -> Result<Value, ToolError> {
    context.check_may_change()?;
    let mut command = ShellCommand::new(asked.command);
    command.cwd = context.path(&asked.cwd)?;
    command.env = asked.env;
    command.stdin = asked.stdin.map(decoded).transpose()?.unwrap_or_default();
    command.timeout = asked.timeout_ms.map(Duration::from_millis);
    let backend = context.workspace().backend_name();
    let nothing = || ToolError::new(format!("the {backend} workspace runs no commands"));
    let mut shell = context.shell().ok_or_else(nothing)?;
    if !shell.properties().sandboxed {
        // The program must not escape its sandbox through the server.
        program.process().map_err(|why| ToolError::new(&*why))?;
    }
    let result = shell.execute(command).await?;
    if result.cancelled {
        return Err(ToolError::Cancelled);
    }
    let ((stdout, out_cut), (stderr, err_cut)) = (result.stdout.text(OUTPUT_MAX), result.stderr.text(OUTPUT_MAX));
    let (exit_code, timed_out, truncated) = (result.exit_code, result.timed_out, out_cut || err_cut);
    value(&RemoteRun { exit_code, stdout, stderr, timed_out, truncated })
}

fn entry((path, entry): (&EntryPath, &Entry)) -> RemoteEntry {
    let node = match entry.node {
        Node::File { .. } => "file",
        Node::Directory { .. } => "directory",
        Node::Symlink { .. } => "symlink",
        Node::Special { .. } => "special",
    };
    RemoteEntry { path: path.clone(), node: node.to_owned(), size: entry.size() }
}

fn decoded(contents: EncodedBytes) -> Result<Bytes, ToolError> {
    contents.bytes().map_err(|error| ToolError::new(format!("invalid base64: {error}")))
}

fn value(answer: &impl serde::Serialize) -> Result<Value, ToolError> {
    serde_json::to_value(answer).map_err(|error| ToolError::new(error.to_string()))
}

/// Returns the answer as the fields of a message. An answer over the size limit becomes an error.
pub(super) fn told(done: Result<Value, ToolError>) -> (Option<Value>, Option<String>) {
    match done {
        Ok(value) if value.to_string().len() > MESSAGE_MAX - 1024 => {
            (None, Some(format!("the answer is over the limit of {MESSAGE_MAX} bytes; request less at once")))
        }
        Ok(value) => (Some(value), None),
        Err(error) => (None, Some(error.to_string())),
    }
}
