//! Events of merges.

use serde::{Deserialize, Serialize};

use super::Node;
use crate::engine::{EntryPath, Seq, SessionId};

/// Event of a merge of a child's changes into this session. Each file event in the same commit has an entry in
/// [`merged`](ChildMerged::merged), which names the child's event behind it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildMerged {
    /// Child session.
    pub child: SessionId,
    /// Name of the child.
    pub child_name: String,
    /// Position in the child's history before its merged changes: its beginning, or its last merge.
    pub base: Seq,
    /// Position in the child's history of the last merged changes.
    pub child_at: Seq,
    /// Entries written and removed here, in the order of its events; empty if the parent had made the same changes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub merged: Vec<MergedEntry>,
    /// Conflicts, each with the chosen side.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<MergeConflict>,
}

/// Entry that a merge wrote or removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergedEntry {
    /// Path of the entry.
    pub path: EntryPath,
    /// Child's event that made the change; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Seq>,
    /// True if the contents were merged line by line from both sides.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub both: bool,
}

/// Event of a merge that failed because both sides changed the same entries. It wrote nothing and stores all versions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergeConflicted {
    /// Child session.
    pub child: SessionId,
    /// Name of the child.
    pub child_name: String,
    /// Same as [`ChildMerged::base`].
    pub base: Seq,
    /// Same as [`ChildMerged::child_at`].
    pub child_at: Seq,
    /// Conflicts, including conflicts with a chosen side.
    pub conflicts: Vec<MergeConflict>,
}

/// Change that both sides made, each in its own way. The store has the contents of all three versions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergeConflict {
    /// Path of the conflict; with [`ConflictKind::Kind`] everything below it is part of it.
    pub path: EntryPath,
    /// Kind of the conflict.
    pub kind: ConflictKind,
    /// Entry before both changes; `None` if the path was empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Node>,
    /// Entry of the parent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ours: Option<Node>,
    /// Entry of the child.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub theirs: Option<Node>,
    /// Chosen side; `None` while the conflict is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved: Option<MergeSide>,
}

/// Side of a merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MergeSide {
    /// The parent, the target of the merge.
    Ours,
    /// The child.
    Theirs,
    /// Each of them, for some hunks of a text. Only an outcome: it can't be chosen.
    Mixed,
}

/// Reason why two changes conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConflictKind {
    /// Both changed the same lines, or lines next to each other.
    Text,
    /// Both changed contents that are not text.
    Binary,
    /// Both changed a text that is too large to be merged line by line.
    Large,
    /// Both created it, with different contents.
    Added,
    /// Both created the same file, with different modes.
    Mode,
    /// Both changed the link, to different targets.
    Link,
    /// The parent removed what the child changed.
    DeletedByOurs,
    /// The child removed what the parent changed.
    DeletedByTheirs,
    /// The parent removed the directory where the child created it.
    DirectoryDeletedByOurs,
    /// The child removed the directory where the parent created it.
    DirectoryDeletedByTheirs,
    /// It is a file on one side and a directory, a link or a special file on the other.
    Kind,
    /// Its contents were never stored, so they can't be written. Only the parent's side can be chosen.
    Incomplete,
}

impl ConflictKind {
    /// Returns the reason as text.
    pub fn words(self) -> &'static str {
        match self {
            Self::Text => "both changed the same lines",
            Self::Binary => "both changed it, and it is not text",
            Self::Large => "both changed it, and it is too large for a merge by lines",
            Self::Added => "both created it, with different contents",
            Self::Mode => "both created it, with different modes",
            Self::Link => "both set the link, to different targets",
            Self::DeletedByOurs => "removed here, changed by the child",
            Self::DeletedByTheirs => "changed here, removed by the child",
            Self::DirectoryDeletedByOurs => "created by the child in a directory removed here",
            Self::DirectoryDeletedByTheirs => "created here in a directory removed by the child",
            Self::Kind => "a file on one side and something else on the other",
            Self::Incomplete => "the child's contents were never stored",
        }
    }
}
