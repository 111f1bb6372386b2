//! Opens the store in the data directory, and its sessions.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use foldspace::event::{Clock, SystemClock};
use foldspace::hub::HubOptions;
use foldspace::session::{Keep, SnapshotPolicy};
#[cfg(feature = "nats")]
use foldspace::store::NatsStore;
use foldspace::store::{Durability, LocalStoreOptions, Loss, RemoteStore, SessionEntry};
use foldspace::{EventStore, LocalStore, Session, Sessions, StoreError};

pub(super) use super::data_directory::{directory, existing};
use super::hook::record_kept;
use super::shared_store::{self, HostArgs};
use super::{Failure, Globals, output, owner, registry, text};

/// The time limit for another process to release the store.
pub(super) const STORE_LOCK_WAIT: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(10);
/// A read-only store takes no snapshots, and folds no history for them.
const READER: SnapshotPolicy = SnapshotPolicy { every: 0, keep: Keep::All };

/// An open store with its sessions, closed on drop.
pub(super) struct OpenedStore {
    pub(super) sessions: Sessions,
    pub(super) loss: Option<Arc<Loss>>,
    /// The store, if this process owns it.
    owned: Option<OwnedStore>,
    closes: bool,
}

/// The store of an owner.
enum OwnedStore {
    Local(Arc<LocalStore>),
    #[cfg(feature = "nats")]
    Shared(Arc<NatsStore>),
}

impl OwnedStore {
    fn open(directory: &Path, durability: Durability, host: &HostArgs) -> Result<Result<Self, StoreError>, Failure> {
        if let Some(address) = shared_store::address(directory)? {
            #[cfg(feature = "nats")]
            return Ok(host.open(&address, directory)?.map(|store| Self::Shared(Arc::new(store))));
            #[cfg(not(feature = "nats"))]
            return Err(host.refuse(&address));
        }
        let options = LocalStoreOptions { durability, write_in_place: true, ..LocalStoreOptions::default() };
        Ok(LocalStore::open(directory, options).map(|store| Self::Local(Arc::new(store))))
    }

    /// Returns the store in the local directory.
    fn local(&self) -> &LocalStore {
        match self {
            Self::Local(store) => store,
            #[cfg(feature = "nats")]
            Self::Shared(store) => store.local(),
        }
    }

    fn shared(&self) -> Arc<dyn EventStore> {
        match self {
            Self::Local(store) => Arc::clone(store) as Arc<dyn EventStore>,
            #[cfg(feature = "nats")]
            Self::Shared(store) => Arc::clone(store) as Arc<dyn EventStore>,
        }
    }
}

impl OpenedStore {
    fn new(store: Arc<dyn EventStore>, policy: SnapshotPolicy) -> Result<Self, Failure> {
        let clock = Arc::new(SystemClock::default());
        let sessions = Sessions::new(store, registry(), clock, policy)?;
        Ok(Self { sessions, loss: None, owned: None, closes: true })
    }

    /// Opens the store, which this process then owns; waits for another owner to end.
    pub(super) fn own(
        directory: &Path,
        durability: Durability,
        patience: Duration,
        host: &HostArgs,
    ) -> Result<Self, Failure> {
        let clock = SystemClock::default();
        let until = clock.monotonic_micros() + u64::try_from(patience.as_micros()).unwrap_or(u64::MAX);
        let store = loop {
            match OwnedStore::open(directory, durability, host)? {
                Err(StoreError::Locked { .. }) if clock.monotonic_micros() < until => std::thread::sleep(PAUSE),
                opened => break opened?,
            }
        };
        store.local().notes().iter().for_each(|words| output::note(words));
        let mut opened = Self::new(store.shared(), SnapshotPolicy::default())?;
        opened.owned = Some(store);
        Ok(opened)
    }

    /// Returns true if a write has failed: nothing more can be recorded.
    #[cfg(feature = "mcp")]
    pub(super) fn has_failed(&self) -> bool {
        self.owned.as_ref().is_some_and(|store| store.local().has_failed())
    }

    /// Returns true if the store is still at its path, so that other processes see this process's lock.
    #[cfg(feature = "mcp")]
    pub(super) fn is_in_place(&self) -> bool {
        self.owned.as_ref().is_none_or(|store| store.local().is_in_place())
    }

    /// Returns a second handle; dropping it does not close the store.
    pub(super) fn again(&self) -> Self {
        Self { sessions: self.sessions.clone(), loss: None, owned: None, closes: false }
    }

