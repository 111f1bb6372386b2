//! Commits that the holder has taken, and of which it is not known yet whether they are durable.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use crossbeam_channel::Sender;

use super::super::ticket::{GroupWait, Progress, Turn};
use super::super::{EventStore, LocalStore, StoreError};
use super::inner::Inner;
use super::remote::{Remote, Trouble};
use super::server;
use super::wire::WireCommit;
use crate::engine::commit::{Commit, Expected};
use crate::engine::recorded::Seq;

/// Bytes of commits that wait; who adds more waits for the disk first.
const BYTES_MAX: usize = 16 << 20;

/// What of this process's commits may still be lost with the process that holds the store. They are kept, and given
/// again to whoever holds it next: each has an identity, so none is recorded twice, and each must get the positions
/// that were told for it.
#[derive(Default)]
pub(super) struct Settling {
    progress: Progress,
    waiting: Mutex<Waiting>,
    inner: OnceLock<Weak<Inner>>,
    nudged: OnceLock<Sender<()>>,
    /// Held while a commit is given away, so that they are kept in the order in which they were taken.
    pub(super) order: Mutex<()>,
}

#[derive(Default)]
struct Waiting {
    /// The number of the commit that was taken last.
    last: u64,
    commits: VecDeque<Taken>,
    bytes: usize,
}

struct Taken {
    number: u64,
    /// It says at which position it is to stand.
    commit: Commit,
    bytes: usize,
}

impl Settling {
    pub(super) fn serves(&self, inner: &Arc<Inner>) {
        self.inner.get_or_init(|| Arc::downgrade(inner));
    }

    /// Keeps a commit that was taken, the first of whose events is at that position; gives its number.
    pub(super) fn taken(&self, mut commit: Commit, first: Seq) -> u64 {
        if commit.expected == Expected::Any {
            commit = commit.expecting(Expected::Exactly(first - 1));
        }
        let bytes = commit.encoded_len() + commit.contents.iter().map(|content| content.bytes.len()).sum::<usize>();
        let mut waiting = self.waiting();
        waiting.last += 1;
        let number = waiting.last;
        waiting.bytes += bytes;
        waiting.commits.push_back(Taken { number, commit, bytes });
        number
    }

    /// Whether so much waits that nothing should be added.
    pub(super) fn is_full(&self) -> bool {
        self.waiting().bytes > BYTES_MAX
    }

    /// The number of the commit that was taken last.
    pub(super) fn last(&self) -> u64 {
        self.waiting().last
    }

    /// Gives what waits to a store that this process holds now.
    pub(super) fn give_to(&self, store: &LocalStore) -> Result<(), StoreError> {
        let waiting = self.waiting();
        for taken in &waiting.commits {
            drop(store.submit(taken.commit.clone()).map_err(lost)?);
        }
        Ok(())
    }

    /// Gives what waits to another process that holds the store now.
    pub(super) fn send_to(&self, remote: &Remote) -> Result<(), Trouble> {
        let waiting = self.waiting();
        for Taken { commit, .. } in &waiting.commits {
            match remote.ask(&server::submission(commit), &WireCommit::tail(commit)) {
                Ok(_) => {}
                Err(Trouble::Told(error)) => return Err(lost(error).into()),
                Err(Trouble::Gone) => return Err(Trouble::Gone),
            }
        }
        Ok(())
    }

    /// What was taken up to that number is durable.
    fn settled(&self, number: u64) {
        let mut waiting = self.waiting();
        while let Some(taken) = waiting.commits.pop_front_if(|taken| taken.number <= number) {
            waiting.bytes -= taken.bytes;
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn settle(&self) -> Result<u64, StoreError> {
        let Some(inner) = self.inner.get().and_then(Weak::upgrade) else {
            return Err(StoreError::Poisoned("the store was closed".to_owned()));
        };
        let number = self.last();
        inner.sync()?;
        self.settled(number);
        Ok(number)
    }
}

/// Somebody else wrote where a commit was to stand that had not become durable.
fn lost(error: StoreError) -> StoreError {
    match error {
        StoreError::Conflict { .. } | StoreError::NoSession(_) | StoreError::Buried(_) => {
            let what = "the process that held the store ended before some commits were durable, and others have \
                        written in their place";
            StoreError::Poisoned(what.to_owned())
        }
        other => other,
    }
}

impl GroupWait for Settling {
    fn wait(&self, number: u64) -> Result<(), StoreError> {
        match self.progress.turn(number)? {
            Turn::Done => Ok(()),
            Turn::Write => {
                let outcome = self.settle();
                self.progress.finish(outcome.clone());
                outcome.map(drop)
            }
        }
    }

    fn progress(&self) -> Option<&Progress> {
        Some(&self.progress)
    }

    fn nudge(&self) {
        let sender = self.nudged.get_or_init(|| {
            let (sender, nudges) = crossbeam_channel::bounded::<()>(1);
            let inner = self.inner.get().cloned().unwrap_or_default();
            let thread = std::thread::Builder::new().name("foldspace-settle".to_owned());
            let begun = thread.spawn(move || {
                for () in nudges {
                    let Some(inner) = inner.upgrade() else { return };
                    // Who waits is told what went wrong.
                    drop(inner.settling.wait(inner.settling.last()));
                }
            });
            if let Err(error) = begun {
                tracing::warn!(%error, "commits are waited for by those who made them only");
            }
            sender
        });
        // One that waits already is enough.
        let _ = sender.try_send(());
    }
}
