//! The shell of every place where a runner runs commands: the host and containers.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tempfile::NamedTempFile;
use tokio_util::sync::CancellationToken;

use super::asciicast::CastWriter;
use super::caller::{CallerProcess, name_and_value};
use super::command_input::{ClosesInput, CommandInput};
use super::command_options::CommandOptions;
use super::output::Collector;
use super::runner::{Ended, OutputStreamKind, RunSpec, Runner, RunnerError, now};
use super::running_commands::{CancelState, RunningCommands};
use super::shell::{
    EnvMode, OutputStream, OutputWatch, Running, Shell, ShellCommand, ShellEnv, ShellError, ShellProperties,
    ShellResult, Which,
};
use crate::engine::event::CommandLine;
use crate::engine::path::EntryPath;

/// The time between asking a command to end and killing it.
const GRACE: Duration = Duration::from_secs(2);
/// Added to a signal's number: the exit code of a command that a signal ended.
pub(super) const SIGNALLED: i32 = 128;
const SH: &str = "/bin/sh";
/// The program search path if the environment has none.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

pub(crate) trait CommandHost: Send + Sync + 'static {
    /// Returns the runner, and starts it if necessary. It blocks.
    fn runner(&self) -> Result<Runner, ShellError>;
    /// Checks that the place of the runner is available. It blocks.
    fn reach(&self) -> Result<(), ShellError> {
        Ok(())
    }
    /// The options of all commands.
    fn options(&self) -> &CommandOptions;
    fn root(&self) -> String;
    /// Returns a directory for scripts: its path for this program, and its path for commands.
    fn scripts(&self) -> Result<(PathBuf, PathBuf), ShellError>;
    fn in_flight(&self) -> &Arc<RunningCommands>;
    /// Bytes that have to stay free on the workspace's disk during a command that starts now.
    fn floor(&self) -> u64 {
        0
    }
    /// Records that a runner no longer answers: its place has to be restarted.
    fn lost(&self, runner: &Runner);
    /// Returns the reason that this program ended a runner's place, for the command that ran there.
    fn ended_for(&self, _runner: &Runner) -> Option<String> {
        None
    }
}

pub(crate) struct RunnerShell<P> {
    place: Arc<P>,
    properties: ShellProperties,
}

impl<P: CommandHost> RunnerShell<P> {
    pub(crate) fn new(place: Arc<P>, properties: ShellProperties) -> Self {
        Self { place, properties }
    }

    fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&P) -> Result<T, ShellError> + Send + 'static,
    ) -> Running<T> {
        let (place, backend) = (Arc::clone(&self.place), self.properties.backend_name);
        Box::pin(async move {
            let done = tokio::task::spawn_blocking(move || work(&place)).await;
            done.unwrap_or_else(|_| Err(ShellError::Unavailable { backend, reason: "its thread ended".to_owned() }))
        })
    }
}

impl<P: CommandHost> Shell for RunnerShell<P> {
    fn properties(&self) -> ShellProperties {
        self.properties.clone()
    }

    fn execute(&self, command: ShellCommand, watch: OutputWatch, cancel: CancellationToken) -> Running<ShellResult> {
        let closes = ClosesInput(command.input.clone());
        let backend = self.properties.backend_name;
        let (default_timeout, is_on_host) = (self.properties.default_timeout, !self.properties.in_container);
        let wish = match command.check().and_then(|()| CancelState::new().map_err(failed(backend))) {
            Ok(wish) => Arc::new(wish),
            Err(error) => return Box::pin(async { Err(error) }),
        };
        let asked = Arc::clone(&wish);
        let (line, cwd) = (command.command.clone(), command.cwd.clone());
        if cancel.is_cancelled() {
            return Box::pin(async { Ok(never_begun(line, cwd)) });
        }
        let mut work = self.blocking(move |place| {
            let _closes = closes;
            CommandRun { place, backend, default_timeout, is_on_host }.execute(command, &watch, asked)
        });
        // Dropping the future ends the command, too.
        let ending = EndsWhenDropped(wish);
        Box::pin(async move {
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = cancel.cancelled() => {}
            }
            // The start of its place may take long; it continues in the background.
            if !ending.0.take_back() {
                return Ok(never_begun(line, cwd));
            }
            work.await
        })
    }

    fn reach(&self) -> Running<()> {
        self.blocking(P::reach)
    }

    fn which(&self, program: &str) -> Running<Which> {
        let (program, backend) = (program.to_owned(), self.properties.backend_name);
        // No file has such a name, and a runner would not search for one.
        if program.is_empty() || program.contains('\0') {
            return Box::pin(async { Ok(Which { command: program, path: None }) });
        }
        self.blocking(move |place| {
            let runner = place.runner()?;
            let variables = variables(place, &runner).map_err(failed(backend))?;
            let path = variables.get("PATH").map_or(DEFAULT_PATH, String::as_str);
            let found = runner.which(program.as_ref(), path.as_ref()).map_err(failed(backend))?;
            Ok(Which { command: program, path: found.map(|path| path.to_string_lossy().into_owned()) })
        })
    }

    fn env(&self) -> Running<ShellEnv> {
        let backend = self.properties.backend_name;
        self.blocking(move |place| {
            let runner = place.runner()?;
            let variables = variables(place, &runner).map_err(failed(backend))?;
            Ok(ShellEnv { variables, cwd: place.root(), shell: SH.to_owned() })
        })
    }
}

