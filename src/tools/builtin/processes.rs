//! `process_start` and the other tools for background processes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::files::check_chars;
use super::services::{READY_MAX, ServiceParams};
use super::shell_execute::{CommandParam, CommandSurroundings, no_shell, prepared};
use crate::backends::{EnvMode, WindowSize};
use crate::engine::counted::counted;
use crate::engine::error::ValueError;
use crate::engine::id::Seq;
use crate::tools::call::context::ToolContext;
use crate::tools::call::error::ToolError;
use crate::tools::call::tool::{BESIDE, Effect, Tool};
use crate::tools::call::tool_runner::ToolRunner;
use crate::tools::policy::command_time::CommandTime;
use crate::tools::workspace::processes::{ProcessDocument, signal_number};

/// The tools for processes.
pub(crate) const PROCESS_TOOLS: [&str; 5] = [
    ProcessStartTool::NAME,
    ProcessListTool::NAME,
    ProcessReadTool::NAME,
    ProcessWriteTool::NAME,
    ProcessSignalTool::NAME,
];

/// The longest time limit of a process, in seconds.
const DAY: f64 = 86_400.0;
/// The longest time that `process_read` waits, in seconds.
const WAIT_MAX: f64 = 300.0;
/// Time for more output to arrive after the first.
const SETTLES: Duration = Duration::from_millis(50);
/// Time for a process to read its input.
const READS_WITHIN: Duration = Duration::from_secs(10);

/// The tool `process_start`.
#[derive(Debug, Clone, Copy, Default)]
pub struct ProcessStartTool;

/// Parameters of `process_start`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProcessStartParams {
    /// A text for `/bin/sh -c`, or a program with its arguments as a list, as for shell_execute.
    command: CommandParam,
    /// The directory to run it in, as for shell_execute.
    #[serde(default)]
    cwd: String,
    /// Additional variables, as for shell_execute.
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// Standard input, at most 48,000 characters.
    #[serde(default)]
    stdin: String,
    /// True to keep standard input open for process_write. By default it ends after `stdin`.
    #[serde(default)]
    input: bool,
    /// The size of a terminal to run it in; none by default. Its input stays open.
    #[serde(default)]
    window: Option<WindowSize>,
    /// Time limit in seconds, from 1 to 86,400; none by default.
    #[serde(default)]
    timeout_seconds: Option<f64>,
    /// Makes it a service.
    #[serde(default)]
    service: Option<ServiceParams>,
}

/// Result of `process_start`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct StartedProcess {
    /// The process's number.
    process: Seq,
    /// True if the service is ready, false if it is not after ready_seconds; null for another process.
    #[serde(skip_serializing_if = "Option::is_none")]
    ready: Option<bool>,
}

impl Tool for ProcessStartTool {
    const NAME: &'static str = "process_start";
    const DESCRIPTION: &'static str = "Starts a command in the background, such as a server, a watcher or a long build, \
        and returns its number at once; of a service, when it is ready. It runs while other calls are made, until it \
        ends or is ended by process_signal. process_read returns its output. Its changes of files are recorded as they are found.";
    const EFFECT: Effect = Effect::Destructive;
    const NEEDS_SHELL: bool = true;
    type Params = ProcessStartParams;
    type Output = StartedProcess;

    async fn call(&self, context: &mut ToolContext, params: ProcessStartParams) -> Result<StartedProcess, ToolError> {
        let ProcessStartParams { command, cwd, env, stdin, input, window, timeout_seconds, service } = params;
        if let Some(service) = &service {
            service.check(context).await?;
        }
        let timeout = CommandTime::up_to(DAY)?.asked(timeout_seconds)?;
        let surroundings = CommandSurroundings {
            cwd,
            env,
            env_mode: EnvMode::Extend,
            stdin,
            timeout_seconds: None,
            capture_output: true,
            terminal: window,
            background_after_seconds: None,
        };
        let (mut command, _) = prepared(context, command.into(), surroundings)?;
        command.timeout = timeout;
        if context.shell().is_none() {
            return Err(no_shell(context, Self::NAME));
        }
        let keep_input = input || window.is_some();
        let process = context.start_process(command, keep_input, service.as_ref().map(ServiceParams::label)).await?;
        let ready = match service {
            Some(service) => Some(service.start(context, &process).await?),
            None => None,
        };
        Ok(StartedProcess { process: process.number(), ready })
    }

    fn limit(&self) -> Option<Duration> {
        Some(BESIDE + READY_MAX)
    }

    fn render(&self, output: &StartedProcess) -> String {
        let ready = match output.ready {
            Some(true) => " and is ready",
            Some(false) => " and is not ready yet; process_read returns its output",
            None => "",
        };
        format!("process {} has started{ready}", output.process)
    }
}

