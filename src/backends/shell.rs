//! Shells, which run a workspace's commands.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::asciicast::TerminalRecording;
use super::caller::CallerProcess;
use super::command_input::{CommandInput, WindowSize};
use super::output::Output;
use crate::engine::error::{Diagnostic, ErrorKind};
use crate::engine::event::CommandLine;
use crate::engine::path::EntryPath;

/// The maximum bytes of a shell command line or of one argument: the limit of Linux, without the final NUL.
pub const MAX_COMMAND_BYTES: usize = (128 << 10) - 1;
/// The maximum length of a script, in bytes.
pub const MAX_SCRIPT_BYTES: usize = 1 << 20;
/// The limit for the path or name of a script's interpreter, with its options.
const MAX_INTERPRETER_BYTES: usize = 4096;
/// The maximum length of a command's standard input, in bytes.
pub const MAX_STDIN_BYTES: usize = 64 << 10;
/// The maximum number of variables for a command.
pub const MAX_VARIABLES: usize = 256;
/// The default time limit of a command.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
/// The minimum time limit of a command.
pub const MIN_TIMEOUT: Duration = Duration::from_millis(100);
/// The maximum time limit of a command.
pub const MAX_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);
/// The default number of bytes retained of each stream; of a longer one the beginning and the end.
pub const DEFAULT_KEEP_BYTES: usize = 8 << 20;

/// Runs commands in a workspace.
///
/// Every implementation guarantees, and the compliance suite checks:
/// - A failing command, a missing program (127) and a time-out are results, not errors.
/// - When a command ends in any way, everything that it started is ended: with SIGTERM, then, after a grace period,
///   with SIGKILL.
/// - Memory is bounded by [`ShellCommand::keep`] while a command runs, however much it prints.
/// - `cwd` does not lead out of the workspace, even through links.
pub trait Shell: Send + Sync + 'static {
    /// Returns its properties.
    fn properties(&self) -> ShellProperties;

    /// Runs a command and waits for its end, passing its output to `watch` as it comes. Cancelling the token kills the
    /// command and returns a result with the output so far; dropping the future kills it.
    ///
    /// # Errors
    /// [`ShellError`]; nothing was run, or its result is unknown.
    fn execute(&self, command: ShellCommand, watch: OutputWatch, cancel: CancellationToken) -> Running<ShellResult>;

    /// Checks that the place of commands is available, before a person is asked to approve a command.
    ///
    /// # Errors
    /// [`ShellError`] if no command can run.
    fn reach(&self) -> Running<()> {
        Box::pin(async { Ok(()) })
    }

    /// Finds a program by name.
    fn which(&self, program: &str) -> Running<Which>;

    /// Returns the environment of commands.
    fn env(&self) -> Running<ShellEnv>;
}

/// A pending shell request.
pub type Running<T> = Pin<Box<dyn Future<Output = Result<T, ShellError>> + Send>>;

/// Streams of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OutputStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Observes a command's output while it runs. It must not block.
pub type OutputWatch = Arc<dyn Fn(OutputStream, &[u8]) + Send + Sync>;

/// Returns a watch that ignores all output.
pub fn unwatched() -> OutputWatch {
    Arc::new(|_, _| {})
}

/// The properties of a shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellProperties {
    /// The backend's name: `host`, `podman`, ...
    pub backend_name: &'static str,
    /// True if the kernel isolates its commands.
    pub sandboxed: bool,
    /// True if commands have network access.
    pub network_enabled: bool,
    /// The default time limit of a command.
    pub default_timeout: Duration,
    /// True if its commands run in the session's container.
    pub in_container: bool,
}

/// The treatment of the backend's environment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
#[derive(schemars::JsonSchema)]
pub enum EnvMode {
    /// The given variables are added to it.
    #[default]
    Extend,
    /// Commands get only the given variables and `PATH`.
    Replace,
}

