//! Events of the beginning of sessions, children and mounts.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::engine::{Digest, EntryPath, EventRef, Seq, SessionId};

/// First event of every session; in a fork, the first after the history that it shares.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionStarted {
    /// Name, unique in its store at creation.
    pub name: String,
    /// Backend of its workspace: `memory`, `host`, ...
    pub backend: String,
    /// Version of the program that created it.
    pub program: String,
    /// Options of the backend: directory, image, limits.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub options: Value,
    /// Origin of a child; `None` for a session without a parent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// Limits of a child.
    #[serde(default, skip_serializing_if = "ChildLimits::is_unlimited")]
    pub limits: ChildLimits,
}

impl SessionStarted {
    /// Returns true for a child: any events before this one are its parent's.
    pub fn begins_child(&self) -> bool {
        self.origin.is_some()
    }
}

/// Relation of a child to its parent's session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// Shares everything: the child is the parent's session, under another agent's name.
    Shared,
    /// Shares the past up to a position, files included, and nothing after it.
    Fork,
    /// Shares nothing but the mounts, copied afresh.
    Full,
}

impl Isolation {
    /// Returns its name, as users write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Fork => "fork",
            Self::Full => "full",
        }
    }
}

/// Origin of a child. It remains when the parent is removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// Parent session.
    pub parent: SessionId,
    /// Name of the parent at that time.
    pub parent_name: String,
    /// Last position of the parent's history that the child has; with full isolation, the parent's head.
    pub at: Seq,
    /// Isolation of the child.
    pub isolation: Isolation,
}

/// Limits of a child; `None` means unlimited. A grandchild has the narrower of both.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ChildLimits {
    /// Maximum tool calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls: Option<u64>,
    /// Maximum total milliseconds of all its calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wall_millis: Option<u64>,
    /// Maximum bytes of files written; every write counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_written: Option<u64>,
    /// Maximum generations of children; 0 for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth: Option<u32>,
    /// Tools that it may use; `None` for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<BTreeSet<String>>,
    /// Programs, optionally with their first words, that its commands may not run, in addition to the policy's.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub deny: BTreeSet<String>,
}

impl ChildLimits {
    /// Returns true if nothing is limited.
    pub fn is_unlimited(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the narrower of these limits and `parent`'s, for a child of a session with the latter.
    #[must_use]
    pub fn within(&self, parent: &Self) -> Self {
        let narrower = |own: Option<u64>, parent: Option<u64>| own.into_iter().chain(parent).min();
        let below = parent.depth.map(|depth| depth.saturating_sub(1));
        let tools = match (&self.tools, &parent.tools) {
            (Some(own), Some(parent)) => Some(own.intersection(parent).cloned().collect()),
            (own, parent) => own.clone().or_else(|| parent.clone()),
        };
        Self {
            calls: narrower(self.calls, parent.calls),
            wall_millis: narrower(self.wall_millis, parent.wall_millis),
            bytes_written: narrower(self.bytes_written, parent.bytes_written),
            depth: self.depth.into_iter().chain(below).min(),
            tools,
            deny: self.deny.union(&parent.deny).cloned().collect(),
        }
    }
}

/// Event of a child that began, in the parent's history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildStarted {
    /// Child session; this session itself if it is shared.
    pub child: SessionId,
    /// Name of the child.
    pub name: String,
    /// Last position of this history that the child has.
    pub at: Seq,
    /// Isolation of the child.
    pub isolation: Isolation,
    /// Agent that acts in it; empty for none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub agent: String,
    /// Limits of the child. A shared child is bound here, by its agent's name; other children also have them in their
    /// own first event.
    #[serde(default, skip_serializing_if = "ChildLimits::is_unlimited")]
    pub limits: ChildLimits,
}

/// Event of lost acknowledged events, recorded when a user continues without them. If the journal's end was lost, later
/// events reuse the positions, beginning with this one. If bytes were damaged, an event like this one takes each lost
/// position.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventsLost {
    /// Position of the first lost event.
    pub first: Seq,
    /// Position of the last lost event.
    pub last: Seq,
    /// Segment at the journal's end, or the damaged segment.
    pub segment: u32,
    /// Damaged bytes that held the events; absent if the journal's end was lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap: Option<LostBytes>,
}

impl EventsLost {
    /// Returns true for an event that takes the position of a lost one.
    pub fn is_gap(event: &EventRef<'_>) -> bool {
        event.typed::<Self>().is_some_and(|lost| lost.is_ok_and(|lost| lost.event.gap.is_some()))
    }
}

/// Damaged bytes of the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostBytes {
    /// Their offset in the segment, in bytes.
    pub offset: u64,
    /// Their count; 0 if they were missing.
    pub bytes: u64,
    /// Contents that the lost events may have referred to; in the first event of a gap.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contents: Vec<Digest>,
}

/// Event of a host that took over the session, on a store that several hosts share. Earlier hosts can record no more
/// in the session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionTaken {
    /// Name of the host.
    pub host: String,
    /// Number of this ownership, higher than that of each earlier one.
    pub epoch: u64,
}

/// Event of a host directory that was copied into the workspace; its files' events are in the same commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountHydrated {
    /// Resolved directory on the host.
    pub host_path: String,
    /// Path in the workspace.
    pub mount_path: EntryPath,
    /// Included patterns; empty for everything.
    pub include_glob: Vec<String>,
    /// Excluded patterns.
    pub exclude_glob: Vec<String>,
    /// Byte budget, if there was one.
    pub max_bytes: Option<u64>,
    /// True if links on the host were followed.
    pub follow_symlinks: bool,
    /// Number of files copied.
    pub files: u64,
    /// Number of bytes copied.
    pub bytes: u64,
    /// Top-level entries, for the text that describes the workspace to a model.
    pub preview: MountPreview,
}

/// Top-level entries of a mount.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MountPreview {
    /// Sorted names of entries; a directory's ends with a slash.
    pub entries: Vec<String>,
    /// Number of further entries.
    pub more: u64,
}
