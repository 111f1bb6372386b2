//! Running one command.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::connection::{RunnerConnection, Waited, now};
use super::wire::{
    CallerSurroundings, MAX_INPUT, MAX_WORDS, MAX_WORDS_BYTES, RunRequest, RunnerReply, RunnerRequest, TerminalWindow,
};
use crate::backends::caller::CallerProcess;
use crate::backends::command_input::{CommandInput, WindowSize};

use super::{Cancel, Ended, OutputStreamKind, Runner, RunnerError, keeps_connection};

/// The time that the runner may take to end a command, in addition to its time limit and its grace.
const LATE: Duration = Duration::from_secs(3);
const SIGKILL: u8 = 9;

#[derive(Debug, Clone)]
pub(crate) struct RunSpec {
    /// The program and its arguments. A program without a slash is searched for in the `PATH` of `env`.
    pub(crate) argv: Vec<OsString>,
    /// Its directory below the root, which no link leads out of. Empty for the root itself.
    pub(crate) directory: PathBuf,
    pub(crate) env: Vec<(OsString, OsString)>,
    /// Its standard input; at most 64 KiB.
    pub(crate) stdin: Vec<u8>,
    /// `None` for no limit.
    pub(crate) timeout: Option<Duration>,
    pub(crate) grace: Duration,
    pub(crate) discard_output: bool,
    /// True to merge its standard error into its standard output.
    pub(crate) merge_output: bool,
    /// The size of its terminal. All output of a terminal is standard output.
    pub(crate) terminal: Option<WindowSize>,
    /// Its input after `stdin`.
    pub(crate) input: Option<CommandInput>,
    /// The process whose umask, limits, niceness and control group the command inherits; by default the runner.
    pub(crate) caller: Option<Arc<CallerProcess>>,
}

impl Runner {
    /// Runs a command until its last process has ended, and passes on its output as it comes.
    ///
    /// A slow `output` blocks the command. A missing program is a result with exit code 127, a program that can't be
    /// executed with 126; a time-out is a result, too.
    pub(crate) fn run(
        &self,
        spec: &RunSpec,
        output: &mut dyn FnMut(OutputStreamKind, &[u8]),
        cancel: &Cancel,
    ) -> Result<Ended, RunnerError> {
        let join = |(name, value): &(OsString, OsString)| [name.as_bytes(), b"=", value.as_bytes()].concat();
        let variables: Vec<Vec<u8>> = spec.env.iter().map(join).collect();
        let request = spec.request(&variables)?;
        let mut connection = self.take()?;
        connection.send(&RunnerRequest::Run(request))?;
        let mut clock = OutsideClock::start(spec);
        let ended = follow(&mut connection, &mut clock, spec, output, cancel);
        match &ended {
            // The command had started, so this is its end.
            Err(reason @ (RunnerError::Gone(_) | RunnerError::Silent { .. })) => {
                tracing::info!(%reason, "the runner was lost during a command");
                let is_late = matches!(reason, RunnerError::Silent { .. });
                return Err(RunnerError::LostUnderCommand(clock.killed(is_late)));
            }
            Err(error) if !keeps_connection(error) => {}
            _ => self.put_back(connection),
        }
        ended
    }
}

/// Passes output on until the command ends.
fn follow(
    connection: &mut RunnerConnection,
    clock: &mut OutsideClock,
    spec: &RunSpec,
    output: &mut dyn FnMut(OutputStreamKind, &[u8]),
    cancel: &Cancel,
) -> Result<Ended, RunnerError> {
    let input = spec.input.as_ref();
    let mut room = MAX_INPUT;
    loop {
        let waking = [(!clock.cancelled).then(|| cancel.descriptor()), input.map(CommandInput::descriptor)];
        match connection.wait(clock.patience(), waking)? {
            Waited::TimedOut => return Err(RunnerError::Silent { waited: clock.passed() }),
            Waited::Woken(0) => {
                connection.send(&RunnerRequest::Cancel)?;
                clock.cancel(spec.grace);
                continue;
            }
            Waited::Woken(_) => {
                room -= pass_on(connection, input, room)?;
                continue;
            }
            Waited::Frame => {}
        }
        match connection.take()? {
            RunnerReply::Started { pid } => input.into_iter().for_each(|input| input.begin(pid)),
            RunnerReply::Output { stream, bytes } => clock.pause(|| output(stream, bytes)),
            RunnerReply::Taken { bytes } => {
                room = MAX_INPUT.min(room.saturating_add(bytes as usize));
                room -= pass_on(connection, input, room)?;
            }
            RunnerReply::Ended(ended) => return Ok(ended),
            RunnerReply::Failed { kind, errno, message } => return Err(RunnerError::failed(kind, errno, message)),
            _ => return Err(RunnerError::Protocol("a command got the answer of another request".to_owned())),
        }
    }
}

