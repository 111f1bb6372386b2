//! Background processes of a store's sessions.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::in_flight::Going;
use super::process_output::{ProcessOutput, ProcessReader};
use super::{Hub, HubError, OpenSession};
use crate::backends::{CommandInput, OutputWatch, ShellError, ShellResult};
use crate::engine::event::CommandLine;
use crate::engine::id::{Seq, SessionId};
use crate::engine::lock::lock;
use crate::tools::process::{ProcessStart, ProcessTask};
use crate::tools::{TIMED_OUT, ToolOutcome};

/// Number of ended processes that are remembered per session.
const ENDED_MAX: usize = 16;
/// Maximum delay of publishing an end that can't be recorded yet because another call holds the workspace.
const RECORDED_WITHIN: Duration = Duration::from_secs(1);

const KILL: u8 = 9;

const LOST: &str = "the container or the command runner ended while it ran";

/// All processes of a hub.
#[derive(Default)]
pub(super) struct ProcessTable(Mutex<BTreeMap<(SessionId, Seq), Arc<Process>>>);

/// A process.
pub struct Process {
    call: Seq,
    command: CommandLine,
    cwd: String,
    pub input: CommandInput,
    output: Arc<ProcessOutput>,
    since: Instant,
    end: watch::Sender<Option<ProcessEnd>>,
}

/// The end of a process.
#[derive(Debug, Clone, Default)]
struct ProcessEnd {
    exit_code: Option<i32>,
    signal: Option<i32>,
    timed_out: bool,
    cancelled: bool,
    problem: Option<String>,
    micros: u64,
    /// The call that recorded the end.
    recorded: Option<Seq>,
}

/// A background process, running or ended.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(rename = "Process")]
pub struct ProcessDocument {
    /// Its number: the position of the call that started it.
    pub process: Seq,
    /// The command: a string, or a list of a program and its arguments.
    #[schemars(with = "serde_json::Value")]
    pub command: CommandLine,
    /// The directory that it started in.
    pub cwd: String,
    /// True until it ends.
    pub running: bool,
    /// 0 on success, 124 on timeout, 127 if the program was not found; null while it runs, or if it could not be run.
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// True if it was ended by its time limit.
    pub timed_out: bool,
    /// True if it was cancelled.
    pub cancelled: bool,
    /// The reason that it could not be run or that its end is unknown; not a failure of the command itself.
    pub problem: Option<String>,
    /// Bytes written to standard output so far.
    pub stdout_bytes: u64,
    /// Bytes written to standard error so far.
    pub stderr_bytes: u64,
    /// Its duration so far, in microseconds.
    pub micros: u64,
    /// The call that recorded its end and its changes.
    pub call: Option<Seq>,
}

impl Process {
    /// Returns its current status.
    pub fn document(&self) -> ProcessDocument {
        let end = self.end.borrow().clone();
        let running = end.is_none();
        let micros = u64::try_from(self.since.elapsed().as_micros()).unwrap_or(u64::MAX);
        let end = end.unwrap_or(ProcessEnd { micros, ..ProcessEnd::default() });
        let [stdout_bytes, stderr_bytes] = self.output.bytes();
        ProcessDocument {
            process: self.call,
            command: self.command.clone(),
            cwd: self.cwd.clone(),
            running,
            exit_code: end.exit_code,
            signal: end.signal,
            timed_out: end.timed_out,
            cancelled: end.cancelled,
            problem: end.problem,
            stdout_bytes,
            stderr_bytes,
            micros: end.micros,
            call: end.recorded,
        }
    }

    /// Waits for its end.
    pub async fn ended(&self) {
        // `self` owns the sender, so this can't fail.
        let _ = self.end.subscribe().wait_for(Option::is_some).await;
    }

    /// Reads its output, starting at any byte.
    pub fn read_from(&self, at: u64) -> ProcessReader {
        self.output.read_from(at)
    }

