use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use crossbeam_channel::Sender;

use super::error::{SessionError, SessionResult};
use super::fork_points::ForkPoints;
use super::name_index::NameIndex;
use super::snapshot::{Keep, RecentStates, SnapshotPace, SnapshotPolicy, snapshot_of, state_of};
use crate::engine::event::SessionStarted;
use crate::engine::fold::Fold;
use crate::engine::store::{CommitMeter, EventBatch, EventStore, Pending, READ_MAX, SessionEntry, StoreError};
use crate::engine::{Clock, Commit, Registry, Seq, SessionId, State, lock};

const EVENT_BYTES: usize = 256;

/// Maximum number of events that are cheaper to fold than to search for a nearer snapshot.
const NEAR: u64 = 256;

/// Minimum events of a fold that is split over two threads.
const SPLIT_MIN: u64 = 4_000;

/// State that all handles of one session share: the fold of its history, kept near the head.
pub(crate) struct Core {
    pub(crate) id: SessionId,
    pub(crate) name: String,
    pub(crate) started: Option<SessionStarted>,
    pub(crate) shared: Arc<SessionsInner>,
    pub(crate) live: Mutex<State>,
    pub(super) recent: Mutex<RecentStates>,
    /// Position of the next snapshot.
    due: AtomicU64,
    /// Position of the last submitted event, estimated if the store does not know its place yet.
    heard: AtomicU64,
    asked: AtomicBool,
    /// State of the latest snapshot, and when the next is due.
    latest: Mutex<(Option<State>, SnapshotPace)>,
    /// Values of other packages, by type.
    pub(super) extensions: Mutex<BTreeMap<TypeId, Arc<dyn Any + Send + Sync>>>,
    pub(crate) reads: StateReads,
}

/// Work of reading a session's states, for tests.
#[derive(Default)]
pub(crate) struct StateReads {
    pub(crate) states: AtomicU64,
    pub(crate) opened_slices: AtomicU64,
}

impl Core {
    pub(crate) fn new(shared: Arc<SessionsInner>, entry: &SessionEntry) -> SessionResult<Self> {
        let snapshots = shared.store.snapshots(entry.id)?;
        // A child's history includes its parent's.
        let past = entry.origin.seq - 1;
        let due = snapshots.last().copied().unwrap_or(0).max(past) + shared.policy.every;
        let started = entry.origin.typed::<SessionStarted>();
        let started = started.and_then(Result::ok).map(|started| started.event);
        let origin = started.as_ref().and_then(|started| started.origin.as_ref());
        let known = origin.and_then(|origin| lock(&shared.fork_points).state_of(origin));
        let live = match known {
            Some(known) => State { session: entry.id, ..known },
            None => State::empty(&shared.registry, entry.id),
        };
        Ok(Self {
            id: entry.id,
            name: entry.name(),
            started,
            shared,
            live: Mutex::new(live),
            recent: Mutex::default(),
            heard: AtomicU64::new(entry.head),
            due: AtomicU64::new(due),
            asked: AtomicBool::new(false),
            latest: Mutex::default(),
            extensions: Mutex::default(),
            reads: StateReads::default(),
        })
    }

    pub(super) fn keep_snapshot(&self, state: &State) -> u64 {
        let Some(snapshot) = snapshot_of(state) else { return 0 };
        let kept = self.shared.store.put_snapshot(&snapshot);
        kept.inspect_err(|error| tracing::warn!(%error, "failed to store a snapshot")).unwrap_or(0)
    }

    /// Returns the latest state in memory up to `seq`.
    pub(super) fn known_before(&self, seq: Seq) -> Option<State> {
        let known = [Some(lock(&self.live).clone()), lock(&self.recent).nearest(seq)];
        known.into_iter().flatten().filter(|state| state.seq() <= seq).max_by_key(State::seq)
    }

    /// Caches the state at a position for forks, if it is cheap to compute.
    pub(super) fn keep_fork_point(&self, at: Seq) {
        let Some(near) = self.known_before(at).filter(|near| at - near.seq() <= NEAR) else { return };
        // Without it, each fork folds the state itself.
        if let Ok(state) = self.fold(near, at) {
            lock(&self.shared.fork_points).add(self.id, state);
        }
    }

    /// Returns the later of `base` and the latest usable snapshot's state.
    pub(super) fn nearest(&self, base: State, seq: Seq) -> State {
        if seq - base.seq() <= NEAR {
            return base;
        }
        // An unreadable snapshot loses nothing: the events suffice.
        let snapshot = self.shared.store.snapshot(self.id, seq).ok().flatten();
        let stored = snapshot.filter(|snapshot| snapshot.seq > base.seq());
        stored.and_then(|snapshot| state_of(&snapshot, &self.shared.registry, self.id)).unwrap_or(base)
    }

