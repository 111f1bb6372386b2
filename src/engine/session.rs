//! One session: its history, and the state folded from it.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::bus::{Filter, Subscription, Watcher};
use super::clock::Timestamp;
use super::commit::{Commit, Content};
use super::event::SessionStarted;
use super::feed::Feed;
use super::fold::Fold;
use super::id::{Digest, SessionId};
use super::recorded::{EventRef, Recorded, Seq};
use super::sessions::{SessionError, Shared, name_of};
use super::snapshot::{Keep, RecentStates, snapshot_of, state_of};
use super::state::State;
use super::store::{Committed, EventBatch, Pending, READ_MAX, SessionEntry, StoreError, Visitor};

/// Bytes of a common event in the journal, to guess how much is to be read.
const EVENT_BYTES: usize = 256;
/// Events from which on a fold is split over two threads.
const SPLIT_MIN: u64 = 20_000;

/// One session, acting as one agent.
///
/// Clones are the same session: what one records, all see.
///
/// ```
/// use foldspace::{NewSession, Registry, Sessions, VirtualFileSystem, WriteFile, WriteMode, Node, EntryPath};
/// # let directory = tempfile::tempdir()?;
/// let sessions = Sessions::open(directory.path(), Registry::standard())?;
/// let session = sessions.create(NewSession::default())?;
///
/// let mut commit = session.commit();
/// let path = EntryPath::for_creation("notes.txt")?;
/// commit.push(&WriteFile { path: path.clone(), mode: WriteMode::Create, node: Node::file(b"hi", false) })?;
/// commit.keep(foldspace::Content::of("hi"));
/// session.record(commit)?;
///
/// let state = session.state()?;
/// assert!(state.slice::<VirtualFileSystem>().unwrap().get(&path).is_some());
/// assert!(session.state_at(1)?.slice::<VirtualFileSystem>().unwrap().get(&path).is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Session {
    core: Arc<Core>,
    agent: Arc<str>,
}

/// What all handles of one session share.
pub(crate) struct Core {
    id: SessionId,
    name: String,
    backend: String,
    shared: Arc<Shared>,
    live: Mutex<State>,
    recent: Mutex<RecentStates>,
    /// The position from which on the next snapshot is due.
    due: AtomicU64,
    /// Whether the thread that takes snapshots has been asked.
    asked: AtomicBool,
    /// The state of the latest snapshot that this process took.
    latest: Mutex<Option<State>>,
    /// Calls that are under way in this process.
    under_way: Mutex<BTreeSet<Seq>>,
    /// Whose turn it is to change the workspace.
    turn: tokio::sync::Mutex<()>,
}

impl Core {
    pub(crate) fn new(shared: Arc<Shared>, entry: &SessionEntry) -> Result<Self, SessionError> {
        let snapshots = shared.store.snapshots(entry.id)?;
        let live = shared.registry.empty_state(entry.id);
        let due = snapshots.last().copied().unwrap_or(0) + shared.policy.every;
        let started = entry.origin.typed::<SessionStarted>();
        let backend = started.and_then(Result::ok).map_or(String::new(), |started| started.event.backend);
        let core = Self {
            id: entry.id,
            name: name_of(entry),
            backend,
            shared,
            live: Mutex::new(live),
            recent: Mutex::default(),
            due: AtomicU64::new(due),
            asked: AtomicBool::new(false),
            latest: Mutex::default(),
            under_way: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        };
        Ok(core)
    }

    /// Folds on to the head.
    fn state(&self) -> Result<State, SessionError> {
        let head = self.shared.store.head(self.id)?;
        let mut live = lock(&self.live);
        if live.seq() < head {
            let base = self.nearest(live.clone(), head)?;
            *live = self.fold(base, head)?;
        }
        Ok(live.clone())
    }

