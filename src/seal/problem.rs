use std::fmt;

use serde::Serialize;

use crate::engine::id::{Seq, SessionId};

/// Kind of a difference from a seal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SealProblemKind {
    /// The session does not exist, and no seal records its removal.
    Missing,
    /// The session ends before the sealed position.
    Short,
    /// Events are not the sealed ones.
    Changed,
}

/// Difference of a session from what was sealed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SealProblem {
    /// Session.
    pub session: SessionId,
    /// Kind.
    pub kind: SealProblemKind,
    /// First event that may differ.
    pub from: Seq,
    /// Last event that may differ.
    pub until: Seq,
    /// Number of events that the session records as lost in damage or an accepted loss.
    pub lost: u64,
    /// True if a later seal with the same key records the difference.
    pub recorded: bool,
}

impl fmt::Display for SealProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, from, until, lost, recorded, .. } = self;
        let session = self.session.short();
        match kind {
            SealProblemKind::Missing => write!(f, "session {session} is missing, with its events up to {until}")?,
            SealProblemKind::Short => write!(f, "session {session} lacks the events {from} to {until}")?,
            SealProblemKind::Changed => write!(f, "session {session} differs in the events {from} to {until}")?,
        }
        if *lost > 0 {
            write!(f, "; it records {lost} lost events")?;
        }
        if *recorded { f.write_str("; a later seal records the difference") } else { Ok(()) }
    }
}