/// Passes on the waiting input. Returns the number of bytes.
fn pass_on(connection: &mut RunnerConnection, input: Option<&CommandInput>, room: usize) -> Result<usize, RunnerError> {
    let part = input.map(|input| input.take(room)).unwrap_or_default();
    if let Some(window) = part.window {
        connection.send(&RunnerRequest::Resize(window.into()))?;
    }
    if !part.bytes.is_empty() {
        connection.send(&RunnerRequest::Input(&part.bytes))?;
    }
    for number in part.signals {
        connection.send(&RunnerRequest::Signal(number))?;
    }
    if part.is_end {
        connection.send(&RunnerRequest::EndInput)?;
    }
    Ok(part.bytes.len())
}

impl From<WindowSize> for TerminalWindow {
    fn from(WindowSize { rows, columns }: WindowSize) -> Self {
        Self { rows, columns }
    }
}

impl RunSpec {
    fn request<'a>(&'a self, variables: &'a [Vec<u8>]) -> Result<RunRequest<'a>, RunnerError> {
        let argv: Vec<&[u8]> = self.argv.iter().map(|word| word.as_bytes()).collect();
        let env: Vec<&[u8]> = variables.iter().map(Vec::as_slice).collect();
        for (words, what) in [(&argv, "arguments"), (&env, "variables")] {
            let bytes: usize = words.iter().map(|word| word.len()).sum();
            if words.len() > MAX_WORDS || bytes > MAX_WORDS_BYTES {
                let (count, limit) = (words.len(), format!("{MAX_WORDS} with {MAX_WORDS_BYTES} bytes"));
                return Err(RunnerError::Invalid(format!("{count} {what} with {bytes} bytes; the limit is {limit}")));
            }
        }
        let cwd = below(&self.directory);
        // Zero means no timeout.
        let timeout_ms = self.timeout.map_or(0, |timeout| millis(timeout).max(1));
        let grace_ms = millis(self.grace);
        let surroundings = self.caller.as_ref().map(|caller| CallerSurroundings {
            umask: caller.umask,
            nice: caller.nice,
            limits: caller.limits.clone(),
            cgroup: caller.cgroup.as_os_str().as_bytes(),
        });
        Ok(RunRequest {
            cwd,
            argv,
            env,
            stdin: &self.stdin,
            timeout_ms,
            grace_ms,
            discard_output: self.discard_output,
            merge_output: self.merge_output,
            terminal: self.terminal.map(TerminalWindow::from),
            is_fed: self.input.is_some(),
            surroundings: surroundings.unwrap_or_default(),
        })
    }
}

fn millis(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

/// The outer one of the two clocks that guard a command: the other is in the runner.
struct OutsideClock {
    started: Instant,
    limit: Duration,
    /// The time spent in the output's reader, since a slow reader is not the runner's fault.
    paused: Duration,
    cancelled: bool,
}

impl OutsideClock {
    fn start(spec: &RunSpec) -> Self {
        let limit =
            spec.timeout.map_or(Duration::MAX, |timeout| timeout.saturating_add(spec.grace).saturating_add(LATE));
        Self { started: now(), limit, paused: Duration::ZERO, cancelled: false }
    }

    fn patience(&self) -> Duration {
        self.limit.saturating_add(self.paused).saturating_sub(self.passed())
    }

    fn pause(&mut self, work: impl FnOnce()) {
        let started = now();
        work();
        self.paused += now().saturating_duration_since(started);
    }

    fn cancel(&mut self, grace: Duration) {
        self.cancelled = true;
        let limit = self.passed().saturating_sub(self.paused).saturating_add(grace).saturating_add(LATE);
        self.limit = self.limit.min(limit);
    }

    /// Returns the end of a command that ended with its runner.
    fn killed(&self, is_late: bool) -> Ended {
        Ended {
            exit_code: None,
            signal: Some(SIGKILL),
            timed_out: is_late && !self.cancelled,
            cancelled: self.cancelled,
            sent: None,
            leftovers: 0,
            survivors: 0,
            duration_us: u64::try_from(self.passed().as_micros()).unwrap_or(u64::MAX),
        }
    }

    fn passed(&self) -> Duration {
        now().saturating_duration_since(self.started)
    }
}

/// Returns the path as the runner expects it: a leading slash means the root.
fn below(path: &Path) -> &[u8] {
    let bytes = path.as_os_str().as_bytes();
    bytes.iter().position(|&byte| byte != b'/').and_then(|start| bytes.get(start..)).unwrap_or_default()
}
