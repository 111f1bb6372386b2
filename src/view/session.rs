//! Sessions in a list.

use schemars::JsonSchema;
use serde::Serialize;
use utoipa::ToSchema;

use crate::engine::clock::Timestamp;
use crate::engine::event::SessionStarted;
use crate::engine::id::SessionId;
use crate::engine::recorded::Seq;
use crate::engine::sessions::{SessionError, Sessions, name_of};
use crate::engine::store::SessionEntry;
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
    /// How many calls were made in it.
    pub calls: u64,
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
    let started = entry.origin.typed::<SessionStarted>().and_then(Result::ok);
    let state = sessions.session(entry.id)?.state()?;
    Ok(SessionDocument {
        session: entry.id,
        name: name_of(entry),
        backend: started.map_or(String::new(), |started| started.event.backend),
        events: entry.head,
        calls: state.slice::<Usage>().map_or(0, |usage| usage.calls),
        created: entry.origin.time,
        updated: entry.updated,
    })
}

/// All sessions, the oldest first. One that is removed meanwhile is left out.
///
/// # Errors
/// What the store or a session says.
pub fn sessions(sessions: &Sessions) -> Result<Vec<SessionDocument>, SessionError> {
    use crate::engine::store::StoreError::NoSession;
    let mut documents = Vec::new();
    for entry in sessions.list()? {
        match session(sessions, &entry) {
            Ok(document) => documents.push(document),
            Err(SessionError::Store(NoSession(_))) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(documents)
}
