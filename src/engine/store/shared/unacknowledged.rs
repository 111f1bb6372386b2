//! Commits that were given to the holder, and of which it is not known yet whether they are durable.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use crossbeam_channel::{RecvTimeoutError, Sender};

use super::inner::SharedInner;
use super::remote::RemoteError;
use crate::engine::commit::{Commit, Expected};
use crate::engine::store::pending::{GroupWait, WaiterTurn, WriteProgress};
use crate::engine::store::{Committed, StoreError};

/// Bytes and number of commits that wait; who adds more waits for the disk first. The holder recognises the last 1,024
/// commits of a session when they are given again.
const BYTES_MAX: usize = 16 << 20;
const COUNT_MAX: usize = 512;
/// Lost commits that are remembered for those who wait for them.
const LOST_MAX: usize = 4096;
/// How long a commit that nobody waits for may wait.
const QUIET: Duration = Duration::from_millis(50);
/// How long, and how often, a commit is given again that stands behind one which another process has to give first.
const OTHERS: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(10);
/// How often a holder is looked for that is not there.
const TRIES: usize = 20;

/// What of this process's commits may still be lost with the process that holds the store. They are kept, and given
/// again to whoever holds it next: each has an identity, so none is recorded twice, and each must get the positions
/// that were told for it.
///
/// A commit is kept before it is given away for the first time: whatever happens to the answer, the next holder gets
/// it, or who made it is told that its fate is not known.
#[derive(Default)]
pub(super) struct Settling {
    progress: WriteProgress,
    waiting: Mutex<Unacknowledged>,
    inner: OnceLock<Weak<SharedInner>>,
    nudged: OnceLock<Sender<Nudge>>,
    /// Held while a commit is given away, so that they are kept in the order in which they are taken.
    pub(super) order: Mutex<()>,
    /// Whether they are being given to a new holder.
    is_giving: AtomicBool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Nudge {
    Soon,
    Later,
}

#[derive(Default)]
struct Unacknowledged {
    /// The number of the commit that was added last, and of the one whose positions were told last.
    last: u64,
    told: u64,
    commits: VecDeque<KeptCommit>,
    bytes: usize,
    /// Those that were lost, until somebody asks.
    lost: BTreeMap<u64, StoreError>,
}

impl Unacknowledged {
    fn take(&mut self, number: u64) {
        if let Some(at) = self.commits.iter().position(|kept| kept.number == number)
            && let Some(kept) = self.commits.remove(at)
        {
            self.bytes -= kept.bytes;
        }
    }

    fn remember_lost(&mut self, number: u64, error: StoreError) {
        self.lost.insert(number, error);
        if self.lost.len() > LOST_MAX {
            self.lost.pop_first();
        }
    }
}

struct KeptCommit {
    number: u64,
    commit: Commit,
    bytes: usize,
    committed: Option<Committed>,
}

impl KeptCommit {
    /// The commit as it is given again: where it was told to stand.
    fn again(&self) -> Commit {
        let commit = self.commit.clone();
        match (commit.expected, self.committed) {
            // It has contents only.
            (_, Some(Committed { first: 0, .. })) => commit,
            (Expected::Any, Some(Committed { first: 1, .. })) => commit.expecting(Expected::NoSession),
            (Expected::Any, Some(Committed { first, .. })) => commit.expecting(Expected::Exactly(first - 1)),
            _ => commit,
        }
    }
}

/// While a new holder is given what waits.
pub(super) struct IsGiving<'a>(&'a AtomicBool);

impl Drop for IsGiving<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Gives a commit to a store.
pub(super) type Giving<'a> = dyn Fn(&Commit) -> Result<Committed, RemoteError> + 'a;

impl Settling {
    pub(super) fn serves(&self, inner: &Arc<SharedInner>) {
        self.inner.get_or_init(|| Arc::downgrade(inner));
    }

