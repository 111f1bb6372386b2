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

impl UndoLeftReason {
    /// Returns the reason as text, with the options that override it: for an undo of `call`, or for the same command.
    pub fn words(self, call: Option<Seq>) -> String {
        let call = call.map_or_else(String::new, |call| format!("--call {call} "));
        match self {
            Self::ChangedSince => format!("changed at the same place since; {call}--overwrite undoes it anyway"),
            Self::Shared => format!("other calls may have changed it; {call}--overwrite undoes it anyway"),
            Self::Doubtful => format!("a person may have changed it; {call}--overwrite undoes it anyway"),
            Self::NotKept => "its earlier contents were not stored".to_owned(),
            Self::NotRecoverable => format!("its current contents were not stored; {call}--force discards them"),
            Self::NotMade => format!("it existed before, moved or ignored; {call}--overwrite removes it"),
            Self::NotEmpty => "it has unrecorded entries".to_owned(),
        }
    }
}
