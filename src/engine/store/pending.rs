//! The two steps of a commit as types: taken, then durable.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use rustix::thread::futex;

use super::StoreError;
use crate::engine::id::Seq;

/// A commit that is durable and visible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// The position of its first event.
    pub first: Seq,
    /// The position of its last event.
    pub last: Seq,
    /// Whether it was a retry of a commit that had been recorded before.
    pub repeated: bool,
}

/// A commit that the store has taken: its place in the history is fixed, but it is not durable yet.
///
/// Dropping it does not take the commit back.
#[must_use = "the commit is not durable before `wait` or `durable` returns"]
pub struct Pending {
    pub(super) committed: Committed,
    pub(super) ticket: Ticket,
}

/// What a pending commit waits for.
pub(super) enum Ticket {
    /// Nothing: it is as durable as the store promises.
    Done,
    /// The group that holds the commit with this number.
    Group { number: u64, waits: Arc<dyn GroupWait> },
}

/// A writer that makes groups of commits durable.
pub(super) trait GroupWait: Send + Sync {
    /// Returns when the commit of that number is durable; may do the writing itself.
    fn wait(&self, number: u64) -> Result<(), StoreError>;
    /// Writes the commit of that number for a task that waits for it, where that may be; whether it is durable.
    fn write_in_place(&self, number: u64) -> Result<bool, StoreError> {
        let _ = number;
        Ok(false)
    }
    /// Where to be told of progress without blocking, after asking for it; none when there is nothing to
    /// wait for.
    fn progress(&self) -> Option<&WriteProgress>;
    /// Asks that somebody write soon.
    fn nudge(&self);
    /// Whether the commit of that number was lost although what stands behind it is durable; asked once.
    fn outcome(&self, number: u64) -> Result<(), StoreError> {
        let _ = number;
        Ok(())
    }
}

impl Pending {
    /// The position that the commit's first event has.
    pub fn first(&self) -> Seq {
        self.committed.first
    }

    /// The position that the commit's last event has.
    pub fn last(&self) -> Seq {
        self.committed.last
    }

    /// Blocks until the commit is durable.
    ///
    /// # Errors
    /// [`StoreError::Poisoned`] when it could not be written.
    pub fn wait(self) -> Result<Committed, StoreError> {
        if let Ticket::Group { number, waits } = &self.ticket {
            waits.wait(*number)?;
            waits.outcome(*number)?;
        }
        Ok(self.committed)
    }

    /// The same for async code: it does not block the thread.
    ///
    /// # Errors
    /// [`StoreError::Poisoned`] when it could not be written.
    pub async fn durable(self) -> Result<Committed, StoreError> {
        self.settled().await?;
        Ok(self.committed)
    }

    /// Waits as [`durable`](Pending::durable) does; it may be dropped while it waits, and begun again.
    pub(crate) async fn settled(&self) -> Result<(), StoreError> {
        if let Ticket::Group { number, waits } = &self.ticket {
            if !waits.write_in_place(*number)? {
                waits.nudge();
                if let Some(progress) = waits.progress() {
                    progress.reached(*number).await?;
                }
            }
            waits.outcome(*number)?;
        }
        Ok(())
    }
}

impl std::fmt::Debug for Pending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pending").field("committed", &self.committed).finish_non_exhaustive()
    }
}

/// How far a writer has come, for those who wait.
///
/// Nobody holds a lock to look: those that are woken by the end of a group go on side by side.
#[derive(Default)]
pub(super) struct WriteProgress {
    /// Commits up to this number are durable.
    durable: AtomicU64,
    failed: OnceLock<StoreError>,
    /// Whether some thread is writing a group now.
    writing: AtomicBool,
    /// Grows whenever one of the others has changed.
    round: AtomicU32,
    async_changed: tokio::sync::Notify,
}

/// What a thread that waits should do next.
pub(super) enum WaiterTurn {
    /// Its commit is durable.
    Done,
    /// Nobody writes: it writes the next group itself, and then calls [`WriteProgress::finish`].
    Write,
}

impl WriteProgress {
    /// Blocks until the commit is durable or it is this thread's turn to write.
    pub(super) fn turn(&self, number: u64) -> Result<WaiterTurn, StoreError> {
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

    /// The same without blocking; none while another thread writes.
    pub(super) fn try_turn(&self, number: u64) -> Result<Option<WaiterTurn>, StoreError> {
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

    /// Ends a turn: commits up to `number` are durable, or the store has failed.
    pub(super) fn finish(&self, outcome: Result<u64, StoreError>) {
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

    /// Ends a turn in which nothing became durable, and which somebody may try again.
    pub(super) fn give_up(&self) {
        self.end_turn();
        self.async_changed.notify_waiters();
    }

    fn end_turn(&self) {
        self.writing.store(false, Ordering::Release);
        self.round.fetch_add(1, Ordering::AcqRel);
        // It fails for addresses that are none only.
        let _ = futex::wake(&self.round, futex::Flags::PRIVATE, i32::MAX as u32);
    }

    pub(super) fn is_durable(&self, number: u64) -> Result<bool, StoreError> {
        match self.failed.get() {
            _ if self.durable.load(Ordering::Acquire) >= number => Ok(true),
            Some(error) => Err(error.clone()),
            None => Ok(false),
        }
    }

    async fn reached(&self, number: u64) -> Result<(), StoreError> {
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
