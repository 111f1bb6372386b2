#[doc(hidden)]
pub mod aside;
pub mod children;
#[doc(hidden)]
pub mod error;
mod fork_points;
pub(crate) mod inner;
#[doc(hidden)]
pub mod name_index;
mod once;
pub(crate) mod parallel_fold;
#[doc(hidden)]
pub mod sessions;
#[doc(hidden)]
pub mod snapshot;
use std::any::TypeId;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::event::{ChildLimits, Origin, SessionStarted};
use super::store::{Committed, Pending, SessionHosts, StoreError, Visitor};
use super::subscription::{Filter, Subscription, Watcher};
use super::{Commit, Content, Digest, EventRef, Recorded, Seq, SessionId, State, Timestamp, lock};
use aside::aside;
use error::{SessionError, SessionResult};
use inner::Core;
use sessions::Sessions;
use snapshot::RecentStates;

/// Session, acting as one agent.
///
/// Clones are the same session: each sees what the others record.
///
/// ```
/// # use foldspace_engine as foldspace;
/// use foldspace::{
///     EntryPath, NewSession, Registry, Sessions, VirtualFileSystem, event::{Node, WriteFile, WriteMode},
/// };
/// # let directory = tempfile::tempdir()?;
/// let sessions = Sessions::open(directory.path(), Registry::standard())?;
/// let session = sessions.create(NewSession::default())?;
///
/// let mut commit = session.commit();
/// let path = EntryPath::for_creation("notes.txt")?;
/// commit.push(&WriteFile { path: path.clone(), mode: WriteMode::Create, node: Node::file(b"hi", false) })?;
/// commit.keep(foldspace::store::Content::of("hi"));
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
    limits: Arc<ChildLimits>,
}