    fn state_at(&self, seq: Seq) -> Result<State, SessionError> {
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

    fn fold(&self, base: State, until: Seq) -> Result<State, SessionError> {
        let count = until - base.seq();
        if count == 0 {
            return Ok(base);
        }
        let expected = usize::try_from(count).unwrap_or(usize::MAX);
        if count < SPLIT_MIN {
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
    fn take_snapshot(&self) -> Result<(), SessionError> {
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

    fn empty(&self) -> State {
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core, agent: Arc::from("") }
    }

    /// The same session under an agent's name, which its commits will carry.
    #[must_use]
    pub fn as_agent(&self, agent: impl Into<Arc<str>>) -> Self {
        Self { core: Arc::clone(&self.core), agent: agent.into() }
    }

    /// Its identity.
    pub fn id(&self) -> SessionId {
        self.core.id
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.core.name
    }

    /// The backend of its workspace.
    pub fn backend(&self) -> &str {
        &self.core.backend
    }

    /// Who acts through this handle; empty when nobody was named.
    pub fn agent(&self) -> &Arc<str> {
        &self.agent
    }

    /// The position of its last event.
    ///
    /// # Errors
    /// [`StoreError::NoSession`] when it was removed.
    pub fn head(&self) -> Result<Seq, SessionError> {
        Ok(self.core.shared.store.head(self.core.id)?)
    }

    /// The present, by the session's clock.
    pub fn now(&self) -> Timestamp {
        self.core.shared.clock.now()
    }

    /// Microseconds of a steady clock, for durations.
    pub fn steady_micros(&self) -> u64 {
        self.core.shared.clock.monotonic_micros()
    }

    /// An empty commit of this session by this agent, now.
    pub fn commit(&self) -> Commit {
        Commit::new(self.core.id, self.now()).by(&self.agent)
    }

    /// Records a commit and waits until it is as durable as the store promises.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] when the history does not end where the commit expects, and others.
    pub fn record(&self, commit: Commit) -> Result<Committed, SessionError> {
        Ok(self.submit(commit)?.wait()?)
    }

    /// Takes a commit without waiting: its place is fixed, and [`Pending`] tells when it is durable.
    ///
    /// # Errors
    /// As [`record`](Session::record).
    pub fn submit(&self, commit: Commit) -> Result<Pending, SessionError> {
        let pending = self.core.shared.store.submit(commit)?;
        self.core.snapshot_if_due(pending.last());
        Ok(pending)
    }

    /// The state now.
    ///
    /// # Errors
    /// What the store says.
    pub fn state(&self) -> Result<State, SessionError> {
        self.core.state()
    }

    /// The state after the event at `seq`; at 0 it is empty.
    ///
    /// # Errors
    /// [`SessionError::NoPosition`] when there is no such event, and others.
    pub fn state_at(&self, seq: Seq) -> Result<State, SessionError> {
        self.core.state_at(seq)
    }

    /// The event at `seq`.
    ///
    /// # Errors
    /// [`SessionError::NoPosition`] when there is none, and others.
    pub fn event(&self, seq: Seq) -> Result<Recorded, SessionError> {
        let mut found = None;
        self.visit(seq, &mut |event| {
            found = Some(event.to_recorded());
            ControlFlow::Break(())
        })?;
        match found.filter(|event| event.seq == seq) {
            Some(event) => Ok(event),
            None => Err(SessionError::NoPosition { seq, head: self.head()? }),
        }
    }

    /// The events from `from` on, at most `limit`.
    ///
    /// # Errors
    /// What the store says.
    pub fn events(&self, from: Seq, limit: usize) -> Result<Vec<Recorded>, SessionError> {
        let mut events = Vec::new();
        if limit > 0 {
            self.visit(from, &mut |event| {
                events.push(event.to_recorded());
                if events.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
        }
        Ok(events)
    }

    /// Shows events in place from `from` on; see [`EventStore::visit`](super::store::EventStore::visit).
    ///
    /// # Errors
    /// What the store says.
    pub fn visit(&self, from: Seq, visitor: &mut Visitor<'_>) -> Result<(), SessionError> {
        Ok(self.core.shared.store.visit(self.core.id, from, visitor)?)
    }

    /// The event as JSON, as far as the program knows it.
    pub fn event_json(&self, event: &EventRef<'_>) -> serde_json::Value {
        self.core.shared.registry.to_json(event)
    }

    /// The content with that digest.
    ///
    /// # Errors
    /// [`StoreError::NoContent`].
    pub fn content(&self, digest: &Digest) -> Result<Bytes, SessionError> {
        Ok(self.core.shared.store.content(digest)?)
    }

    /// Subscribes to the events from `from` on: those that are there, then those that come.
    pub fn subscribe(&self, from: Seq, filter: Filter) -> Subscription {
        Subscription::new(Arc::clone(&self.core.shared.store), self.core.id, from, filter)
    }

    /// Calls `watch` with events from `from` on, on a thread of its own.
    ///
    /// # Errors
    /// [`StoreError::Io`] when no thread can be started.
    pub fn watch(
        &self,
        from: Seq,
        filter: Filter,
        watch: impl FnMut(&Recorded) + Send + 'static,
    ) -> Result<Watcher, SessionError> {
        let spawned = Watcher::spawn(self.subscribe(from, filter), watch);
        Ok(spawned.map_err(StoreError::io("start a thread for", std::path::Path::new("a watcher")))?)
    }

    /// Takes a snapshot of the present now.
    ///
    /// # Errors
    /// What the session says. A store that can't keep it is no error: a snapshot is a cache.
    pub fn snapshot(&self) -> Result<(), SessionError> {
        self.core.take_snapshot()
    }

    /// Folds events onto a state of this session, up to a position, without looking at snapshots.
    pub(crate) fn fold_from(&self, state: State, until: Seq) -> Result<State, SessionError> {
        self.core.fold(state, until)
    }

    /// Forgets folded states that are only kept to be near; the next look folds anew.
    pub fn forget_states(&self) {
        lock(&self.core.recent).clear();
        *lock(&self.core.live) = self.core.empty();
    }

    /// Waits for the turn to change the workspace, and holds it until the guard is dropped.
    pub(crate) async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.core.turn.lock().await
    }

    /// Notes that a call is under way in this process, until the guard is dropped.
    pub(crate) fn call_under_way(&self, call: Seq) -> UnderWay {
        lock(&self.core.under_way).insert(call);
        UnderWay { core: Arc::clone(&self.core), call }
    }

    /// Whether the call is under way in this process.
    pub(crate) fn is_under_way(&self, call: Seq) -> bool {
        lock(&self.core.under_way).contains(&call)
    }
}

/// A call that is under way.
pub(crate) struct UnderWay {
    core: Arc<Core>,
    call: Seq,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        lock(&self.core.under_way).remove(&self.call);
    }
}

impl Content {
    /// A content of these bytes.
    pub fn of(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        Self { digest: Digest::of(&bytes), bytes }
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("id", &self.core.id).field("name", &self.core.name).finish_non_exhaustive()
    }
}
