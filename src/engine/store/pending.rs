//! The two steps of a commit as types: taken, then durable.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use rustix::thread::futex;

use super::{Result, StoreError};
use crate::engine::id::Seq;

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
    pub(super) committed: Committed,
    pub(super) ticket: Ticket,
}

pub(super) enum Ticket {
    Done,
    Group { number: u64, waits: Arc<dyn GroupWait> },
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
    /// Returns the error of a commit that was lost although later ones are durable; only once.
    fn outcome(&self, number: u64) -> Result<()> {
        let _ = number;
        Ok(())
    }
}

impl Pending {
    /// Returns the position of the commit's first event.
    pub fn first(&self) -> Seq {
        self.committed.first
    }

    /// Returns the position of the commit's last event.
    pub fn last(&self) -> Seq {
        self.committed.last
    }

    /// Blocks until the commit is durable. Fails with [`StoreError::Poisoned`]: it could not be written.
    pub fn wait(self) -> Result<Committed> {
        if let Ticket::Group { number, waits } = &self.ticket {
            waits.wait(*number)?;
            waits.outcome(*number)?;
        }
        Ok(self.committed)
    }

    /// Waits until the commit is durable, without blocking the thread. Fails with [`StoreError::Poisoned`].
    pub async fn durable(self) -> Result<Committed> {
        self.settled().await?;
        Ok(self.committed)
    }

    /// Waits as [`durable`](Pending::durable) does; it may be dropped and called again.
    pub(crate) async fn settled(&self) -> Result<()> {
        if let Ticket::Group { number, waits } = &self.ticket {
            if !waits.write_in_place(*number)? {
                waits.nudge();
                waits.progress().reached(*number).await?;
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

    /// Ends a turn in which nothing became durable; another caller may try again.
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
