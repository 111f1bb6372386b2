//! The two steps of a commit as types: accepted, then durable.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};

use rustix::thread::futex;

use super::commit_meter::{CommitMeter, CommitTiming};
use super::{Result, StoreError};
use crate::engine::id::Seq;
use crate::engine::lock::lock;

/// A commit that is durable and visible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// Position of its first event.
    pub first: Seq,
    /// Position of its last event.
    pub last: Seq,
    /// True if the commit was a retry of an earlier one.
    pub repeated: bool,
}

/// A commit that the store has accepted: its position is fixed, but it is not durable yet. Dropping this does not
/// cancel the commit.
#[must_use = "the commit is not durable before `wait` or `durable` returns"]
pub struct Pending {
    pub(super) ticket: Ticket,
    pub(super) timing: Option<CommitTiming>,
}

pub(super) enum Ticket {
    Done(Committed),
    Group {
        committed: Committed,
        number: u64,
        writer: Arc<dyn GroupWait>,
    },
    /// Recorded by another process.
    Answered(Arc<CommitAnswer>),
}

pub(super) trait GroupWait: Send + Sync {
    fn wait(&self, number: u64) -> Result<()>;
    /// Writes the commit with the number on the task's thread, if allowed. Returns true if it is durable.
    fn write_in_place(&self, number: u64) -> Result<bool> {
        let _ = number;
        Ok(false)
    }
    fn progress(&self) -> &WriteProgress;
    fn nudge(&self);
}

impl Pending {
    /// Creates a `Pending` for a commit that is already settled.
    pub fn done(committed: Committed) -> Self {
        Self::of(Ticket::Done(committed))
    }

    pub(super) fn of(ticket: Ticket) -> Self {
        Self { ticket, timing: None }
    }

    /// Submits a commit, and measures the time until it is durable.
    pub(crate) fn measured(meter: &Arc<CommitMeter>, submit: impl FnOnce() -> Result<Self>) -> Result<Self> {
        let timing = meter.begin();
        let pending = submit()?;
        Ok(Self { timing: Some(timing.accept()), ..pending })
    }

    fn timed(&self, committed: Committed) -> Committed {
        self.timing.iter().for_each(CommitTiming::end);
        committed
    }

    /// Returns its positions. `None` if the commit was refused, or goes through another process and is not durable yet.
    #[doc(hidden)]
    pub fn known(&self) -> Option<Committed> {
        match &self.ticket {
            Ticket::Done(committed) | Ticket::Group { committed, .. } => Some(*committed),
            Ticket::Answered(answer) => answer.get()?.ok(),
        }
    }

    /// Returns the position of the commit's first event; blocks for a commit through another process. 0 if the commit
    /// was refused; [`wait`](Self::wait) returns the reason.
    pub fn first(&self) -> Seq {
        self.placed().map_or(0, |committed| committed.first)
    }

    /// Returns the position of the commit's last event, like [`first`](Self::first).
    pub fn last(&self) -> Seq {
        self.placed().map_or(0, |committed| committed.last)
    }

    fn placed(&self) -> Option<Committed> {
        match &self.ticket {
            Ticket::Answered(answer) => answer.wait().ok(),
            _ => self.known(),
        }
    }

    /// Blocks until the commit is durable. Fails with [`StoreError::Poisoned`] if it could not be written.
    pub fn wait(self) -> Result<Committed> {
        let committed = match &self.ticket {
            Ticket::Done(committed) => *committed,
            Ticket::Group { committed, number, writer } => writer.wait(*number).map(|()| *committed)?,
            Ticket::Answered(answer) => answer.wait()?,
        };
        Ok(self.timed(committed))
    }

    /// Waits until the commit is durable, without blocking the thread. Fails with [`StoreError::Poisoned`].
    pub async fn durable(self) -> Result<Committed> {
        self.settled().await
    }

    /// Waits like [`durable`](Pending::durable), but can be dropped and called again.
    #[doc(hidden)]
    pub async fn settled(&self) -> Result<Committed> {
        let committed = match &self.ticket {
            Ticket::Done(committed) => *committed,
            Ticket::Group { committed, number, writer } => {
                if !writer.write_in_place(*number)? {
                    writer.nudge();
                    writer.progress().reached(*number).await?;
                }
                *committed
            }
            Ticket::Answered(answer) => answer.told().await?,
        };
        Ok(self.timed(committed))
    }
}

crate::engine::debug_by!(Pending, |pending| committed: pending.known());

/// The progress of a writer, for waiters. Reading it takes no lock, so threads woken by the end of a group run in
/// parallel.
#[derive(Default)]
pub(super) struct WriteProgress {
    durable: AtomicU64,
    failed: OnceLock<StoreError>,
    writing: AtomicBool,
    /// Incremented whenever another field changes.
    round: AtomicU32,
    async_changed: tokio::sync::Notify,
}

pub(super) enum WaiterTurn {
    Done,
    /// No other thread is writing: the caller writes the next group, then calls [`WriteProgress::finish`].
    Write,
}