impl Session {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        let limits = core.started.as_ref().map(|started| started.limits.clone()).unwrap_or_default();
        Self { core, agent: Arc::from(""), limits: Arc::new(limits) }
    }

    /// Returns the same session for another agent. Its commits carry the agent's name.
    #[must_use]
    pub fn as_agent(&self, agent: impl Into<Arc<str>>) -> Self {
        Self { agent: agent.into(), ..self.clone() }
    }

    #[doc(hidden)]
    pub fn limited_to(self, limits: ChildLimits) -> Self {
        Self { limits: Arc::new(limits), ..self }
    }

    /// Returns the limits of this handle.
    pub fn limits(&self) -> &ChildLimits {
        &self.limits
    }

    /// Returns the origin of a child; `None` for a session without a parent.
    pub fn origin(&self) -> Option<&Origin> {
        self.core.started.as_ref()?.origin.as_ref()
    }

    pub(super) fn kin(&self) -> Sessions {
        Sessions { shared: Arc::clone(&self.core.shared) }
    }

    /// Returns its id.
    pub fn id(&self) -> SessionId {
        self.core.id
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.core.name
    }

    /// Returns the backend of its workspace.
    pub fn backend(&self) -> &str {
        self.core.started.as_ref().map_or("", |started| started.backend.as_str())
    }

    /// Returns its first own event; `None` if the program can't read it.
    pub fn started(&self) -> Option<&SessionStarted> {
        self.core.started.as_ref()
    }

    /// Returns the agent of this handle; empty for none.
    pub fn agent(&self) -> &Arc<str> {
        &self.agent
    }

    /// Returns the position of its last event. Fails with [`StoreError::NoSession`] if it was removed.
    pub fn head(&self) -> SessionResult<Seq> {
        Ok(self.core.shared.store.head(self.core.id)?)
    }

    /// Returns the current time of the session's clock.
    pub fn now(&self) -> Timestamp {
        self.core.shared.clock.now()
    }

    /// Returns the microseconds of a monotonic clock, for durations.
    pub fn steady_micros(&self) -> u64 {
        self.core.shared.clock.monotonic_micros()
    }

    /// Creates an empty commit of this session by this agent, at the current time.
    pub fn commit(&self) -> Commit {
        Commit::new(self.core.id, self.now()).as_agent(&self.agent)
    }

    /// Records a commit and waits until it is as durable as the store promises. Fails with [`StoreError::Conflict`].
    pub fn record(&self, commit: Commit) -> SessionResult<Committed> {
        Ok(self.submit(commit)?.wait()?)
    }

    /// Submits a commit without waiting; [`Pending`] reports its positions, and when it is durable.
    pub fn submit(&self, commit: Commit) -> SessionResult<Pending> {
        let events = commit.len();
        let pending = self.core.shared.submit(commit)?;
        self.core.snapshot_after(&pending, events);
        Ok(pending)
    }

    /// Returns the current state.
    pub fn state(&self) -> SessionResult<State> {
        let (core, head) = (&self.core, self.head()?);
        core.reads.states.fetch_add(1, Ordering::Relaxed);
        let mut live = lock(&core.live);
        if live.seq() < head {
            let base = core.nearest(live.clone(), head);
            *live = core.fold(base, head)?;
        }
        Ok(live.clone())
    }

    /// Returns the number of states that were read, and of slices that were opened to fold events.
    #[doc(hidden)]
    pub fn state_reads(&self) -> (u64, u64) {
        let reads = &self.core.reads;
        (reads.states.load(Ordering::Relaxed), reads.opened_slices.load(Ordering::Relaxed))
    }

    /// Returns the state after the event at `seq`; empty at 0. Fails with [`SessionError::NoPosition`].
    pub fn state_at(&self, seq: Seq) -> SessionResult<State> {
        let (core, head) = (&self.core, self.head()?);
        if seq > head {
            return Err(SessionError::NoPosition { seq, head });
        }
        let base = core.nearest(core.known_before(seq).unwrap_or_else(|| core.empty()), seq);
        let state = core.fold(base, seq)?;
        lock(&core.recent).add(state.clone());
        Ok(state)
    }

    /// Returns the event at `seq`. Fails with [`SessionError::NoPosition`] if it does not exist.
    pub fn event(&self, seq: Seq) -> SessionResult<Recorded> {
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

    /// Returns the first and last positions of the commit of the event at `seq`. In a store without commits, each event
    /// is its own commit. Fails with [`SessionError::NoPosition`] if it does not exist.
    pub fn commit_of(&self, seq: Seq) -> SessionResult<(Seq, Seq)> {
        let batch = self.core.shared.store.read(self.core.id, seq, seq, 1)?;
        match batch.commit_of(seq) {
            Some(positions) => Ok(positions),
            None => Err(SessionError::NoPosition { seq, head: self.head()? }),
        }
    }

    /// Returns the end of the commit of the event at `seq`, where a rewind and a fork go; 0 for 0. Fails with
    /// [`SessionError::NoPosition`] if the event does not exist.
    pub fn commit_end(&self, seq: Seq) -> SessionResult<Seq> {
        if seq == 0 || seq == self.head()? { Ok(seq) } else { Ok(self.commit_of(seq)?.1) }
    }

    /// Returns the last end of a commit up to `seq`. In the session's first commit it is `seq`
    /// itself.
    pub fn commit_end_before(&self, seq: Seq) -> SessionResult<Seq> {
        let (first, last) = self.commit_of(seq)?;
        Ok(if seq == last || first == 1 { seq } else { first - 1 })
    }

    /// Returns the events from `from` on, at most `limit`.
    pub fn events(&self, from: Seq, limit: usize) -> SessionResult<Vec<Recorded>> {
        let mut events = Vec::new();
        if limit > 0 {
            self.visit(from, &mut |event| {
                events.push(event.to_recorded());
                if events.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
        }
        Ok(events)
    }

    /// Visits events in place from `from` on; see [`EventStore::visit`](super::store::EventStore::visit).
    pub fn visit(&self, from: Seq, visitor: &mut Visitor<'_>) -> SessionResult<()> {
        Ok(self.core.shared.store.visit(self.core.id, from, visitor)?)
    }

    /// Visits the events from `from` to `until`.
    #[doc(hidden)]
    pub fn visit_between(&self, from: Seq, until: Seq, visitor: &mut Visitor<'_>) -> SessionResult<()> {
        if from > until {
            return Ok(());
        }
        self.visit(from, &mut |event| {
            if event.seq <= until {
                visitor(event)?;
            }
            if event.seq < until { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })
    }

    /// Returns the event as JSON, as far as the registry knows it.
    pub fn event_json(&self, event: &EventRef<'_>) -> serde_json::Value {
        self.core.shared.registry.to_json(event)
    }

    /// Returns true if the registry has events of that kind.
    #[doc(hidden)]
    pub fn knows_kind(&self, kind: &str) -> bool {
        self.core.shared.registry.event_kinds().any(|known| known == kind)
    }

    /// Returns the content with that digest. Fails with [`StoreError::NoContent`] if it is not stored.
    pub fn content(&self, digest: &Digest) -> SessionResult<Bytes> {
        Ok(self.core.shared.store.content(digest)?)
    }

    /// Prefetches contents; see [`EventStore::read_ahead`](super::store::EventStore::read_ahead).
    #[doc(hidden)]
    pub fn read_ahead<'a>(&self, contents: impl Iterator<Item = &'a Digest>) {
        self.core.shared.store.read_ahead(&contents.copied().collect::<Vec<_>>());
    }

    /// Returns true if the store itself has the content with that digest, not merely borrowed.
    #[doc(hidden)]
    pub fn keeps(&self, digest: &Digest) -> SessionResult<bool> {
        Ok(self.core.shared.store.has_content(digest)?)
    }

    /// Returns true if a file with that content can be restored: it is stored, withheld, or in a git repository.
    #[doc(hidden)]
    pub fn has_content(&self, digest: &Digest) -> SessionResult<bool> {
        let store = &self.core.shared.store;
        Ok(store.can_read(digest)? || store.withheld(digest)?.is_some())
    }

    /// Returns a content to restore a file from, even a withheld one. Fails with [`StoreError::NoContent`].
    #[doc(hidden)]
    pub fn content_to_restore(&self, digest: &Digest) -> SessionResult<Bytes> {
        match self.content(digest) {
            Err(SessionError::Store(StoreError::NoContent(missing))) => {
                Ok(self.core.shared.store.withheld(digest)?.ok_or(StoreError::NoContent(missing))?)
            }
            read => read,
        }
    }

    /// Stores a content on this machine only; see [`EventStore::withhold`](super::store::EventStore::withhold).
    #[doc(hidden)]
    pub fn withhold(&self, digest: &Digest, bytes: &[u8]) -> SessionResult<bool> {
        Ok(self.core.shared.store.withhold(digest, bytes)?)
    }

    /// Borrows contents from a git repository; see [`EventStore::borrow_from`](super::store::EventStore::borrow_from).
    #[doc(hidden)]
    pub fn borrow_from(&self, git_directory: &std::path::Path) -> SessionResult<bool> {
        Ok(self.core.shared.store.borrow_from(git_directory)?)
    }

    /// Subscribes to the events from `from` on: existing ones, then new ones.
    pub fn subscribe(&self, from: Seq, filter: Filter) -> Subscription {
        Subscription::new(Arc::clone(&self.core.shared.store), self.core.id, from, filter)
    }

    /// Calls `watch` with events from `from` on, on its own thread. Fails with [`StoreError::Io`].
    pub fn watch(
        &self,
        from: Seq,
        filter: Filter,
        watch: impl FnMut(&Recorded) + Send + 'static,
    ) -> SessionResult<Watcher> {
        let spawned = Watcher::spawn(self.subscribe(from, filter), watch);
        Ok(spawned.map_err(StoreError::io("start a thread for", std::path::Path::new("a watcher")))?)
    }

    /// Takes a snapshot of the current state. A failure to store it is ignored: a snapshot is a cache.
    pub fn snapshot(&self) -> SessionResult<()> {
        self.core.keep_snapshot(&self.state()?);
        self.core.drop_old_snapshots();
        Ok(())
    }

    /// Folds events onto a state of this session, up to a position, without using snapshots.
    pub(crate) fn fold_from(&self, state: State, until: Seq) -> SessionResult<State> {
        self.core.fold(state, until)
    }

    /// Returns true if a folded state is in memory.
    pub(crate) fn has_state(&self) -> bool {
        lock(&self.core.live).seq() > 0
    }

    /// Drops folded states, which are only a cache; the next read folds again.
    pub fn forget_states(&self) {
        *lock(&self.core.recent) = RecentStates::default();
        *lock(&self.core.live) = self.core.empty();
    }

    /// Returns the value of that type that all handles of the session share in this process. The first call creates it,
    /// and it is dropped with the last handle.
    #[doc(hidden)]
    pub fn extension<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        let mut extensions = lock(&self.core.extensions);
        let shared = extensions.entry(TypeId::of::<T>()).or_insert_with(|| Arc::new(T::default()));
        // The key is the type, so the cast succeeds.
        Arc::clone(shared).downcast().unwrap_or_default()
    }

    /// Checks that this process owns the store. Code that opens a workspace without a
    /// `ToolRunner` must call it first. Fails with [`StoreError::Locked`] and
    /// [`StoreError::ReadOnly`].
    pub fn check_own(&self) -> SessionResult<()> {
        Ok(self.core.shared.store.check_own()?)
    }

    /// Waits until all submitted commits are durable; then [`head`](Self::head) includes them.
    #[doc(hidden)]
    pub fn sync(&self) -> SessionResult<()> {
        Ok(self.core.shared.store.sync()?)
    }

    /// Returns true if the store may wait; see [`EventStore::may_wait`](super::store::EventStore::may_wait).
    #[doc(hidden)]
    pub fn store_may_wait(&self) -> bool {
        self.core.shared.store.may_wait()
    }

    /// Runs work on the store for a caller that can't await, without blocking a runtime's other tasks.
    #[doc(hidden)]
    pub fn aside<T>(&self, work: impl FnOnce() -> T) -> T {
        if self.store_may_wait() { aside(work) } else { work() }
    }

    /// Returns the hosts that share the store; `None` for a store of one machine.
    #[doc(hidden)]
    pub fn hosts(&self) -> Option<&dyn SessionHosts> {
        self.core.shared.store.hosts()
    }
}

impl Content {
    /// Creates a content of these bytes.
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
