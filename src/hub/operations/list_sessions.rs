//! The list of sessions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Operation, OperationContext, OperationError, OperationRoute, reading};
use crate::engine::clock::Timestamp;
use crate::engine::event::SessionStarted;
use crate::engine::id::{Seq, SessionId};
use crate::engine::store::SessionEntry;

/// Limit for the sessions of a page.
const LIMIT: usize = 1000;

/// Lists the sessions, oldest first. For the next page, set `after` to the `session` of the last one listed; an empty
/// page is the end. `calls` is null if a session can't be read.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListSessions {
    /// Limit for the sessions of the page, from 1 to 1000; all by default.
    #[schemars(range(min = 1, max = 1000))]
    pub limit: Option<usize>,
    /// The full id of a session; only sessions after it are listed.
    #[schemars(with = "Option<String>", regex(pattern = r"^[0-9a-f]{32}$"))]
    pub after: Option<SessionId>,
}

impl Operation for ListSessions {
    const NAME: &'static str = "list_sessions";
    const ROUTE: Option<OperationRoute> = OperationRoute::get("sessions", "/v1/sessions");
    type Output = Vec<SessionDocument>;

    async fn run(self, context: &OperationContext<'_>) -> Result<Vec<SessionDocument>, OperationError> {
        let limit = self.limit.unwrap_or(usize::MAX);
        if self.limit.is_some_and(|limit| !(1..=LIMIT).contains(&limit)) {
            return Err(OperationError::invalid(format!("limit is {limit}; it must be from 1 to {LIMIT}")));
        }
        let sessions = context.hub.sessions().clone();
        reading(move || Ok(sessions.page(self.after, limit)?.iter().map(listed).collect())).await
    }
}

/// A session in a list.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Session")]
pub struct SessionDocument {
    /// Its identity: 32 hexadecimal digits.
    #[schemars(with = "String")]
    pub session: SessionId,
    /// Its name.
    pub name: String,
    /// Its parent; null for a root.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub parent: Option<SessionId>,
    /// The backend of its workspace.
    pub backend: String,
    /// The position of its last event.
    pub events: Seq,
    /// The number of its calls; null, in lists, if its state can't be read.
    pub calls: Option<u64>,
    /// Its creation time, in UTC.
    #[schemars(with = "String")]
    pub created: Timestamp,
    /// The time of its last event, in UTC.
    #[schemars(with = "String")]
    pub updated: Timestamp,
}

/// Returns a session as a document.
pub fn listed(entry: &SessionEntry) -> SessionDocument {
    let started = entry.origin.typed::<SessionStarted>().and_then(Result::ok).map(|started| started.event);
    let parent = started.as_ref().and_then(|started| started.origin.as_ref()).map(|origin| origin.parent);
    SessionDocument {
        session: entry.id,
        name: entry.name(),
        parent,
        backend: started.map_or(String::new(), |started| started.backend),
        events: entry.head,
        calls: entry.calls,
        created: entry.origin.time,
        updated: entry.updated,
    }
}
