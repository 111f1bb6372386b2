//! One command on its way through the engine's exec.
//!
//! The engine starts it and carries its output; when it ends and what it leaves behind is seen, and ended, from
//! here, by its processes.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use futures_util::io::AsyncReadExt;
use rustix::process::Signal;
use tokio::time::{MissedTickBehavior, interval};

use super::crowd::{ExecCrowd, has_ended};
use super::frames::ExecFrames;
use super::session::ExecSession;
use crate::backends::executor::NotRun;
use crate::backends::runner::{Cancel, Ended, OutputStreamKind, RunSpec};

/// How often is looked what has become of a command.
const TICK: Duration = Duration::from_millis(20);
/// Bytes of output that are read at once.
const PIECE: usize = 32 << 10;
/// How long what a command left behind has to end when asked.
const LEFTOVER_GRACE: Duration = Duration::from_millis(250);
/// Until what was killed is looked for again.
const KILL_AGAIN: Duration = Duration::from_millis(50);
/// After this time what does not die is given up.
const KILL_PATIENCE: Duration = Duration::from_secs(4);
/// How long the engine may take to tell of the end of what has ended.
const TELL: Duration = Duration::from_secs(5);
/// How long the engine may take to tell of the first process of what should have ended.
const MARGIN: Duration = Duration::from_secs(15);
/// The first and the last exit code that stand for a signal, and what they are more than it.
const SIGNALLED: (i32, i32) = (128, 192);

/// The first process of a command.
enum Leader {
    /// The engine has not told of it yet.
    Unknown,
    Runs(i32, OwnedFd),
    Ended,
}

#[derive(Clone, Copy)]
enum ExecPhase {
    Running,
    /// It was asked to end, and is killed at that time.
    Asked(Instant),
    /// It was killed, is looked for again at `again`, and given up at `until`.
    Killed {
        again: Instant,
        until: Instant,
    },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ExecEnd {
    Timeout,
    Cancel,
}

/// A command that was started.
struct ExecCommand<'a> {
    crowd: &'a ExecCrowd,
    spec: &'a RunSpec,
    cancel: &'a Cancel,
    session: ExecSession<'a>,
    /// When it began, as the start of processes is told.
    began: u64,
    started: Instant,
    leader: Leader,
    exit_code: Option<i32>,
    phase: ExecPhase,
    cause: Option<ExecEnd>,
    /// Whether the leader was asked to end; it may not be known yet.
    asked: bool,
    sent: Option<u8>,
    leftovers: u32,
    survivors: u32,
    /// Whether the engine has closed the stream.
    closed: bool,
    /// Since when all its processes are gone, or given up.
    gone: Option<Instant>,
}

/// Runs a command to the end of its last process.
pub(super) async fn run(
    crowd: &ExecCrowd,
    session: ExecSession<'_>,
    spec: &RunSpec,
    output: &mut dyn FnMut(OutputStreamKind, &[u8]),
    cancel: &Cancel,
) -> Result<Ended, NotRun> {
    let began = crowd.moment();
    let stream = session.start().await?;
    let mut command = ExecCommand {
        crowd,
        spec,
        cancel,
        session,
        began,
        started: now(),
        leader: Leader::Unknown,
        exit_code: None,
        phase: ExecPhase::Running,
        cause: None,
        asked: false,
        sent: None,
        leftovers: 0,
        survivors: 0,
        closed: false,
        gone: None,
    };
    let ended = command.attend(stream, output).await;
    if ended.is_err() {
        // Nothing is known of it any more, and nobody waits for it.
        crowd.kill(command.leader(), began);
    }
    ended
}

