use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use super::Session;
use super::aside::aside;
use super::error::{SessionError, SessionResult};
use super::inner::{Core, SessionsInner, Snapshotter};
use super::name_index::{NameIndex, check_name};
use super::snapshot::SnapshotPolicy;
use crate::engine::event::{ChildLimits, SessionStarted};
use crate::engine::nearest::nearest;
use crate::engine::store::{
    CommitFigures, CommitMeter, EventStore, LocalStore, LocalStoreOptions, Pending, SessionEntry, SessionQuery,
    SessionTotals, StoreError,
};
use crate::engine::{Clock, Commit, CommitView, Expected, Registry, SessionId, SystemClock, lock};

/// Sessions of a store.
///
/// ```
/// # use foldspace_engine as foldspace;
/// use foldspace::{NewSession, Registry, Sessions};
/// # let directory = tempfile::tempdir()?;
/// let sessions = Sessions::open(directory.path(), Registry::standard())?;
/// let session = sessions.create(NewSession::named("demo"))?;
/// assert_eq!(session.head()?, 1);
/// assert_eq!(sessions.find("demo")?.id, session.id());
/// # drop(session);
/// # sessions.close();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Sessions {
    pub(super) shared: Arc<SessionsInner>,
}

/// Options of a new session.
#[derive(Debug, Clone, Default)]
pub struct NewSession {
    /// Name; the beginning of its id by default.
    pub name: Option<String>,
    /// Backend of its workspace; `memory` by default.
    pub backend: Option<String>,
    /// Options of the backend, recorded with the session; null for none.
    pub options: serde_json::Value,
    /// Its id, which no session may have had; a fresh one by default.
    pub id: Option<SessionId>,
}

impl NewSession {
    /// Creates the options of a session of that name on the memory backend.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..Self::default() }
    }

    /// Checks that the name is valid; it may still be taken. Fails with [`SessionError::BadName`].
    pub fn check(&self) -> SessionResult<()> {
        self.name.as_deref().map_or(Ok(()), check_name)
    }
}

/// Maximum sessions that an ambiguous prefix lists.
const CANDIDATES: usize = 8;
/// Maximum names to compare for a suggestion.
const COMPARED_NAMES: usize = 1000;
/// Maximum sessions that wait for a snapshot; others are requested again later.
const DUE_MAX: usize = 256;

impl Sessions {
    /// Opens the store in a directory. This process owns it until it is closed. Others work through a
    /// [`StoreServer`](crate::store::StoreServer), if it starts one. Fails as [`LocalStore::open`].
    pub fn open(directory: impl AsRef<Path>, registry: impl Into<Arc<Registry>>) -> Result<Self, StoreError> {
        let store = LocalStore::open(directory, LocalStoreOptions::default())?;
        Self::new(Arc::new(store), registry, Arc::new(SystemClock::default()), SnapshotPolicy::default())
    }

