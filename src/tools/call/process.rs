//! Commands that outlive their call, as background processes.

use std::future::ready;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use tokio::task::JoinHandle;
use tokio_util::sync::DropGuard;

use super::context::{RunningCommand, ToolContext};
use super::error::{LimitName, ToolError, UsedLimit};
use super::record_command::RecordAs;
use super::tool::{BESIDE, Effect, Tool};
use super::tool_call::ToolCall;
use super::tool_runner::{END_PROCESS, ToolRunner};
use crate::backends::{CommandInput, OutputWatch, ShellCommand, ShellError, ShellResult};
use crate::engine::event::ServiceStopped;
use crate::engine::id::Seq;
use crate::engine::lock::lock;
use crate::tools::builtin::shell_run::ShellRun;
use crate::tools::workspace::processes::{Process, ProcessEnd, ServiceLabel};

/// Maximum number of running processes of a session: the runner has connections for these and some calls.
const RUNNING_MAX: usize = 48;
/// Maximum delay of publishing an end that can't be recorded yet because another call holds the workspace.
const RECORDED_WITHIN: Duration = Duration::from_secs(1);

type CommandTask = JoinHandle<Result<ShellResult, ShellError>>;

impl ToolContext {
    /// Returns the session's processes, oldest first.
    pub(crate) fn processes(&self) -> Vec<Arc<Process>> {
        self.machine.processes.all()
    }

    /// Finds a process of the session.
    pub(crate) fn process(&self, number: Seq) -> Result<Arc<Process>, ToolError> {
        let missing = || {
            let running: Vec<String> =
                self.machine.processes.running_after(0).iter().map(|p| p.number().to_string()).collect();
            let running = if running.is_empty() { "none".to_owned() } else { running.join(", ") };
            ToolError::Missing(format!("process {number} not found; running: {running}"))
        };
        self.machine.processes.find(number).ok_or_else(missing)
    }

    /// Finds the running process of a service.
    pub(crate) fn service(&self, name: &str) -> Option<Arc<Process>> {
        self.machine.processes.service(name)
    }

    /// Finds a running process that the caller may control.
    pub(crate) fn process_to_control(&self, number: Seq) -> Result<Arc<Process>, ToolError> {
        let process = self.process(number)?;
        if let Some(shell) = self.workspace().unrecorded_shell() {
            self.machine.rules.caller_in(shell.as_ref())?;
        }
        match process.is_running() {
            true => Ok(process),
            false => Err(ToolError::new(format!("process {number} has ended"))),
        }
    }

    /// Starts a command that the policy allows, as a process.
    pub(crate) async fn start_process(
        &mut self,
        command: ShellCommand,
        keep_input: bool,
        service: Option<ServiceLabel>,
    ) -> Result<Arc<Process>, ToolError> {
        let process = self.begin_process(command, service).await?;
        if !keep_input {
            process.input.end();
        }
        self.leave_running(&process)?;
        Ok(process)
    }

    /// Runs a command that the policy allows. If it still runs after `patience`, it outlives the call as a process.
    pub(crate) async fn run_or_leave(
        &mut self,
        command: ShellCommand,
        patience: Duration,
    ) -> Result<Result<ShellResult, Arc<Process>>, ToolError> {
        if self.input.is_some() {
            return Err(ToolError::new("a command with interactive input can't run on in the background"));
        }
        let process = self.begin_process(command, None).await?;
        process.input.end();
        if let Ok(ended) = tokio::time::timeout(patience, self.finish_running()).await {
            return Ok(Ok(ended?));
        }
        if self.running.as_ref().is_none_or(|running| running.ended.is_some()) {
            return Ok(Ok(self.finish_running().await?));
        }
        self.leave_running(&process)?;
        let captured = self.machine.captured(self.session(), self.files.tree().clone()).await?;
        self.files.take_captured(captured);
        Ok(Err(process))
    }

    /// Starts a command as the call's running command, prepared to outlive the call.
    async fn begin_process(
        &mut self,
        mut command: ShellCommand,
        service: Option<ServiceLabel>,
    ) -> Result<Arc<Process>, ToolError> {
        self.check_background()?;
        if self.machine.processes.running_after(0).len() >= RUNNING_MAX {
            let what = format!("{RUNNING_MAX} processes of the session are running; end one of them first");
            let (limit, used) = (RUNNING_MAX as u64, RUNNING_MAX as u64);
            return Err(ToolError::OverLimit(what, UsedLimit { name: LimitName::Processes, limit, used }));
        }
        command.is_unlimited = true;
        command.timeout = command.timeout.into_iter().chain(self.time_left).min();
        let unusable = |error| ToolError::new(format!("failed to set up the input: {error}"));
        let input = CommandInput::new().map_err(unusable)?;
        command.terminal.into_iter().for_each(|window| input.resize(window));
        command.input = Some(input.clone());
        let started = (command.command.clone(), command.cwd.rooted());
        let process = Process::new(self.call(), started, input, service);
        let output = Arc::clone(&process.output);
        let watch: OutputWatch = Arc::new(move |stream, bytes| output.push(stream, bytes));
        let none = || ToolError::new("the workspace has no shell");
        self.shell().ok_or_else(none)?.start(command, watch).await?;
        Ok(Arc::new(process))
    }

