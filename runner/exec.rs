//! One command, from its start to the end of its last process.

use std::collections::BTreeSet;
use std::ffi::{CString, OsStr};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use crate::connection::{HostConnection, is_fatal};
use crate::crowd::Population;
use crate::feed::CommandFeed;
use crate::files::{CommandRoot, Refused, c_path};
use crate::processes::{self, Processes};
use crate::spawn::{SpawnOptions, SpawnStage, Spawner};
use crate::streams::CommandStreams;
use crate::sys::{Dead, POLLIN, POLLOUT, PollFd, SIGCONT, SIGHUP, SIGKILL, SIGTERM, kill_group, set_window};
use crate::wire::{
    Ended, MAX_STDIN, MAX_WORDS_BYTES, OutputStreamKind, RunFailure, RunRequest, RunnerReply, TerminalWindow,
};

/// The time limit for leftover processes to end after SIGTERM.
const LEFTOVER_GRACE: Duration = Duration::from_millis(250);
/// The time limit for killed processes to disappear. The kernel may hold one for longer.
const KILL_TIME_LIMIT: Duration = Duration::from_secs(4);
/// The pause between attempts to kill processes that escaped.
const KILL_AGAIN: Duration = Duration::from_millis(50);
/// The search path of a command without `PATH`.
const DEFAULT_PATH: &[u8] = b"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const SHOWN_MAX: usize = 256;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum KillCause {
    Timeout,
    Cancel,
    PeerGone,
}

#[derive(Clone, Copy)]
enum RunPhase {
    Running,
    /// Its processes were asked to end, and are killed at this time.
    Asked(Instant),
    /// Its processes were killed. The next attempt is at `again`; the runner gives up at `until`.
    Killed {
        again: Instant,
        until: Instant,
    },
}

pub(crate) struct RunnerCommand {
    pub(crate) peer: Option<u64>,
    pub(crate) leader: i32,
    started: Instant,
    deadline: Option<Instant>,
    grace: Duration,
    feed: Option<CommandFeed>,
    outputs: [Option<File>; 2],
    terminal: Option<File>,
    phase: RunPhase,
    cause: Option<KillCause>,
    sent: Option<u8>,
    kills: u32,
    dead: Option<Dead>,
    leftovers: u32,
    survivors: u32,
    over: bool,
}

pub(crate) enum StartOutcome {
    Running(RunnerCommand),
    /// The program is missing or can't be executed: a result with an exit code and a message for stderr.
    NoProgram {
        exit_code: u8,
        message: String,
    },
}

pub(crate) struct ExecContext<'a> {
    pub(crate) root: &'a CommandRoot,
    pub(crate) contained: bool,
    pub(crate) null: &'a File,
}