/// A command to be run.
///
/// ```
/// # use foldspace_backends as foldspace;
/// use foldspace::{backends::ShellCommand, event::CommandLine};
/// let command = ShellCommand::shell("ls | wc -l");
/// assert_eq!(command.command, CommandLine::Shell("ls | wc -l".to_owned()));
/// assert!(command.check().is_ok());
/// assert!(ShellCommand::shell("x".repeat(200_000)).check().is_err());
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct ShellCommand {
    /// The command.
    pub command: CommandLine,
    /// Its working directory.
    pub cwd: EntryPath,
    /// Variables for it.
    pub env: BTreeMap<String, String>,
    /// The treatment of all other variables.
    pub env_mode: EnvMode,
    /// Its standard input, closed at its end unless there is an `input`.
    pub stdin: Bytes,
    /// Its input while it runs, after `stdin`.
    pub input: Option<CommandInput>,
    /// The size of its terminal, if it has one. Everything shown there is its standard output; `stdin` is typed.
    pub terminal: Option<WindowSize>,
    /// Its time limit; by default the shell's.
    pub timeout: Option<Duration>,
    /// True for no time limit, instead of the shell's default, if `timeout` is `None`.
    pub is_unlimited: bool,
    /// True to retain its output, false to discard it.
    pub capture_output: bool,
    /// True to merge its standard error into its standard output, in the order of writing.
    pub merge_output: bool,
    /// The maximum number of bytes retained of each stream.
    pub keep: usize,
    /// True if it holds code, which may be longer than the other commands of a tool.
    pub is_code: bool,
    /// The process that requests it: on the host it gets that process's environment, umask, limits and niceness. The
    /// default is this process. Commands in containers get the container's.
    pub caller: Option<Arc<CallerProcess>>,
}

impl ShellCommand {
    /// A command with default settings.
    pub fn new(command: CommandLine) -> Self {
        Self {
            command,
            cwd: EntryPath::root(),
            env: BTreeMap::new(),
            env_mode: EnvMode::default(),
            stdin: Bytes::new(),
            input: None,
            terminal: None,
            timeout: None,
            is_unlimited: false,
            capture_output: true,
            merge_output: false,
            keep: DEFAULT_KEEP_BYTES,
            is_code: false,
            caller: None,
        }
    }

    /// A command line for `/bin/sh -c`.
    pub fn shell(text: impl Into<String>) -> Self {
        Self::new(CommandLine::Shell(text.into()))
    }

    /// A program with its arguments.
    pub fn args<T: Into<String>>(args: impl IntoIterator<Item = T>) -> Self {
        Self::new(CommandLine::Args(args.into_iter().map(Into::into).collect()))
    }

    /// A script for an interpreter, usually `/bin/bash`, which runs it from a file that is removed afterwards.
    pub fn script(interpreter: impl Into<String>, script: impl Into<String>) -> Self {
        Self::new(CommandLine::Script { interpreter: interpreter.into(), script: script.into() })
    }

    /// Checks it against the limits of every shell, before anything runs.
    pub fn check(&self) -> Result<(), ShellError> {
        let invalid = |what: String| Err(ShellError::Invalid(what));
        let is_long = |text: &&String| text.len() > MAX_COMMAND_BYTES;
        match &self.command {
            CommandLine::Script { interpreter, script } => {
                check_script(interpreter, script).map_err(ShellError::Invalid)?
            }
            CommandLine::Shell(text) if is_long(&text) => {
                return invalid(format!(
                    "the command has {} bytes; Linux takes at most {MAX_COMMAND_BYTES}. Run it as a script, or from a file",
                    text.len()
                ));
            }
            CommandLine::Args(args) if let Some(long) = args.iter().find(is_long) => {
                return invalid(format!(
                    "an argument has {} bytes; Linux takes at most {MAX_COMMAND_BYTES}. Pass it in a file",
                    long.len()
                ));
            }
            CommandLine::Args(args) if args.first().is_none_or(String::is_empty) => {
                return invalid("the command has no program".to_owned());
            }
            CommandLine::Shell(text) if text.trim().is_empty() => return invalid("the command is empty".to_owned()),
            _ => {}
        }
        let has_nul = match &self.command {
            CommandLine::Shell(text) => text.contains('\0'),
            CommandLine::Args(args) => args.iter().any(|arg| arg.contains('\0')),
            CommandLine::Script { interpreter, .. } => interpreter.contains('\0'),
        };
        if has_nul {
            return invalid("the command contains a NUL character".to_owned());
        }
        if self.stdin.len() > MAX_STDIN_BYTES {
            let bytes = self.stdin.len();
            return invalid(format!("stdin has {bytes} bytes; at most {MAX_STDIN_BYTES} are allowed"));
        }
        if self.terminal.is_some_and(|window| window.rows == 0 || window.columns == 0) {
            return invalid("a terminal needs at least one row and one column".to_owned());
        }
        self.check_env()?;
        match self.timeout {
            Some(timeout) if !(MIN_TIMEOUT..=MAX_TIMEOUT).contains(&timeout) => invalid(format!(
                "the timeout is {} s; it must be {} to {} s",
                timeout.as_secs_f64(),
                MIN_TIMEOUT.as_secs_f64(),
                MAX_TIMEOUT.as_secs()
            )),
            _ => Ok(()),
        }
    }

