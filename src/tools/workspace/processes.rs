//! Background processes of a session.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::process_output::{ProcessOutput, ProcessReader};
use crate::backends::{CommandInput, ShellError, ShellResult};
use crate::engine::error::ValueError;
use crate::engine::event::CommandLine;
use crate::engine::id::Seq;
use crate::engine::lock::lock;
use crate::tools::builtin::shell_run::TIMED_OUT;

/// Number of ended processes that are remembered per session.
const ENDED_MAX: usize = 16;
const KILL: u8 = 9;
const TERM: u8 = 15;
/// The time for a service to end after TERM.
const TERM_TIME: Duration = Duration::from_secs(3);
const LOST: &str = "the container or the command runner ended while it ran";
const SIGNALS: [(&str, u8); 13] = [
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("ABRT", 6),
    ("KILL", 9),
    ("USR1", 10),
    ("USR2", 12),
    ("PIPE", 13),
    ("ALRM", 14),
    ("TERM", 15),
    ("CONT", 18),
    ("STOP", 19),
    ("WINCH", 28),
];
const SIGNAL_MAX: u64 = 64;
/// The signals that end a service for good: INT, QUIT, KILL, TERM.
const ENDING: [u8; 4] = [2, 3, KILL, TERM];

/// The processes of a session: the running ones, and the last ended ones.
#[derive(Default)]
pub struct ProcessTable(Mutex<BTreeMap<Seq, Arc<Process>>>);

/// Keeps the workspace open, and counts a call's process as work that the token cancels, until the result is dropped.
/// Returns `None` if no more work may begin.
pub type ProcessKeeper = Arc<dyn Fn(Seq, &CancellationToken) -> Option<Box<dyn Any + Send + Sync>> + Send + Sync>;

/// A process.
pub struct Process {
    call: Seq,
    command: CommandLine,
    cwd: String,
    service: Option<ServiceLabel>,
    is_stopped: AtomicBool,
    is_ready: AtomicBool,
    /// Its input, and its signals.
    pub input: CommandInput,
    pub(crate) output: Arc<ProcessOutput>,
    since: Instant,
    end: watch::Sender<Option<ProcessEnd>>,
}

/// The service that a process is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServiceLabel {
    pub(crate) name: String,
    pub(crate) port: Option<u16>,
    pub(crate) restart: bool,
}

/// The end of a process.
#[derive(Debug, Clone, Default)]
pub(crate) struct ProcessEnd {
    exit_code: Option<i32>,
    signal: Option<i32>,
    timed_out: bool,
    cancelled: bool,
    problem: Option<String>,
    micros: u64,
    /// The call that recorded the end.
    pub(crate) recorded: Option<Seq>,
}

/// A background process, running or ended.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Process")]
pub struct ProcessDocument {
    /// Its number: the position of the call that started it.
    pub process: Seq,
    /// The command: a string, or a list of a program and its arguments.
    #[schemars(with = "serde_json::Value")]
    pub command: CommandLine,
    /// The directory that it started in.
    pub cwd: String,
    /// The name of the service that it is, if it is one.
    pub service: Option<String>,
    /// The port of the service.
    pub port: Option<u16>,
    /// True if the service was ready in time; null for another process.
    pub ready: Option<bool>,
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
    pub(crate) fn new(
        call: Seq,
        (command, cwd): (CommandLine, String),
        input: CommandInput,
        service: Option<ServiceLabel>,
    ) -> Self {
        let (is_stopped, is_ready) = (AtomicBool::new(false), AtomicBool::new(false));
        let (output, since, end) = (Arc::default(), Instant::now(), watch::Sender::new(None));
        Self { call, command, cwd, service, is_stopped, is_ready, input, output, since, end }
    }

    pub(crate) fn service(&self) -> Option<&ServiceLabel> {
        self.service.as_ref()
    }

    pub(crate) fn set_ready(&self) {
        self.is_ready.store(true, Ordering::Release);
    }

    /// Sends a signal for a client. A service that it ends is not started again.
    pub fn signal(&self, number: u8) {
        if ENDING.contains(&number) {
            self.is_stopped.store(true, Ordering::Release);
        }
        self.input.signal(number);
    }

    /// Returns true if a client sent a signal that ends it.
    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    /// Returns its number: the position of the call that started it.
    pub fn number(&self) -> Seq {
        self.call
    }

    /// Returns true until it ends.
    pub fn is_running(&self) -> bool {
        self.end.borrow().is_none()
    }

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
            service: self.service.as_ref().map(|service| service.name.clone()),
            port: self.service.as_ref().and_then(|service| service.port),
            ready: self.service.as_ref().map(|_| self.is_ready.load(Ordering::Acquire)),
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

