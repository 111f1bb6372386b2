//! Background commands, which run while other calls are made.

use std::collections::BTreeMap;
use std::future::ready;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::command_hooks::CommandHooks;
use super::context::{RunningCommand, ToolContext};
use super::error::ToolError;
use super::record_command::RecordAs;
use super::tool::{Answering, ErasedTool, ToolAnswer, ToolDescription};
use super::tool_call::{ToolCall, ToolOutcome};
use super::tool_runner::{END_PROCESS, ToolRunner};
use crate::backends::{CommandInput, EnvMode, OutputWatch, ShellError, ShellResult, WindowSize};
use crate::engine::event::CommandLine;
use crate::engine::id::Seq;
use crate::engine::lock::lock;
use crate::engine::session::error::SessionError;
use crate::tools::builtin::shell_execute::{CommandSurroundings, ShellRun, ShellTool, no_shell, prepared};

/// Maximum number of running processes of a session: the runner has connections for these and some calls.
const RUNNING_MAX: usize = 48;
#[doc(hidden)]
pub const START: &str = "start_process";

/// A command to run in the background.
#[derive(Debug, Clone)]
pub struct ProcessStart {
    /// The command.
    pub command: CommandLine,
    /// The directory to run it in, as for `shell_execute`.
    pub cwd: String,
    /// Variables for it.
    pub env: BTreeMap<String, String>,
    /// The beginning of its standard input.
    pub stdin: String,
    /// The input that is sent while it runs; not recorded.
    pub input: CommandInput,
    /// The size of its terminal, if it has one.
    pub window: Option<WindowSize>,
    /// Its time limit in seconds; `None` for the rules' default.
    pub timeout_seconds: Option<f64>,
}

/// A started process.
#[doc(hidden)]
pub struct ProcessTask {
    pub task: JoinHandle<Result<ShellResult, ShellError>>,
    /// Counts it as running.
    pub running: CountedProcess,
}

/// Counts a process as running until it is dropped.
pub struct CountedProcess(Arc<AtomicUsize>);

impl Drop for CountedProcess {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl ToolRunner {
    /// Returns a runner, the call that starts the process, and the tool that then holds the process. Output goes to
    /// `watch`. Changes are recorded with the calls that are made while it runs; the rest is recorded with its end, by
    /// [`end_process`](Self::end_process).
    #[doc(hidden)]
    pub fn for_start(
        &self,
        start: ProcessStart,
        watch: OutputWatch,
        cancel: CancellationToken,
    ) -> (Self, ToolCall, Arc<StartTool>) {
        let ProcessStart { command, cwd, env, timeout_seconds, window, .. } = &start;
        let line = match command {
            CommandLine::Args(args) => json!(args),
            CommandLine::Shell(text) => json!(text),
            CommandLine::Script { interpreter, script } => json!([interpreter, script]),
        };
        let params = json!({
            "command": line, "cwd": cwd, "env": env, "timeout_seconds": timeout_seconds, "window": window,
        });
        let tool = Arc::new(StartTool {
            start: Mutex::new(Some(start)),
            hooks: CommandHooks { watch, cancel },
            count: Arc::clone(&self.machine().processes),
            started: Mutex::default(),
        });
        let runner = self.with_tool(START, Arc::clone(&tool) as Arc<dyn ErasedTool>);
        (runner, ToolCall::new(START, params), tool)
    }

    /// Records the end of a process as a separate call, with its changes since the last call.
    #[doc(hidden)]
    pub async fn end_process(
        &self,
        process: Seq,
        ended: Result<ShellResult, ShellError>,
    ) -> Result<ToolOutcome, SessionError> {
        let tool = Arc::new(EndTool(Mutex::new(Some(ended))));
        self.with_tool(END_PROCESS, tool).call(ToolCall::new(END_PROCESS, json!({ "process": process }))).await
    }

    /// Returns true if background processes are running.
    pub(crate) fn has_processes(&self) -> bool {
        self.machine().processes.load(Ordering::Acquire) > 0
    }
}

/// A tool that starts one process.
pub struct StartTool {
    start: Mutex<Option<ProcessStart>>,
    hooks: CommandHooks,
    count: Arc<AtomicUsize>,
    started: Mutex<Option<ProcessTask>>,
}

impl StartTool {
    /// Takes the process, once the call has succeeded.
    pub fn started(&self) -> Option<ProcessTask> {
        lock(&self.started).take()
    }
}

impl ErasedTool for StartTool {
    fn describe(&self) -> ToolDescription {
        ToolDescription { name: START.into(), ..ErasedTool::describe(&ShellTool) }
    }

    fn call<'a>(&'a self, context: &'a mut ToolContext, _: Value) -> Answering<'a> {
        Box::pin(async move {
            let again = || ToolError::new("the process was started already");
            let ProcessStart { command, cwd, env, stdin, input, window, timeout_seconds } =
                lock(&self.start).take().ok_or_else(again)?;
            let surroundings = CommandSurroundings {
                cwd,
                env,
                env_mode: EnvMode::Extend,
                stdin,
                timeout_seconds,
                capture_output: true,
                tty: false,
            };
            let (mut command, _) = prepared(context, command, surroundings)?;
            (command.input, command.terminal) = (Some(input), window);
            let Some(mut shell) = context.shell() else { return Err(no_shell(context, START)) };
            if self.count.fetch_add(1, Ordering::AcqRel) >= RUNNING_MAX {
                self.count.fetch_sub(1, Ordering::AcqRel);
                let what = format!("{RUNNING_MAX} processes of the session are running; end one of them first");
                return Err(ToolError::OverLimit(what));
            }
            let running = CountedProcess(Arc::clone(&self.count));
            let task = shell.launch(command, self.hooks.clone()).await?;
            *lock(&self.started) = Some(ProcessTask { task, running });
            let process = context.call();
            Ok(ToolAnswer { result: json!({ "process": process }), text: format!("process {process} has started") })
        })
    }
}

/// A tool that records the end of one process.
struct EndTool(Mutex<Option<Result<ShellResult, ShellError>>>);

impl ErasedTool for EndTool {
    fn describe(&self) -> ToolDescription {
        ToolDescription { name: END_PROCESS.into(), ..ErasedTool::describe(&ShellTool) }
    }

    fn call<'a>(&'a self, context: &'a mut ToolContext, _: Value) -> Answering<'a> {
        Box::pin(async move {
            let again = || ToolError::new("the end was recorded already");
            let ended = lock(&self.0).take().ok_or_else(again)?;
            let backend = context.workspace().backend_name();
            let record_as = RecordAs::Command { backend };
            let task = tokio::spawn(ready(ended));
            context.running = Some(RunningCommand { task, ended: None, cancel: None, record_as, stopped: None });
            let result = context.finish_running().await?;
            let run = ShellRun::of(&result, Some(context.command_options().output_bytes));
            let answer = serde_json::to_value(&run).map_err(|error| ToolError::new(error.to_string()))?;
            Ok(ToolAnswer { result: answer, text: run.render() })
        })
    }
}
