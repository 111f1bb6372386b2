//! The shell of every place where a runner runs: the host, and containers.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tempfile::NamedTempFile;
use tokio_util::sync::CancellationToken;

use super::output::Collector;
use super::runner::{Cancel, Directory, Ended, RunSpec, Runner, RunnerError, Stream};
use super::shell::{
    EnvMode, OutputWatch, Running, Shell, ShellCommand, ShellEnv, ShellError, ShellProperties, ShellResult, Which,
};
use crate::engine::event::CommandLine;
use crate::engine::live::OutputStream;

/// Between asking a command to end and ending it.
const GRACE: Duration = Duration::from_secs(2);
/// Added to a signal's number it is the exit code of a command that a signal ended.
const SIGNALLED: i32 = 128;
/// The program that runs texts.
const SH: &str = "/bin/sh";
/// Where programs are looked for when the environment does not say.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Where a runner runs.
pub(crate) trait Place: Send + Sync + 'static {
    /// The runner, which is started when it does not run. It blocks.
    fn runner(&self) -> Result<Runner, ShellError>;
    /// The workspace's root as commands see it.
    fn root(&self) -> String;
    /// A directory for scripts: as this program sees it, and as commands do.
    fn scripts(&self) -> Result<(PathBuf, PathBuf), ShellError>;
    /// Notes that a command is under way, until the value is dropped.
    fn busy(&self) -> Busy;
    /// The runner does not answer any more; what it runs in is to be started anew.
    fn lost(&self);
}

/// A command is under way.
pub(crate) struct Busy(Arc<AtomicU32>);

impl Busy {
    pub(crate) fn begin(count: &Arc<AtomicU32>) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(count))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A shell over the runner of a place.
pub(crate) struct Commands<P> {
    place: Arc<P>,
    properties: ShellProperties,
}

impl<P: Place> Commands<P> {
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

impl<P: Place> Shell for Commands<P> {
    fn properties(&self) -> ShellProperties {
        self.properties.clone()
    }

    fn execute(&self, command: ShellCommand, watch: OutputWatch, cancel: CancellationToken) -> Running<ShellResult> {
        let backend = self.properties.backend_name;
        let default_timeout = self.properties.default_timeout;
        let wish = match command.check().and_then(|()| Cancel::new().map_err(unavailable(backend))) {
            Ok(wish) => wish,
            Err(error) => return Box::pin(async { Err(error) }),
        };
        let asked = wish.clone();
        let mut work = self.blocking(move |place| {
            let run = Run { place, backend, default_timeout };
            run.execute(command, &watch, &asked)
        });
        // Dropping the future ends the command, too.
        let ending = EndsWhenDropped(wish);
        Box::pin(async move {
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = cancel.cancelled() => ending.0.cancel(),
            }
            work.await
        })
    }

    fn which(&self, program: &str) -> Running<Which> {
        let (program, backend) = (program.to_owned(), self.properties.backend_name);
        // No file has such a name, and a runner would not look for one.
        if program.is_empty() || program.contains('\0') {
            return Box::pin(async { Ok(Which { command: program, path: None }) });
        }
        self.blocking(move |place| {
            let runner = place.runner()?;
            let variables = variables(&runner).map_err(failed(backend))?;
            let path = variables.get("PATH").map_or(DEFAULT_PATH, String::as_str);
            let found = runner.which(program.as_ref(), path.as_ref()).map_err(failed(backend))?;
            Ok(Which { command: program, path: found.map(|path| path.to_string_lossy().into_owned()) })
        })
    }

    fn env(&self) -> Running<ShellEnv> {
        let backend = self.properties.backend_name;
        self.blocking(move |place| {
            let runner = place.runner()?;
            let variables = variables(&runner).map_err(failed(backend))?;
            Ok(ShellEnv { variables, cwd: place.root(), shell: SH.to_owned() })
        })
    }
}

struct EndsWhenDropped(Cancel);

impl Drop for EndsWhenDropped {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// The runner's own variables as text; what is no text is left out.
fn variables(runner: &Runner) -> Result<BTreeMap<String, String>, RunnerError> {
    let environment = runner.env()?;
    let split = |variable: &OsString| {
        let (name, value) = variable.to_str()?.split_once('=')?;
        Some((name.to_owned(), value.to_owned()))
    };
    Ok(environment.variables.iter().filter_map(split).collect())
}

/// One command on its way.
struct Run<'a, P> {
    place: &'a P,
    backend: &'static str,
    default_timeout: Duration,
}

