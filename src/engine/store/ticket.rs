//! The two steps of a commit as types: taken, then durable.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use super::StoreError;
use crate::engine::recorded::Seq;

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
    /// Where to be told of progress without blocking, after asking for it.
    fn progress(&self) -> &Progress;
    /// Asks that somebody write soon.
    fn nudge(&self);
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
        }
        Ok(self.committed)
    }

    /// The same for async code: it does not block the thread.
    ///
    /// # Errors
    /// [`StoreError::Poisoned`] when it could not be written.
    pub async fn durable(self) -> Result<Committed, StoreError> {
        if let Ticket::Group { number, waits } = &self.ticket {
            waits.nudge();
            waits.progress().reached(*number).await?;
        }
        Ok(self.committed)
    }
}

impl std::fmt::Debug for Pending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pending").field("committed", &self.committed).finish_non_exhaustive()
    }
}

/// How far a writer has come, for those who wait.
#[derive(Default)]
pub(super) struct Progress {
    state: Mutex<Reached>,
    changed: Condvar,
    async_changed: tokio::sync::Notify,
}

#[derive(Default)]
struct Reached {
    number: u64,
    failed: Option<StoreError>,
    /// Whether some thread is writing a group now.
    writing: bool,
}

/// What a thread that waits should do next.
pub(super) enum Turn {
    /// Its commit is durable.
    Done,
    /// Nobody writes: it writes the next group itself, and then calls [`Progress::finish`].
    Write,
}

impl Progress {
    /// Blocks until the commit is durable or it is this thread's turn to write.
    pub(super) fn turn(&self, number: u64) -> Result<Turn, StoreError> {
        let mut state = self.lock();
        loop {
            if state.number >= number {
                return Ok(Turn::Done);
            }
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            if !state.writing {
                state.writing = true;
                return Ok(Turn::Write);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends a turn: commits up to `number` are durable, or the store has failed.
    pub(super) fn finish(&self, outcome: Result<u64, StoreError>) {
        let mut state = self.lock();
        state.writing = false;
        match outcome {
            Ok(number) => state.number = state.number.max(number),
            Err(error) => {
                state.failed.get_or_insert(error);
            }
        }
        drop(state);
        self.changed.notify_all();
        self.async_changed.notify_waiters();
    }

    async fn reached(&self, number: u64) -> Result<(), StoreError> {
        loop {
            let mut changed = std::pin::pin!(self.async_changed.notified());
            changed.as_mut().enable();
            {
                let state = self.lock();
                if state.number >= number {
                    return Ok(());
                }
                if let Some(error) = &state.failed {
                    return Err(error.clone());
                }
            }
            changed.await;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Reached> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