impl ExecCommand<'_> {
    async fn attend(
        &mut self,
        mut stream: impl futures_util::io::AsyncRead + Unpin,
        output: &mut dyn FnMut(OutputStreamKind, &[u8]),
    ) -> Result<Ended, NotRun> {
        let (mut frames, mut buffer) = (ExecFrames::default(), vec![0; PIECE]);
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first comes at once, before there is anything to see.
        ticks.tick().await;
        while !self.is_over() {
            tokio::select! {
                biased;
                _ = ticks.tick() => self.tick().await?,
                read = stream.read(&mut buffer), if !self.closed => match read {
                    Ok(count @ 1..) => {
                        let bytes = buffer.get(..count).unwrap_or_default();
                        frames.feed(bytes, output).map_err(|error| NotRun::Lost(error.to_string()))?;
                    }
                    Ok(0) | Err(_) => {
                        self.closed = true;
                        self.tick().await?;
                    }
                },
            }
        }
        Ok(self.ended())
    }

    async fn tick(&mut self) -> Result<(), NotRun> {
        self.follow().await?;
        let now = now();
        if self.gone.is_some() {
            return Ok(());
        }
        if !matches!(self.leader, Leader::Ended) {
            return self.guard(now);
        }
        let left = self.crowd.of_command(None, self.began);
        if left.is_empty() {
            self.gone = Some(now);
        } else if matches!(self.phase, ExecPhase::Running) {
            self.leftovers = u32::try_from(left.len()).unwrap_or(u32::MAX);
            self.crowd.signal(&left, Signal::TERM);
            self.crowd.signal(&left, Signal::CONT);
            self.phase = ExecPhase::Asked(now + self.spec.grace.min(LEFTOVER_GRACE));
        } else {
            self.end(now);
        }
        Ok(())
    }

    /// Learns what has become of the first process.
    async fn follow(&mut self) -> Result<(), NotRun> {
        if let Leader::Runs(_, handle) = &self.leader
            && has_ended(handle)
        {
            self.leader = Leader::Ended;
        }
        let is_told = match self.leader {
            Leader::Unknown => false,
            Leader::Runs(..) => true,
            Leader::Ended => self.exit_code.is_some(),
        };
        if is_told {
            return Ok(());
        }
        let state = self.session.look().await?;
        if matches!(self.leader, Leader::Unknown)
            && let Some(handle) = self.crowd.member(state.pid)
        {
            self.leader = Leader::Runs(state.pid, handle);
        }
        // Before it runs the engine says the same, but then the stream is open.
        if !state.running && self.closed {
            self.leader = Leader::Ended;
            self.exit_code = Some(state.exit_code);
        }
        Ok(())
    }

    fn leader(&self) -> Option<i32> {
        match self.leader {
            Leader::Runs(pid, _) => Some(pid),
            Leader::Unknown | Leader::Ended => None,
        }
    }

    /// Ends it when its time is over or it is taken back.
    fn guard(&mut self, now: Instant) -> Result<(), NotRun> {
        let passed = now.saturating_duration_since(self.started);
        if matches!(self.phase, ExecPhase::Running) {
            self.cause = match self.cancel.is_cancelled() {
                true => Some(ExecEnd::Cancel),
                false if passed >= self.spec.timeout => Some(ExecEnd::Timeout),
                false => return Ok(()),
            };
            self.phase = ExecPhase::Asked(now + self.spec.grace);
        }
        let Some(leader) = self.leader() else {
            // What is not known can't be ended. Not for long: the engine has started it.
            return match self.phase {
                ExecPhase::Asked(at) if now >= at + MARGIN => {
                    Err(NotRun::Lost("the engine does not tell of a process that it was asked to start".to_owned()))
                }
                _ => Ok(()),
            };
        };
        if !self.asked && !self.spec.grace.is_zero() {
            self.asked = true;
            self.sent = Some(15);
            let all = self.crowd.of_command(Some(leader), self.began);
            self.crowd.signal(&all, Signal::TERM);
            self.crowd.signal(&all, Signal::CONT);
        }
        self.end(now);
        Ok(())
    }

    /// Kills it when that is due, and gives up what does not die.
    fn end(&mut self, now: Instant) {
        let (due, until) = match self.phase {
            ExecPhase::Running => return,
            ExecPhase::Asked(at) => (at, now + KILL_PATIENCE),
            ExecPhase::Killed { again, until } => (again, until),
        };
        if now >= until {
            let left = self.crowd.of_command(self.leader(), self.began).len();
            self.survivors = u32::try_from(left).unwrap_or(u32::MAX);
            self.gone = Some(now);
        } else if now >= due {
            if self.leader().is_some() {
                self.sent = Some(9);
            }
            self.crowd.kill(self.leader(), self.began);
            self.phase = ExecPhase::Killed { again: now + KILL_AGAIN, until };
        }
    }

    /// Whether its processes are gone, and all that they wrote has come.
    fn is_over(&self) -> bool {
        let told = self.closed && self.exit_code.is_some();
        self.gone.is_some_and(|gone| told || now().saturating_duration_since(gone) >= TELL)
    }

    fn ended(&self) -> Ended {
        let code = self.exit_code;
        let signal = code.filter(|code| (SIGNALLED.0 + 1..=SIGNALLED.1).contains(code)).map(|code| code - SIGNALLED.0);
        let small = |number: Option<i32>| number.and_then(|number| u8::try_from(number).ok());
        Ended {
            exit_code: small(code.filter(|_| signal.is_none())),
            signal: small(signal),
            timed_out: self.cause == Some(ExecEnd::Timeout),
            cancelled: self.cause == Some(ExecEnd::Cancel),
            sent: self.sent,
            leftovers: self.leftovers,
            survivors: self.survivors,
            duration_us: u64::try_from(now().saturating_duration_since(self.started).as_micros()).unwrap_or(u64::MAX),
            user_us: 0,
            system_us: 0,
            max_rss_kib: 0,
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "how long a command runs is told of it, and guards it")]
fn now() -> Instant {
    Instant::now()
}