impl RunnerCommand {
    pub(crate) fn begin(
        run: &RunRequest<'_>,
        place: &ExecContext<'_>,
        spawner: &mut Spawner,
        now: Instant,
    ) -> Result<StartOutcome, Refused> {
        let (argv, env) = (words(&run.argv)?, words(&run.env)?);
        let Some(program) = run.argv.first().filter(|program| !program.is_empty()) else {
            return Err(Refused::new(RunFailure::Invalid, "the command names no program"));
        };
        if run.stdin.len() > MAX_STDIN {
            return Err(Refused::new(RunFailure::Invalid, format!("standard input has more than {MAX_STDIN} bytes")));
        }
        let cwd = place.root.directory(run.cwd);
        let cwd = cwd.map_err(|refused| not_entered(run.cwd, &refused))?;
        let path = run.env.iter().find_map(|variable| variable.strip_prefix(b"PATH=")).unwrap_or(DEFAULT_PATH);
        let candidates = candidates(program, path)?;
        let surroundings = &run.surroundings;
        let cgroup = Some(surroundings.cgroup).filter(|path| !path.is_empty());
        // Without write access, the command stays in the runner's control group.
        let cgroup = cgroup.and_then(|path| OpenOptions::new().write(true).open(OsStr::from_bytes(path)).ok());
        let streams = CommandStreams::make(run).map_err(|error| no_process(&error))?;
        let start = SpawnOptions {
            candidates: &candidates,
            argv: &argv,
            env: &env,
            cwd: cwd.as_fd(),
            streams: streams.inner(place.null),
            die_with_runner: !place.contained,
            surroundings,
            cgroup: cgroup.as_ref().map(File::as_fd),
        };
        let leader = match spawner.spawn(&start) {
            Ok(leader) => leader,
            Err((SpawnStage::Process, error)) => return Err(no_process(&error)),
            Err((SpawnStage::Directory, error)) => return Err(no_directory(run.cwd, &error.to_string())),
            Err((SpawnStage::Program, error)) => return unexecuted(program, &error),
        };
        let CommandStreams { feed, outputs, terminal, .. } = streams;
        Ok(StartOutcome::Running(Self {
            peer: None,
            leader,
            started: now,
            deadline: (run.timeout_ms > 0).then(|| now + Duration::from_millis(run.timeout_ms.into())),
            grace: Duration::from_millis(run.grace_ms.into()),
            feed,
            outputs,
            terminal,
            phase: RunPhase::Running,
            cause: None,
            sent: None,
            kills: 0,
            dead: None,
            leftovers: 0,
            survivors: 0,
            over: false,
        }))
    }

    /// Lists the descriptors to poll: standard input while bytes wait for it, the outputs while the peer takes them.
    pub(crate) fn interests(&self, takes_output: bool) -> [PollFd; 3] {
        let off = |events| PollFd { fd: -1, events, ready: 0 };
        let [mut input, mut stdout, mut stderr] = [off(POLLOUT), off(POLLIN), off(POLLIN)];
        if let Some(feed) = self.feed.as_ref().filter(|feed| feed.has_more()) {
            input.fd = feed.as_raw_fd();
        }
        for (slot, pipe) in [&mut stdout, &mut stderr].into_iter().zip(&self.outputs) {
            if let Some(pipe) = pipe.as_ref().filter(|_| takes_output) {
                slot.fd = pipe.as_raw_fd();
            }
        }
        [input, stdout, stderr]
    }

    pub(crate) fn advance(&mut self, ready: [i16; 3], mut peer: Option<&mut HostConnection>) {
        if ready[0] != 0 {
            self.write_input(peer.as_deref_mut());
        }
        let Some(peer) = peer else { return };
        if ready[1] != 0 {
            self.relay(OutputStreamKind::Stdout, peer);
        }
        if ready[2] != 0 {
            self.relay(OutputStreamKind::Stderr, peer);
        }
    }

    /// Takes input from the peer. Returns false if the peer has sent too much.
    pub(crate) fn give(&mut self, bytes: &[u8], peer: &mut HostConnection) -> bool {
        let Some(feed) = &mut self.feed else {
            // Input that nothing will read is acknowledged at once, so that the peer continues.
            taken(bytes.len(), peer);
            return true;
        };
        let is_taken = feed.take(bytes);
        self.write_input(Some(peer));
        is_taken
    }

    pub(crate) fn end_input(&mut self, peer: &mut HostConnection) {
        if let Some(feed) = &mut self.feed {
            feed.end();
            self.write_input(Some(peer));
        }
    }

    pub(crate) fn resize(&self, window: TerminalWindow) {
        if let Some(terminal) = &self.terminal {
            // Fails if the terminal has been hung up.
            let _ = set_window(terminal, window.rows, window.columns);
        }
    }

    pub(crate) fn signal(&self, number: u8) {
        if self.is_led() {
            kill_group(self.leader, number.into());
        }
    }

    fn write_input(&mut self, peer: Option<&mut HostConnection>) {
        let Some(feed) = &mut self.feed else { return };
        let written = feed.write();
        if let Some(peer) = peer {
            taken(written, peer);
        }
        if feed.is_over() {
            self.feed = None;
        }
    }

