//! `shell_execute`: runs a command in the workspace.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::files::check_chars;
use super::shell_run::ShellRun;
use crate::backends::command_options::check_names;
use crate::backends::{EnvMode, ShellCommand, WindowSize};
use crate::engine::error::ValueError;
use crate::engine::event::CommandLine;
use crate::engine::path::EntryPath;
use crate::tools::call::context::ToolContext;
use crate::tools::call::error::ToolError;
use crate::tools::call::tool::{BESIDE, Effect, Tool};
use crate::tools::call::tool_call::RanCommand;
use crate::tools::workspace::processes::Process;

/// The tool `shell_execute`.
#[derive(Debug, Clone, Copy, Default)]
pub struct ShellTool;

/// Parameters of `shell_execute`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ShellExecuteParams {
    /// A text for `/bin/sh -c`, or a program with its arguments as a list. At most 4,096 characters, unless
    /// the server has another limit; execute_script takes longer texts.
    command: CommandParam,
    /// The directory to run it in: relative to the workspace root, below /workspace, or below /tmp. By default the
    /// session's workdir, which is /workspace unless the workspace sets another.
    #[serde(default)]
    cwd: String,
    /// Additional variables: at most 64, with names of at most 80 ASCII characters and values of at most 48,000
    /// characters.
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// Treatment of the existing variables.
    #[serde(default)]
    env_mode: EnvMode,
    /// Standard input, at most 48,000 characters.
    #[serde(default)]
    stdin: String,
    /// Time limit in seconds, at least 1; 30 by default. Choose a longer one for builds and tests: at most 600, unless
    /// the workspace sets another limit. A program that never exits, such as a server, is killed at the limit.
    #[serde(default)]
    timeout_seconds: Option<f64>,
    /// True to return the output; the default.
    #[serde(default = "yes")]
    capture_output: bool,
    /// True to run it in a terminal of 24 lines and 80 columns. `stdin` is typed there, then Ctrl-D. All output is
    /// standard output, with the terminal's control sequences.
    #[serde(default)]
    tty: bool,
    /// Seconds after which the call returns the output so far, and the command continues as a background process for
    /// process_read: without a time limit, unless `timeout_seconds` sets one. At most as many as `timeout_seconds` may
    /// be.
    #[serde(default)]
    background_after_seconds: Option<f64>,
}

/// Options of a command.
pub(crate) struct CommandSurroundings {
    pub(crate) cwd: String,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) env_mode: EnvMode,
    pub(crate) stdin: String,
    pub(crate) timeout_seconds: Option<f64>,
    pub(crate) capture_output: bool,
    pub(crate) terminal: Option<WindowSize>,
    pub(crate) background_after_seconds: Option<f64>,
}

impl ShellExecuteParams {
    pub(super) fn parts(self) -> (CommandLine, CommandSurroundings) {
        let Self { command, cwd, env, env_mode, stdin, timeout_seconds, capture_output, tty, .. } = self;
        let terminal = tty.then(WindowSize::default);
        let background_after_seconds = self.background_after_seconds;
        let surroundings = CommandSurroundings {
            cwd,
            env,
            env_mode,
            stdin,
            timeout_seconds,
            capture_output,
            terminal,
            background_after_seconds,
        };
        (command.into(), surroundings)
    }
}

impl From<CommandParam> for CommandLine {
    fn from(command: CommandParam) -> Self {
        match command {
            CommandParam::Text(text) => Self::Shell(text),
            CommandParam::List(list) => Self::Args(list),
        }
    }
}

/// A command as a text or a list.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "command: a text, or a list of texts")]
pub(super) enum CommandParam {
    Text(String),
    List(Vec<String>),
}

pub(super) fn yes() -> bool {
    true
}

impl Tool for ShellTool {
    const NAME: &'static str = "shell_execute";
    const DESCRIPTION: &'static str = "Runs a command in the workspace and returns its exit code and output. \
        A text is run by /bin/sh, a list is a program with its arguments. It is killed after 30 seconds, or after \
        timeout_seconds: set that for slow commands. No process outlives the call, unless background_after_seconds is \
        set: start programs that never exit, such as servers or watchers, with process_start. All other tools see the \
        files that it changes.";
    const EFFECT: Effect = Effect::Destructive;
    const NEEDS_SHELL: bool = true;
    type Params = ShellExecuteParams;
    type Output = ShellRun;

