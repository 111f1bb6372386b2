//! All sessions of a store, and the way to each.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crossbeam_channel::Sender;

use super::Session;
use super::inner::Core;
use super::name_index::NameIndex;
use super::snapshot::SnapshotPolicy;
use crate::engine::clock::{Clock, SystemClock};
use crate::engine::commit::{Commit, Expected};
use crate::engine::error::{Diagnostic, ErrorKind};
use crate::engine::event::{ChildLimits, SessionStarted};
use crate::engine::id::{Seq, SessionId};
use crate::engine::registry::Registry;
use crate::engine::slice::SliceError;
use crate::engine::store::{
    EventStore, LeaseHolder, LocalStoreOptions, NamingTurn, SessionEntry, SharedStore, StoreError,
};

/// Characters that a session's name may have.
pub const MAX_NAME_CHARS: usize = 80;

/// What went wrong with a session.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SessionError {
    /// The store failed or refused.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A slice could not be read.
    #[error(transparent)]
    Slice(#[from] SliceError),
    /// Nothing goes by that name or id.
    #[error("no session is called {wanted:?}, and no id begins with that")]
    NotFound {
        /// What was asked for.
        wanted: String,
    },
    /// Several ids begin so.
    #[error("{wanted:?} could be any of {}", candidates.join(", "))]
    Ambiguous {
        /// What was asked for.
        wanted: String,
        /// Which it could be.
        candidates: Vec<String>,
    },
    /// The name is in use.
    #[error("there is a session called {name:?} already")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// The name can't be used.
    #[error(
        "session name {name:?} must have 1 to {MAX_NAME_CHARS} letters, digits, dots, underscores or hyphens, \
         and begin with a letter or digit"
    )]
    BadName {
        /// The name.
        name: String,
    },
    /// The session may have no children: its limits, or those of who cloned it, say so.
    #[error("session {name:?} may have no more generations of children: that limit was given with it")]
    TooDeep {
        /// The session's name.
        name: String,
    },
    /// A child that shares its parent's session is held to its limits by its agent's name, and was given none.
    #[error("a child that shares session {name:?} within limits needs an agent's name, by which it is held to them")]
    NoAgent {
        /// The session's name.
        name: String,
    },
    /// How the session began can't be read, so neither can what its workspace is.
    #[error("how session {name:?} began can't be read")]
    Unreadable {
        /// The session's name.
        name: String,
    },
    /// The session has fewer events.
    #[error("there is nothing {count} events ago: the session has {head}")]
    NothingBack {
        /// How many events ago.
        count: u64,
        /// How many there are.
        head: Seq,
    },
    /// The session has no such position.
    #[error("the session has no position {seq}; its last one is {head}")]
    NoPosition {
        /// The position.
        seq: Seq,
        /// The last one.
        head: Seq,
    },
}

impl Diagnostic for SessionError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Store(error) => error.kind(),
            Self::Slice(error) => error.kind(),
            Self::NotFound { .. } | Self::Ambiguous { .. } => ErrorKind::NotFound,
            Self::NothingBack { .. } | Self::NoPosition { .. } => ErrorKind::NotFound,
            Self::NameTaken { .. } => ErrorKind::Conflict,
            Self::BadName { .. } | Self::NoAgent { .. } => ErrorKind::Invalid,
            Self::TooDeep { .. } => ErrorKind::Refused,
            Self::Unreadable { .. } => ErrorKind::Damaged,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::NotFound { .. } => Some("`foldspace sessions` lists them".to_owned()),
            Self::Ambiguous { .. } => Some("give more of the id, or the whole name".to_owned()),
            Self::NameTaken { .. } => Some("open that session, or choose another name".to_owned()),
            Self::Unreadable { .. } => Some("a newer foldspace may have begun it: use that one".to_owned()),
            Self::NoPosition { .. } => Some("`foldspace log` shows the positions".to_owned()),
            _ => self.inner()?.hint(),
        }
    }

    fn inner(&self) -> Option<&dyn Diagnostic> {
        match self {
            Self::Store(error) => Some(error),
            Self::Slice(error) => Some(error),
            _ => None,
        }
    }
}

impl From<crate::engine::commit::CommitError> for SessionError {
    fn from(error: crate::engine::commit::CommitError) -> Self {
        Self::Store(StoreError::Commit(error))
    }
}

/// All sessions of a store.
///
/// ```
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
    shared: Arc<SessionsInner>,
}

/// What all sessions share.
pub(crate) struct SessionsInner {
    pub(crate) store: Arc<dyn EventStore>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) policy: SnapshotPolicy,
    open: Mutex<BTreeMap<SessionId, Weak<Core>>>,
    naming: Mutex<NameIndex>,
    snapshots: Mutex<Option<Snapshotter>>,
    address: Mutex<Option<PathBuf>>,
}

