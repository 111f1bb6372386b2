//! What a child's work became in its parent.

use serde::{Deserialize, Serialize};

use super::{Event, Node};
use crate::engine::id::{Seq, SessionId};
use crate::engine::path::EntryPath;

/// A child's changes were merged into this session. Each event of a file in the same commit is one of
/// [`merged`](ChildMerged::merged), which names the event of the child that it comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildMerged {
    /// The child.
    pub child: SessionId,
    /// How it is called.
    pub child_name: String,
    /// The position of the child's history that its changes were counted from: where it began, or where it was
    /// merged last.
    pub base: Seq,
    /// The position of the child's history up to which its changes are merged.
    pub child_at: Seq,
    /// What was written and removed here, in the order of its events; empty when the parent had made the same changes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub merged: Vec<MergedEntry>,
    /// What both sides had changed, each with what was chosen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<MergeConflict>,
}

impl Event for ChildMerged {
    const KIND: &'static str = "ChildMerged";
}

/// An entry that a merge wrote or removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergedEntry {
    /// Which.
    pub path: EntryPath,
    /// The event of the child that made it so; none when that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Seq>,
    /// Whether the contents are put together line by line from both sides.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub both: bool,
}

/// A child could not be merged: both sides had changed the same. Nothing was written; all versions stay kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergeConflicted {
    /// The child.
    pub child: SessionId,
    /// How it is called.
    pub child_name: String,
    /// As in [`ChildMerged::base`].
    pub base: Seq,
    /// As in [`ChildMerged::child_at`].
    pub child_at: Seq,
    /// What both sides had changed, that with a choice among it.
    pub conflicts: Vec<MergeConflict>,
}

impl Event for MergeConflicted {
    const KIND: &'static str = "MergeConflicted";
}

/// Something that both sides have changed, each in its own way. The contents of all three are in the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergeConflict {
    /// Where; with [`ConflictKind::Kind`] everything below it is part of the conflict.
    pub path: EntryPath,
    /// What is the matter.
    pub kind: ConflictKind,
    /// What was there before both; none where nothing was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Node>,
    /// What the parent has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ours: Option<Node>,
    /// What the child has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub theirs: Option<Node>,
    /// Which side was chosen; none while it is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved: Option<MergeSide>,
}

/// A side of a merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MergeSide {
    /// The parent's, into which is merged.
    Ours,
    /// The child's.
    Theirs,
}

/// Why two changes don't go together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConflictKind {
    /// Both changed the same lines, or lines next to each other.
    Text,
    /// Both changed contents that are no text.
    Binary,
    /// Both changed a text that is too large to be merged line by line.
    Large,
    /// Both made it, each with other contents.
    Added,
    /// Both made the same file, and only one may be executed.
    Mode,
    /// Both set the link to other targets.
    Link,
    /// The parent removed what the child changed.
    DeletedByOurs,
    /// The child removed what the parent changed.
    DeletedByTheirs,
    /// The parent removed the directory in which the child made it.
    DirectoryDeletedByOurs,
    /// The child removed the directory in which the parent made it.
    DirectoryDeletedByTheirs,
    /// It is a file on one side and a directory, a link or a special file on the other.
    Kind,
    /// Its contents were never kept, so that it can't be written. Only the parent's side can be chosen.
    Incomplete,
}

impl ConflictKind {
    /// What is the matter, for a person.
    pub fn words(self) -> &'static str {
        match self {
            Self::Text => "both changed the same lines",
            Self::Binary => "both changed it, and it is no text",
            Self::Large => "both changed it, and it is too large to merge by lines",
            Self::Added => "both made it, with other contents",
            Self::Mode => "both made it, and only one may be executed",
            Self::Link => "both set the link, to other targets",
            Self::DeletedByOurs => "removed here, changed by the child",
            Self::DeletedByTheirs => "changed here, removed by the child",
            Self::DirectoryDeletedByOurs => "made by the child in a directory that was removed here",
            Self::DirectoryDeletedByTheirs => "made here in a directory that the child removed",
            Self::Kind => "a file on one side and something else on the other",
            Self::Incomplete => "the child's contents of it were never kept",
        }
    }
}
