//! Lost events.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::engine::id::{Seq, SessionId};

/// Acknowledged events that are missing from the journal: its end was cut off or replaced by an older one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// The segment that contains the journal's end.
    pub segment: u32,
    /// Byte offset of the end in the segment.
    pub offset: u64,
    /// Proof that the journal was longer.
    pub proof: String,
    /// The lost events of each session, if known.
    pub sessions: Vec<LostEvents>,
}

/// Acknowledged events of a session that are missing from the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostEvents {
    /// The session.
    pub session: SessionId,
    /// The position of the first lost event.
    pub first: Seq,
    /// The position of the last lost event.
    pub last: Seq,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { segment, offset, proof, .. } = self;
        write!(f, "acknowledged events are lost: the journal ends at byte {offset} of segment {segment}, {proof}")
    }
}

impl fmt::Display for LostEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "events {} to {} were acknowledged and are lost", self.first, self.last)
    }
}