    /// Returns true if the stream may have more.
    fn relay(&mut self, stream: OutputStreamKind, peer: &mut HostConnection) -> bool {
        let Some(slot) = self.outputs.get_mut(stream as usize) else { return false };
        let Some(pipe) = slot else { return false };
        match peer.relay(stream, pipe) {
            Ok(1..) => return true,
            Err(error) if !is_fatal(&error) => {}
            _ => *slot = None,
        }
        false
    }

    pub(crate) fn stop(&mut self, cause: KillCause, now: Instant) {
        if cause == KillCause::PeerGone {
            self.feed = None;
            self.outputs = [None, None];
            self.terminal = None;
            self.grace = Duration::ZERO;
            if let RunPhase::Asked(at) = &mut self.phase {
                *at = now;
            }
        }
        // After the first process has ended, its id may have been reused.
        if !self.is_led() || !matches!(self.phase, RunPhase::Running) {
            return;
        }
        self.cause = Some(cause);
        if !self.grace.is_zero() {
            self.sent = Some(15);
            if self.terminal.is_some() {
                // Shells at a terminal ignore SIGTERM, but not a hang-up.
                kill_group(self.leader, SIGHUP);
            }
            kill_group(self.leader, SIGTERM);
            kill_group(self.leader, SIGCONT);
            let elsewhere = Processes::now().below(self.leader, &BTreeSet::new());
            processes::terminate(&elsewhere.into_iter().filter(|&pid| !self.in_group(pid)).collect());
        }
        self.phase = RunPhase::Asked(now + self.grace);
    }

    fn in_group(&self, pid: i32) -> bool {
        crate::sys::group_of(pid) == Some(self.leader)
    }

    /// Records that its first process has ended. The runner now ends the leftover processes.
    pub(crate) fn leader_ended(&mut self, dead: Dead) {
        self.dead = Some(dead);
        self.feed = None;
    }

    pub(crate) fn is_led(&self) -> bool {
        self.dead.is_none()
    }

    pub(crate) fn tick(&mut self, now: Instant, crowd: &mut Population) {
        if self.is_led() && self.deadline.is_some_and(|deadline| now >= deadline) {
            self.stop(KillCause::Timeout, now);
        }
        if !self.is_led() && !crowd.has_leftovers() {
            self.over = true;
            return;
        }
        match self.phase {
            RunPhase::Running if !self.is_led() => {
                let left = crowd.leftovers();
                self.leftovers = u32::try_from(left.len()).unwrap_or(u32::MAX);
                processes::terminate(&left);
                self.phase = RunPhase::Asked(now + self.grace.min(LEFTOVER_GRACE));
            }
            RunPhase::Asked(at) if now >= at => {
                if self.is_led() {
                    self.sent = Some(9);
                    kill_group(self.leader, SIGKILL);
                }
                self.kill(None, crowd);
            }
            RunPhase::Killed { until, .. } if now >= until => {
                self.survivors = u32::try_from(crowd.leftovers().len()).unwrap_or(u32::MAX).max(1);
                self.over = true;
            }
            RunPhase::Killed { again, until } if now >= again => self.kill(Some(until), crowd),
            _ => {}
        }
    }

    fn kill(&mut self, until: Option<Instant>, crowd: &mut Population) {
        self.kills += 1;
        crowd.kill(self.leader, self.kills);
        // Killing many processes takes a while.
        let now = Instant::now();
        self.phase = RunPhase::Killed { again: now + KILL_AGAIN, until: until.unwrap_or(now + KILL_TIME_LIMIT) };
    }

