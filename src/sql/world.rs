//! The sessions as they were when a query began, and the limits of the query.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;

use super::error::SqlError;
use crate::engine::id::{Digest, Seq, SessionId};
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::engine::session::sessions::Sessions;
use crate::engine::store::SessionEntry;
use crate::tools::running_calls;

pub(super) struct World {
    sessions: Sessions,
    /// The sessions, oldest first, with their names.
    pub(super) entries: Vec<(String, SessionEntry)>,
    time: Duration,
    end_micros: u64,
    is_cancelled: Box<dyn Fn() -> bool + Send + Sync>,
    /// The first failure. SQLite keeps only its text.
    failure: OnceLock<SqlError>,
}

impl World {
    pub(super) fn new(
        sessions: &Sessions,
        only: Option<SessionId>,
        time: Duration,
        is_cancelled: Box<dyn Fn() -> bool + Send + Sync>,
    ) -> Result<Self, SqlError> {
        let entries = match only {
            Some(only) => sessions.store().entry(only).map_err(SessionError::from)?.into_iter().collect(),
            None => sessions.list()?,
        };
        let entries = entries.into_iter().map(|entry| (entry.name(), entry)).collect();
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let end_micros = sessions.clock().monotonic_micros().saturating_add(micros);
        Ok(Self { sessions: sessions.clone(), entries, time, end_micros, is_cancelled, failure: OnceLock::new() })
    }

    /// Fails if the query is cancelled or has run too long.
    pub(super) fn check(&self) -> Result<(), SqlError> {
        let is_late = self.sessions.clock().monotonic_micros() >= self.end_micros;
        match (self.is_cancelled)() {
            true => Err(SqlError::Cancelled),
            false if is_late => Err(SqlError::TimedOut(self.time)),
            false => Ok(()),
        }
    }

    /// Records a failure, and returns it for SQLite.
    pub(super) fn fail(&self, error: SqlError) -> rusqlite::Error {
        rusqlite::Error::ModuleError(self.failure.get_or_init(|| error).to_string())
    }

    pub(super) fn failure(&self) -> Option<SqlError> {
        self.failure.get().cloned()
    }

    /// Returns true for the name of a registered slice or kind of events.
    pub(super) fn is_built_in(&self, name: &str) -> bool {
        let registry = self.sessions.registry();
        registry.event_kinds().any(|kind| kind == name) || registry.slices().iter().any(|slice| slice.name == name)
    }

    pub(super) fn content(&self, digest: &Digest) -> Result<Bytes, SessionError> {
        Ok(self.sessions.store().content(digest)?)
    }

    /// Returns the place of a session in the list, by its name.
    pub(super) fn named(&self, name: &str) -> Option<usize> {
        self.entries.iter().position(|(known, _)| known == name)
    }

    /// Returns the place of a session in the list, by name or by the beginning of its id.
    pub(super) fn find(&self, wanted: &str) -> Result<usize, SqlError> {
        if let Some(at) = self.named(wanted) {
            return Ok(at);
        }
        let found = self.sessions.find(wanted)?;
        let at = self.entries.iter().position(|(_, entry)| entry.id == found.id);
        Ok(at.ok_or_else(|| SessionError::NotFound { wanted: wanted.to_owned(), nearest: None })?)
    }
}

/// A session that a table reads, opened when its history is needed.
pub(super) struct SessionReading {
    pub(super) world: Arc<World>,
    /// Its place in the list.
    pub(super) at: usize,
    session: OnceCell<Session>,
    running: OnceCell<BTreeSet<Seq>>,
}

impl SessionReading {
    pub(super) fn new(world: &Arc<World>, at: usize) -> Self {
        Self { world: Arc::clone(world), at, session: OnceCell::new(), running: OnceCell::new() }
    }

    pub(super) fn name(&self) -> &str {
        &self.world.entries[self.at].0
    }

    pub(super) fn entry(&self) -> &SessionEntry {
        &self.world.entries[self.at].1
    }

    /// Returns the last position of its parent's history in it; 0 if it inherited none.
    pub(super) fn inherited(&self) -> Seq {
        self.entry().origin.seq.saturating_sub(1)
    }

    pub(super) fn session(&self) -> Result<&Session, SessionError> {
        if let Some(session) = self.session.get() {
            return Ok(session);
        }
        let session = self.world.sessions.session(self.entry().id)?;
        Ok(self.session.get_or_init(|| session))
    }

    /// Returns true if a call without an outcome is in flight.
    pub(super) fn is_running(&self, call: Seq) -> Result<bool, SessionError> {
        let session = self.session()?;
        Ok(self.running.get_or_init(|| running_calls(session)).contains(&call))
    }
}
