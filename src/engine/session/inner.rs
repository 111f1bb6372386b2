use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use crossbeam_channel::Sender;

use super::error::{SessionError, SessionResult};
use super::name_index::{NameIndex, name_of};
use super::output_stream::Outputs;
use super::parallel_fold::Feed;
use super::snapshot::{Keep, RecentStates, SnapshotPolicy, snapshot_of, state_of};
use crate::engine::clock::Clock;
use crate::engine::event::SessionStarted;
use crate::engine::fold::Fold;
use crate::engine::id::{Seq, SessionId};
use crate::engine::lock::lock;
use crate::engine::registry::Registry;
use crate::engine::state::State;
use crate::engine::store::{EventBatch, EventStore, Lease, LeaseHolder, READ_MAX, SessionEntry, StoreError};

const EVENT_BYTES: usize = 256;

/// Events from which on a fold is split over two threads.
const SPLIT_MIN: u64 = 20_000;

/// State that all handles of one session share: the fold of its history, kept near the head.
pub(crate) struct Core {
    pub(crate) id: SessionId,
    pub(crate) name: String,
    pub(crate) started: Option<SessionStarted>,
    pub(crate) shared: Arc<SessionsInner>,
    pub(crate) live: Mutex<State>,
    recent: Mutex<RecentStates>,
    /// Position from which the next snapshot is due.
    due: AtomicU64,
    asked: AtomicBool,
    latest: Mutex<Option<State>>,
    pub(crate) under_way: Mutex<BTreeSet<Seq>>,
    pub(crate) turn: Arc<tokio::sync::Mutex<()>>,
    /// Held during a scan of the workspace's disk.
    pub(crate) looking: Arc<tokio::sync::Mutex<()>>,
    pub(crate) outputs: Outputs,
    /// Set while a container-backed shell is active.
    pub(crate) has_machine: AtomicBool,
    /// Held while this process has the workspace open.
    pub(crate) lease: Mutex<Weak<Lease>>,
    pub(crate) calls_begun: OnceLock<Arc<AtomicU64>>,
}

impl Core {
    pub(crate) fn new(shared: Arc<SessionsInner>, entry: &SessionEntry) -> SessionResult<Self> {
        let snapshots = shared.store.snapshots(entry.id)?;
        // A child's history includes its parent's.
        let past = entry.origin.seq - 1;
        let live = State::empty(&shared.registry, entry.id);
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

    pub(crate) fn state(&self) -> SessionResult<State> {
        let head = self.shared.store.head(self.id)?;
        let mut live = lock(&self.live);
        if live.seq() < head {
            let base = self.nearest(live.clone(), head)?;
            *live = self.fold(base, head)?;
        }
        Ok(live.clone())
    }

    pub(crate) fn state_at(&self, seq: Seq) -> SessionResult<State> {
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

    fn keep_snapshot(&self, state: &State) -> u64 {
        let Some(snapshot) = snapshot_of(state) else { return 0 };
        let kept = self.shared.store.put_snapshot(&snapshot);
        kept.inspect_err(|error| tracing::warn!(%error, "could not store a snapshot")).unwrap_or(0)
    }

    /// Returns the later of `base` and the latest usable snapshot's state.
    fn nearest(&self, base: State, seq: Seq) -> SessionResult<State> {
        // Near enough, folding costs less than a search.
        const NEAR: u64 = 256;
        if seq - base.seq() <= NEAR {
            return Ok(base);
        }
        // A snapshot that can't be read is no loss: the events suffice.
        let snapshot = self.shared.store.snapshot(self.id, seq).ok().flatten();
        let stored = snapshot.filter(|snapshot| snapshot.seq > base.seq());
        Ok(stored.and_then(|snapshot| state_of(&snapshot, &self.shared.registry, self.id)).unwrap_or(base))
    }

    pub(crate) fn fold(&self, base: State, until: Seq) -> SessionResult<State> {
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

    fn feed(&self, mut fold: Fold, until: Seq) -> SessionResult<Fold> {
        while let Some(batch) = self.next_batch(fold.seq(), until)? {
            let before = fold.seq();
            fold.apply_batch(&batch, until);
            if fold.seq() == before {
                return Err(SessionError::NoPosition { seq: until, head: before });
            }
        }
        Ok(fold)
    }

    fn feed_both(&self, mut first: Fold, mut others: Fold, until: Seq) -> SessionResult<State> {
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

    /// Reads the stored events after `seq`; none if `until` is reached.
    fn next_batch(&self, seq: Seq, until: Seq) -> SessionResult<Option<EventBatch>> {
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

    /// Takes the due snapshots at their exact positions, however fast events come and however late it is called.
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

    pub(crate) fn take_snapshot(&self) -> SessionResult<()> {
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
                tracing::warn!(%error, "could not remove a snapshot");
            }
        }
    }

    pub(crate) fn empty(&self) -> State {
        State::empty(&self.shared.registry, self.id)
    }

    pub(crate) fn snapshot_if_due(self: &Arc<Self>, last: Seq) {
        if self.shared.policy.every == 0 || last < self.due.load(Ordering::Relaxed) {
            return;
        }
        if !self.asked.swap(true, Ordering::Relaxed) && !self.shared.ask_for_snapshot(Arc::downgrade(self)) {
            self.asked.store(false, Ordering::Relaxed);
        }
    }

    pub(crate) fn answer(&self) {
        self.asked.store(false, Ordering::Relaxed);
        self.take_due_snapshots();
    }

    /// Takes the workspace's lease for this process. All callers share it, and it ends with the last.
    pub(crate) fn lease(&self) -> SessionResult<Arc<Lease>> {
        let mut held = lock(&self.lease);
        if let Some(lease) = held.upgrade() {
            return Ok(lease);
        }
        let lease = Arc::new(self.shared.store.lease(self.id, &self.shared.holder())?);
        *held = Arc::downgrade(&lease);
        Ok(lease)
    }

    pub(crate) fn forget_states(&self) {
        lock(&self.recent).clear();
        *lock(&self.live) = self.empty();
    }
}

pub(crate) struct SessionsInner {
    pub(crate) store: Arc<dyn EventStore>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) policy: SnapshotPolicy,
    pub(super) open: Mutex<BTreeMap<SessionId, Weak<Core>>>,
    pub(super) naming: Mutex<NameIndex>,
    pub(super) snapshots: Mutex<Option<Snapshotter>>,
    pub(super) address: Mutex<Option<PathBuf>>,
}

pub(super) struct Snapshotter {
    pub(super) due: Sender<Weak<Core>>,
    pub(super) thread: std::thread::JoinHandle<()>,
}

impl SessionsInner {
    pub(crate) fn holder(&self) -> LeaseHolder {
        LeaseHolder::this_process(lock(&self.address).clone())
    }

    /// Requests a snapshot; false if too many are waiting.
    pub(crate) fn ask_for_snapshot(&self, core: Weak<Core>) -> bool {
        lock(&self.snapshots).as_ref().is_some_and(|snapshotter| snapshotter.due.try_send(core).is_ok())
    }
}