    /// Publishes its end.
    pub(crate) fn publish(&self, end: ProcessEnd) {
        self.end.send_replace(Some(end));
    }
}

impl ProcessEnd {
    /// Returns true if its container or runner ended, or its end is unknown.
    pub(crate) fn is_lost(&self) -> bool {
        self.problem.is_some()
    }

    pub(crate) fn of(ended: &Result<ShellResult, ShellError>) -> Self {
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

impl ProcessTable {
    /// Returns the processes, oldest first.
    pub fn all(&self) -> Vec<Arc<Process>> {
        lock(&self.0).values().cloned().collect()
    }

    /// Finds a process by its number.
    pub fn find(&self, number: Seq) -> Option<Arc<Process>> {
        lock(&self.0).get(&number).cloned()
    }

    /// Returns the running processes that calls after `seq` started.
    pub(crate) fn running_after(&self, seq: Seq) -> Vec<Arc<Process>> {
        let all = lock(&self.0);
        all.range(seq.saturating_add(1)..)
            .filter(|(_, process)| process.is_running())
            .map(|(_, one)| Arc::clone(one))
            .collect()
    }

    /// Finds the running process of a service.
    pub(crate) fn service(&self, name: &str) -> Option<Arc<Process>> {
        let is_it = |process: &&Arc<Process>| {
            process.is_running() && process.service.as_ref().is_some_and(|service| service.name == name)
        };
        lock(&self.0).values().find(is_it).cloned()
    }

    /// Returns the running processes to end before a rewind: what calls after `seq` started; and earlier services that
    /// are started again, which end only if files change.
    pub(crate) fn ended_by_rewind(&self, seq: Seq) -> (Vec<Arc<Process>>, Vec<Arc<Process>>) {
        let running = lock(&self.0).values().filter(|process| process.is_running()).cloned().collect::<Vec<_>>();
        let (later, earlier): (Vec<_>, Vec<_>) = running.into_iter().partition(|process| process.call > seq);
        let restarts = |process: &Arc<Process>| process.service.as_ref().is_some_and(|service| service.restart);
        (later, earlier.into_iter().filter(restarts).collect())
    }

    /// Returns true if processes are running.
    pub(crate) fn is_running(&self) -> bool {
        lock(&self.0).values().any(|process| process.is_running())
    }

    pub(crate) fn add(&self, process: &Arc<Process>) {
        let mut all = lock(&self.0);
        all.insert(process.call, Arc::clone(process));
        let ended: Vec<Seq> = all.iter().filter(|(_, process)| !process.is_running()).map(|(call, _)| *call).collect();
        for old in ended.iter().take(ended.len().saturating_sub(ENDED_MAX)) {
            all.remove(old);
        }
    }
}

/// Ends processes, and waits for their ends to be recorded: services with TERM at first, then all with KILL.
pub async fn end(processes: &[Arc<Process>], patience: Duration) {
    let services: Vec<_> = processes.iter().filter(|process| process.service.is_some()).collect();
    services.iter().for_each(|process| process.input.signal(TERM));
    let ended = futures_util::future::join_all(services.iter().map(|process| process.ended()));
    // The others are killed.
    let _ = tokio::time::timeout(TERM_TIME, ended).await;
    let left: Vec<_> = processes.iter().filter(|process| process.is_running()).cloned().collect();
    kill(&left, patience).await;
}

/// Kills processes, and waits for their ends to be recorded. A process that does not end in time is left running.
pub async fn kill(processes: &[Arc<Process>], patience: Duration) {
    let until = Instant::now() + patience;
    processes.iter().for_each(|process| process.input.signal(KILL));
    for process in processes {
        if tokio::time::timeout_at(until, process.ended()).await.is_err() {
            tracing::warn!(process = process.call, "a killed process has not ended");
        }
    }
}

/// Reads a signal: a name, with or without `SIG`, or a number.
pub fn signal_number(signal: &Value) -> Result<u8, ValueError> {
    let named = |name: &str| {
        let name = name.strip_prefix("SIG").unwrap_or(name);
        SIGNALS.iter().find(|(known, _)| *known == name).map(|(_, number)| *number)
    };
    let number = match signal {
        Value::String(name) => named(name),
        other => other.as_u64().filter(|number| (1..=SIGNAL_MAX).contains(number)).and_then(|n| n.try_into().ok()),
    };
    let names = || SIGNALS.map(|(name, _)| name).join(", ");
    number.ok_or_else(|| ValueError::new(format!("signal must be {}, or a number from 1 to {SIGNAL_MAX}", names())))
}