    /// Creates the sessions of any store. Fails with [`StoreError::Io`] if the snapshot thread can't be started.
    pub fn new(
        store: Arc<dyn EventStore>,
        registry: impl Into<Arc<Registry>>,
        clock: Arc<dyn Clock>,
        policy: SnapshotPolicy,
    ) -> Result<Self, StoreError> {
        let (due, asked) = crossbeam_channel::bounded::<Weak<Core>>(DUE_MAX);
        let thread = std::thread::Builder::new().name("foldspace-snapshots".to_owned()).spawn(move || {
            for core in asked {
                if let Some(core) = core.upgrade() {
                    core.take_due_snapshots();
                }
            }
        });
        let thread = thread.map_err(StoreError::io("start a thread for", Path::new("snapshots")))?;
        let shared = SessionsInner {
            store,
            registry: registry.into(),
            commits: CommitMeter::new(Arc::clone(&clock)),
            clock,
            policy,
            fork_points: Mutex::default(),
            open: Mutex::default(),
            naming: Mutex::default(),
            snapshots: Mutex::new(Some(Snapshotter { due, thread })),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Waits for snapshots in progress and closes the store. Dropping does so too, but may leave part of it to another
    /// thread.
    pub fn close(self) {
        let snapshotter = lock(&self.shared.snapshots).take();
        if let Some(Snapshotter { due, thread }) = snapshotter {
            drop(due);
            // Its panic, if any, was printed; a missing snapshot loses nothing.
            drop(thread.join());
        }
    }

    /// Counts this process's commits.
    #[doc(hidden)]
    pub fn commit_figures(&self) -> CommitFigures {
        self.shared.commits.figures()
    }

    /// Returns the store.
    pub fn store(&self) -> &Arc<dyn EventStore> {
        &self.shared.store
    }

    /// Runs work on the store for a caller that can't await, without blocking a runtime's other tasks.
    #[doc(hidden)]
    pub fn aside<T>(&self, work: impl FnOnce(&Self) -> T) -> T {
        if self.store().may_wait() { aside(|| work(self)) } else { work(self) }
    }

    /// Returns the registry.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.shared.registry
    }

    /// Returns the clock.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.shared.clock
    }

    /// Checks that a new session may have that name. Fails with [`SessionError::NameTaken`] and
    /// [`SessionError::BadName`].
    #[doc(hidden)]
    pub fn check_free(&self, name: &str) -> SessionResult<()> {
        check_name(name)?;
        match self.named(name)? {
            Some(_) => Err(SessionError::NameTaken { name: name.to_owned() }),
            None => Ok(()),
        }
    }

    /// Creates a session; its first event is [`SessionStarted`]. Fails with [`SessionError::NameTaken`] and
    /// [`SessionError::BadName`].
    pub fn create(&self, new: NewSession) -> SessionResult<Session> {
        let id = new.id.unwrap_or_else(|| self.fresh_id());
        let name = new.name.unwrap_or_else(|| id.short());
        check_name(&name)?;
        self.names().take(self.store().as_ref(), &name)?;
        let started = SessionStarted {
            name: name.clone(),
            backend: new.backend.unwrap_or_else(|| "memory".to_owned()),
            program: env!("CARGO_PKG_VERSION").to_owned(),
            options: new.options,
            origin: None,
            limits: ChildLimits::default(),
        };
        let mut commit = Commit::new(id, self.shared.clock.now()).expecting(Expected::NoSession);
        let pushed = commit.push(&started).map_err(SessionError::from);
        let begun = pushed.and_then(|()| Ok(self.shared.submit(commit)?.wait()?));
        self.names().settle(&name);
        begun?;
        self.session(id)
    }

    /// Records a commit of another process. If it begins a session, the name must be free.
    pub(in crate::engine) fn record_for_other(&self, commit: Commit) -> SessionResult<Pending> {
        let id = commit.session;
        let Some(name) = name_begun(&commit) else {
            let events = commit.len();
            let pending = self.shared.submit(commit)?;
            let open = lock(&self.shared.open).get(&id).and_then(Weak::upgrade);
            if let Some(core) = open {
                core.snapshot_after(&pending, events);
            }
            return Ok(pending);
        };
        self.names().take(self.store().as_ref(), &name)?;
        // Until it is visible, only this reserves the name.
        let begun = self.shared.submit(commit).and_then(Pending::wait);
        self.names().settle(&name);
        Ok(Pending::done(begun?))
    }

