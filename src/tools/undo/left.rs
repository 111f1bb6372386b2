//! Changes that an undo leaves in place, with the reason.

use serde::{Deserialize, Serialize};

use crate::engine::id::Seq;
use crate::engine::path::EntryPath;

/// A change that an undo leaves in place. Where later changes of the same path are undone, the entry goes back as far as
/// the one that stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndoLeft {
    /// Path of the entry.
    pub path: EntryPath,
    /// Reason why it stays.
    pub reason: UndoLeftReason,
}

/// A call that an undo without a choice skips: none of its changes can be undone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UndoPassed {
    /// The call.
    pub call: Seq,
    /// Its changes, which all stay.
    pub left: Vec<UndoLeft>,
}

/// Reason why an undo leaves a change in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UndoLeftReason {
    /// Others changed the same place since.
    ChangedSince,
    /// Other calls, which are not undone, may have changed it.
    Shared,
    /// A person may have changed it while the call waited or its agent was gone.
    Doubtful,
    /// The contents before the calls were not kept.
    NotKept,
    /// The present contents were not kept, so nothing could bring them back.
    NotRecoverable,
}

impl UndoLeftReason {
    /// Returns the reason in words.
    pub fn words(self) -> &'static str {
        match self {
            Self::ChangedSince => "changed at the same place since; --overwrite undoes it anyway",
            Self::Shared => "other calls may have changed it; --overwrite undoes it anyway",
            Self::Doubtful => "a person may have changed it meanwhile; --overwrite undoes it anyway",
            Self::NotKept => "its contents before were not kept",
            Self::NotRecoverable => "its present contents were not kept; --force removes them for good",
        }
    }
}
