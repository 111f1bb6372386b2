//! Where the data is, and the way to a session in it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use foldspace::event::SystemClock;
use foldspace::session::{SnapshotPolicy, name_of};
use foldspace::store::{Durability, LocalStoreOptions, Loss, SessionEntry, SharedStore};
use foldspace::{EventStore, LocalStore, Registry, Session, Sessions, StoreError};

use super::Globals;
use super::exit::{Exit, Failure};
use super::{output, text};

/// An open store with its sessions. It is let go of when this is dropped.
pub(super) struct OpenedStore {
    pub(super) sessions: Sessions,
    /// Acknowledged events that are lost and not yet accepted as lost.
    pub(super) loss: Option<Arc<Loss>>,
}

impl OpenedStore {
    fn new(store: Arc<dyn EventStore>) -> Result<Self, Failure> {
        let clock = Arc::new(SystemClock::default());
        let sessions = Sessions::new(store, Registry::standard(), clock, SnapshotPolicy::default())?;
        Ok(Self { sessions, loss: None })
    }

    fn beside(directory: &Path) -> Result<Self, Failure> {
        Self::new(Arc::new(LocalStore::open_reading(directory)?))
    }

    /// The session that a person means.
    pub(super) fn find(&self, wanted: &str) -> Result<FoundSession, Failure> {
        let entry = self.sessions.find(wanted)?;
        let session = self.sessions.session(entry.id)?;
        Ok(FoundSession { name: name_of(&entry), entry, session })
    }
}

impl Drop for OpenedStore {
    fn drop(&mut self) {
        self.sessions.clone().close();
    }
}

/// A session that was found.
pub(super) struct FoundSession {
    pub(super) name: String,
    pub(super) entry: SessionEntry,
    pub(super) session: Session,
}

impl FoundSession {
    /// Whether a process works in the session, so that a call without an outcome is under way.
    pub(super) fn is_worked_in(&self) -> bool {
        self.session.lease_holder().is_some()
    }
}

/// Opens the store to look: through the process that holds it, where there is one, and beside it where that is not
/// to be talked to.
pub(super) fn reading(globals: &Globals) -> Result<OpenedStore, Failure> {
    let directory = existing(globals)?;
    match shared(&directory, Durability::default()) {
        Ok(store) => OpenedStore::new(Arc::new(store)),
        Err(StoreError::Locked { .. } | StoreError::Foreign { .. }) => OpenedStore::beside(&directory),
        Err(error) if error.is_write_protected() => OpenedStore::beside(&directory),
        Err(StoreError::Lost(loss)) => {
            output::note(&format!("{loss}; this is what is left, and `foldspace verify` names what is not"));
            let mut opened = OpenedStore::beside(&directory)?;
            opened.loss = Some(loss);
            Ok(opened)
        }
        Err(error) => Err(error.into()),
    }
}

/// Opens the store to look for a long time, in a way in which nothing can be changed: never holding it.
pub(super) fn following(globals: &Globals) -> Result<OpenedStore, Failure> {
    OpenedStore::beside(&existing(globals)?)
}

/// Opens a store that is there, to change it.
pub(super) fn changing(globals: &Globals) -> Result<OpenedStore, Failure> {
    OpenedStore::new(Arc::new(shared(&existing(globals)?, Durability::default())?))
}

/// Opens the store to add to it; it is made where there is none.
pub(super) fn writing(globals: &Globals, durability: Durability) -> Result<OpenedStore, Failure> {
    OpenedStore::new(Arc::new(shared(&directory(globals)?, durability)?))
}

/// The store in a directory. What had to be repaired in it is told.
pub(super) fn shared(directory: &Path, durability: Durability) -> Result<SharedStore, StoreError> {
    let options = LocalStoreOptions { durability, write_in_place: true, ..LocalStoreOptions::default() };
    let store = SharedStore::open(directory, options)?;
    store.notes().iter().for_each(|words| output::note(words));
    Ok(store)
}

/// The data directory, if there is a store in it.
pub(super) fn existing(globals: &Globals) -> Result<PathBuf, Failure> {
    let directory = directory(globals)?;
    if directory.join("journal").is_dir() {
        return Ok(directory);
    }
    let shown = directory.display().to_string();
    let failure = Failure::new(Exit::NotFound, format!("there is no store in {}", text::visible(&shown)));
    Err(failure.with_hint("`foldspace run` makes one; --data or FOLDSPACE_DATA says where"))
}

/// The data directory, whether it is there or not.
pub(super) fn directory(globals: &Globals) -> Result<PathBuf, Failure> {
    let given = globals.data.clone().or_else(default_directory);
    given.ok_or_else(|| {
        let failure = Failure::new(Exit::Usage, "there is no place for data: neither HOME nor XDG_DATA_HOME is set");
        failure.with_hint("say where with --data DIR or FOLDSPACE_DATA")
    })
}

/// The data directory when `--data` does not tell.
fn default_directory() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value: &OsString| !value.is_empty()).map(PathBuf::from);
    // By the XDG rules a relative path counts as none.
    let absolute = |path: &PathBuf| path.is_absolute();
    set("FOLDSPACE_DATA")
        .or_else(|| set("XDG_DATA_HOME").filter(absolute).map(|home| home.join("foldspace")))
        .or_else(|| set("HOME").filter(absolute).map(|home| home.join(".local/share/foldspace")))
}

/// How a session is named in a command for a person to copy: by its id where its name could do harm there, as one
/// from elsewhere may.
pub(super) fn named(session: &Session) -> String {
    let name = session.name();
    let is_harmless = !name.starts_with('-') && text::one_line(name, 200) == name;
    if is_harmless { text::shell_word(name).into_owned() } else { session.id().to_string() }
}

/// How to call the program again on the same data: its name, and `--data` where it was given.
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