    fn beside(directory: &Path) -> Result<Self, Failure> {
        let store = LocalStore::open_reading(directory)?;
        // Only a full open detects a loss, and fails with it.
        let opened = store.is_doubtful().then(|| LocalStore::open(directory, LocalStoreOptions::default()));
        let loss = match opened {
            Some(Err(StoreError::Lost(loss))) => Some(loss),
            _ => None,
        };
        if let Some(loss) = &loss {
            output::note(&format!("{loss}; this is the rest, and `foldspace check` lists what is missing"));
        }
        let mut opened = Self::new(Arc::new(store), READER)?;
        opened.loss = loss;
        Ok(opened)
    }

    pub(super) fn find(&self, wanted: &str) -> Result<FoundSession, Failure> {
        let entry = self.sessions.find(wanted)?;
        let session = self.sessions.session(entry.id)?;
        Ok(FoundSession { name: entry.name(), entry, session, _opened: None })
    }
}

impl Drop for OpenedStore {
    fn drop(&mut self) {
        if self.closes {
            self.sessions.clone().close();
        }
    }
}

pub(super) struct FoundSession {
    pub(super) name: String,
    pub(super) entry: SessionEntry,
    pub(super) session: Session,
    /// Dropped last, after the session that reads it.
    _opened: Option<OpenedStore>,
}

/// Opens the store read-only: through its owner, else from its files. Never takes the store's lock.
pub(super) fn reading(globals: &Globals) -> Result<OpenedStore, Failure> {
    reading_at(&existing(globals)?)
}

pub(super) fn reading_at(directory: &Path) -> Result<OpenedStore, Failure> {
    record_kept(directory);
    let mut found = RemoteStore::connect(directory);
    if matches!(found, Ok(None)) && shared_store::address(directory)?.is_some() {
        // The local files are a copy, which may be stale.
        owner::start(directory)?;
        found = RemoteStore::connect(directory);
    }
    match found {
        Ok(Some(store)) => OpenedStore::new(Arc::new(store), READER),
        Ok(None) | Err(StoreError::Foreign { .. }) => OpenedStore::beside(directory),
        Err(error) => Err(error.into()),
    }
}

/// Opens the store read-only, without warnings.
pub(super) fn glance(directory: &Path) -> Result<OpenedStore, Failure> {
    match RemoteStore::connect(directory)? {
        Some(store) => OpenedStore::new(Arc::new(store), READER),
        None => OpenedStore::new(Arc::new(LocalStore::open_reading(directory)?), READER),
    }
}

/// Opens one session read-only.
pub(super) fn session(globals: &Globals, wanted: &str) -> Result<FoundSession, Failure> {
    let opened = reading(globals)?;
    let found = opened.find(wanted)?;
    Ok(FoundSession { _opened: Some(opened), ..found })
}

/// Returns the options of a hub of this program.
#[cfg_attr(not(feature = "mount"), expect(clippy::unnecessary_wraps, reason = "only mounts can fail"))]
pub(super) fn hub_options(directory: &Path) -> Result<HubOptions, Failure> {
    let options = HubOptions::new(directory);
    #[cfg(feature = "mount")]
    let options = HubOptions { mounts: Some(mount_helper(directory)?), ..options };
    Ok(options)
}

/// Returns the starter of mounts of the data.
#[cfg(feature = "mount")]
pub(super) fn mount_helper(data: &Path) -> Result<foldspace::hub::fuse::MountHelper, Failure> {
    let program = std::env::current_exe().map_err(|error| Failure::io("find", "this program", &error))?;
    let data = std::path::absolute(data).map_err(|error| Failure::io("find", data.display(), &error))?;
    Ok(foldspace::hub::fuse::MountHelper { program, data })
}

/// Returns the session's name, quoted for a shell, or its id if the name is unsafe to paste.
pub(super) fn named(session: &Session) -> String {
    let name = session.name();
    let is_harmless = !name.starts_with('-') && text::one_line(name, 200) == name;
    if is_harmless { text::shell_word(name).into_owned() } else { session.id().to_string() }
}

/// Returns the command line that starts this program on the same data.
pub(super) fn same_program(globals: &Globals) -> String {
    let called = std::env::args_os().next().map(|word| word.to_string_lossy().into_owned());
    let called = called.filter(|word| word.contains('/'));
    let program = called.unwrap_or_else(|| "foldspace".to_owned());
    let mut words = text::shell_word(&program).into_owned();
    if let Some(data) = &globals.data {
        words.push_str(" --data ");
        words.push_str(&text::shell_word(&data.to_string_lossy()));
    }
    words
}