impl ToolRunner {
    /// Returns a runner that starts processes, whatever tools the session offers.
    #[doc(hidden)]
    #[must_use]
    pub fn for_start(&self) -> Self {
        self.with_tool(ProcessStartTool::NAME, Arc::new(ProcessStartTool))
    }
}

/// The tool `process_list`.
#[derive(Debug, Clone, Copy, Default)]
pub struct ProcessListTool;

/// Parameters of `process_list`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProcessListParams {}

/// Result of `process_list`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ProcessList {
    /// The processes, oldest first.
    processes: Vec<ProcessDocument>,
}

impl Tool for ProcessListTool {
    const NAME: &'static str = "process_list";
    const DESCRIPTION: &'static str =
        "Lists the session's running background processes and the last ended ones, with their commands and exit codes.";
    const EFFECT: Effect = Effect::ReadOnly;
    const NEEDS_SHELL: bool = true;
    type Params = ProcessListParams;
    type Output = ProcessList;

    async fn call(&self, context: &mut ToolContext, _: ProcessListParams) -> Result<ProcessList, ToolError> {
        Ok(ProcessList { processes: context.processes().iter().map(|process| process.document()).collect() })
    }
}

/// The tool `process_read`.
#[derive(Debug, Clone, Copy, Default)]
pub struct ProcessReadTool;

/// Parameters of `process_read`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProcessReadParams {
    /// The process's number.
    process: Seq,
    /// The byte of its output to begin at: `next` of the last read. 0, the default, is the beginning. The last MiB is
    /// retained.
    #[serde(default)]
    from: u64,
    /// Seconds to wait for output, at most 300; 0 by default.
    #[serde(default)]
    wait_seconds: f64,
    /// True to wait for the end of the process rather than for output.
    #[serde(default)]
    until_end: bool,
}

/// Result of `process_read`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ProcessReading {
    /// Standard output, at most as much as the session's commands return, by default 32 KiB of both streams.
    stdout: String,
    /// Standard error, likewise.
    stderr: String,
    /// The number of bytes after `from` that are no longer retained.
    missed: u64,
    /// The byte to read on from. Both streams count, in the order of arrival.
    next: u64,
    /// The number of bytes after `next` that were written already.
    left: u64,
    /// The process.
    process: ProcessDocument,
}

impl Tool for ProcessReadTool {
    const NAME: &'static str = "process_read";
    const DESCRIPTION: &'static str = "Returns the output of a background process from a byte on, and its state: if it \
        runs, and its exit code. Can wait for more output, or for its end.";
    const EFFECT: Effect = Effect::ReadOnly;
    const NEEDS_SHELL: bool = true;
    type Params = ProcessReadParams;
    type Output = ProcessReading;

    async fn call(&self, context: &mut ToolContext, params: ProcessReadParams) -> Result<ProcessReading, ToolError> {
        let ProcessReadParams { process, from, wait_seconds: wait, until_end } = params;
        let time = Duration::try_from_secs_f64(wait).ok().filter(|_| wait <= WAIT_MAX);
        let wrong = || ValueError::new(format!("wait_seconds is {wait}; it must be from 0 to {WAIT_MAX}"));
        let time = time.ok_or_else(wrong)?;
        let process = context.process(process)?;
        let written: u64 = process.output.bytes().iter().sum();
        if from > written {
            return Err(ValueError::new(format!("from is {from}; the process has written {written} bytes")).into());
        }
        let seen = async {
            if until_end || !process.output.beyond(from).await {
                return process.ended().await;
            }
            tokio::time::sleep(SETTLES).await;
        };
        // Without output in time, the result says so.
        let _ = tokio::time::timeout(time, seen).await;
        // The end first: then the stretch is complete.
        let state = process.document();
        let stretch = process.output.stretch(from, context.command_options().output_bytes);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(ProcessReading {
            stdout: text(&stretch.stdout),
            stderr: text(&stretch.stderr),
            missed: stretch.missed,
            next: stretch.next,
            left: stretch.written - stretch.next,
            process: state,
        })
    }

    fn limit(&self) -> Option<Duration> {
        Some(BESIDE + Duration::from_secs_f64(WAIT_MAX))
    }

    fn render(&self, output: &ProcessReading) -> String {
        output.render()
    }
}