    /// The latest time for the next [`RunnerCommand::tick`].
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        match self.phase {
            RunPhase::Running => self.deadline,
            RunPhase::Asked(at) => Some(at),
            RunPhase::Killed { again, until } => Some(again.min(until)),
        }
    }

    /// Returns true if its processes are gone or given up. Their output may still be in the pipes.
    pub(crate) fn is_over(&self) -> bool {
        self.over
    }

    /// Relays the remaining output as far as the peer takes it. Returns true if none remains. Does not wait for an open
    /// but empty pipe: a process of no command holds it.
    pub(crate) fn drain(&mut self, peer: &mut HostConnection) -> bool {
        for stream in [OutputStreamKind::Stdout, OutputStreamKind::Stderr] {
            while peer.takes_output() && self.relay(stream, peer) {}
        }
        peer.takes_output()
    }

    pub(crate) fn ended(&self, now: Instant) -> Ended {
        let status = self.dead.as_ref().map(|dead| ExitStatus::from_raw(dead.status));
        let small = |number: Option<i32>| number.and_then(|number| u8::try_from(number).ok());
        Ended {
            exit_code: small(status.and_then(|status| status.code())),
            signal: small(status.and_then(|status| status.signal())),
            timed_out: self.cause == Some(KillCause::Timeout),
            cancelled: self.cause == Some(KillCause::Cancel),
            sent: self.sent,
            leftovers: self.leftovers,
            survivors: self.survivors,
            duration_us: u64::try_from(now.saturating_duration_since(self.started).as_micros()).unwrap_or(u64::MAX),
        }
    }
}

fn taken(bytes: usize, peer: &mut HostConnection) {
    if bytes > 0 {
        RunnerReply::Taken { bytes: u32::try_from(bytes).unwrap_or(u32::MAX) }.encode(peer.out());
    }
}

fn words(words: &[&[u8]]) -> Result<Vec<CString>, Refused> {
    if words.iter().map(|word| word.len()).sum::<usize>() > MAX_WORDS_BYTES {
        let message = format!("a command's arguments or variables have more than {MAX_WORDS_BYTES} bytes");
        return Err(Refused::new(RunFailure::Invalid, message));
    }
    let words = words.iter().map(|&word| CString::new(word)).collect::<Result<_, _>>();
    words.map_err(|_| Refused::new(RunFailure::Invalid, "a command's arguments or variables hold a NUL byte"))
}

fn not_entered(cwd: &[u8], refused: &Refused) -> Refused {
    let is_missing = io::Error::from_raw_os_error(refused.errno).kind() == io::ErrorKind::NotFound;
    let why = if is_missing { "there is no such directory" } else { &refused.message };
    Refused { errno: refused.errno, ..no_directory(cwd, why) }
}

fn no_directory(cwd: &[u8], why: &str) -> Refused {
    Refused::new(RunFailure::Cwd, format!("a command can't start in /{}: {why}", String::from_utf8_lossy(cwd)))
}

fn no_process(error: &io::Error) -> Refused {
    let errno = error.raw_os_error().unwrap_or(0);
    Refused { errno, ..Refused::new(RunFailure::Spawn, format!("failed to start a process: {error}")) }
}

/// Lists the paths to try for a program: its own, or its name in each directory of `path`.
pub(crate) fn candidates(program: &[u8], path: &[u8]) -> Result<Vec<CString>, Refused> {
    if program.contains(&b'/') {
        return Ok(vec![c_path(program)?]);
    }
    let join = |directory: &[u8]| {
        let directory = if directory.is_empty() { b"." } else { directory };
        c_path(&[directory, b"/", program].concat())
    };
    path.split(|&byte| byte == b':').map(join).collect()
}

fn unexecuted(program: &[u8], error: &io::Error) -> Result<StartOutcome, Refused> {
    const ENOMEM: i32 = 12;
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    let shown = String::from_utf8_lossy(program.get(..SHOWN_MAX).unwrap_or(program)).into_owned();
    match error.raw_os_error() {
        Some(crate::sys::EAGAIN | ENOMEM | ENFILE | EMFILE) => Err(no_process(error)),
        _ if error.kind() == io::ErrorKind::NotFound => {
            Ok(StartOutcome::NoProgram { exit_code: 127, message: format!("{shown}: not found\n") })
        }
        _ => Ok(StartOutcome::NoProgram { exit_code: 126, message: format!("{shown}: {error}\n") }),
    }
}
