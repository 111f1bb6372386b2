//! A custom backend: a workspace that runs sums as commands; a tool that uses its shell; streamed output.
//!
//! `cargo run --example own_backend`

#![expect(clippy::print_stdout, reason = "an example prints")]

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use foldspace::backends::{
    BackendError, EnvMode, FileChange, Output, OutputStream, OutputWatch, Running, Shell, ShellCommand, ShellEnv,
    ShellError, ShellProperties, ShellResult, Which,
};
use foldspace::event::{CommandLine, CommandResult};
use foldspace::session::Watcher;
use foldspace::tools::{
    CommandOutput, CommandPolicy, DenyRule, Effect, EnvTool, Filesystem, GlobTool, ListTool, OutputOptions,
    OutputSubscription, ReadTool, ScriptTool, ShellRules, ShellTool, ToolDescription, ToolShell, WhichTool,
    WorkspaceSection, WriteTool,
};
use foldspace::{
    EntryPath, Filter, NewSession, Registry, Sessions, Tool, ToolCall, ToolContext, ToolError, ToolRunner, Tools,
    Workspace,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// A workspace with files in memory that runs sums such as `2 3 4` as commands.
struct Calculator;

impl Workspace for Calculator {
    fn backend_name(&self) -> &'static str {
        "calculator"
    }

    fn apply(&self, _: &[FileChange]) -> Result<(), BackendError> {
        // The journal stores the files; a backend with a disk writes them here, all or none.
        Ok(())
    }

    fn unrecorded_shell(&self) -> Option<Arc<dyn Shell>> {
        Some(Arc::new(Sums))
    }
}

struct Sums;

impl Shell for Sums {
    fn properties(&self) -> ShellProperties {
        ShellProperties {
            backend_name: "calculator",
            sandboxed: true,
            network_enabled: false,
            default_timeout: Duration::from_secs(1),
            in_container: false,
        }
    }

    fn execute(
        &self,
        command: ShellCommand,
        watch: OutputWatch,
        _: tokio_util::sync::CancellationToken,
    ) -> Running<ShellResult> {
        Box::pin(async move {
            let CommandLine::Shell(text) = &command.command else {
                return Err(ShellError::Invalid("a sum must be one text".to_owned()));
            };
            if command.env_mode == EnvMode::Replace {
                return Err(ShellError::Invalid("a sum has no environment".to_owned()));
            }
            let sum: Result<i64, _> = text.split_whitespace().map(str::parse::<i64>).sum();
            let (exit_code, stream, text) = match sum {
                Ok(sum) => (0, OutputStream::Stdout, format!("{sum}\n")),
                Err(error) => (1, OutputStream::Stderr, format!("{error}\n")),
            };
            watch(stream, text.as_bytes());
            let (printed, nothing) = (Output::whole(text), Output::whole(""));
            let (stdout, stderr) = if exit_code == 0 { (printed, nothing) } else { (nothing, printed) };
            let (command, cwd, duration) = (command.command, command.cwd, Duration::ZERO);
            let (timed_out, cancelled, signal) = (false, false, None);
            Ok(ShellResult {
                exit_code,
                stdout,
                stderr,
                command,
                cwd,
                duration,
                timed_out,
                cancelled,
                signal,
                lost: false,
                terminal: None,
            })
        })
    }

    fn which(&self, program: &str) -> Running<Which> {
        let which = Which { command: program.to_owned(), path: None };
        Box::pin(async { Ok(which) })
    }

    fn env(&self) -> Running<ShellEnv> {
        let env = ShellEnv { variables: BTreeMap::new(), cwd: "/".to_owned(), shell: "sums".to_owned() };
        Box::pin(async { Ok(env) })
    }
}

/// Adds the numbers of a file with the shell.
struct AddFile;

#[derive(Deserialize, JsonSchema)]
struct Params {
    /// The file, with one number per line.
    path: String,
}

#[derive(Serialize, JsonSchema)]
struct Total {
    total: String,
}

impl Tool for AddFile {
    const NAME: &'static str = "add_file";
    const DESCRIPTION: &'static str = "Adds the numbers of a file.";
    const EFFECT: Effect = Effect::Destructive;
    type Params = Params;
    type Output = Total;

    async fn call(&self, context: &mut ToolContext, params: Params) -> Result<Total, ToolError> {
        let files: &mut Filesystem = context.filesystem();
        let numbers = files.read(&EntryPath::lookup(&params.path)?)?;
        let numbers = String::from_utf8_lossy(&numbers).replace('\n', " ");
        let mut shell: ToolShell<'_> = context.shell().ok_or_else(|| ToolError::new("the workspace has no shell"))?;
        let result = shell.execute(ShellCommand::shell(numbers)).await?;
        if !result.success() {
            return Err(ToolError::new(result.stderr.text(200).0));
        }
        Ok(Total { total: result.stdout.text(80).0.trim_end().to_owned() })
    }

    fn render(&self, output: &Total) -> String {
        output.total.clone()
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let sessions = Sessions::open(directory.path(), Registry::standard())?;
    let session = sessions.create(NewSession::named("sums"))?;

    // Some of the standard tools, and a custom one. Sums need no approval, but zeros are denied.
    let mut deny = DenyRule::standard();
    deny.push(DenyRule::Program("0".to_owned()));
    let policy = CommandPolicy { deny, auto_confirm: true, ..CommandPolicy::default() };
    let tools = Tools::new().with(ReadTool)?.with(ListTool)?.with(GlobTool)?.with(WriteTool)?.with(ShellTool)?;
    let tools = tools.with(ScriptTool)?.with(WhichTool)?.with(EnvTool)?;
    let rules = ShellRules { policy, ..ShellRules::default() };
    let tools = ToolRunner::with_rules(session.clone(), tools.with(AddFile)?, Arc::new(Calculator), rules)?;

    // The section for a model's prompt.
    let WorkspaceSection { text, tools: described, .. } = tools.section()?;
    println!("{text}");
    for ToolDescription { name, description, .. } in described {
        println!("{name}: {}", description.lines().next().unwrap_or_default());
    }

    // Results arrive on a separate thread, output is streamed.
    let (ended, results) = std::sync::mpsc::channel();
    let watcher: Watcher = session.watch(1, Filter::of::<CommandResult>(), move |event| {
        let _ = ended.send(event.seq);
    })?;
    let output: OutputSubscription = tools.output(OutputOptions { whole: true, ..OutputOptions::default() });
    let calls = [
        ("write_file", json!({ "file_path": "numbers.txt", "content": "19\n23\n" })),
        ("add_file", json!({ "path": "numbers.txt" })),
        ("shell_execute", json!({ "command": "1 2 many" })),
        ("shell_execute", json!({ "command": "0 1" })),
    ];
    for (tool, params) in calls {
        let outcome = tools.call(ToolCall::new(tool, params)).await?;
        println!("{tool}: {:?} {}", outcome.status, outcome.text.trim_end());
        while let Some(CommandOutput { call, stream, bytes }) = output.try_next() {
            println!("    call {call} printed {} bytes to {stream:?}", bytes.len());
        }
    }
    println!("results are events {} and {}", results.recv()?, results.recv()?);
    drop(watcher);
    Ok(())
}
