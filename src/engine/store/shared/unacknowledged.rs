//! Commits that the owner of the store has and may still lose.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use crossbeam_channel::{RecvTimeoutError, Sender};

use super::remote::RemoteError;
use crate::engine::commit::{Commit, Expected};
use crate::engine::lock::lock;
use crate::engine::store::pending::{GroupWait, WaiterTurn, WriteProgress};
use crate::engine::store::{Committed, Result, StoreError};

/// Maximum bytes and number of unacknowledged commits; above them a caller waits for the disk. The owner recognises the
/// last 1,024 commits of a session when they are given again.
const BYTES_MAX: usize = 16 << 20;
const COUNT_MAX: usize = 512;
const LOST_MAX: usize = 4096;
const QUIET: Duration = Duration::from_millis(50);
/// Time, and interval, of retries of a commit that follows one which another process has to give first.
const OTHERS: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(10);
const TRIES: usize = 20;

/// Store that may hold commits of this process, or pass them on.
pub(super) trait SettledStore: Send + Sync {
    fn settling(&self) -> &Settling;
    fn sync(self: Arc<Self>) -> Result<()>;
}

/// Commits of this process that may still be lost with the owner of the store. Each has an id, so the next owner gets
/// it again without recording it twice, at the positions that were reported for it.
///
/// A commit is kept before it is sent: whatever happens to the answer, the next owner gets it, or the caller learns
/// that its outcome is unknown.
pub(super) struct Settling {
    progress: WriteProgress,
    waiting: Mutex<Unacknowledged>,
    store: Weak<dyn SettledStore>,
    nudged: OnceLock<Sender<Nudge>>,
    /// Locked while a commit is sent, so that commits are kept in order.
    pub(super) order: Mutex<()>,
    /// Set while a new owner is being given the commits.
    is_giving: AtomicBool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Nudge {
    Soon,
    Later,
}

#[derive(Default)]
struct Unacknowledged {
    /// Numbers of the last added commit, and of the last one with reported positions.
    last: u64,
    told: u64,
    commits: VecDeque<KeptCommit>,
    bytes: usize,
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
    /// Returns the commit for the next owner, at its reported position.
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

pub(super) struct IsGiving<'a>(&'a AtomicBool);

impl Drop for IsGiving<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

pub(super) type Giving<'a> = dyn Fn(&Commit) -> Result<Committed, RemoteError> + 'a;

impl Settling {
    pub(super) fn new(store: Weak<dyn SettledStore>) -> Self {
        Self {
            store,
            progress: WriteProgress::default(),
            waiting: Mutex::default(),
            nudged: OnceLock::new(),
            order: Mutex::default(),
            is_giving: AtomicBool::new(false),
        }
    }

    pub(super) fn add(&self, commit: Commit) -> u64 {
        let bytes = commit.encoded_len() + commit.contents.iter().map(|content| content.bytes.len()).sum::<usize>();
        let mut waiting = lock(&self.waiting);
        waiting.last += 1;
        let number = waiting.last;
        waiting.bytes += bytes;
        waiting.commits.push_back(KeptCommit { number, commit, bytes, committed: None });
        number
    }

    /// Sets the commit's positions; those from a later owner are kept.
    pub(super) fn tell(&self, number: u64, committed: Committed) -> Committed {
        let mut waiting = lock(&self.waiting);
        waiting.told = waiting.told.max(number);
        let kept = waiting.commits.iter_mut().find(|kept| kept.number == number);
        let committed = kept.map_or(committed, |kept| *kept.committed.get_or_insert(committed));
        drop(waiting);
        self.send(Nudge::Later);
        committed
    }

    pub(super) fn forget(&self, number: u64) {
        lock(&self.waiting).take(number);
    }

    pub(super) fn outcome_of(&self, number: u64) -> Option<Result<Committed>> {
        let mut waiting = lock(&self.waiting);
        if let Some(error) = waiting.lost.remove(&number) {
            return Some(Err(error));
        }
        let kept = waiting.commits.iter().find(|kept| kept.number == number);
        let committed = kept?.committed?;
        waiting.told = waiting.told.max(number);
        Some(Ok(committed))
    }

    pub(super) fn is_full(&self) -> bool {
        let waiting = lock(&self.waiting);
        waiting.bytes > BYTES_MAX || waiting.commits.len() >= COUNT_MAX
    }

    pub(super) fn is_empty(&self) -> bool {
        lock(&self.waiting).commits.is_empty()
    }

