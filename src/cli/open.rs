//! Where the data is, and the way to a session in it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use foldspace::{
    Durability, EventStore, LocalStore, LocalStoreOptions, Registry, Session, SessionEntry, Sessions, SnapshotPolicy,
    StoreError, SystemClock, name_of,
};

use super::Globals;
use super::exit::{Exit, Failure};
use super::{output, text};

/// An open store with its sessions. It is let go of when this is dropped.
pub(super) struct Opened {
    pub(super) sessions: Sessions,
    /// Whether another process has the store and may be at work in it.
    pub(super) shared: bool,
}

impl Opened {
    fn new(store: LocalStore, shared: bool) -> Result<Self, Failure> {
        store.notes().iter().for_each(|words| output::note(words));
        let store: Arc<dyn EventStore> = Arc::new(store);
        let clock = Arc::new(SystemClock::default());
        let sessions = Sessions::new(store, Registry::standard(), clock, SnapshotPolicy::default())?;
        Ok(Self { sessions, shared })
    }

    /// The session that a person means.
    pub(super) fn find(&self, wanted: &str) -> Result<Found, Failure> {
        let entry = self.sessions.find(wanted)?;
        let session = self.sessions.session(entry.id)?;
        Ok(Found { name: name_of(&entry), entry, session })
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.sessions.clone().close();
    }
}

/// A session that was found.
pub(super) struct Found {
    pub(super) name: String,
    pub(super) entry: SessionEntry,
    pub(super) session: Session,
}

/// Opens the store to look: beside the process that holds it, where there is one.
pub(super) fn reading(globals: &Globals) -> Result<Opened, Failure> {
    let directory = existing(globals)?;
    match LocalStore::open(&directory, LocalStoreOptions::default()) {
        Ok(store) => Opened::new(store, false),
        Err(StoreError::Locked { .. }) => Opened::new(LocalStore::open_reading(&directory)?, true),
        Err(error) if is_write_protected(&error) => Opened::new(LocalStore::open_reading(&directory)?, false),
        Err(error) => Err(error.into()),
    }
}

/// Opens the store to look for a long time: never holding it.
pub(super) fn following(globals: &Globals) -> Result<Opened, Failure> {
    let directory = existing(globals)?;
    Opened::new(LocalStore::open_reading(&directory)?, LocalStore::is_held(&directory))
}

/// Opens a store that is there, to change it.
pub(super) fn changing(globals: &Globals) -> Result<Opened, Failure> {
    let directory = existing(globals)?;
    Opened::new(patiently(|| LocalStore::open(&directory, LocalStoreOptions::default()))?, false)
}

/// Opens the store to add to it; it is made where there is none.
pub(super) fn writing(globals: &Globals, durability: Durability) -> Result<Opened, Failure> {
    let options = LocalStoreOptions { durability, ..LocalStoreOptions::default() };
    let directory = directory(globals)?;
    Opened::new(patiently(|| LocalStore::open(&directory, options.clone()))?, false)
}

/// Tries again for a moment while another process has the store: one that looks is done soon.
pub(super) fn patiently<T>(open: impl Fn() -> Result<T, StoreError>) -> Result<T, StoreError> {
    const TRIES: u32 = 20;
    const PAUSE: Duration = Duration::from_millis(50);
    for _ in 1..TRIES {
        match open() {
            Err(StoreError::Locked { .. }) => std::thread::sleep(PAUSE),
            other => return other,
        }
    }
    open()
}

fn is_write_protected(error: &StoreError) -> bool {
    use std::io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    matches!(error, StoreError::Io { source, .. } if matches!(source.kind(), PermissionDenied | ReadOnlyFilesystem))
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
