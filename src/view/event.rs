//! Events as documents.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::engine::clock::Timestamp;
use crate::engine::id::{Seq, SessionId};
use crate::engine::recorded::EventRef;
use crate::engine::session::Session;

/// An event: its session, position, time, agent and content.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(rename = "Event")]
pub struct EventDocument {
    /// The session: 32 hexadecimal digits.
    #[schemars(with = "String")]
    pub session: SessionId,
    /// Its position, from 1.
    pub seq: Seq,
    /// Its time, in UTC.
    #[schemars(with = "String")]
    pub time: Timestamp,
    /// The call id of its call.
    pub call: Option<Seq>,
    /// The agent that made the call; empty if none was named.
    #[schemars(with = "String")]
    pub agent: Arc<str>,
    /// Its type.
    #[schemars(with = "String")]
    pub kind: Arc<str>,
    /// The version of its encoding.
    pub version: u16,
    /// Its content; the shape depends on the kind.
    pub event: Value,
}

/// Returns an event as a document.
pub fn event(session: &Session, event: &EventRef<'_>) -> EventDocument {
    EventDocument {
        session: event.session,
        seq: event.seq,
        time: event.time,
        call: event.call,
        agent: event.agent.into(),
        kind: event.kind.into(),
        version: event.version,
        event: session.event_json(event),
    }
}