struct EndsWhenDropped(Arc<CancelState>);

impl Drop for EndsWhenDropped {
    fn drop(&mut self) {
        self.0.take_back();
    }
}

/// Returns the environment variables of commands, except variables that are not valid UTF-8.
fn variables<P: CommandHost>(place: &P, runner: &Runner) -> Result<BTreeMap<String, String>, RunnerError> {
    let split = |variable: &OsString| {
        let (name, value) = variable.to_str()?.split_once('=')?;
        Some((name.to_owned(), value.to_owned()))
    };
    let session = place.options().variables().map(|(name, value)| (name.to_owned(), value.to_owned()));
    Ok(runner.variables()?.iter().filter_map(split).chain(session).collect())
}

struct CommandRun<'a, P> {
    place: &'a P,
    backend: &'static str,
    default_timeout: Duration,
    is_on_host: bool,
}

impl<P: CommandHost> CommandRun<'_, P> {
    fn execute(
        &self,
        command: ShellCommand,
        watch: &OutputWatch,
        wish: Arc<CancelState>,
    ) -> Result<ShellResult, ShellError> {
        let _ongoing = self.place.in_flight().begin(Arc::clone(&wish), self.place.floor());
        let runner = self.place.runner()?;
        let caller = command.caller.clone().filter(|_| self.is_on_host);
        // Dropping `_script` removes the file.
        let (argv, _script) = self.argv(&command.command)?;
        let spec = RunSpec {
            argv,
            directory: PathBuf::from(OsString::from_vec(command.cwd.as_bytes().to_vec())),
            env: self.env(&runner, &command, caller.as_deref())?,
            stdin: command.stdin.to_vec(),
            timeout: command.time_limit(self.default_timeout),
            grace: GRACE,
            // An unread terminal would block its programs.
            discard_output: !command.capture_output && command.terminal.is_none(),
            merge_output: command.merge_output,
            terminal: command.terminal,
            input: command.input.clone(),
            caller,
        };
        let keep = command.keep;
        let (mut stdout, mut stderr) = (Collector::new(keep), Collector::new(keep));
        let mut cast = command.terminal.map(|window| CastWriter::begin(window, now(), keep));
        let mut output = |stream: OutputStreamKind, bytes: &[u8]| {
            if let Some(cast) = &mut cast {
                let at = now();
                command.input.iter().filter_map(CommandInput::window).for_each(|window| cast.resized(window, at));
                cast.shown(bytes, at);
            }
            let (collector, stream) = match stream {
                OutputStreamKind::Stdout => (&mut stdout, OutputStream::Stdout),
                OutputStreamKind::Stderr => (&mut stderr, OutputStream::Stderr),
            };
            collector.add(bytes);
            watch(stream, bytes);
        };
        if !wish.begin() {
            return Ok(never_begun(command.command, command.cwd));
        }
        let (mut ended, lost) = match runner.run(&spec, &mut output, wish.cancel()) {
            Err(RunnerError::LostUnderCommand(ended)) => {
                self.place.lost(&runner);
                let words = format!("\n[{}]\n", self.how_lost(&runner, ended.timed_out));
                output(OutputStreamKind::Stderr, words.as_bytes());
                (ended, true)
            }
            ended => (ended.map_err(|error| self.refused(&error, &runner))?, false),
        };
        if let Some(reason) = wish.ended_for() {
            stderr.add(format!("\n[{reason}]\n").as_bytes());
            ended.cancelled = false;
        }
        let terminal = cast.map(|cast| cast.finish(now()));
        Ok(ShellResult { terminal, lost, ..result(command, ended, stdout, stderr) })
    }

    fn argv(&self, line: &CommandLine) -> Result<(Vec<OsString>, Option<NamedTempFile>), ShellError> {
        Ok(match line {
            CommandLine::Shell(text) => (vec![SH.into(), "-c".into(), text.into()], None),
            CommandLine::Args(args) => (args.iter().map(OsString::from).collect(), None),
            CommandLine::Script { interpreter, script } => {
                let (here, there) = self.place.scripts()?;
                let file = write_script(&here, script).map_err(failed(self.backend))?;
                let name = file.path().file_name().unwrap_or_default().to_owned();
                let words = interpreter.split_whitespace().map(OsString::from);
                (words.chain([there.join(name).into_os_string()]).collect(), Some(file))
            }
        })
    }

    fn env(
        &self,
        runner: &Runner,
        command: &ShellCommand,
        caller: Option<&CallerProcess>,
    ) -> Result<Vec<(OsString, OsString)>, ShellError> {
        let own = match caller {
            Some(caller) => &caller.environ,
            None => runner.variables().map_err(failed(self.backend))?,
        };
        let mut variables = BTreeMap::from([(OsString::from("PATH"), OsString::from(DEFAULT_PATH))]);
        for variable in own {
            let Some((name, value)) = name_and_value(variable) else { continue };
            if command.env_mode == EnvMode::Extend || name == "PATH" {
                variables.insert(name.to_owned(), value.to_owned());
            }
        }
        if command.env_mode == EnvMode::Extend {
            variables.extend(self.place.options().variables().map(|(name, value)| (name.into(), value.into())));
        }
        variables.extend(command.env.iter().map(|(name, value)| (name.into(), value.into())));
        Ok(variables.into_iter().collect())
    }

    fn how_lost(&self, runner: &Runner, timed_out: bool) -> String {
        if let Some(reason) = self.place.ended_for(runner) {
            return reason;
        }
        let place = if self.is_on_host { "the process that runs commands" } else { "the container" };
        match timed_out {
            true => format!("it took too long, and {place} no longer answered; the next command starts another"),
            false => format!("it was killed: {place} ended while it ran; the next command starts another"),
        }
    }

    /// Converts a runner's error into the shell's.
    fn refused(&self, error: &RunnerError, runner: &Runner) -> ShellError {
        if error.is_lost() {
            self.place.lost(runner);
        }
        match error {
            RunnerError::Directory(what) | RunnerError::Invalid(what) => ShellError::Invalid(what.clone()),
            _ => failed(self.backend)(error),
        }
    }
}

