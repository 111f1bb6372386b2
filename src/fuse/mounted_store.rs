//! The store behind a mount: through its owner while one runs, else from its files.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::engine::clock::SystemClock;
use crate::engine::id::SessionId;
use crate::engine::lock::lock;
use crate::engine::registry::Registry;
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::engine::session::sessions::Sessions;
use crate::engine::session::snapshot::{Keep, SnapshotPolicy};
use crate::engine::store::{LocalStore, RemoteStore, StoreError};

/// The policy of a reader, which takes no snapshots.
const READER: SnapshotPolicy = SnapshotPolicy { every: 0, keep: Keep::All };

pub(super) struct MountedStore {
    directory: PathBuf,
    registry: Arc<Registry>,
    opened: Mutex<OpenedSessions>,
}

struct OpenedSessions {
    sessions: Sessions,
    /// The connection to the owner; `None` if the files were opened.
    owner: Option<Arc<RemoteStore>>,
}

impl MountedStore {
    pub(super) fn open(directory: &Path, registry: Arc<Registry>) -> Result<Self, SessionError> {
        let opened = match RemoteStore::connect(directory) {
            Ok(Some(owner)) => OpenedSessions::of_owner(owner, &registry)?,
            Ok(None) | Err(StoreError::Foreign { .. }) => {
                let files = Arc::new(LocalStore::open_reading(directory)?);
                let clock = Arc::new(SystemClock::default());
                let sessions = Sessions::new(files, Arc::clone(&registry), clock, READER)?;
                OpenedSessions { sessions, owner: None }
            }
            Err(error) => return Err(error.into()),
        };
        Ok(Self { directory: directory.to_owned(), registry, opened: Mutex::new(opened) })
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(super) fn sessions(&self) -> Sessions {
        lock(&self.opened).sessions.clone()
    }

    pub(super) fn session(&self, id: SessionId) -> Result<Session, SessionError> {
        self.sessions().session(id)
    }

    /// Connects to the owner, unless the owner of the present connection still runs. Returns true for a new connection.
    pub(super) fn renew(&self) -> bool {
        if lock(&self.opened).owner.as_ref().is_some_and(|owner| owner.is_owned()) {
            return false;
        }
        let Ok(Some(owner)) = RemoteStore::connect(&self.directory) else { return false };
        match OpenedSessions::of_owner(owner, &self.registry) {
            Ok(opened) => {
                *lock(&self.opened) = opened;
                true
            }
            Err(error) => {
                tracing::warn!(%error, "failed to read the store through its owner");
                false
            }
        }
    }
}

impl OpenedSessions {
    fn of_owner(owner: RemoteStore, registry: &Arc<Registry>) -> Result<Self, SessionError> {
        let (owner, clock) = (Arc::new(owner), Arc::new(SystemClock::default()));
        let sessions = Sessions::new(Arc::clone(&owner) as _, Arc::clone(registry), clock, READER)?;
        Ok(Self { sessions, owner: Some(owner) })
    }
}
