//! `which` and `env`: facts about the workspace's shell, which need no command.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::shell_execute::no_shell;
use crate::tools::call::context::ToolContext;
use crate::tools::call::error::ToolError;
use crate::tools::call::tool::{Effect, Tool};

const PROGRAM_MAX: usize = 4_096;
/// Host variables that hold no secrets.
const OPEN: [&str; 10] = ["HOME", "LANG", "LC_ALL", "PATH", "PWD", "PYTHONUNBUFFERED", "SHELL", "TERM", "TZ", "USER"];

/// The tool `which`.
#[derive(Debug, Clone, Copy, Default)]
pub struct WhichTool;

/// Parameters of `which`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WhichParams {
    /// The name of the program.
    #[schemars(length(max = PROGRAM_MAX))]
    program: String,
}

/// Result of `which`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FoundPath {
    /// The requested name.
    program: String,
    /// Its path; null if the program was not found.
    path: Option<String>,
}

impl Tool for WhichTool {
    const NAME: &'static str = "which";
    const DESCRIPTION: &'static str =
        "Finds a program that commands in the workspace can run, by its name. Nothing is run.";
    const EFFECT: Effect = Effect::Additive;
    const NEEDS_SHELL: bool = true;
    type Params = WhichParams;
    type Output = FoundPath;

    async fn call(&self, context: &mut ToolContext, params: WhichParams) -> Result<FoundPath, ToolError> {
        let program = params.program;
        if program.chars().count() > PROGRAM_MAX {
            return Err(ToolError::new(format!("program has more than {PROGRAM_MAX} characters")));
        }
        let Some(shell) = context.shell() else { return Err(no_shell(context, Self::NAME)) };
        let path = shell.which(&program).await?.path;
        Ok(FoundPath { program, path })
    }
}

/// The tool `env`.
#[derive(Debug, Clone, Copy, Default)]
pub struct EnvTool;

/// Parameters of `env`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EnvParams {}

/// The environment of commands.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CommandEnvironment {
    /// The variables. Null hides a value that must not be recorded: variables of the session, and of a host.
    variables: BTreeMap<String, Option<String>>,
    /// The initial directory of commands.
    cwd: String,
    /// The program that runs command texts.
    shell: String,
}

impl Tool for EnvTool {
    const NAME: &'static str = "env";
    const DESCRIPTION: &'static str =
        "Returns the variables, the directory and the shell of commands in the workspace. Nothing is run.";
    const EFFECT: Effect = Effect::Additive;
    const NEEDS_SHELL: bool = true;
    type Params = EnvParams;
    type Output = CommandEnvironment;

    async fn call(&self, context: &mut ToolContext, _: EnvParams) -> Result<CommandEnvironment, ToolError> {
        let options = context.command_options();
        let Some(shell) = context.shell() else { return Err(no_shell(context, Self::NAME)) };
        let is_sandboxed = shell.properties().sandboxed;
        let is_open = |name: &str| match options.environment.contains_key(name) {
            true => options.record_environment,
            false => is_sandboxed || OPEN.contains(&name),
        };
        let env = shell.env().await?;
        let shown = |(name, value): (String, String)| {
            let value = is_open(&name).then_some(value);
            (name, value)
        };
        let variables = env.variables.into_iter().map(shown).collect();
        Ok(CommandEnvironment { variables, cwd: env.cwd, shell: env.shell })
    }
}
