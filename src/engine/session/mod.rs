//! One session: its history, and the state folded from it.

pub(crate) mod children;
pub(crate) mod error;
pub(crate) mod inner;
pub(crate) mod name_index;
pub(crate) mod output_stream;
pub(crate) mod sessions;
pub(crate) mod snapshot;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use super::clock::Timestamp;
use super::commit::{Commit, Content};
use super::event::{ChildLimits, Origin, SessionStarted};
use super::id::{Digest, Seq, SessionId};
use super::recorded::{EventRef, Recorded};
use super::state::State;
use super::store::{Committed, Lease, LeaseHolder, Pending, StoreError, Visitor};
use super::subscription::{Filter, Subscription, Watcher};
use error::SessionError;
use inner::{Core, lock};
use output_stream::{CommandOutput, OutputSubscription};
use sessions::Sessions;

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
    limits: Arc<ChildLimits>,
}

impl Session {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        let limits = core.started.as_ref().map(|started| started.limits.clone()).unwrap_or_default();
        Self { core, agent: Arc::from(""), limits: Arc::new(limits) }
    }

    /// The same session under an agent's name, which its commits will carry.
    #[must_use]
    pub fn as_agent(&self, agent: impl Into<Arc<str>>) -> Self {
        Self { agent: agent.into(), ..self.clone() }
    }

    /// The same session for somebody who may do less.
    pub(crate) fn limited_to(self, limits: ChildLimits) -> Self {
        Self { limits: Arc::new(limits), ..self }
    }

    /// What it may do through this handle.
    pub fn limits(&self) -> &ChildLimits {
        &self.limits
    }

    /// Of which session it is a child; none when it began by itself.
    pub fn origin(&self) -> Option<&Origin> {
        self.core.started.as_ref()?.origin.as_ref()
    }

    /// Lets this session, a child, begin with what the parent's process knows of their past.
    pub(super) fn learn_from(&self, parent: &Self, at: Seq) {
        self.core.learn_from(&parent.core, at);
    }

    /// All sessions of its store.
    pub(super) fn kin(&self) -> Sessions {
        Sessions::sharing(&self.core.shared)
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
        self.core.started.as_ref().map_or("", |started| started.backend.as_str())
    }

    /// How its first event of its own describes it; none when the program can't read that.
    pub fn started(&self) -> Option<&SessionStarted> {
        self.core.started.as_ref()
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

    /// The first and the last position of what was recorded at once with the event at `seq`; a store that keeps no
    /// commits has each event by itself.
    ///
    /// # Errors
    /// [`SessionError::NoPosition`] when there is none, and others.
    pub fn commit_of(&self, seq: Seq) -> Result<(Seq, Seq), SessionError> {
        let batch = self.core.shared.store.read(self.core.id, seq, seq, 1)?;
        match batch.commit_of(seq) {
            Some(positions) => Ok(positions),
            None => Err(SessionError::NoPosition { seq, head: self.head()? }),
        }
    }

    /// The last position up to `seq` at which a commit ends: where a fork may begin. In the session's very first
    /// commit it is `seq` itself.
    ///
    /// # Errors
    /// As [`commit_of`](Session::commit_of).
    pub fn commit_end_before(&self, seq: Seq) -> Result<Seq, SessionError> {
        let (first, last) = self.commit_of(seq)?;
        Ok(if seq == last || first == 1 { seq } else { first - 1 })
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
        self.core.forget_states();
    }

    /// Waits for the turn to change the workspace, and holds it until the guard is dropped.
    pub(crate) async fn turn(&self) -> WorkspaceLock {
        Arc::clone(&self.core.turn).lock_owned().await
    }

    /// Waits until nobody looks at the workspace's disk, and keeps others from it until the guard is dropped.
    pub(crate) async fn looking(&self) -> WorkspaceLock {
        Arc::clone(&self.core.looking).lock_owned().await
    }

    /// The same, when nobody looks.
    pub(crate) fn looking_now(&self) -> Option<WorkspaceLock> {
        Arc::clone(&self.core.looking).try_lock_owned().ok()
    }

    /// The turn, when nobody has it.
    pub(crate) fn turn_now(&self) -> Option<WorkspaceLock> {
        Arc::clone(&self.core.turn).try_lock_owned().ok()
    }

    /// What commands print while they run, from now on. Nothing of it is an event; what a subscriber
    /// takes too slowly, it misses, and is told how much.
    pub fn watch_output(&self) -> OutputSubscription {
        self.core.outputs.subscribe(None)
    }

    /// The same, and nothing is missed: a command waits when the subscriber is behind, until that is dropped
    /// or [lets go](OutputSubscription::let_go).
    pub fn watch_all_output(&self) -> OutputSubscription {
        self.core.outputs.subscribe_to_all(None)
    }

    /// What one call's commands print, as [`watch_output`](Session::watch_output); what others print meanwhile takes no
    /// room from it.
    pub fn watch_output_of(&self, call: Seq) -> OutputSubscription {
        self.core.outputs.subscribe(Some(call))
    }

    /// What one call's commands print, as [`watch_all_output`](Session::watch_all_output); other calls' commands do not
    /// wait.
    pub fn watch_all_output_of(&self, call: Seq) -> OutputSubscription {
        self.core.outputs.subscribe_to_all(Some(call))
    }

    /// Shows subscribers what a command has printed. It blocks while one is behind that misses nothing.
    pub(crate) fn show_output(&self, output: impl FnOnce() -> CommandOutput) {
        self.core.outputs.show(output);
    }

    /// Takes the session's workspace for this process, for as long as the lease is held. Who opens a workspace by
    /// itself, without a [`ToolRunner`](crate::ToolRunner), does so first.
    ///
    /// # Errors
    /// [`StoreError::InUse`] when another process has it.
    pub fn lease(&self) -> Result<Arc<Lease>, SessionError> {
        self.core.lease()
    }

    /// How this process is noted where it has a session's workspace.
    pub(crate) fn own_holder(&self) -> LeaseHolder {
        self.core.shared.holder()
    }

    /// The process that has the session's workspace open; none where nobody has. A call that has no outcome runs there.
    pub fn lease_holder(&self) -> Option<LeaseHolder> {
        self.core.shared.store.lease_holder(self.core.id)
    }

    /// Takes the session's only place for a container-backed shell; none when it is taken.
    pub(crate) fn claim_machine(&self) -> Option<MachineClaim> {
        let taken = self.core.has_machine.swap(true, Ordering::AcqRel);
        (!taken).then(|| MachineClaim { core: Arc::clone(&self.core) })
    }

    /// The count of calls that were begun, the same for all who ask; whoever asks first says how many there were.
    pub(crate) fn calls_begun(&self, before: u64) -> Arc<AtomicU64> {
        Arc::clone(self.core.calls_begun.get_or_init(|| Arc::new(AtomicU64::new(before))))
    }

    /// Notes that a call is under way in this process, until the guard is dropped.
    pub(crate) fn call_under_way(&self, call: Seq) -> SessionCall {
        lock(&self.core.under_way).insert(call);
        SessionCall { core: Arc::clone(&self.core), call }
    }

    /// Whether the call is under way in this process.
    pub(crate) fn is_under_way(&self, call: Seq) -> bool {
        lock(&self.core.under_way).contains(&call)
    }
}

/// The turn to change a session's workspace, until it is dropped.
pub(crate) type WorkspaceLock = tokio::sync::OwnedMutexGuard<()>;

/// The session's only place for a container-backed shell, until it is dropped.
pub(crate) struct MachineClaim {
    core: Arc<Core>,
}

impl Drop for MachineClaim {
    fn drop(&mut self) {
        self.core.has_machine.store(false, Ordering::Release);
    }
}

/// A call that is under way.
pub(crate) struct SessionCall {
    core: Arc<Core>,
    call: Seq,
}

impl Drop for SessionCall {
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
