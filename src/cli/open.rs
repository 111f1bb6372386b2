//! Finds the data directory, and sessions in it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use foldspace::event::SystemClock;
use foldspace::session::{SnapshotPolicy, name_of};
use foldspace::store::{Durability, LocalStoreOptions, Loss, SessionEntry, SharedStore};
use foldspace::{EventStore, LocalStore, Registry, Session, Sessions, StoreError};

use super::{Failure, Globals, output, text};

/// An open store with its sessions, closed on drop.
pub(super) struct OpenedStore {
    pub(super) sessions: Sessions,
    pub(super) loss: Option<Arc<Loss>>,
    is_own: bool,
}

impl OpenedStore {
    fn new(store: Arc<dyn EventStore>) -> Result<Self, Failure> {
        let clock = Arc::new(SystemClock::default());
        let sessions = Sessions::new(store, Registry::standard(), clock, SnapshotPolicy::default())?;
        Ok(Self { sessions, loss: None, is_own: true })
    }

    pub(super) fn of(store: SharedStore) -> Result<Self, Failure> {
        Self::new(Arc::new(store))
    }

    /// Returns the same sessions, of which another one is closed.
    pub(super) fn again(&self) -> Self {
        Self { sessions: self.sessions.clone(), loss: None, is_own: false }
    }

    fn beside(directory: &Path) -> Result<Self, Failure> {
        Self::new(Arc::new(LocalStore::open_reading(directory)?))
    }

    pub(super) fn find(&self, wanted: &str) -> Result<FoundSession, Failure> {
        let entry = self.sessions.find(wanted)?;
        let session = self.sessions.session(entry.id)?;
        Ok(FoundSession { name: name_of(&entry), entry, session, _opened: None })
    }
}

impl Drop for OpenedStore {
    fn drop(&mut self) {
        if self.is_own {
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

impl FoundSession {
    pub(super) fn is_worked_in(&self) -> bool {
        self.session.lease_holder().is_some()
    }
}

/// Opens the store to read: through its owner, or beside an owner that does not answer to this user.
pub(super) fn reading(globals: &Globals) -> Result<OpenedStore, Failure> {
    reading_at(&existing(globals)?)
}

pub(super) fn reading_at(directory: &Path) -> Result<OpenedStore, Failure> {
    match shared(directory, Durability::default()) {
        Ok(store) => OpenedStore::new(Arc::new(store)),
        Err(StoreError::Locked { .. } | StoreError::Foreign { .. }) => OpenedStore::beside(directory),
        Err(error) if error.is_write_protected() => OpenedStore::beside(directory),
        Err(StoreError::Lost(loss)) => {
            output::note(&format!("{loss}; this is what is left, and `foldspace verify` names what is not"));
            let mut opened = OpenedStore::beside(directory)?;
            opened.loss = Some(loss);
            Ok(opened)
        }
        Err(error) => Err(error.into()),
    }
}

/// Opens the store to read one session.
pub(super) fn session(globals: &Globals, wanted: &str) -> Result<FoundSession, Failure> {
    let opened = reading(globals)?;
    let found = opened.find(wanted)?;
    Ok(FoundSession { _opened: Some(opened), ..found })
}

/// Opens the store to read for a long time, without ever holding it.
pub(super) fn following(globals: &Globals) -> Result<OpenedStore, Failure> {
    OpenedStore::beside(&existing(globals)?)
}

pub(super) fn changing(globals: &Globals) -> Result<OpenedStore, Failure> {
    OpenedStore::new(Arc::new(shared(&existing(globals)?, Durability::default())?))
}

pub(super) fn writing(globals: &Globals, durability: Durability) -> Result<OpenedStore, Failure> {
    OpenedStore::new(Arc::new(shared(&directory(globals)?, durability)?))
}

pub(super) fn shared(directory: &Path, durability: Durability) -> Result<SharedStore, StoreError> {
    let options = LocalStoreOptions { durability, write_in_place: true, ..LocalStoreOptions::default() };
    let store = SharedStore::open(directory, options)?;
    store.notes().iter().for_each(|words| output::note(words));
    Ok(store)
}

pub(super) fn existing(globals: &Globals) -> Result<PathBuf, Failure> {
    let directory = directory(globals)?;
    if directory.join("journal").is_dir() {
        return Ok(directory);
    }
    let shown = directory.display().to_string();
    Err(Failure::missing(format!("there is no store in {}", text::visible(&shown)))
        .with_hint("`foldspace run` makes one; --data or FOLDSPACE_DATA says where"))
}

pub(super) fn directory(globals: &Globals) -> Result<PathBuf, Failure> {
    let given = globals.data.clone().or_else(default_directory);
    given.ok_or_else(|| {
        Failure::usage("there is no place for data: neither HOME nor XDG_DATA_HOME is set")
            .with_hint("say where with --data DIR or FOLDSPACE_DATA")
    })
}

fn default_directory() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value: &OsString| !value.is_empty()).map(PathBuf::from);
    // By the XDG rules a relative path counts as none.
    let absolute = |path: &PathBuf| path.is_absolute();
    set("FOLDSPACE_DATA")
        .or_else(|| set("XDG_DATA_HOME").filter(absolute).map(|home| home.join("foldspace")))
        .or_else(|| set("HOME").filter(absolute).map(|home| home.join(".local/share/foldspace")))
}

/// Returns the session's name for a command to copy; its id where the name could do harm.
pub(super) fn named(session: &Session) -> String {
    let name = session.name();
    let is_harmless = !name.starts_with('-') && text::one_line(name, 200) == name;
    if is_harmless { text::shell_word(name).into_owned() } else { session.id().to_string() }
}

/// Returns the command that starts this program on the same data.
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
