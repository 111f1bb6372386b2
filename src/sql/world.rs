//! The sessions as they were when a query began, and the limits of the query.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::error::SqlError;
use crate::engine::error::{Diagnostic, ErrorKind};
use crate::engine::id::{Seq, SessionId};
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::engine::session::name_index::name_of;
use crate::engine::session::sessions::Sessions;
use crate::engine::store::SessionEntry;
use crate::tools::running_calls;

pub(super) struct World {
    pub(super) sessions: Sessions,
    /// The sessions, oldest first, with their names.
    pub(super) entries: Vec<(Arc<str>, SessionEntry)>,
    limit: Duration,
    end_micros: u64,
    is_cancelled: Box<dyn Fn() -> bool + Send + Sync>,
    /// The first failure of a table, which SQLite passes on as a text only.
    failure: OnceLock<SqlError>,
}

impl World {
    pub(super) fn new(
        sessions: &Sessions,
        only: Option<SessionId>,
        limit: Duration,
        is_cancelled: Box<dyn Fn() -> bool + Send + Sync>,
    ) -> Result<Self, SqlError> {
        let entries = sessions.list()?.into_iter().filter(|entry| only.is_none_or(|only| entry.id == only));
        let entries = entries.map(|entry| (Arc::from(name_of(&entry)), entry)).collect();
        let micros = u64::try_from(limit.as_micros()).unwrap_or(u64::MAX);
        let end_micros = sessions.clock().monotonic_micros().saturating_add(micros);
        let sessions = sessions.clone();
        Ok(Self { sessions, entries, limit, end_micros, is_cancelled, failure: OnceLock::new() })
    }

    /// Fails if the query is cancelled or has run too long.
    pub(super) fn check(&self) -> Result<(), SqlError> {
        if (self.is_cancelled)() {
            return Err(SqlError::Cancelled);
        }
        match self.sessions.clock().monotonic_micros() >= self.end_micros {
            true => Err(SqlError::TimedOut { limit: self.limit }),
            false => Ok(()),
        }
    }

    /// Records a failure, and returns it for SQLite.
    pub(super) fn fail(&self, error: SqlError) -> rusqlite::Error {
        let text = error.to_string();
        // Only the first failure counts.
        drop(self.failure.set(error));
        rusqlite::Error::ModuleError(text)
    }

    pub(super) fn failure(&self) -> Option<SqlError> {
        self.failure.get().cloned()
    }

    /// Opens a session by its place in the list; `None` if it was removed since then.
    pub(super) fn open(&self, ordinal: usize) -> Result<Option<Reading>, SqlError> {
        let Some((name, entry)) = self.entries.get(ordinal) else { return Ok(None) };
        match self.sessions.session(entry.id) {
            Ok(session) => {
                let (name, running) = (Arc::clone(name), OnceCell::new());
                let inherited = entry.origin.seq.saturating_sub(1);
                Ok(Some(Reading { session, name, ordinal, head: entry.head, inherited, running }))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the place of a session in the list, by name or by the beginning of its id.
    pub(super) fn find(&self, wanted: &str) -> Result<usize, SqlError> {
        let found = self.sessions.find(wanted)?;
        let at = self.entries.iter().position(|(_, entry)| entry.id == found.id);
        Ok(at.ok_or_else(|| SessionError::NotFound { wanted: wanted.to_owned(), nearest: None })?)
    }
}

/// A session that a table reads.
pub(super) struct Reading {
    pub(super) session: Session,
    pub(super) name: Arc<str>,
    pub(super) ordinal: usize,
    /// Its last position when the query began.
    pub(super) head: Seq,
    /// The last position of its parent's history in it; 0 if it inherited none.
    pub(super) inherited: Seq,
    running: OnceCell<BTreeSet<Seq>>,
}

impl Reading {
    /// Returns true if a call without an outcome is in flight.
    pub(super) fn is_running(&self, call: Seq) -> bool {
        self.running.get_or_init(|| running_calls(&self.session)).contains(&call)
    }
}
