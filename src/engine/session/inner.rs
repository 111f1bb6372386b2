//! What all handles of one session share: the fold of its history, kept near the present.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use super::output_stream::Outputs;
use super::parallel_fold::Feed;
use super::sessions::{SessionError, SessionsInner, name_of};
use super::snapshot::{Keep, RecentStates, snapshot_of, state_of};
use crate::engine::event::SessionStarted;
use crate::engine::fold::Fold;
use crate::engine::id::{Seq, SessionId};
use crate::engine::state::State;
use crate::engine::store::{EventBatch, Lease, READ_MAX, SessionEntry, StoreError};

/// Bytes of a common event in the journal, to guess how much is to be read.
const EVENT_BYTES: usize = 256;
/// Events from which on a fold is split over two threads.
const SPLIT_MIN: u64 = 20_000;

/// What all handles of one session share.
pub(crate) struct Core {
    pub(crate) id: SessionId,
    pub(crate) name: String,
    /// The first event; none when the program can't read it.
    pub(crate) started: Option<SessionStarted>,
    pub(crate) shared: Arc<SessionsInner>,
    pub(crate) live: Mutex<State>,
    recent: Mutex<RecentStates>,
    /// The position from which on the next snapshot is due.
    due: AtomicU64,
    /// Whether the thread that takes snapshots has been asked.
    asked: AtomicBool,
    /// The state of the latest snapshot that this process took.
    latest: Mutex<Option<State>>,
    /// Calls that are under way in this process.
    pub(crate) under_way: Mutex<BTreeSet<Seq>>,
    /// Whose turn it is to change the workspace.
    pub(crate) turn: Arc<tokio::sync::Mutex<()>>,
    /// Held while the workspace's disk is looked at.
    pub(crate) looking: Arc<tokio::sync::Mutex<()>>,
    /// Who wants to see what commands print while they run.
    pub(crate) outputs: Outputs,
    /// Whether a container-backed shell is active.
    pub(crate) has_machine: AtomicBool,
    /// Held while this process has the workspace open.
    pub(crate) lease: Mutex<Weak<Lease>>,
    /// Calls of its own that were begun, once somebody counts them.
    pub(crate) calls_begun: OnceLock<Arc<AtomicU64>>,
}

impl Core {
    pub(crate) fn new(shared: Arc<SessionsInner>, entry: &SessionEntry) -> Result<Self, SessionError> {
        let snapshots = shared.store.snapshots(entry.id)?;
        // The past of a child has the parent's.
        let past = entry.origin.seq - 1;
        let live = shared.registry.empty_state(entry.id);
        let due = snapshots.last().copied().unwrap_or(0).max(past) + shared.policy.every;
        let started = entry.origin.typed::<SessionStarted>();
        let started = started.and_then(Result::ok).map(|started| started.event);
        let core = Self {
            id: entry.id,
            name: name_of(entry),
            started,
            shared,
            live: Mutex::new(live),
            recent: Mutex::default(),
            due: AtomicU64::new(due),
            asked: AtomicBool::new(false),
            latest: Mutex::default(),
            under_way: Mutex::default(),
            turn: Arc::default(),
            looking: Arc::default(),
            outputs: Outputs::default(),
            has_machine: AtomicBool::new(false),
            lease: Mutex::default(),
            calls_begun: OnceLock::new(),
        };
        Ok(core)
    }

    /// Folds on to the head.
    pub(crate) fn state(&self) -> Result<State, SessionError> {
        let head = self.shared.store.head(self.id)?;
        let mut live = lock(&self.live);
        if live.seq() < head {
            let base = self.nearest(live.clone(), head)?;
            *live = self.fold(base, head)?;
        }
        Ok(live.clone())
    }

    pub(crate) fn state_at(&self, seq: Seq) -> Result<State, SessionError> {
        let head = self.shared.store.head(self.id)?;
        if seq > head {
            return Err(SessionError::NoPosition { seq, head });
        }
        let mut base = self.empty();
        let near = [Some(lock(&self.live).clone()), lock(&self.recent).nearest(seq)];
        for state in near.into_iter().flatten().filter(|state| state.seq() <= seq) {
            base = if state.seq() > base.seq() { state } else { base };
        }
        let base = self.nearest(base, seq)?;
        let state = self.fold(base, seq)?;
        lock(&self.recent).add(state.clone());
        Ok(state)
    }

    /// Keeps the snapshot of a state; gives the bytes that it took.
    fn keep_snapshot(&self, state: &State) -> u64 {
        let Some(snapshot) = snapshot_of(state) else { return 0 };
        let kept = self.shared.store.put_snapshot(&snapshot);
        kept.inspect_err(|error| tracing::warn!(%error, "a snapshot could not be kept")).unwrap_or(0)
    }

    /// The later of `base` and what the latest fitting snapshot gives.
    fn nearest(&self, base: State, seq: Seq) -> Result<State, SessionError> {
        // Near enough: folding costs less than looking.
        const NEAR: u64 = 256;
        if seq - base.seq() <= NEAR {
            return Ok(base);
        }
        // A snapshot that can't be read is no loss: the events tell.
        let snapshot = self.shared.store.snapshot(self.id, seq).ok().flatten();
        let stored = snapshot.filter(|snapshot| snapshot.seq > base.seq());
        Ok(stored.and_then(|snapshot| state_of(&snapshot, &self.shared.registry, self.id)).unwrap_or(base))
    }