    /// Keeps a commit that is about to be given away; gives its number.
    pub(super) fn add(&self, commit: Commit) -> u64 {
        let bytes = commit.encoded_len() + commit.contents.iter().map(|content| content.bytes.len()).sum::<usize>();
        let mut waiting = self.waiting();
        waiting.last += 1;
        let number = waiting.last;
        waiting.bytes += bytes;
        waiting.commits.push_back(KeptCommit { number, commit, bytes, committed: None });
        number
    }

    /// The commit's positions, as its holder told them; those that it got from a later one count.
    pub(super) fn tell(&self, number: u64, committed: Committed) -> Committed {
        let mut waiting = self.waiting();
        waiting.told = waiting.told.max(number);
        let kept = waiting.commits.iter_mut().find(|kept| kept.number == number);
        let committed = kept.map_or(committed, |kept| *kept.committed.get_or_insert(committed));
        drop(waiting);
        self.send(Nudge::Later);
        committed
    }

    /// The commit was refused, or went another way.
    pub(super) fn forget(&self, number: u64) {
        self.waiting().take(number);
    }

    /// What became of a commit while it was given to a new holder; none when it was not.
    pub(super) fn outcome_of(&self, number: u64) -> Option<Result<Committed, StoreError>> {
        let mut waiting = self.waiting();
        if let Some(error) = waiting.lost.remove(&number) {
            return Some(Err(error));
        }
        let kept = waiting.commits.iter().find(|kept| kept.number == number);
        let committed = kept?.committed?;
        waiting.told = waiting.told.max(number);
        Some(Ok(committed))
    }

    /// Whether so much waits that nothing should be added.
    pub(super) fn is_full(&self) -> bool {
        let waiting = self.waiting();
        waiting.bytes > BYTES_MAX || waiting.commits.len() >= COUNT_MAX
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting().commits.is_empty()
    }

    /// Whether a new holder is being given what waits.
    pub(super) fn is_giving(&self) -> bool {
        self.is_giving.load(Ordering::Acquire)
    }

    /// Waits for everything whose positions were told.
    pub(super) fn flush(&self) -> Result<(), StoreError> {
        let told = self.waiting().told;
        self.wait(told)
    }

