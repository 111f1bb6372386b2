//! Sessions in a list.

use schemars::JsonSchema;
use serde::Serialize;
use utoipa::ToSchema;

use crate::engine::clock::Timestamp;
use crate::engine::event::SessionStarted;
use crate::engine::id::{Seq, SessionId};
use crate::engine::session::error::SessionError;
use crate::engine::session::name_index::name_of;
use crate::engine::session::sessions::Sessions;
use crate::engine::store::{SessionEntry, StoreError};
use crate::reducers::Usage;

/// What is told of a session in a list.
#[derive(Debug, Clone, Serialize, JsonSchema, ToSchema)]
#[schemars(rename = "Session")]
#[schema(as = Session)]
pub struct SessionDocument {
    /// Its identity: 32 hexadecimal digits.
    #[schemars(with = "String")]
    #[schema(value_type = String)]
    pub session: SessionId,
    /// Its name.
    pub name: String,
    /// The backend of its workspace.
    pub backend: String,
    /// The position of its last event.
    pub events: Seq,
    /// How many calls were made in it; null in a list where its state can't be read.
    pub calls: Option<u64>,
    /// When it began, in UTC.
    #[schemars(with = "String")]
    #[schema(value_type = String)]
    pub created: Timestamp,
    /// When its last event was recorded, in UTC.
    #[schemars(with = "String")]
    #[schema(value_type = String)]
    pub updated: Timestamp,
}

/// A session as a document.
///
/// # Errors
/// What the session says.
pub fn session(sessions: &Sessions, entry: &SessionEntry) -> Result<SessionDocument, SessionError> {
    let state = sessions.session(entry.id)?.state()?;
    Ok(document(entry, Some(state.slice::<Usage>().map_or(0, |usage| usage.calls))))
}

fn document(entry: &SessionEntry, calls: Option<u64>) -> SessionDocument {
    let started = entry.origin.typed::<SessionStarted>().and_then(Result::ok);
    SessionDocument {
        session: entry.id,
        name: name_of(entry),
        backend: started.map_or(String::new(), |started| started.event.backend),
        events: entry.head,
        calls,
        created: entry.origin.time,
        updated: entry.updated,
    }
}

/// All sessions, the oldest first; see [`listed`].
///
/// # Errors
/// What the store says.
pub fn sessions(sessions: &Sessions) -> Result<Vec<SessionDocument>, SessionError> {
    Ok(listed(sessions, &sessions.list()?))
}

/// Sessions in a list. One that is removed meanwhile is left out, and one that can't be read hides none of the others.
pub fn listed<'a>(sessions: &Sessions, entries: impl IntoIterator<Item = &'a SessionEntry>) -> Vec<SessionDocument> {
    let row = |entry: &SessionEntry| match session(sessions, entry) {
        Ok(document) => Some(document),
        Err(SessionError::Store(StoreError::NoSession(_))) => None,
        Err(error) => {
            tracing::debug!(%error, session = %entry.id, "a session that is listed can't be read");
            Some(document(entry, None))
        }
    };
    entries.into_iter().filter_map(row).collect()
}