struct Snapshotter {
    due: Sender<Weak<Core>>,
    thread: std::thread::JoinHandle<()>,
}

/// How a session begins.
#[derive(Debug, Clone, Default)]
pub struct NewSession {
    /// Its name; without one it is called by the beginning of its id.
    pub name: Option<String>,
    /// The backend of its workspace; `memory` without one.
    pub backend: Option<String>,
    /// What the backend is told of the workspace, recorded with the session; null for nothing.
    pub options: serde_json::Value,
}

impl NewSession {
    /// A session of that name on the memory backend.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..Self::default() }
    }

    /// Whether a session may have its name, which somebody else may have by now.
    ///
    /// # Errors
    /// [`SessionError::BadName`].
    pub fn check(&self) -> Result<(), SessionError> {
        self.name.as_deref().map_or(Ok(()), check_name)
    }
}

/// Sessions that wait for a snapshot; more are asked for again later.
const DUE_MAX: usize = 256;

impl Sessions {
    /// Opens the store in a directory, which other processes may have open as well.
    ///
    /// # Errors
    /// As [`SharedStore::open`].
    pub fn open(directory: impl AsRef<Path>, registry: Registry) -> Result<Self, StoreError> {
        let store = SharedStore::open(directory, LocalStoreOptions::default())?;
        Self::new(Arc::new(store), registry, Arc::new(SystemClock::default()), SnapshotPolicy::default())
    }