    /// Says that a new holder is being given what waits, until that is dropped.
    pub(super) fn begin_giving(&self) -> IsGiving<'_> {
        self.is_giving.store(true, Ordering::Release);
        IsGiving(&self.is_giving)
    }

    /// Gives all that waits to a new holder, in order. One that stands where others have written is lost, and who
    /// waits for it is told.
    pub(super) fn give(&self, giving: &Giving<'_>) -> Result<(), RemoteError> {
        let mut next = 0;
        let mut waited = Duration::ZERO;
        loop {
            let found = self.waiting().commits.iter().find(|kept| kept.number >= next).map(|k| (k.number, k.again()));
            let Some((number, commit)) = found else { return Ok(()) };
            match giving(&commit) {
                Ok(committed) => self.given(number, committed),
                Err(RemoteError::Gone) => return Err(RemoteError::Gone),
                // What stands before it is another process's, which is about to give it.
                Err(RemoteError::Told(StoreError::Conflict { expected, actual, .. }))
                    if actual < expected && waited < OTHERS =>
                {
                    std::thread::sleep(PAUSE);
                    waited += PAUSE;
                    continue;
                }
                Err(RemoteError::Told(error)) => self.refused(number, error),
            }
            next = number + 1;
        }
    }

    fn given(&self, number: u64, committed: Committed) {
        let mut waiting = self.waiting();
        let Some(kept) = waiting.commits.iter_mut().find(|kept| kept.number == number) else { return };
        let told = *kept.committed.get_or_insert(committed);
        drop(waiting);
        if told.first != committed.first {
            self.lose(number);
        }
    }

    /// A commit whose positions nobody was told is simply refused.
    fn refused(&self, number: u64, error: StoreError) {
        let mut waiting = self.waiting();
        if waiting.commits.iter().any(|kept| kept.number == number && kept.committed.is_some()) {
            drop(waiting);
            tracing::error!(%error, "the next holder of the store does not take a commit again");
            return self.lose(number);
        }
        waiting.take(number);
        waiting.remember_lost(number, error);
    }

    fn lose(&self, number: u64) {
        tracing::error!("a commit that was taken is lost with the process that held the store");
        let what = "the process that held the store ended before a commit was durable, and others have written in its \
                    place, or have removed the session";
        let mut waiting = self.waiting();
        waiting.take(number);
        waiting.remember_lost(number, StoreError::Poisoned(what.to_owned()));
    }

    /// Gives up all whose positions were told, with that error; gives the last one's number.
    fn lose_all(&self, error: &StoreError) -> u64 {
        let mut waiting = self.waiting();
        let told = waiting.told;
        while let Some(kept) = waiting.commits.pop_front_if(|kept| kept.number <= told) {
            waiting.bytes -= kept.bytes;
            waiting.remember_lost(kept.number, error.clone());
        }
        told
    }

    /// What was taken up to that number is durable.
    fn settled(&self, number: u64) {
        let mut waiting = self.waiting();
        while let Some(kept) = waiting.commits.pop_front_if(|kept| kept.number <= number) {
            waiting.bytes -= kept.bytes;
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Unacknowledged> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn settle(&self) -> Result<u64, StoreError> {
        let Some(inner) = self.inner.get().and_then(Weak::upgrade) else { return Err(closed()) };
        let mut left = TRIES;
        loop {
            let number = self.waiting().told;
            match inner.sync() {
                Ok(()) => {
                    self.settled(number);
                    return Ok(number);
                }
                Err(StoreError::Locked { .. }) if left > 0 => left -= 1,
                Err(error) => return Err(error),
            }
        }
    }

    fn send(&self, nudge: Nudge) {
        let sender = self.nudged.get_or_init(|| {
            let (sender, nudges) = crossbeam_channel::bounded::<Nudge>(1);
            let inner = self.inner.get().cloned().unwrap_or_default();
            let thread = std::thread::Builder::new().name("foldspace-settle".to_owned());
            let begun = thread.spawn(move || {
                while let Ok(nudge) = nudges.recv() {
                    // Somebody may wait for it by then, or in a moment.
                    if nudge == Nudge::Later && nudges.recv_timeout(QUIET) == Err(RecvTimeoutError::Disconnected) {
                        return;
                    }
                    let Some(inner) = inner.upgrade() else { return };
                    // Who waits is told what went wrong.
                    drop(inner.settling.flush());
                }
            });
            if let Err(error) = begun {
                tracing::warn!(%error, "commits are waited for by those who made them only");
            }
            sender
        });
        // One that waits already is enough.
        let _ = sender.try_send(nudge);
    }

    /// Nothing is recorded any more: who still waits is told.
    pub(super) fn close(&self) {
        self.progress.finish(Err(closed()));
    }
}

fn closed() -> StoreError {
    StoreError::Poisoned("the store was closed".to_owned())
}

/// Where a commit's fate is not known because nobody holds the store.
pub(super) fn unsettled(error: StoreError) -> StoreError {
    match error {
        StoreError::Poisoned(_) | StoreError::Unsettled(_) => error,
        other => StoreError::Unsettled(other.to_string()),
    }
}

impl GroupWait for Settling {
    fn wait(&self, number: u64) -> Result<(), StoreError> {
        match self.progress.turn(number)? {
            WaiterTurn::Done => Ok(()),
            WaiterTurn::Write => match self.settle() {
                Ok(number) => {
                    self.progress.finish(Ok(number));
                    Ok(())
                }
                // The holder can't write. What comes later may be written by the next one.
                Err(error @ StoreError::Poisoned(_)) => {
                    self.progress.finish(Ok(self.lose_all(&error)));
                    Ok(())
                }
                Err(error) => {
                    self.progress.give_up();
                    Err(unsettled(error))
                }
            },
        }
    }

    fn outcome(&self, number: u64) -> Result<(), StoreError> {
        self.waiting().lost.remove(&number).map_or(Ok(()), Err)
    }

    fn progress(&self) -> Option<&WriteProgress> {
        Some(&self.progress)
    }

    fn nudge(&self) {
        self.send(Nudge::Soon);
    }
}