    async fn call(&self, context: &mut ToolContext, params: ShellExecuteParams) -> Result<ShellRun, ToolError> {
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

/// Runs a command for a tool.
pub(super) async fn run(
    context: &mut ToolContext,
    tool: &str,
    line: CommandLine,
    params: CommandSurroundings,
) -> Result<ShellRun, ToolError> {
    let returned = params.capture_output.then(|| context.command_options().output_bytes);
    let patience = patience(context, params.background_after_seconds)?;
    let asked = line.clone();
    let (command, elsewhere) = prepared(context, line, params)?;
    context.clock_waits = true;
    let Some(mut shell) = context.shell() else { return Err(no_shell(context, tool)) };
    let ran = match patience {
        None => Ok(shell.execute(command).await?),
        Some(patience) => context.run_or_leave(command, patience).await?,
    };
    let mut run = match ran {
        Ok(result) if result.cancelled => return Err(ToolError::Cancelled),
        Ok(result) => {
            let directory = elsewhere.clone().unwrap_or_else(|| seen_directory(context, &result.cwd));
            let (success, signal) = (result.exit_code == 0 && !result.timed_out, result.signal);
            context.ran = Some(RanCommand { command: asked, directory, success, signal });
            ShellRun::of(&result, returned)
        }
        Err(process) => left(&process, returned),
    };
    let notes: Vec<String> = context.note.take().into_iter().chain(context.refused_connections()).collect();
    run.note = Some(notes.join("; ")).filter(|note| !note.is_empty());
    run.cwd = elsewhere.unwrap_or(run.cwd);
    Ok(run)
}

/// Returns a directory of the workspace as commands see it.
fn seen_directory(context: &ToolContext, directory: &EntryPath) -> String {
    match context.workspace().root() {
        Some(root) if directory.is_root() => root,
        Some(root) => format!("{}{}", root.trim_end_matches('/'), directory.rooted()),
        None => directory.rooted(),
    }
}

/// Checks the time after which a command becomes a process.
fn patience(context: &ToolContext, seconds: Option<f64>) -> Result<Option<Duration>, ValueError> {
    let (Some(seconds), most) = (seconds, context.command_time().most()) else { return Ok(None) };
    let patience = Duration::try_from_secs_f64(seconds).ok().filter(|patience| *patience <= most);
    let wrong = || format!("background_after_seconds is {seconds}; it must be from 0 to {}", most.as_secs_f64());
    patience.map(Some).ok_or_else(|| ValueError::new(wrong()))
}

/// Describes a command that continues as a background process, with the beginning of its output.
fn left(process: &Process, returned: Option<usize>) -> ShellRun {
    let (stretch, now) = (process.output.stretch(0, returned.unwrap_or_default()), process.document());
    let text = |bytes: &[u8]| match returned {
        Some(_) => String::from_utf8_lossy(bytes).into_owned(),
        None => "capture disabled".to_owned(),
    };
    ShellRun {
        exit_code: None,
        stdout: text(&stretch.stdout),
        stderr: text(&stretch.stderr),
        cwd: now.cwd,
        duration_seconds: Duration::from_micros(now.micros).as_secs_f64(),
        timed_out: false,
        truncated: stretch.missed > 0 || stretch.next < stretch.written,
        signal: None,
        lost: false,
        interpreter: None,
        exit_note: None,
        note: None,
        process: Some(now.process),
        next: Some(stretch.next),
    }
}

/// Returns a command, and its directory if that is outside of the workspace.
pub(crate) fn prepared(
    context: &mut ToolContext,
    line: CommandLine,
    params: CommandSurroundings,
) -> Result<(ShellCommand, Option<String>), ToolError> {
    let named = if params.cwd.trim().is_empty() { "" } else { params.cwd.as_str() };
    let elsewhere = directory_elsewhere(context, named)?;
    let cwd = match &elsewhere {
        Some(_) => EntryPath::root(),
        None if named.is_empty() => context.workdir()?,
        None => context.path(named)?,
    };
    let timeout = context.command_time().asked(params.timeout_seconds)?;
    let line = match &elsewhere {
        Some(_) if matches!(line, CommandLine::Script { .. }) => {
            return Err(ToolError::new("a script begins in the workspace; name a directory below /workspace"));
        }
        Some(directory) => in_directory(directory, &line),
        None => line,
    };
    let mut command = command(line, params, cwd)?;
    command.timeout = timeout;
    Ok((command, elsewhere))
}

/// Returns `cwd` if it is outside of the workspace and commands can begin there.
fn directory_elsewhere(context: &ToolContext, cwd: &str) -> Result<Option<String>, ToolError> {
    if context.workspace().unrecorded_shell().is_none() || context.below_root(cwd).is_ok() {
        return Ok(None);
    }
    EntryPath::lookup(cwd)?;
    Ok(Some(cwd.to_owned()))
}

/// Prefixes a command with `cd`, so that the decision and the record include the directory.
fn in_directory(directory: &str, command: &CommandLine) -> CommandLine {
    let change = CommandLine::Args(vec!["cd".to_owned(), directory.to_owned()]);
    CommandLine::Shell(format!("{change} || exit\n{command}"))
}

pub(crate) fn no_shell(context: &ToolContext, tool: &str) -> ToolError {
    ToolError::new(format!("{}; use the file tools", shell_missing(tool, context.workspace().backend_name())))
}

pub(super) fn shell_missing(tool: &str, backend: &str) -> String {
    format!("{tool} needs a shell, and the {backend} workspace has none")
}

pub(super) fn command(
    line: CommandLine,
    params: CommandSurroundings,
    cwd: EntryPath,
) -> Result<ShellCommand, ToolError> {
    let mut command = ShellCommand::new(line);
    command.cwd = cwd;
    check_chars("stdin", &params.stdin)?;
    command.stdin = params.stdin.into();
    check_env(&params.env)?;
    command.env = params.env;
    command.env_mode = params.env_mode;
    command.capture_output = params.capture_output;
    command.terminal = params.terminal;
    Ok(command)
}

fn check_env(env: &BTreeMap<String, String>) -> Result<(), ToolError> {
    check_names(env.keys()).map_err(|what| ToolError::new(format!("env{what}")))?;
    env.iter().try_for_each(|(name, value)| check_chars(&format!("env: {name}"), value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::command_options::{NAME_MAX, VARIABLES_MAX};
    use crate::tools::builtin::files::TEXT_MAX;

    fn refused(variables: usize, name: &str, value: &str) -> String {
        let more = (1..variables).map(|n| (format!("N{n}"), String::new()));
        let env = more.chain([(name.to_owned(), value.to_owned())]).collect();
        check_env(&env).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn shell_execute_accepts_variables_within_limits() {
        assert_eq!(refused(VARIABLES_MAX, &"N".repeat(NAME_MAX), &"é".repeat(TEXT_MAX)), "");
        assert_eq!(refused(1, "A", &"x".repeat(48_001)), "env: A has 48001 characters; at most 48000 are allowed");
        assert_eq!(refused(65, "A", ""), "env has 65 variables; at most 64 are allowed");
        assert!(refused(1, &"N".repeat(81), "").contains("must be ASCII, at most 80 characters"));
    }

    #[test]
    fn shell_execute_names_the_kinds_of_commands() {
        for command in [serde_json::json!(5), serde_json::json!(["ls", 5]), serde_json::json!({})] {
            let params = serde_json::json!({ "command": command });
            let wrong = serde_json::from_value::<ShellExecuteParams>(params).unwrap_err().to_string();
            assert_eq!(wrong, "command: a text, or a list of texts");
        }
    }

    #[test]
    fn shell_execute_schema_has_variable_limits() {
        let schema = serde_json::to_value(schemars::schema_for!(ShellExecuteParams)).unwrap();
        let told = schema["properties"]["env"]["description"].as_str().unwrap().replace('\n', " ");
        for limit in ["64", "80 ASCII", "48,000"] {
            assert!(told.contains(limit), "{limit} is not in {told}");
        }
    }
}