    pub(super) fn is_giving(&self) -> bool {
        self.is_giving.load(Ordering::Acquire)
    }

    pub(super) fn flush(&self) -> Result<()> {
        let told = lock(&self.waiting).told;
        self.wait(told)
    }

    pub(super) fn begin_giving(&self) -> IsGiving<'_> {
        self.is_giving.store(true, Ordering::Release);
        IsGiving(&self.is_giving)
    }

    /// Gives all commits to a new owner, in order. One whose position others have taken is lost, and its caller learns
    /// it.
    pub(super) fn give(&self, giving: &Giving<'_>) -> Result<(), RemoteError> {
        let mut next = 0;
        let mut waited = Duration::ZERO;
        loop {
            let found =
                lock(&self.waiting).commits.iter().find(|kept| kept.number >= next).map(|k| (k.number, k.again()));
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
        let mut waiting = lock(&self.waiting);
        let Some(kept) = waiting.commits.iter_mut().find(|kept| kept.number == number) else { return };
        let told = *kept.committed.get_or_insert(committed);
        drop(waiting);
        if told.first != committed.first {
            self.lose(number);
        }
    }

    /// Drops a refused commit; one with reported positions is lost.
    fn refused(&self, number: u64, error: StoreError) {
        let mut waiting = lock(&self.waiting);
        if waiting.commits.iter().any(|kept| kept.number == number && kept.committed.is_some()) {
            drop(waiting);
            tracing::error!(%error, "the new owner of the store refused a commit");
            return self.lose(number);
        }
        waiting.take(number);
        waiting.remember_lost(number, error);
    }

    fn lose(&self, number: u64) {
        tracing::error!("a commit is lost with the owner of the store");
        let what = "the process that held the store ended before a commit was durable, and others have written in its \
                    place, or have removed the session";
        let mut waiting = lock(&self.waiting);
        waiting.take(number);
        waiting.remember_lost(number, StoreError::Poisoned(what.to_owned()));
    }

    /// Drops all commits with reported positions, with that error; returns the last one's number.
    fn lose_all(&self, error: &StoreError) -> u64 {
        let mut waiting = lock(&self.waiting);
        let told = waiting.told;
        while let Some(kept) = waiting.commits.pop_front_if(|kept| kept.number <= told) {
            waiting.bytes -= kept.bytes;
            waiting.remember_lost(kept.number, error.clone());
        }
        told
    }

    fn settled(&self, number: u64) {
        let mut waiting = lock(&self.waiting);
        while let Some(kept) = waiting.commits.pop_front_if(|kept| kept.number <= number) {
            waiting.bytes -= kept.bytes;
        }
    }

    fn settle(&self) -> Result<u64> {
        let Some(store) = self.store.upgrade() else { return Err(closed()) };
        let mut left = TRIES;
        loop {
            let number = lock(&self.waiting).told;
            match Arc::clone(&store).sync() {
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
            let store = Weak::clone(&self.store);
            let thread = std::thread::Builder::new().name("foldspace-settle".to_owned());
            let begun = thread.spawn(move || {
                while let Ok(nudge) = nudges.recv() {
                    // Somebody may wait for it by then, or in a moment.
                    if nudge == Nudge::Later && nudges.recv_timeout(QUIET) == Err(RecvTimeoutError::Disconnected) {
                        return;
                    }
                    let Some(store) = store.upgrade() else { return };
                    // Who waits is told what went wrong.
                    drop(store.settling().flush());
                }
            });
            if let Err(error) = begun {
                tracing::warn!(%error, "could not start the thread that waits for commits");
            }
            sender
        });
        // One that waits already is enough.
        let _ = sender.try_send(nudge);
    }

    pub(super) fn close(&self) {
        self.progress.finish(Err(closed()));
    }
}

fn closed() -> StoreError {
    StoreError::Poisoned("the store was closed".to_owned())
}

/// Marks a commit's outcome as unknown because the store has no owner.
pub(super) fn unsettled(error: StoreError) -> StoreError {
    match error {
        StoreError::Poisoned(_) | StoreError::Unsettled(_) => error,
        other => StoreError::Unsettled(other.to_string()),
    }
}

impl GroupWait for Settling {
    fn wait(&self, number: u64) -> Result<()> {
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

    fn outcome(&self, number: u64) -> Result<()> {
        lock(&self.waiting).lost.remove(&number).map_or(Ok(()), Err)
    }

    fn progress(&self) -> &WriteProgress {
        &self.progress
    }

    fn nudge(&self) {
        self.send(Nudge::Soon);
    }
}
