//! Shells: where a workspace's commands run.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use super::asciicast::TerminalRecording;
use super::caller::CallerProcess;
use super::command_input::{CommandInput, WindowSize};
use super::output::Output;
use crate::engine::error::{Diagnostic, ErrorKind};
use crate::engine::event::CommandLine;
use crate::engine::path::EntryPath;
use crate::engine::session::output_stream::OutputStream;

/// Bytes that a text for a shell, or one argument, may have: what Linux takes, without the NUL at its end.
pub const MAX_COMMAND_BYTES: usize = (128 << 10) - 1;
/// Bytes that a script may have.
pub const MAX_SCRIPT_BYTES: usize = 1 << 20;
/// Bytes of a command's standard input.
pub const MAX_STDIN_BYTES: usize = 64 << 10;
/// Variables that a command may be given.
pub const MAX_VARIABLES: usize = 256;
/// The time limit of a command when nothing is said.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
/// The shortest time that a command may be given.
pub const MIN_TIMEOUT: Duration = Duration::from_millis(100);
/// The longest time that a command may be given.
pub const MAX_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);
/// Bytes of each stream that are kept when nothing is said; of a longer one the beginning and the end.
pub const DEFAULT_KEEP_BYTES: usize = 8 << 20;

/// Runs commands in a workspace.
///
/// Every implementation keeps true, and the compliance suite checks:
/// - A command's failure, a program that is not there (127) and a time-out are results, not errors.
/// - When a command ends, by itself or not, nothing that it started lives on: first SIGTERM, then, after
///   a grace period, SIGKILL.
/// - However much a command prints, memory is bounded by [`ShellCommand::keep`] while it runs.
/// - `cwd` does not lead out of the workspace, through links neither.
pub trait Shell: Send + Sync + 'static {
    /// Returns its properties.
    fn properties(&self) -> ShellProperties;

    /// Runs a command and waits for its end, showing its output to `watch` as it comes. Cancelling the token kills it
    /// and gives a result with the output so far; dropping the future kills it.
    ///
    /// # Errors
    /// [`ShellError`]; nothing was run then, or nothing is known of it.
    fn execute(&self, command: ShellCommand, watch: OutputWatch, cancel: CancellationToken) -> Running<ShellResult>;

    /// Looks for what commands run in, before a person is asked to allow one.
    ///
    /// # Errors
    /// [`ShellError`] where none can run.
    fn reach(&self) -> Running<()> {
        Box::pin(async { Ok(()) })
    }

    /// Finds a program by its name.
    fn which(&self, program: &str) -> Running<Which>;

    /// Returns the environment of commands.
    fn env(&self) -> Running<ShellEnv>;
}

/// Something that a shell is about.
pub type Running<T> = Pin<Box<dyn Future<Output = Result<T, ShellError>> + Send>>;

/// Sees what a command prints, while it runs. It must not block.
pub type OutputWatch = Arc<dyn Fn(OutputStream, &[u8]) + Send + Sync>;

/// Sees nothing.
pub fn unwatched() -> OutputWatch {
    Arc::new(|_, _| {})
}

/// The properties of a shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellProperties {
    /// The backend's name: `host`, `podman`, ...
    pub backend_name: &'static str,
    /// A boundary that the kernel keeps is around it.
    pub sandboxed: bool,
    /// Commands reach a network.
    pub network_enabled: bool,
    /// The time limit of a command when nothing is said.
    pub default_timeout: Duration,
    /// It lives in a container, of which a session has one at most.
    pub in_container: bool,
}

/// Use of the backend's environment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "tools", derive(schemars::JsonSchema))]
pub enum EnvMode {
    /// The given variables are added to it.
    #[default]
    Extend,
    /// Only the given variables and `PATH` are there.
    Replace,
}

/// A command to be run.
///
/// ```
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
    /// The directory in which it runs.
    pub cwd: EntryPath,
    /// Variables for it.
    pub env: BTreeMap<String, String>,
    /// Use of the others.
    pub env_mode: EnvMode,
    /// Its standard input, which is then closed unless there is an `input`.
    pub stdin: Bytes,
    /// Its input while it runs, after `stdin`.
    pub input: Option<CommandInput>,
    /// It has a terminal of that size. All that it shows there is its standard output; `stdin` is typed.
    pub terminal: Option<WindowSize>,
    /// Its time limit; the shell's default when nothing is said.
    pub timeout: Option<Duration>,
    /// Without a `timeout` it has no time limit at all, instead of the shell's default.
    pub is_unlimited: bool,
    /// Keeps what it prints, which is thrown away otherwise.
    pub capture_output: bool,
    /// Gives its standard error in its standard output, in the order of writing.
    pub merge_output: bool,
    /// Bytes of each stream that are kept at most.
    pub keep: usize,
    /// Holds code, which may be longer than other commands of a tool.
    pub is_code: bool,
    /// The process that asks for it, whose environment, umask, limits and niceness it has on the host; this process
    /// when nothing is said. Commands in containers have the container's.
    pub caller: Option<Arc<CallerProcess>>,
}