    /// Turns the running command into a process, which a separate call records when it ends.
    fn leave_running(&mut self, process: &Arc<Process>) -> Result<(), ToolError> {
        let nothing = || ToolError::new("no command is running");
        let RunningCommand { task, cancel, record_as, stopped, .. } = self.running.take().ok_or_else(nothing)?;
        let cancel = cancel.map(DropGuard::disarm).unwrap_or_default();
        let kept = self.machine.keeper.as_ref().map(|keep| keep(self.call(), &cancel));
        if matches!(kept, Some(None)) {
            // The call's end kills it.
            let cancel = Some(cancel.drop_guard());
            self.running = Some(RunningCommand { task, ended: None, cancel, record_as, stopped });
            return Err(ToolError::new("foldspace is shutting down; the command was stopped"));
        }
        self.machine.processes.add(process);
        let runner = ToolRunner::beyond(self);
        tokio::spawn(see_to_end(Arc::clone(process), runner, task, (kept, cancel)));
        Ok(())
    }
}

/// Waits for a process to end, records the end, and publishes it. `kept` is held until then.
async fn see_to_end<K: Send + 'static>(process: Arc<Process>, runner: ToolRunner, task: CommandTask, kept: K) {
    let stopped = |_| ShellError::Unavailable { backend: "process", reason: "its task was cancelled".to_owned() };
    let ended = task.await.map_err(stopped).and_then(|ended| ended);
    process.output.end();
    let mut end = ProcessEnd::of(&ended);
    let (session, number) = (runner.session().clone(), process.number());
    let services_due = Arc::clone(&runner.machine().services_due);
    let stopped = process.service().filter(|_| process.is_stopped()).map(|service| service.name.clone());
    let mut recording = tokio::spawn(async move {
        let tool = Arc::new(EndTool(Mutex::new(Some(ended)), stopped));
        let call = ToolCall::new(END_PROCESS, serde_json::json!({ "process": number }));
        let recorded = runner.with_tool(END_PROCESS, tool).call(call).await;
        drop(kept);
        recorded
    });
    let recorded = match tokio::time::timeout(RECORDED_WITHIN, &mut recording).await {
        Ok(recorded) => recorded,
        Err(_) => {
            process.publish(end.clone());
            recording.await
        }
    };
    match recorded {
        Ok(Ok(outcome)) => end.recorded = Some(outcome.call),
        Ok(Err(error)) => tracing::warn!(%error, session = session.name(), "failed to record the end of a process"),
        Err(error) => tracing::warn!(%error, session = session.name(), "failed to record the end of a process"),
    }
    let is_lost = end.is_lost();
    process.publish(end);
    if is_lost {
        // A restart that waits for this end holds the lock.
        *services_due.lock().await = true;
    }
}

/// A tool that records the end of one process, with its changes since the last call, and the name of the service that
/// it stops.
struct EndTool(Mutex<Option<Result<ShellResult, ShellError>>>, Option<String>);

#[derive(Deserialize, JsonSchema)]
struct EndedProcess {
    process: Seq,
}

impl Tool for EndTool {
    const NAME: &'static str = END_PROCESS;
    const DESCRIPTION: &'static str = "Records the end of a background process.";
    const EFFECT: Effect = Effect::Destructive;
    type Params = EndedProcess;
    type Output = ShellRun;

    async fn call(&self, context: &mut ToolContext, params: EndedProcess) -> Result<ShellRun, ToolError> {
        let again = || ToolError::new("the end was recorded already");
        let ended = lock(&self.0).take().ok_or_else(again)?;
        let backend = context.workspace().backend_name();
        let (task, record_as) =
            (tokio::spawn(ready(ended)), RecordAs::Command { backend, began_in: Some(params.process) });
        context.running = Some(RunningCommand { task, ended: None, cancel: None, record_as, stopped: None });
        if let Some(name) = &self.1 {
            context.record(&ServiceStopped { name: name.clone() })?;
        }
        let result = context.finish_running().await?;
        Ok(ShellRun::of(&result, Some(context.command_options().output_bytes)))
    }

    fn limit(&self) -> Option<Duration> {
        Some(BESIDE)
    }

    fn render(&self, output: &ShellRun) -> String {
        output.render()
    }
}