    pub(crate) fn fold(&self, base: State, until: Seq) -> Result<State, SessionError> {
        let count = until - base.seq();
        if count == 0 {
            return Ok(base);
        }
        let expected = usize::try_from(count).unwrap_or(usize::MAX);
        // A second thread on the same core only adds to the work.
        if count < SPLIT_MIN || std::thread::available_parallelism().is_ok_and(|cores| cores.get() == 1) {
            let fold = self.feed(Fold::begin(&base, expected), until)?;
            return Ok(fold.finish());
        }
        let (first, others) = Fold::split(&base, expected);
        self.feed_both(first, others, until)
    }

    fn feed(&self, mut fold: Fold, until: Seq) -> Result<Fold, SessionError> {
        while let Some(batch) = self.next_batch(fold.seq(), until)? {
            let before = fold.seq();
            fold.apply_batch(&batch, until);
            if fold.seq() == before {
                return Err(SessionError::NoPosition { seq: until, head: before });
            }
        }
        Ok(fold)
    }

    /// Reads once and folds on two threads.
    fn feed_both(&self, mut first: Fold, mut others: Fold, until: Seq) -> Result<State, SessionError> {
        let feed = Feed::new(first.seq(), until, |seq, until| self.next_batch(seq, until));
        let [mut one, mut two] = feed.readers();
        std::thread::scope(|scope| {
            let first = scope.spawn(move || {
                while let Some(batches) = one.next() {
                    batches.iter().for_each(|batch| first.apply_batch(batch, until));
                }
                first
            });
            while let Some(batches) = two.next() {
                batches.iter().for_each(|batch| others.apply_batch(batch, until));
            }
            drop(two);
            let first = first.join().map_err(|_| StoreError::Index("a reducer panicked".to_owned()))?;
            feed.outcome()?;
            match first.seq().min(others.seq()) {
                seq if seq < until => Err(SessionError::NoPosition { seq: until, head: seq }),
                _ => Ok(first.join(others)),
            }
        })
    }

    /// The stored events after `seq`; none when `until` is reached.
    fn next_batch(&self, seq: Seq, until: Seq) -> Result<Option<EventBatch>, SessionError> {
        if seq >= until {
            return Ok(None);
        }
        let wanted = usize::try_from(until - seq).unwrap_or(usize::MAX).saturating_mul(EVENT_BYTES);
        let batch = self.shared.store.read(self.id, seq + 1, until, wanted.min(READ_MAX))?;
        if batch.is_empty() {
            return Err(SessionError::NoPosition { seq: until, head: seq });
        }
        Ok(Some(batch))
    }

    /// Takes the snapshots that are due, at the positions where they are due: how fast events come and
    /// how late this is called make no difference.
    pub(crate) fn take_due_snapshots(&self) {
        let mut latest = lock(&self.latest);
        while let Some(due) = self.due_position() {
            let base = latest.take().map_or_else(|| self.nearest(self.empty(), due), Ok);
            let Ok(state) = base.and_then(|base| self.fold(base, due)) else { return };
            let added = self.keep_snapshot(&state);
            *latest = Some(state);
            self.due.store(due + self.shared.policy.next_after(added), Ordering::Relaxed);
        }
        drop(latest);
        self.drop_old_snapshots();
    }

    fn due_position(&self) -> Option<Seq> {
        let head = self.shared.store.head(self.id).ok()?;
        let due = self.due.load(Ordering::Relaxed);
        (self.shared.policy.every > 0 && due <= head).then_some(due)
    }

    /// Takes a snapshot of the present, due or not.
    pub(crate) fn take_snapshot(&self) -> Result<(), SessionError> {
        let state = self.state()?;
        self.keep_snapshot(&state);
        self.drop_old_snapshots();
        Ok(())
    }

    fn drop_old_snapshots(&self) {
        let Keep::Last(count) = self.shared.policy.keep else { return };
        let seqs = self.shared.store.snapshots(self.id).unwrap_or_default();
        for seq in seqs.iter().rev().skip(count) {
            let dropped = self.shared.store.drop_snapshot(self.id, *seq);
            if let Err(error) = dropped {
                tracing::warn!(%error, "a snapshot could not be dropped");
            }
        }
    }

    pub(crate) fn empty(&self) -> State {
        self.shared.registry.empty_state(self.id)
    }

    /// Asks for the snapshots that are due once the history ends at `last`.
    pub(crate) fn snapshot_if_due(self: &Arc<Self>, last: Seq) {
        if self.shared.policy.every == 0 || last < self.due.load(Ordering::Relaxed) {
            return;
        }
        if !self.asked.swap(true, Ordering::Relaxed) && !self.shared.ask_for_snapshot(Arc::downgrade(self)) {
            self.asked.store(false, Ordering::Relaxed);
        }
    }

    /// Does what [`snapshot_if_due`](Core::snapshot_if_due) asked for.
    pub(crate) fn answer(&self) {
        self.asked.store(false, Ordering::Relaxed);
        self.take_due_snapshots();
    }
}

impl Core {
    /// Takes the session's workspace for this process; all who ask have the same lease, and it ends with the last.
    pub(crate) fn lease(&self) -> Result<Arc<Lease>, SessionError> {
        let mut held = lock(&self.lease);
        if let Some(lease) = held.upgrade() {
            return Ok(lease);
        }
        let lease = Arc::new(self.shared.store.lease(self.id, &self.shared.holder())?);
        *held = Arc::downgrade(&lease);
        Ok(lease)
    }

    /// Forgets folded states that are only kept to be near.
    pub(crate) fn forget_states(&self) {
        lock(&self.recent).clear();
        *lock(&self.live) = self.empty();
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