    /// Sessions over any store.
    ///
    /// # Errors
    /// [`StoreError::Io`] when the thread that takes snapshots can't be started.
    pub fn new(
        store: Arc<dyn EventStore>,
        registry: Registry,
        clock: Arc<dyn Clock>,
        policy: SnapshotPolicy,
    ) -> Result<Self, StoreError> {
        let (due, asked) = crossbeam_channel::bounded::<Weak<Core>>(DUE_MAX);
        let thread = std::thread::Builder::new().name("foldspace-snapshots".to_owned()).spawn(move || {
            for core in asked {
                if let Some(core) = core.upgrade() {
                    core.answer();
                }
            }
        });
        let thread = thread.map_err(StoreError::io("start a thread for", Path::new("snapshots")))?;
        let shared = SessionsInner {
            store,
            registry: Arc::new(registry),
            clock,
            policy,
            open: Mutex::default(),
            naming: Mutex::default(),
            snapshots: Mutex::new(Some(Snapshotter { due, thread })),
            address: Mutex::default(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The same sessions for who has one of them.
    pub(crate) fn sharing(shared: &Arc<SessionsInner>) -> Self {
        Self { shared: Arc::clone(shared) }
    }

    /// Waits for snapshots under way and lets go of the store. Dropping does so too, but may leave the
    /// end of it to another thread.
    pub fn close(self) {
        let snapshotter = lock(&self.shared.snapshots).take();
        if let Some(Snapshotter { due, thread }) = snapshotter {
            drop(due);
            // A panic there has been printed; a snapshot less is no loss.
            drop(thread.join());
        }
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn EventStore> {
        &self.shared.store
    }

    /// What the program knows.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.shared.registry
    }

    /// The clock.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.shared.clock
    }

    /// Says on which unix socket this process takes calls from others, for the sessions whose workspaces it opens from
    /// now on; none for nowhere.
    pub fn take_calls_at(&self, address: Option<PathBuf>) {
        *lock(&self.shared.address) = address;
    }

    /// Begins a session; its first event is [`SessionStarted`].
    ///
    /// # Errors
    /// [`SessionError::NameTaken`], [`SessionError::BadName`], or what the store says.
    pub fn create(&self, new: NewSession) -> Result<Session, SessionError> {
        let id = self.fresh_id();
        let name = new.name.unwrap_or_else(|| id.short());
        check_name(&name)?;
        let _turn = self.naming()?;
        self.take_name(&name)?;
        let begun = self.begin(id, name.clone(), new.backend, new.options);
        self.settle_name(&name, id, begun.is_ok());
        begun?;
        self.session(id)
    }

    fn begin(
        &self,
        id: SessionId,
        name: String,
        backend: Option<String>,
        options: serde_json::Value,
    ) -> Result<(), SessionError> {
        let started = SessionStarted {
            name,
            backend: backend.unwrap_or_else(|| "memory".to_owned()),
            program: env!("CARGO_PKG_VERSION").to_owned(),
            options,
            origin: None,
            limits: ChildLimits::default(),
        };
        let mut commit = Commit::new(id, self.shared.clock.now()).expecting(Expected::NoSession);
        commit.push(&started)?;
        self.shared.store.submit(commit)?.wait()?;
        Ok(())
    }

    /// The turn to name sessions, until it is dropped.
    pub(crate) fn naming(&self) -> Result<NamingTurn, SessionError> {
        let turn = self.shared.store.naming()?;
        if turn.others_had_it() {
            self.forget_names();
        }
        Ok(turn)
    }

    pub(crate) fn take_name(&self, name: &str) -> Result<(), SessionError> {
        lock(&self.shared.naming).take(self.shared.store.as_ref(), name)
    }

    pub(crate) fn take_child_name(&self, parent: &str) -> Result<String, SessionError> {
        lock(&self.shared.naming).take_for_child(self.shared.store.as_ref(), parent)
    }

    /// A name that was taken belongs to that session, or is free again when that did not begin.
    pub(crate) fn settle_name(&self, name: &str, id: SessionId, has_begun: bool) {
        let mut names = lock(&self.shared.naming);
        if has_begun { names.settle(name, id) } else { names.give_back(name) }
    }

    /// Looks again which names are taken, when somebody else has begun sessions in the store.
    pub(crate) fn forget_names(&self) {
        lock(&self.shared.naming).forget();
    }

    /// The session with that id.
    ///
    /// # Errors
    /// [`StoreError::NoSession`].
    pub fn session(&self, id: SessionId) -> Result<Session, SessionError> {
        let mut open = lock(&self.shared.open);
        if let Some(core) = open.get(&id).and_then(Weak::upgrade) {
            return Ok(Session::new(core));
        }
        let entry = self.shared.store.entry(id)?.ok_or(StoreError::NoSession(id))?;
        let core = Arc::new(Core::new(Arc::clone(&self.shared), &entry)?);
        // Now and then, so that it costs little whatever their number.
        if open.len().is_power_of_two() {
            open.retain(|_, core| core.strong_count() > 0);
        }
        open.insert(id, Arc::downgrade(&core));
        // After the loss of an index there are events enough for many.
        core.snapshot_if_due(entry.head);
        Ok(Session::new(core))
    }

    /// The session that a person means: by its whole name, or by the beginning of its id where only
    /// one fits.
    ///
    /// # Errors
    /// [`SessionError::NotFound`] and [`SessionError::Ambiguous`].
    pub fn find(&self, wanted: &str) -> Result<SessionEntry, SessionError> {
        let mut entries = self.shared.store.entries()?;
        if let Some(at) = entries.iter().position(|entry| name_of(entry) == wanted) {
            return Ok(entries.swap_remove(at));
        }
        let begins = |entry: &SessionEntry| !wanted.is_empty() && entry.id.to_string().starts_with(wanted);
        entries.retain(begins);
        match entries.len() {
            0 => Err(SessionError::NotFound { wanted: wanted.to_owned() }),
            1 => Ok(entries.swap_remove(0)),
            _ => {
                let shown = |entry: &SessionEntry| format!("{} ({})", name_of(entry), entry.id.short());
                let candidates = entries.iter().take(8).map(shown).collect();
                Err(SessionError::Ambiguous { wanted: wanted.to_owned(), candidates })
            }
        }
    }

    /// All sessions, the oldest first.
    ///
    /// # Errors
    /// What the store says.
    pub fn list(&self) -> Result<Vec<SessionEntry>, SessionError> {
        Ok(self.shared.store.entries()?)
    }

    /// Removes a session. Its space is free after the next collection.
    ///
    /// # Errors
    /// [`StoreError::NoSession`], and others.
    pub fn remove(&self, id: SessionId) -> Result<(), SessionError> {
        let name = self.shared.store.entry(id)?.map(|entry| name_of(&entry));
        self.shared.store.remove(id)?;
        lock(&self.shared.open).remove(&id);
        name.iter().for_each(|name| lock(&self.shared.naming).free(name, id));
        Ok(())
    }
}

impl SessionsInner {
    /// How this process is noted where it has a session's workspace.
    pub(crate) fn holder(&self) -> LeaseHolder {
        LeaseHolder::this_process(lock(&self.address).clone())
    }

    /// Asks for a snapshot; false when too many wait.
    pub(crate) fn ask_for_snapshot(&self, core: Weak<Core>) -> bool {
        lock(&self.snapshots).as_ref().is_some_and(|snapshotter| snapshotter.due.try_send(core).is_ok())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The name of a session; the beginning of its id when its first event does not tell.
pub fn name_of(entry: &SessionEntry) -> String {
    match entry.origin.typed::<SessionStarted>() {
        Some(Ok(started)) => started.event.name,
        _ => entry.id.short(),
    }
}

pub(crate) fn check_name(name: &str) -> Result<(), SessionError> {
    let fits = name.len() <= MAX_NAME_CHARS
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'));
    if fits { Ok(()) } else { Err(SessionError::BadName { name: name.chars().take(100).collect() }) }
}

impl std::fmt::Debug for Sessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sessions").field("registry", &self.shared.registry).finish_non_exhaustive()
    }
}