    pub(super) fn names(&self) -> MutexGuard<'_, NameIndex> {
        lock(&self.shared.naming)
    }

    /// Opens the session with that id. Fails with [`StoreError::NoSession`] if it was not found.
    pub fn session(&self, id: SessionId) -> SessionResult<Session> {
        let mut open = lock(&self.shared.open);
        if let Some(core) = open.get(&id).and_then(Weak::upgrade) {
            return Ok(Session::new(core));
        }
        let entry = self.shared.store.entry(id)?.ok_or(StoreError::NoSession(id))?;
        let core = Arc::new(Core::new(Arc::clone(&self.shared), &entry)?);
        // Only at powers of two, so that it is cheap for any number.
        if open.len().is_power_of_two() {
            open.retain(|_, core| core.strong_count() > 0);
        }
        open.insert(id, Arc::downgrade(&core));
        // After the loss of an index many may be due.
        core.snapshot_if_due(entry.head);
        Ok(Session::new(core))
    }

    /// Finds a session by its id, by its whole name, or by an unambiguous prefix of its id. Fails with
    /// [`SessionError::NotFound`] and [`SessionError::Ambiguous`].
    pub fn find(&self, wanted: &str) -> SessionResult<SessionEntry> {
        let store = self.store();
        let by_id = wanted.parse().map_or(Ok(None), |id| store.entry(id))?;
        if let Some(entry) = by_id.map_or_else(|| self.named(wanted), |entry| Ok(Some(entry)))? {
            return Ok(entry);
        }
        let mut found = match wanted {
            "" => Vec::new(),
            _ => store.select(SessionQuery::IdPrefix(wanted), CANDIDATES)?,
        };
        match found.len() {
            0 => {
                let near = store.select(SessionQuery::NamedNear(wanted), COMPARED_NAMES)?;
                let names: Vec<String> = near.iter().map(SessionEntry::name).collect();
                let nearest = nearest(wanted, names.iter().map(String::as_str)).map(str::to_owned);
                Err(SessionError::NotFound { wanted: wanted.to_owned(), nearest })
            }
            1 => Ok(found.swap_remove(0)),
            _ => {
                let shown = |entry: &SessionEntry| format!("{} ({})", entry.name(), entry.id.short());
                let candidates = found.iter().map(shown).collect();
                Err(SessionError::Ambiguous { wanted: wanted.to_owned(), candidates })
            }
        }
    }

    /// Finds a session by its whole name; the oldest of several.
    pub fn named(&self, name: &str) -> SessionResult<Option<SessionEntry>> {
        Ok(self.store().select(SessionQuery::Named(name), 1)?.pop())
    }

    /// Returns the first `limit` sessions after `after`, oldest first. Fails with [`StoreError::NoSession`] if `after`
    /// was removed.
    pub fn page(&self, after: Option<SessionId>, limit: usize) -> SessionResult<Vec<SessionEntry>> {
        Ok(self.store().select(SessionQuery::After(after), limit)?)
    }

    /// Returns the children of a session, oldest first.
    pub fn children(&self, parent: SessionId) -> SessionResult<Vec<SessionEntry>> {
        Ok(self.store().select(SessionQuery::ChildrenOf(parent), usize::MAX)?)
    }

    /// Counts the sessions and their events, without reading them.
    pub fn totals(&self) -> SessionResult<SessionTotals> {
        Ok(self.store().totals()?)
    }

    /// Returns all sessions, oldest first.
    pub fn list(&self) -> SessionResult<Vec<SessionEntry>> {
        Ok(self.shared.store.entries()?)
    }

    /// Removes a session. The next collection frees its space. Fails with [`StoreError::NoSession`].
    pub fn remove(&self, id: SessionId) -> SessionResult<()> {
        self.shared.store.remove(id)?;
        lock(&self.shared.open).remove(&id);
        Ok(())
    }
}

/// Returns the name of the session that a commit begins; `None` if it begins none.
fn name_begun(commit: &Commit) -> Option<String> {
    let begins = matches!(commit.expected, Expected::NoSession | Expected::ForkOf(_)) && !commit.keeps_only();
    let mut encoded = Vec::new();
    begins.then(|| commit.encode(1, commit.time, &mut encoded))?;
    let event = CommitView::parse(&encoded).ok()?.events().next()?.ok()?.to_recorded();
    Some(event.typed::<SessionStarted>()?.ok()?.event.name)
}

impl std::fmt::Debug for Sessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sessions").field("registry", &self.shared.registry).finish_non_exhaustive()
    }
}