impl WriteProgress {
    pub(super) fn turn(&self, number: u64) -> Result<WaiterTurn> {
        loop {
            // Loaded first, so that any later change makes the wait return.
            let round = self.round.load(Ordering::Acquire);
            if let Some(turn) = self.try_turn(number)? {
                return Ok(turn);
            }
            // An error means a change or a signal: check again.
            let _ = futex::wait(&self.round, futex::Flags::PRIVATE, round, None);
        }
    }

    pub(super) fn try_turn(&self, number: u64) -> Result<Option<WaiterTurn>> {
        if self.is_durable(number)? {
            return Ok(Some(WaiterTurn::Done));
        }
        if self.writing.swap(true, Ordering::AcqRel) {
            return Ok(None);
        }
        // The previous turn may have ended in between.
        match self.is_durable(number) {
            Ok(false) => Ok(Some(WaiterTurn::Write)),
            ended => {
                self.end_turn();
                ended.map(|_| Some(WaiterTurn::Done))
            }
        }
    }

    pub(super) fn finish(&self, outcome: Result<u64>) {
        match outcome {
            Ok(number) => {
                self.durable.fetch_max(number, Ordering::AcqRel);
            }
            // Only the first failure is reported.
            Err(error) => drop(self.failed.set(error)),
        }
        self.end_turn();
        self.async_changed.notify_waiters();
    }

    fn end_turn(&self) {
        self.writing.store(false, Ordering::Release);
        self.round.fetch_add(1, Ordering::AcqRel);
        // It can only fail for an invalid address.
        let _ = futex::wake(&self.round, futex::Flags::PRIVATE, i32::MAX as u32);
    }

    pub(super) fn is_durable(&self, number: u64) -> Result<bool> {
        match self.failed.get() {
            _ if self.durable.load(Ordering::Acquire) >= number => Ok(true),
            Some(error) => Err(error.clone()),
            None => Ok(false),
        }
    }

    async fn reached(&self, number: u64) -> Result<()> {
        loop {
            let mut changed = std::pin::pin!(self.async_changed.notified());
            changed.as_mut().enable();
            if self.is_durable(number)? {
                return Ok(());
            }
            changed.await;
        }
    }
}

/// Result slot for a commit that another process records.
pub(super) struct CommitAnswer {
    outcome: OnceLock<Result<Committed>>,
    expected: Arc<ExpectedAnswers>,
}

/// Outstanding answers, in the order of their commits.
#[derive(Default)]
pub(super) struct ExpectedAnswers {
    waiting: Mutex<WaitingAnswers>,
    told: Condvar,
    async_told: tokio::sync::Notify,
}

#[derive(Default)]
struct WaitingAnswers {
    answers: VecDeque<Arc<CommitAnswer>>,
    /// True once no more answers can arrive.
    is_over: bool,
}

impl CommitAnswer {
    fn get(&self) -> Option<Result<Committed>> {
        self.outcome.get().cloned()
    }

    pub(super) fn wait(&self) -> Result<Committed> {
        let mut waiting = lock(&self.expected.waiting);
        loop {
            if let Some(outcome) = self.get() {
                return outcome;
            }
            waiting = self.expected.told.wait(waiting).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }

    async fn told(&self) -> Result<Committed> {
        loop {
            let mut told = std::pin::pin!(self.expected.async_told.notified());
            told.as_mut().enable();
            if let Some(outcome) = self.get() {
                return outcome;
            }
            told.await;
        }
    }
}

impl ExpectedAnswers {
    /// Expects one more answer. `None` if no more answers can arrive.
    pub(super) fn expect(self: &Arc<Self>) -> Option<Arc<CommitAnswer>> {
        let mut waiting = lock(&self.waiting);
        let answer = Arc::new(CommitAnswer { outcome: OnceLock::new(), expected: Arc::clone(self) });
        (!waiting.is_over).then(|| {
            waiting.answers.push_back(Arc::clone(&answer));
            answer
        })
    }

    /// Cancels the expectation of the last answer.
    pub(super) fn expect_less(&self) {
        lock(&self.waiting).answers.pop_back();
    }

    pub(super) fn last(&self) -> Option<Arc<CommitAnswer>> {
        lock(&self.waiting).answers.back().cloned()
    }

    /// Sets the outcome of the next commit. `None` if no answer is expected.
    pub(super) fn tell(&self, outcome: Result<Committed>) -> Option<()> {
        let answer = lock(&self.waiting).answers.pop_front()?;
        // No other thread sets it.
        answer.outcome.set(outcome).ok()
    }

    pub(super) fn wake(&self) {
        // Waiters check under this lock: each one has either seen the outcome or is waiting already.
        drop(lock(&self.waiting));
        self.told.notify_all();
        self.async_told.notify_waiters();
    }

    /// Fails all outstanding answers and all later commits.
    pub(super) fn give_up(&self, error: &StoreError) {
        let mut waiting = lock(&self.waiting);
        waiting.is_over = true;
        for answer in waiting.answers.drain(..) {
            drop(answer.outcome.set(Err(error.clone())));
        }
        drop(waiting);
        self.wake();
    }
}
