//! `execute_script`: runs a multi-line script in the workspace.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::shell_execute::{CommandSurroundings, ShellRun, run, yes};
use crate::backends::EnvMode;
use crate::engine::event::CommandLine;
use crate::tools::call::context::ToolContext;
use crate::tools::call::error::ToolError;
use crate::tools::call::tool::{BESIDE, Effect, Tool};
use crate::tools::policy::MAX_SCRIPT_CHARS;

/// The tool `execute_script`.
#[derive(Debug, Clone, Copy, Default)]
pub struct ScriptTool;

/// Parameters of `execute_script`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExecuteScriptParams {
    /// The text of the script. It runs from a temporary file.
    #[schemars(length(max = MAX_SCRIPT_CHARS))]
    script: String,
    /// The program that runs it.
    #[serde(default = "sh")]
    interpreter: String,
    /// The directory in the workspace to run it in; by default the session's workdir.
    #[serde(default)]
    cwd: String,
    /// Additional variables, as for shell_execute.
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// Treatment of the existing variables.
    #[serde(default)]
    env_mode: EnvMode,
    /// Standard input, at most 48,000 characters.
    #[serde(default)]
    stdin: String,
    /// Time limit in seconds, as for shell_execute; 30 by default.
    #[serde(default)]
    timeout_seconds: Option<f64>,
    /// True to return the output; the default.
    #[serde(default = "yes")]
    capture_output: bool,
}

impl ExecuteScriptParams {
    pub(super) fn parts(self) -> (CommandLine, CommandSurroundings) {
        let Self { script, interpreter, cwd, env, env_mode, stdin, timeout_seconds, capture_output } = self;
        let surroundings =
            CommandSurroundings { cwd, env, env_mode, stdin, timeout_seconds, capture_output, tty: false };
        (CommandLine::Script { interpreter, script }, surroundings)
    }
}

fn sh() -> String {
    "/bin/sh".to_owned()
}

impl Tool for ScriptTool {
    const NAME: &'static str = "execute_script";
    const DESCRIPTION: &'static str = "Runs a multi-line script in the workspace with /bin/sh or another interpreter, \
        and returns its exit code and output. Use it for scripts that are too long for shell_execute; the same rules \
        apply.";
    const EFFECT: Effect = Effect::Destructive;
    type Params = ExecuteScriptParams;
    type Output = ShellRun;

    async fn call(&self, context: &mut ToolContext, params: ExecuteScriptParams) -> Result<ShellRun, ToolError> {
        let (line, surroundings) = params.parts();
        run(context, Self::NAME, line, surroundings).await
    }

    fn limit(&self) -> Option<Duration> {
        Some(BESIDE)
    }

    fn render(&self, output: &ShellRun) -> String {
        output.render()
    }
}
