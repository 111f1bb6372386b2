//! Temporary sessions with their own stores and workspaces.

use std::sync::Arc;

use tempfile::TempDir;

use crate::backends::{BackendError, Workspace, WorkspaceSpec};
use crate::engine::clock::SystemClock;
use crate::engine::id::SessionId;
use crate::engine::portable::copy_session;
use crate::engine::registry::Registry;
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::engine::session::sessions::{NewSession, Sessions};
use crate::engine::session::snapshot::SnapshotPolicy;
use crate::engine::store::{Durability, LocalStore, LocalStoreOptions};
use crate::tools::error::WorkspaceError;

/// Session with its own store and workspace in a temporary directory. Dropping it removes them, including containers.
pub struct Scratch {
    sessions: Sessions,
    session: Session,
    workspace: Arc<dyn Workspace>,
    spec: WorkspaceSpec,
    home: TempDir,
}

impl Scratch {
    /// Creates a session with that name. It never uses a host directory that the specification names.
    ///
    /// # Errors
    /// [`WorkspaceError`] if the store or the workspace can't be created.
    pub fn begin(registry: impl Into<Arc<Registry>>, spec: &WorkspaceSpec, name: &str) -> Result<Self, WorkspaceError> {
        let spec = spec.forked();
        let backend = Some(spec.backend_name().to_owned());
        let new = NewSession { name: Some(name.to_owned()), backend, options: spec.options(), id: None };
        Self::with(registry, spec, |sessions| Ok(sessions.create(new)?))
    }

    /// Copies a session of another store, with that kind of workspace. [`Scratch::put_back`] adds its new events.
    ///
    /// # Errors
    /// [`WorkspaceError`] if the session can't be read, or the store or the workspace can't be created.
    pub fn copy_of(
        registry: impl Into<Arc<Registry>>,
        spec: &WorkspaceSpec,
        (id, from): (SessionId, &Sessions),
    ) -> Result<Self, WorkspaceError> {
        Self::with(registry, spec.forked(), |sessions| {
            copy_session(id, from, sessions).map_err(|error| WorkspaceError::NotCopied(Arc::new(error)))?;
            Ok(sessions.session(id)?)
        })
    }

    /// Adds the new events of this copy to the original session.
    ///
    /// # Errors
    /// [`WorkspaceError::NotCopied`], also if the original has gained events.
    pub fn put_back(&self, to: &Sessions) -> Result<(), WorkspaceError> {
        let copied = copy_session(self.session.id(), &self.sessions, to);
        copied.map(drop).map_err(|error| WorkspaceError::NotCopied(Arc::new(error)))
    }

    fn with(
        registry: impl Into<Arc<Registry>>,
        spec: WorkspaceSpec,
        begin: impl FnOnce(&Sessions) -> Result<Session, WorkspaceError>,
    ) -> Result<Self, WorkspaceError> {
        let made = tempfile::Builder::new().prefix("foldspace-").tempdir();
        let home = made.map_err(|error| BackendError {
            backend: spec.backend_name(),
            reason: format!("can't make a temporary directory: {error}"),
        })?;
        let options = LocalStoreOptions { durability: Durability::Buffered, ..LocalStoreOptions::default() };
        let store = LocalStore::open(home.path().join("data"), options).map_err(SessionError::from)?;
        let clock = Arc::new(SystemClock::default());
        let sessions = Sessions::new(Arc::new(store), registry, clock, SnapshotPolicy::default());
        let sessions = sessions.map_err(SessionError::from)?;
        let session = begin(&sessions)?;
        let workspace = spec.open(session.id(), home.path())?;
        Ok(Self { sessions, session, workspace, spec, home })
    }

    /// Returns the session.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Returns its workspace.
    pub fn workspace(&self) -> &Arc<dyn Workspace> {
        &self.workspace
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.workspace.close();
        if let Err(error) = self.spec.remove(self.session.id(), self.home.path()) {
            tracing::warn!(%error, "failed to remove a temporary workspace");
        }
        self.sessions.clone().close();
    }
}