    /// Waits for the process to end, records the end, and publishes it.
    async fn see_to_end(self: Arc<Self>, open: OpenSession, started: ProcessTask, going: Going) {
        let ProcessTask { task, running } = started;
        let stopped = |_| ShellError::Unavailable { backend: "process", reason: "its task was cancelled".to_owned() };
        let ended = task.await.map_err(stopped).and_then(|ended| ended);
        self.output.end();
        drop(running);
        let mut end = ProcessEnd::of(&ended);
        let session = open.session().clone();
        let mut recording = tokio::spawn({
            let call = self.call;
            async move {
                let recorded = open.tool_runner().end_process(call, ended).await;
                // The workspace stays open until the end is recorded.
                drop((open, going));
                recorded
            }
        });
        let recorded = match tokio::time::timeout(RECORDED_WITHIN, &mut recording).await {
            Ok(recorded) => recorded,
            Err(_) => {
                self.end.send_replace(Some(end.clone()));
                recording.await
            }
        };
        match recorded {
            Ok(Ok(outcome)) => end.recorded = Some(outcome.call),
            Ok(Err(error)) => tracing::warn!(%error, session = session.name(), "failed to record the end of a process"),
            Err(error) => tracing::warn!(%error, session = session.name(), "failed to record the end of a process"),
        }
        self.end.send_replace(Some(end));
    }
}

impl ProcessEnd {
    fn of(ended: &Result<ShellResult, ShellError>) -> Self {
        match ended {
            Ok(result) => Self {
                exit_code: Some(if result.timed_out { TIMED_OUT } else { result.exit_code }),
                signal: result.signal,
                timed_out: result.timed_out,
                cancelled: result.cancelled,
                problem: result.lost.then(|| LOST.to_owned()),
                micros: u64::try_from(result.duration.as_micros()).unwrap_or(u64::MAX),
                recorded: None,
            },
            Err(error) => Self { problem: Some(error.to_string()), ..Self::default() },
        }
    }
}

impl Hub {
    /// Starts a process in a session. If it can't be started, returns the outcome of its call.
    #[doc(hidden)]
    pub async fn start_process(
        &self,
        open: OpenSession,
        start: ProcessStart,
    ) -> Result<Result<Arc<Process>, ToolOutcome>, HubError> {
        let (output, cancel) = (Arc::<ProcessOutput>::default(), CancellationToken::new());
        let (command, cwd, input) = (start.command.clone(), start.cwd.clone(), start.input.clone());
        let printed = Arc::clone(&output);
        let watch: OutputWatch = Arc::new(move |stream, bytes| printed.push(stream, bytes));
        let going = self.shared.in_flight.begin(cancel.clone())?;
        let (runner, call, tool) = open.tool_runner().for_start(start, watch, cancel);
        let outcome = open.through(runner).call(call).await?;
        let Some(started) = tool.started().filter(|_| outcome.is_ok()) else { return Ok(Err(outcome)) };
        going.begun(open.session().id(), outcome.call);
        let process = Arc::new(Process {
            call: outcome.call,
            command,
            cwd,
            input,
            output,
            since: Instant::now(),
            end: watch::Sender::new(None),
        });
        self.shared.processes.add(open.session().id(), &process);
        tokio::spawn(Arc::clone(&process).see_to_end(open, started, going));
        Ok(Ok(process))
    }

    /// Returns the known processes of a session, oldest first.
    #[doc(hidden)]
    pub fn processes(&self, session: SessionId) -> Vec<Arc<Process>> {
        let all = lock(&self.shared.processes.0);
        all.range((session, 0)..=(session, Seq::MAX)).map(|(_, process)| Arc::clone(process)).collect()
    }

    /// Kills the processes of a session, and waits for their ends to be recorded.
    pub(super) async fn end_processes(&self, session: SessionId, patience: Duration) {
        let since = Instant::now();
        for process in self.processes(session) {
            process.input.signal(KILL);
            // A process that does not end in time is left running.
            let _ = tokio::time::timeout(patience.saturating_sub(since.elapsed()), process.ended()).await;
        }
    }

    /// Returns a process of a session.
    #[doc(hidden)]
    pub fn process(&self, session: SessionId, number: Seq) -> Option<Arc<Process>> {
        lock(&self.shared.processes.0).get(&(session, number)).cloned()
    }
}

impl ProcessTable {
    fn add(&self, session: SessionId, process: &Arc<Process>) {
        let mut all = lock(&self.0);
        all.insert((session, process.call), Arc::clone(process));
        let of_session = all.range((session, 0)..=(session, Seq::MAX));
        let ended: Vec<_> =
            of_session.filter(|(_, process)| process.end.borrow().is_some()).map(|(key, _)| *key).collect();
        for old in ended.iter().take(ended.len().saturating_sub(ENDED_MAX)) {
            all.remove(old);
        }
    }

    /// Forgets the processes of a session.
    pub(super) fn forget(&self, session: SessionId) {
        lock(&self.0).retain(|(of, _), _| *of != session);
    }
}
