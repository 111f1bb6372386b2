//! The two steps of a commit as types: taken, then durable.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};

use rustix::thread::futex;

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
    /// True for a retry of a commit that was recorded before.
    pub repeated: bool,
}

/// Commit that the store has taken: its position is fixed, but it is not durable yet. Dropping it does not cancel the
/// commit.
#[must_use = "the commit is not durable before `wait` or `durable` returns"]
pub struct Pending {
    pub(super) ticket: Ticket,
}

pub(super) enum Ticket {
    Done(Committed),
    Group {
        committed: Committed,
        number: u64,
        writer: Arc<dyn GroupWait>,
    },
    /// Another process records it.
    Answered(Arc<CommitAnswer>),
}

pub(super) trait GroupWait: Send + Sync {
    fn wait(&self, number: u64) -> Result<()>;
    /// Writes the commit of that number on a task's thread, if it may; true if it is durable.
    fn write_in_place(&self, number: u64) -> Result<bool> {
        let _ = number;
        Ok(false)
    }
    fn progress(&self) -> &WriteProgress;
    fn nudge(&self);
}

impl Pending {
    /// Returns a commit that was waited for.
    pub(crate) fn done(committed: Committed) -> Self {
        Self { ticket: Ticket::Done(committed) }
    }

    /// Returns its positions, once they are fixed: at once, but for a commit through another process, whose positions
    /// are known when it is durable. None if it was refused.
    pub(crate) fn known(&self) -> Option<Committed> {
        match &self.ticket {
            Ticket::Done(committed) | Ticket::Group { committed, .. } => Some(*committed),
            Ticket::Answered(answer) => answer.get()?.ok(),
        }
    }

    /// Returns the position of the commit's first event; waits for a commit through another process. 0 if it was
    /// refused, as [`wait`](Self::wait) tells.
    pub fn first(&self) -> Seq {
        self.placed().map_or(0, |committed| committed.first)
    }

    /// Returns the position of the commit's last event as [`first`](Self::first) does.
    pub fn last(&self) -> Seq {
        self.placed().map_or(0, |committed| committed.last)
    }

    fn placed(&self) -> Option<Committed> {
        match &self.ticket {
            Ticket::Answered(answer) => answer.wait().ok(),
            _ => self.known(),
        }
    }

    /// Blocks until the commit is durable. Fails with [`StoreError::Poisoned`]: it could not be written.
    pub fn wait(self) -> Result<Committed> {
        match &self.ticket {
            Ticket::Done(committed) => Ok(*committed),
            Ticket::Group { committed, number, writer } => writer.wait(*number).map(|()| *committed),
            Ticket::Answered(answer) => answer.wait(),
        }
    }

    /// Waits until the commit is durable, without blocking the thread. Fails with [`StoreError::Poisoned`].
    pub async fn durable(self) -> Result<Committed> {
        self.settled().await
    }

    /// Waits as [`durable`](Pending::durable) does; it may be dropped and called again.
    pub(crate) async fn settled(&self) -> Result<Committed> {
        match &self.ticket {
            Ticket::Done(committed) => Ok(*committed),
            Ticket::Group { committed, number, writer } => {
                if !writer.write_in_place(*number)? {
                    writer.nudge();
                    writer.progress().reached(*number).await?;
                }
                Ok(*committed)
            }
            Ticket::Answered(answer) => answer.told().await,
        }
    }
}

crate::engine::debug_by!(Pending, |pending| committed: pending.known());

/// Progress of a writer, for those who wait. Looking takes no lock: threads woken by the end of a group run side by
/// side.
#[derive(Default)]
pub(super) struct WriteProgress {
    durable: AtomicU64,
    failed: OnceLock<StoreError>,
    writing: AtomicBool,
    /// Grows whenever one of the others has changed.
    round: AtomicU32,
    async_changed: tokio::sync::Notify,
}

pub(super) enum WaiterTurn {
    Done,
    /// No thread writes: the caller writes the next group, then calls [`WriteProgress::finish`].
    Write,
}

impl WriteProgress {
    pub(super) fn turn(&self, number: u64) -> Result<WaiterTurn> {
        loop {
            // Looked at first: what changes from here on makes the wait return.
            let round = self.round.load(Ordering::Acquire);
            if let Some(turn) = self.try_turn(number)? {
                return Ok(turn);
            }
            // An error is a change or a signal: it is looked at again.
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
        // The last turn may have ended since.
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
            // The first failure is the one to tell of.
            Err(error) => drop(self.failed.set(error)),
        }
        self.end_turn();
        self.async_changed.notify_waiters();
    }

    fn end_turn(&self) {
        self.writing.store(false, Ordering::Release);
        self.round.fetch_add(1, Ordering::AcqRel);
        // It fails for addresses that are none only.
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

/// The outcome of a commit that another process records, once that has told it.
pub(super) struct CommitAnswer {
    outcome: OnceLock<Result<Committed>>,
    expected: Arc<ExpectedAnswers>,
}

/// Answers to come, in the order of their commits.
#[derive(Default)]
pub(super) struct ExpectedAnswers {
    waiting: Mutex<WaitingAnswers>,
    told: Condvar,
    async_told: tokio::sync::Notify,
}

#[derive(Default)]
struct WaitingAnswers {
    answers: VecDeque<Arc<CommitAnswer>>,
    /// Set once nobody answers any more.
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
    /// Expects one more answer; none if nobody answers any more.
    pub(super) fn expect(self: &Arc<Self>) -> Option<Arc<CommitAnswer>> {
        let mut waiting = lock(&self.waiting);
        let answer = Arc::new(CommitAnswer { outcome: OnceLock::new(), expected: Arc::clone(self) });
        (!waiting.is_over).then(|| {
            waiting.answers.push_back(Arc::clone(&answer));
            answer
        })
    }

    /// Expects the last answer no more.
    pub(super) fn expect_less(&self) {
        lock(&self.waiting).answers.pop_back();
    }

    pub(super) fn last(&self) -> Option<Arc<CommitAnswer>> {
        lock(&self.waiting).answers.back().cloned()
    }

    /// Sets the outcome of the next commit; none if no answer is expected.
    pub(super) fn tell(&self, outcome: Result<Committed>) -> Option<()> {
        let answer = lock(&self.waiting).answers.pop_front()?;
        // Nobody else sets it.
        answer.outcome.set(outcome).ok()
    }

    pub(super) fn wake(&self) {
        // Who waits has looked while this lock was held, or waits already.
        drop(lock(&self.waiting));
        self.told.notify_all();
        self.async_told.notify_waiters();
    }

    /// Answers all that is left with an error, and whatever is asked later.
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