    /// Returns its time limit, given a shell's default; `None` if it has no limit.
    pub fn time_limit(&self, default: Duration) -> Option<Duration> {
        self.timeout.or((!self.is_unlimited).then_some(default))
    }

    fn check_env(&self) -> Result<(), ShellError> {
        let count = self.env.len();
        if count > MAX_VARIABLES {
            let what = format!("the environment has {count} variables; at most {MAX_VARIABLES} are allowed");
            return Err(ShellError::Invalid(what));
        }
        let bytes = |(name, value): &(&String, &String)| name.len() + 1 + value.len();
        if let Some(long) = self.env.iter().find(|variable| bytes(variable) > MAX_COMMAND_BYTES) {
            let what =
                format!("variable {:.80} has {} bytes; Linux takes at most {MAX_COMMAND_BYTES}", long.0, bytes(&long));
            return Err(ShellError::Invalid(what));
        }
        let is_bad =
            |(name, value): (&String, &String)| name.is_empty() || name.contains(['=', '\0']) || value.contains('\0');
        match self.env.iter().find(|variable| is_bad(*variable)) {
            None => Ok(()),
            Some((name, _)) => {
                let name: String = name.chars().take(80).collect();
                let what = format!("variable {name:?}: a name must not be empty or contain `=`; NUL is not allowed");
                Err(ShellError::Invalid(what))
            }
        }
    }
}

fn check_script(interpreter: &str, script: &str) -> Result<(), String> {
    let (program, bytes) = (interpreter.len(), script.len());
    if interpreter.trim().is_empty() {
        return Err("the script has no interpreter".to_owned());
    }
    if program > MAX_INTERPRETER_BYTES {
        return Err(format!("the interpreter has {program} bytes; at most {MAX_INTERPRETER_BYTES} are allowed"));
    }
    match bytes > MAX_SCRIPT_BYTES {
        true => Err(format!("the script has {bytes} bytes; at most {MAX_SCRIPT_BYTES} are allowed")),
        false => Ok(()),
    }
}

/// The result of a command.
#[derive(Debug, Clone, PartialEq)]
pub struct ShellResult {
    /// Its exit code: 127 if the program was not found, 128 + signal if a signal ended it.
    pub exit_code: i32,
    /// Its standard output.
    pub stdout: Output,
    /// Its standard error.
    pub stderr: Output,
    /// The command as given.
    pub command: CommandLine,
    /// Its working directory.
    pub cwd: EntryPath,
    /// Its running time.
    pub duration: Duration,
    /// True if it exceeded its time limit; the output until then is included.
    pub timed_out: bool,
    /// True if it was cancelled; the output until then is included.
    pub cancelled: bool,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// True if its container or its runner ended while it ran; the command itself did not fail.
    pub lost: bool,
    /// The recording of its terminal, if it had one.
    pub terminal: Option<TerminalRecording>,
}

impl ShellResult {
    /// Returns true if it exited with code 0, and was neither timed out nor cancelled.
    pub fn success(&self) -> bool {
        self.exit_code == 0 && !self.timed_out && !self.cancelled
    }

    /// Returns true if more was printed than is retained.
    pub fn truncated(&self) -> bool {
        self.stdout.is_cut() || self.stderr.is_cut()
    }
}

/// The path of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Which {
    /// The requested name.
    pub command: String,
    /// Its path; `None` if the program was not found.
    pub path: Option<String>,
}

/// The environment of commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellEnv {
    /// The variables.
    pub variables: BTreeMap<String, String>,
    /// Their initial working directory, as they see it.
    pub cwd: String,
    /// The program that runs command lines.
    pub shell: String,
}

/// The reason that a shell did not run a command.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShellError {
    /// The command, its timeout, its directory or another of its properties is invalid.
    #[error("the command can't be run: {0}")]
    Invalid(String),
    /// A policy does not allow it.
    #[error("the command is not allowed: {0}")]
    Blocked(String),
    /// The backend is missing, or failed.
    #[error("the {backend} shell is not available: {reason}")]
    Unavailable {
        /// The backend's name.
        backend: &'static str,
        /// The problem, and the remedy.
        reason: String,
    },
}

impl Diagnostic for ShellError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Invalid(_) => ErrorKind::Invalid,
            Self::Blocked(_) => ErrorKind::Refused,
            Self::Unavailable { .. } => ErrorKind::Unavailable,
        }
    }
}
