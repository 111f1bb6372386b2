//! Lost events.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::engine::id::{Seq, SessionId};

/// Acknowledged events that are not in the journal any more: its end was cut off, or put back to an earlier one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// The segment in which the journal ends.
    pub segment: u32,
    /// Byte in that segment.
    pub offset: u64,
    /// Proof that more was there.
    pub proof: String,
    /// Events lost of each session, where that is known.
    pub sessions: Vec<LostEvents>,
}

/// Acknowledged events of a session that are not in the journal any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostEvents {
    /// The session.
    pub session: SessionId,
    /// The position of the first.
    pub first: Seq,
    /// The position of the last.
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
