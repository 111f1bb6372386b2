//! `podman_shell`: the session's container as one tool.

use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::shell_run::ShellRun;
use crate::backends::{ShellCommand, Workspace};
use crate::tools::call::context::ToolContext;
use crate::tools::call::error::ToolError;
use crate::tools::call::tool::{BESIDE, Effect, Tool};

/// The tool `podman_shell`. It is not among the standard tools.
#[derive(Debug, Clone, Copy, Default)]
pub struct PodmanShellTool;

/// Parameters of `podman_shell`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PodmanShellParams {
    /// Starts the container, runs a command in it, or stops it.
    action: PodmanShellAction,
    /// The text for `/bin/sh -c`; only for exec. At most 4,096 characters, unless the server has
    /// another limit.
    #[serde(default)]
    command: Option<String>,
    /// Time limit of the command in seconds, at least 1; 30 by default. Choose a longer one for builds and tests: at
    /// most 600, unless the workspace sets another limit.
    #[serde(default)]
    timeout_seconds: Option<f64>,
}

/// Action of `podman_shell`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum PodmanShellAction {
    /// Creates or starts the container unless it is running.
    Start,
    /// Runs a command in it.
    Exec,
    /// Stops and removes it; the files stay.
    Stop,
}

/// Outcome of `podman_shell`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PodmanShellOutcome {
    /// The action.
    action: PodmanShellAction,
    /// The container.
    container_name: String,
    /// Standard output of the command; null for start and stop.
    stdout: Option<String>,
    /// Standard error, likewise.
    stderr: Option<String>,
    /// The command's exit code, 124 if it timed out; null for start and stop.
    exit_code: Option<i32>,
    /// True if the command timed out and was killed.
    timed_out: bool,
    /// Log of a start: the image pull, the creation of the container. Empty if it was already running.
    log: Vec<String>,
}

impl Tool for PodmanShellTool {
    const NAME: &'static str = "podman_shell";
    const DESCRIPTION: &'static str = "Starts the session's container, runs a shell command in it, or stops it. A \
        command is killed after 30 seconds, or after timeout_seconds; do not start programs that never exit. \
        Stopping a missing container is not an error; files stay.";
    const EFFECT: Effect = Effect::Destructive;
    type Params = PodmanShellParams;
    type Output = PodmanShellOutcome;

    async fn call(
        &self,
        context: &mut ToolContext,
        params: PodmanShellParams,
    ) -> Result<PodmanShellOutcome, ToolError> {
        let Some(container) = context.workspace().container() else {
            let backend = context.workspace().backend_name();
            return Err(ToolError::new(format!(
                "podman_shell needs a container, and the {backend} workspace has none"
            )));
        };
        let done = |log| PodmanShellOutcome {
            action: params.action,
            container_name: container.name(),
            stdout: None,
            stderr: None,
            exit_code: None,
            timed_out: false,
            log,
        };
        match (params.action, params.command) {
            (action @ (PodmanShellAction::Start | PodmanShellAction::Stop), None) => {
                let worker = Arc::clone(&container);
                let starts = matches!(action, PodmanShellAction::Start);
                let work = tokio::task::spawn_blocking(move || if starts { worker.start() } else { worker.stop() });
                work.await.map_err(|_| ToolError::new("the container was not reached: the worker thread ended"))??;
                let has_started = starts && context.machine_has_started();
                Ok(done(if has_started { container.log() } else { Vec::new() }))
            }
            (PodmanShellAction::Exec, Some(command)) => {
                let mut command = ShellCommand::shell(command);
                command.cwd = context.workdir()?;
                command.timeout = context.command_time().asked(params.timeout_seconds)?;
                context.clock_waits = true;
                let Some(mut shell) = context.shell() else { return Err(ToolError::new("the container has no shell")) };
                let result = shell.execute(command).await?;
                if result.cancelled {
                    return Err(ToolError::Cancelled);
                }
                let run = ShellRun::of(&result, Some(context.command_options().output_bytes));
                let (stdout, stderr, exit_code) = (Some(run.stdout), Some(run.stderr), run.exit_code);
                Ok(PodmanShellOutcome { stdout, stderr, exit_code, timed_out: result.timed_out, ..done(Vec::new()) })
            }
            (PodmanShellAction::Exec, None) => Err(ToolError::new("exec needs a command")),
            (PodmanShellAction::Start | PodmanShellAction::Stop, Some(_)) => {
                Err(ToolError::new("only exec takes a command"))
            }
        }
    }

    fn limit(&self) -> Option<Duration> {
        Some(BESIDE)
    }

    fn works_in(&self, workspace: &dyn Workspace) -> bool {
        workspace.container().is_some()
    }
}