    pub(crate) fn fold(&self, base: State, until: Seq) -> SessionResult<State> {
        let count = until - base.seq();
        if count == 0 {
            return Ok(base);
        }
        let expected = usize::try_from(count).unwrap_or(usize::MAX);
        // On a single core, a second thread only adds work.
        if count >= SPLIT_MIN && std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1) {
            let (first, others) = Fold::split(&base, expected);
            return self.fold_on_two_threads(first, others, until);
        }
        let mut fold = Fold::begin(&base, expected);
        while let Some(batch) = self.next_batch(fold.seq(), until)? {
            let before = fold.seq();
            fold.apply_batch(&batch, until);
            if fold.seq() == before {
                return Err(SessionError::NoPosition { seq: until, head: before });
            }
        }
        self.reads.opened_slices.fetch_add(fold.opened_slices(), Ordering::Relaxed);
        Ok(fold.finish())
    }

    /// Reads the stored events after `seq`; `None` if `until` is reached.
    pub(super) fn next_batch(&self, seq: Seq, until: Seq) -> SessionResult<Option<EventBatch>> {
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

    /// Takes due snapshots at fixed positions, however fast events come and however late it is called: each at the end
    /// of the commit with the due position.
    pub(crate) fn take_due_snapshots(&self) {
        self.asked.store(false, Ordering::Relaxed);
        let mut latest = lock(&self.latest);
        while let Some(due) = self.due_position() {
            let Ok(commit) = self.shared.store.read(self.id, due, due, 1) else { return };
            let due = commit.last().max(due);
            let (state, pace) = &mut *latest;
            let base = state.take().unwrap_or_else(|| self.nearest(self.empty(), due));
            let Ok(folded) = self.fold(base, due) else { return };
            let pause = pace.pause(self.shared.policy.every, self.keep_snapshot(&folded));
            *state = Some(folded);
            self.due.store(due + pause, Ordering::Relaxed);
        }
        drop(latest);
        self.drop_old_snapshots();
    }

    fn due_position(&self) -> Option<Seq> {
        let head = self.shared.store.head(self.id).ok()?;
        let due = self.due.load(Ordering::Relaxed);
        (self.shared.policy.every > 0 && due <= head).then_some(due)
    }

    pub(super) fn drop_old_snapshots(&self) {
        let Keep::Last(count) = self.shared.policy.keep else { return };
        let seqs = self.shared.store.snapshots(self.id).unwrap_or_default();
        for seq in seqs.iter().rev().skip(count) {
            let dropped = self.shared.store.drop_snapshot(self.id, *seq);
            if let Err(error) = dropped {
                tracing::warn!(%error, "failed to remove a snapshot");
            }
        }
    }

    pub(crate) fn empty(&self) -> State {
        State::empty(&self.shared.registry, self.id)
    }

    /// Requests a snapshot if it is due after a commit of `events` events. The store may not know their position yet.
    pub(crate) fn snapshot_after(self: &Arc<Self>, pending: &Pending, events: u32) {
        let last = match pending.known() {
            Some(committed) => committed.last,
            None => self.heard.fetch_add(u64::from(events), Ordering::Relaxed) + u64::from(events),
        };
        self.snapshot_if_due(last);
    }

    pub(crate) fn snapshot_if_due(self: &Arc<Self>, last: Seq) {
        if self.shared.policy.every == 0 || last < self.due.load(Ordering::Relaxed) {
            return;
        }
        if !self.asked.swap(true, Ordering::Relaxed) {
            let snapshots = lock(&self.shared.snapshots);
            // If too many wait, a later commit requests it again.
            if snapshots.as_ref().is_none_or(|thread| thread.due.try_send(Arc::downgrade(self)).is_err()) {
                self.asked.store(false, Ordering::Relaxed);
            }
        }
    }
}

pub(crate) struct SessionsInner {
    pub(crate) store: Arc<dyn EventStore>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) policy: SnapshotPolicy,
    pub(super) fork_points: Mutex<ForkPoints>,
    pub(super) commits: Arc<CommitMeter>,
    pub(super) open: Mutex<BTreeMap<SessionId, Weak<Core>>>,
    pub(super) naming: Mutex<NameIndex>,
    pub(super) snapshots: Mutex<Option<Snapshotter>>,
}

impl SessionsInner {
    pub(super) fn submit(&self, commit: Commit) -> Result<Pending, StoreError> {
        Pending::measured(&self.commits, || self.store.submit(commit))
    }
}

pub(super) struct Snapshotter {
    pub(super) due: Sender<Weak<Core>>,
    pub(super) thread: std::thread::JoinHandle<()>,
}
