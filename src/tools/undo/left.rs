//! The changes that an undo leaves in place, with the reasons.

use serde::{Deserialize, Serialize};

use crate::engine::id::Seq;
use crate::engine::path::EntryPath;

/// A change that an undo leaves in place. Later changes of the same path may be undone, down to this change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndoLeft {
    /// The path of the entry.
    pub path: EntryPath,
    /// The reason.
    pub reason: UndoLeftReason,
}

/// A call that [`UndoSubject::Last`](super::UndoSubject::Last) skips because none of its changes can be undone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UndoPassed {
    /// The call.
    pub call: Seq,
    /// The call's changes, which all stay.
    pub left: Vec<UndoLeft>,
}

/// The reason that an undo leaves a change in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UndoLeftReason {
    /// A later change touched the same place.
    ChangedSince,
    /// The change may come from other calls, which are not undone.
    Shared,
    /// The change may come from a person, while the call waited or its agent was gone.
    Doubtful,
    /// The contents before the calls were not stored.
    NotKept,
    /// The present contents were not stored, so they could not be restored.
    NotRecoverable,
    /// The entry existed before the calls, at another path or ignored.
    NotMade,
    /// The directory has unrecorded entries.
    NotEmpty,
}