impl ShellCommand {
    /// A command with nothing special about it.
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

    /// A text for `/bin/sh -c`.
    pub fn shell(text: impl Into<String>) -> Self {
        Self::new(CommandLine::Shell(text.into()))
    }

    /// A program with its arguments.
    pub fn args<T: Into<String>>(args: impl IntoIterator<Item = T>) -> Self {
        Self::new(CommandLine::Args(args.into_iter().map(Into::into).collect()))
    }

    /// A text that an interpreter, `/bin/bash` for most, runs from a file which is gone afterwards.
    pub fn script(interpreter: impl Into<String>, script: impl Into<String>) -> Self {
        Self::new(CommandLine::Script { interpreter: interpreter.into(), script: script.into() })
    }

    /// Checks it against the limits of every shell, before anything is done.
    pub fn check(&self) -> Result<(), ShellError> {
        let invalid = |what: String| Err(ShellError::Invalid(what));
        let is_long = |text: &&String| text.len() > MAX_COMMAND_BYTES;
        match &self.command {
            CommandLine::Script { script, .. } if script.len() > MAX_SCRIPT_BYTES => {
                return invalid(format!(
                    "the script has {} bytes; at most {MAX_SCRIPT_BYTES} are allowed",
                    script.len()
                ));
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
                return invalid("the command names no program".to_owned());
            }
            CommandLine::Shell(text) if text.trim().is_empty() => return invalid("the command is empty".to_owned()),
            CommandLine::Script { interpreter, .. } if interpreter.trim().is_empty() => {
                return invalid("the script has no interpreter".to_owned());
            }
            _ => {}
        }
        let has_nul = match &self.command {
            CommandLine::Shell(text) => text.contains('\0'),
            CommandLine::Args(args) => args.iter().any(|arg| arg.contains('\0')),
            CommandLine::Script { interpreter, .. } => interpreter.contains('\0'),
        };
        if has_nul {
            return invalid("the command holds a NUL character".to_owned());
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

    /// Returns its time limit under a shell's default; none for a command without one.
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
                let what =
                    format!("variable {name:?}: a name must not be empty nor hold `=`, and nothing may hold NUL");
                Err(ShellError::Invalid(what))
            }
        }
    }
}

/// The result of a command.
#[derive(Debug, Clone, PartialEq)]
pub struct ShellResult {
    /// Its exit code: 127 for a program that is not there, 128 + signal when a signal ended it.
    pub exit_code: i32,
    /// Its standard output.
    pub stdout: Output,
    /// Its standard error.
    pub stderr: Output,
    /// As it was given.
    pub command: CommandLine,
    /// Its directory.
    pub cwd: EntryPath,
    /// Its running time.
    pub duration: Duration,
    /// It took longer than it may; what it printed until then is there.
    pub timed_out: bool,
    /// It was cancelled; what it printed until then is there.
    pub cancelled: bool,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// The container, or the process that runs commands, ended under it: no failure of its own.
    pub lost: bool,
    /// The recording of its terminal, of a command that had one.
    pub terminal: Option<TerminalRecording>,
}

impl ShellResult {
    /// Tells whether it ended by itself with exit code 0.
    pub fn success(&self) -> bool {
        self.exit_code == 0 && !self.timed_out && !self.cancelled
    }

    /// Tells whether more was printed than is kept.
    pub fn truncated(&self) -> bool {
        self.stdout.is_cut() || self.stderr.is_cut()
    }
}

/// The path of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Which {
    /// The name that was asked for.
    pub command: String,
    /// Its path; none when there is no such program.
    pub path: Option<String>,
}

/// The environment of commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellEnv {
    /// The variables.
    pub variables: BTreeMap<String, String>,
    /// The directory in which they begin, as they see it.
    pub cwd: String,
    /// The program that runs texts.
    pub shell: String,
}

/// The reason that a shell did not run a command.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShellError {
    /// The command, its timeout, its directory or something else about it is not right.
    #[error("the command can't be run: {0}")]
    Invalid(String),
    /// A policy does not allow it.
    #[error("the command is not allowed: {0}")]
    Blocked(String),
    /// The backend is not there, or failed.
    #[error("the {backend} shell is not available: {reason}")]
    Unavailable {
        /// The backend's name.
        backend: &'static str,
        /// The problem, and what to do.
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