impl<P: Place> Run<'_, P> {
    fn execute(&self, command: ShellCommand, watch: &OutputWatch, cancel: &Cancel) -> Result<ShellResult, ShellError> {
        let _busy = self.place.busy();
        let runner = self.place.runner()?;
        // The file is gone when this is dropped.
        let (argv, _script) = self.argv(&command.command)?;
        let spec = RunSpec {
            argv,
            directory: Directory::Below(PathBuf::from(OsString::from_vec(command.cwd.as_bytes().to_vec()))),
            env: self.env(&runner, &command)?,
            stdin: command.stdin.to_vec(),
            timeout: command.timeout.unwrap_or(self.default_timeout),
            grace: GRACE,
            discard_output: !command.capture_output,
        };
        let keep = command.keep;
        let (mut stdout, mut stderr) = (Collector::new(keep), Collector::new(keep));
        let mut output = |stream: Stream, bytes: &[u8]| {
            let (collector, stream) = match stream {
                Stream::Stdout => (&mut stdout, OutputStream::Stdout),
                Stream::Stderr => (&mut stderr, OutputStream::Stderr),
            };
            collector.add(bytes);
            watch(stream, bytes);
        };
        let ended = runner.run(&spec, &mut output, cancel).map_err(|error| self.refused(&error))?;
        Ok(result(command, ended, stdout, stderr))
    }

    fn argv(&self, line: &CommandLine) -> Result<(Vec<OsString>, Option<NamedTempFile>), ShellError> {
        Ok(match line {
            CommandLine::Shell(text) => (vec![SH.into(), "-c".into(), text.into()], None),
            CommandLine::Args(args) => (args.iter().map(OsString::from).collect(), None),
            CommandLine::Script { interpreter, script } => {
                let (here, there) = self.place.scripts()?;
                let file = write_script(&here, script).map_err(unavailable(self.backend))?;
                let name = file.path().file_name().unwrap_or_default().to_owned();
                (vec![interpreter.into(), there.join(name).into_os_string()], Some(file))
            }
        })
    }

    fn env(&self, runner: &Runner, command: &ShellCommand) -> Result<Vec<(OsString, OsString)>, ShellError> {
        let own = &runner.env().map_err(failed(self.backend))?.variables;
        let mut variables = BTreeMap::from([(OsString::from("PATH"), OsString::from(DEFAULT_PATH))]);
        for variable in own {
            let bytes = variable.as_bytes();
            let Some(at) = bytes.iter().position(|byte| *byte == b'=').filter(|at| *at > 0) else { continue };
            let (name, value) = (&bytes[..at], &bytes[at + 1..]);
            if command.env_mode == EnvMode::Extend || name == b"PATH" {
                variables.insert(OsString::from_vec(name.to_vec()), OsString::from_vec(value.to_vec()));
            }
        }
        variables.extend(command.env.iter().map(|(name, value)| (name.into(), value.into())));
        Ok(variables.into_iter().collect())
    }

    /// What the runner says of a command that it did not run.
    fn refused(&self, error: &RunnerError) -> ShellError {
        match error {
            RunnerError::Directory(what) | RunnerError::Invalid(what) => ShellError::Invalid(what.clone()),
            RunnerError::Gone(_) | RunnerError::Silent { .. } | RunnerError::Protocol(_) => {
                self.place.lost();
                failed(self.backend)(error)
            }
            other => failed(self.backend)(other),
        }
    }
}

fn failed<E: std::fmt::Display>(backend: &'static str) -> impl Fn(E) -> ShellError {
    move |error| ShellError::Unavailable { backend, reason: error.to_string() }
}

fn unavailable(backend: &'static str) -> impl Fn(std::io::Error) -> ShellError {
    failed(backend)
}

/// Writes a script that everybody may read, and nobody may change.
fn write_script(directory: &std::path::Path, script: &str) -> std::io::Result<NamedTempFile> {
    use std::os::unix::fs::PermissionsExt;
    let permissions = std::fs::Permissions::from_mode(0o444);
    let mut file = tempfile::Builder::new().prefix("script-").permissions(permissions).tempfile_in(directory)?;
    // The process's umask was taken off.
    file.as_file().set_permissions(std::fs::Permissions::from_mode(0o444))?;
    file.write_all(script.as_bytes())?;
    file.flush()?;
    Ok(file)
}

fn result(command: ShellCommand, ended: Ended, stdout: Collector, stderr: Collector) -> ShellResult {
    if ended.survivors > 0 {
        tracing::warn!(survivors = ended.survivors, "processes live on although they were killed");
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
    }
}