impl ProcessReading {
    fn render(&self) -> String {
        let state = match &self.process {
            ProcessDocument { running: true, .. } => "still runs".to_owned(),
            ProcessDocument { problem: Some(problem), .. } => format!("ended: {problem}"),
            ProcessDocument { cancelled: true, .. } => "was cancelled".to_owned(),
            ProcessDocument { timed_out: true, .. } => "timed out and was killed".to_owned(),
            ProcessDocument { signal: Some(signal), .. } => format!("was ended by signal {signal}"),
            ProcessDocument { exit_code, .. } => format!("ended with exit code {}", exit_code.unwrap_or_default()),
        };
        let mut text = match self.missed {
            0 => String::new(),
            missed => format!("[{missed} bytes before this are no longer retained]\n"),
        };
        for part in [self.stdout.as_str(), if self.stderr.is_empty() { "" } else { "[stderr]\n" }, &self.stderr] {
            text.push_str(if text.is_empty() || text.ends_with('\n') || part.is_empty() { "" } else { "\n" });
            text.push_str(part);
        }
        let left = if self.left > 0 { format!("; {} more bytes", self.left) } else { String::new() };
        let gap = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        format!("{text}{gap}[process {} {state}; next: {}{left}]", self.process.process, self.next)
    }
}

/// The tool `process_write`.
#[derive(Debug, Clone, Copy, Default)]
pub struct ProcessWriteTool;

/// Parameters of `process_write`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProcessWriteParams {
    /// The process's number.
    process: Seq,
    /// The text, at most 48,000 characters. A line ends with a newline, also in a terminal.
    #[serde(default)]
    text: String,
    /// True to end its input afterwards; in a terminal, like Ctrl-D.
    #[serde(default)]
    close: bool,
}

/// Result of `process_write`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct WrittenInput {
    /// The number of bytes that were passed to it.
    bytes: usize,
    /// True if its input has ended.
    closed: bool,
}

impl Tool for ProcessWriteTool {
    const NAME: &'static str = "process_write";
    const DESCRIPTION: &'static str = "Writes to the standard input of a background process that was started with \
        input or window, and can end that input.";
    const EFFECT: Effect = Effect::Destructive;
    const NEEDS_SHELL: bool = true;
    type Params = ProcessWriteParams;
    type Output = WrittenInput;

    async fn call(&self, context: &mut ToolContext, params: ProcessWriteParams) -> Result<WrittenInput, ToolError> {
        let ProcessWriteParams { process: number, text, close } = params;
        check_chars("text", &text)?;
        let process = context.process_to_control(number)?;
        let mut bytes = text.as_bytes();
        let sent = tokio::time::timeout(READS_WITHIN, process.input.feed(&mut bytes)).await;
        match sent {
            Ok(true) => {}
            Ok(false) => {
                let why = "its input has ended; start it with input: true to write to it";
                return Err(ToolError::new(format!("process {number} accepts no more input: {why}")));
            }
            Err(_) => {
                let (taken, all) = (text.len() - bytes.len(), text.len());
                let what = format!("process {number} does not read its input: it was passed {taken} of {all} bytes");
                return Err(ToolError::new(what));
            }
        }
        if close {
            process.input.end();
        }
        Ok(WrittenInput { bytes: text.len(), closed: close })
    }

    fn changes_files(&self) -> bool {
        false
    }

    fn render(&self, output: &WrittenInput) -> String {
        let closed = if output.closed { "; its input has ended" } else { "" };
        format!("wrote {}{closed}", counted(output.bytes as u64, "byte"))
    }
}

/// The tool `process_signal`.
#[derive(Debug, Clone, Copy, Default)]
pub struct ProcessSignalTool;

/// Parameters of `process_signal`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProcessSignalParams {
    /// The process's number.
    process: Seq,
    /// The signal: a name such as `TERM`, `INT` or `KILL`, or a number from 1 to 64. `KILL` ends everything that it has
    /// started.
    signal: Value,
}

/// Result of `process_signal`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SentSignal {
    /// The signal's number.
    signal: u8,
}

impl Tool for ProcessSignalTool {
    const NAME: &'static str = "process_signal";
    const DESCRIPTION: &'static str = "Sends a signal to a background process and its group, for example TERM to end \
        it. process_read with until_end waits for its end.";
    const EFFECT: Effect = Effect::Destructive;
    const NEEDS_SHELL: bool = true;
    type Params = ProcessSignalParams;
    type Output = SentSignal;

    async fn call(&self, context: &mut ToolContext, params: ProcessSignalParams) -> Result<SentSignal, ToolError> {
        let signal = signal_number(&params.signal)?;
        context.process_to_control(params.process)?.signal(signal);
        Ok(SentSignal { signal })
    }

    fn changes_files(&self) -> bool {
        false
    }

    fn render(&self, output: &SentSignal) -> String {
        format!("sent signal {}", output.signal)
    }
}