fn failed<E: std::fmt::Display>(backend: &'static str) -> impl Fn(E) -> ShellError {
    move |error| ShellError::Unavailable { backend, reason: error.to_string() }
}

/// Writes a script that everyone may read and no one may change.
fn write_script(directory: &std::path::Path, script: &str) -> std::io::Result<NamedTempFile> {
    use std::os::unix::fs::PermissionsExt;
    let mut file = tempfile::Builder::new().prefix("script-").tempfile_in(directory)?;
    // After creation, because the umask would apply to a mode given there.
    file.as_file().set_permissions(std::fs::Permissions::from_mode(0o444))?;
    file.write_all(script.as_bytes())?;
    file.flush()?;
    Ok(file)
}

fn never_begun(command: CommandLine, cwd: EntryPath) -> ShellResult {
    ShellResult {
        exit_code: -1,
        stdout: Collector::new(0).finish(),
        stderr: Collector::new(0).finish(),
        command,
        cwd,
        duration: Duration::ZERO,
        timed_out: false,
        cancelled: true,
        signal: None,
        lost: false,
        terminal: None,
    }
}

fn result(command: ShellCommand, ended: Ended, stdout: Collector, stderr: Collector) -> ShellResult {
    if ended.survivors > 0 {
        tracing::warn!(survivors = ended.survivors, "processes survived SIGKILL");
    }
    let signal = ended.signal.or(ended.sent.filter(|_| ended.timed_out || ended.cancelled)).map(i32::from);
    let exit_code = match (ended.exit_code, ended.signal) {
        (_, Some(signal)) => SIGNALLED + i32::from(signal),
        (Some(code), None) => i32::from(code),
        (None, None) => -1,
    };
    ShellResult {
        exit_code,
        stdout: stdout.finish(),
        stderr: stderr.finish(),
        command: command.command,
        cwd: command.cwd,
        duration: Duration::from_micros(ended.duration_us),
        timed_out: ended.timed_out,
        cancelled: ended.cancelled,
        signal,
        lost: false,
        terminal: None,
    }
}
