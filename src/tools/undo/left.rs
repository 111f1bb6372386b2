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
    /// The entry existed before the calls: at another path, or ignored.
    NotMade,
    /// The directory has entries that are not recorded.
    NotEmpty,
}

impl UndoLeftReason {
    /// Returns the reason in words, with the options that get past it: of an undo of `call`, or of the same command.
    pub fn words(self, call: Option<Seq>) -> String {
        let call = call.map_or_else(String::new, |call| format!("--call {call} "));
        match self {
            Self::ChangedSince => format!("changed at the same place since; {call}--overwrite undoes it anyway"),
            Self::Shared => format!("other calls may have changed it; {call}--overwrite undoes it anyway"),
            Self::Doubtful => format!("a person may have changed it meanwhile; {call}--overwrite undoes it anyway"),
            Self::NotKept => "its contents before were not kept".to_owned(),
            Self::NotRecoverable => format!("its present contents were not kept; {call}--force removes them for good"),
            Self::NotMade => format!("it existed before, moved or ignored; {call}--overwrite removes it"),
            Self::NotEmpty => "it has entries that are not recorded".to_owned(),
        }
    }
}
