//! The shell of a session: each command is a separate call, subject to the rules and recorded.

use std::sync::{Arc, Mutex};

use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::command_hooks::CommandHooks;
use super::context::ToolContext;
use super::error::ToolError;
use super::tool::{Answering, ErasedTool, ToolAnswer, ToolDescription};
use super::tool_call::ToolCall;
use super::tool_runner::ToolRunner;
use crate::backends::{
    EnvMode, OutputWatch, Running, Shell, ShellCommand, ShellEnv, ShellError, ShellProperties, ShellResult, Which,
};
use crate::engine::event::CommandLine;
use crate::engine::lock::lock;
use crate::tools::builtin::execute_script::ScriptTool;
use crate::tools::builtin::shell_execute::ShellTool;
use crate::tools::builtin::shell_run::ShellRun;
use crate::tools::call::tool::Tool;

/// Shell that runs its commands as calls.
struct RecordedShell {
    runner: ToolRunner,
    shell: Arc<dyn Shell>,
}

impl ToolRunner {
    /// Returns a shell for the session; `None` if the workspace runs no commands. Each command is a separate call: the
    /// rules decide about it, and it is recorded with its changes.
    pub fn shell(&self) -> Option<Arc<dyn Shell>> {
        let shell = self.workspace().unrecorded_shell()?;
        Some(Arc::new(RecordedShell { runner: self.clone(), shell }))
    }
}

impl Shell for RecordedShell {
    fn properties(&self) -> ShellProperties {
        self.shell.properties()
    }

    fn execute(&self, command: ShellCommand, watch: OutputWatch, cancel: CancellationToken) -> Running<ShellResult> {
        let (runner, backend) = (self.runner.clone(), self.shell.properties().backend_name);
        Box::pin(async move {
            let call = call_of(&command);
            let tool = Arc::new(OneCommand {
                name: if call.tool == ScriptTool::NAME { ScriptTool::NAME } else { ShellTool::NAME },
                command: Mutex::new(Some(command)),
                hooks: CommandHooks { watch, cancel },
                result: Mutex::default(),
            });
            let runner = runner.with_tool(tool.name, Arc::clone(&tool) as Arc<dyn ErasedTool>);
            let outcome = runner.call(call).await;
            let outcome = outcome.map_err(|error| ShellError::Unavailable { backend, reason: error.to_string() })?;
            // Without a result, a limit of the session refused the command.
            lock(&tool.result).take().unwrap_or_else(|| Err(ShellError::Blocked(outcome.text)))
        })
    }

    fn reach(&self) -> Running<()> {
        self.shell.reach()
    }

    fn which(&self, program: &str) -> Running<Which> {
        self.shell.which(program)
    }

    fn env(&self) -> Running<ShellEnv> {
        self.shell.env()
    }
}

/// Describes a command as a call that can be rerun.
fn call_of(command: &ShellCommand) -> ToolCall {
    let mut params = Map::new();
    let tool = match &command.command {
        CommandLine::Script { interpreter, script } => {
            params.extend([("interpreter".to_owned(), json!(interpreter)), ("script".to_owned(), json!(script))]);
            ScriptTool::NAME
        }
        CommandLine::Shell(text) => {
            params.insert("command".to_owned(), json!(text));
            ShellTool::NAME
        }
        CommandLine::Args(args) => {
            params.insert("command".to_owned(), json!(args));
            ShellTool::NAME
        }
    };
    params.insert("cwd".to_owned(), json!(command.cwd.rooted()));
    if !command.env.is_empty() {
        params.insert("env".to_owned(), json!(command.env));
    }
    if command.env_mode == EnvMode::Replace {
        params.insert("env_mode".to_owned(), json!("replace"));
    }
    if !command.stdin.is_empty() {
        params.insert("stdin".to_owned(), json!(String::from_utf8_lossy(&command.stdin)));
    }
    if let Some(timeout) = command.timeout {
        params.insert("timeout_seconds".to_owned(), json!(timeout.as_secs_f64()));
    }
    ToolCall::new(tool, Value::Object(params))
}

/// A tool that runs one command, once.
struct OneCommand {
    name: &'static str,
    command: Mutex<Option<ShellCommand>>,
    hooks: CommandHooks,
    result: Mutex<Option<Result<ShellResult, ShellError>>>,
}

impl ErasedTool for OneCommand {
    fn runs_commands(&self) -> bool {
        true
    }

    fn describe(&self) -> ToolDescription {
        ToolDescription { name: self.name.into(), ..ErasedTool::describe(&ShellTool) }
    }

    fn call<'a>(&'a self, context: &'a mut ToolContext, _: Value) -> Answering<'a> {
        Box::pin(async move {
            let again = || ToolError::new("the command was started already");
            let command = lock(&self.command).take().ok_or_else(again)?;
            let returned = command.capture_output.then(|| context.command_options().output_bytes);
            context.hooks = Some(self.hooks.clone());
            context.clock_waits = true;
            let none = || ToolError::new("the workspace has no shell");
            let executed = context.shell().ok_or_else(none)?.execute(command).await;
            if let Err(ToolError::Shell(error)) = &executed {
                *lock(&self.result) = Some(Err(error.clone()));
            }
            let result = executed?;
            let run = ShellRun::of(&result, returned);
            let answer = serde_json::to_value(&run).map_err(|error| ToolError::new(error.to_string()))?;
            *lock(&self.result) = Some(Ok(result));
            Ok(ToolAnswer { result: answer, text: run.render() })
        })
    }
}
