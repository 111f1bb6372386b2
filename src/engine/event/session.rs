//! The beginning of a session and of its workspace.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Event;
use crate::engine::id::{Seq, SessionId};
use crate::engine::path::EntryPath;

/// The first event of every session; of one that was forked the first after the past that it shares.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionStarted {
    /// The name it goes by, unique in its store when it began.
    pub name: String,
    /// The backend of its workspace: `memory`, `host`, ...
    pub backend: String,
    /// Version of the program that began it.
    pub program: String,
    /// What the backend was told of the workspace: its directory, its image and limits.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub options: Value,
    /// Of which session it is a child; none when it began by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// What it may do, as a child.
    #[serde(default, skip_serializing_if = "ChildLimits::is_unlimited")]
    pub limits: ChildLimits,
}

impl Event for SessionStarted {
    const KIND: &'static str = "SessionStarted";
}

impl SessionStarted {
    /// Whether what was before it, if there is something, was a parent's.
    pub fn begins_child(&self) -> bool {
        self.origin.is_some()
    }
}

/// How much of a parent's session its child has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// Everything: it is the parent's session, under another agent's name.
    Shared,
    /// The past up to a position, files included; nothing that either does afterwards.
    Fork,
    /// Nothing but the mounts, copied afresh.
    Full,
}

impl Isolation {
    /// Its name, as people give it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Fork => "fork",
            Self::Full => "full",
        }
    }
}

/// Where a child comes from. It stays true when the parent is removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The parent.
    pub parent: SessionId,
    /// How the parent was called.
    pub parent_name: String,
    /// The last position of the parent's that the child's past has; with full isolation where the parent stood.
    pub at: Seq,
    /// How much of the parent's session it has.
    pub isolation: Isolation,
}

/// What a child may do; nothing said is no limit. A child of a child has the narrower of both.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ChildLimits {
    /// Tool calls that it may make.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls: Option<u64>,
    /// Milliseconds that its calls may take together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wall_millis: Option<u64>,
    /// Bytes of files that it may write, each time that it writes them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_written: Option<u64>,
    /// Generations of children that it may have: with 0 none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth: Option<u32>,
    /// The only tools that it may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<BTreeSet<String>>,
    /// Programs, or programs with their first words, that its commands may not run, in addition to what the
    /// policy denies.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub deny: BTreeSet<String>,
}

impl ChildLimits {
    /// Whether nothing is limited.
    pub fn is_unlimited(&self) -> bool {
        *self == Self::default()
    }

    /// These limits for a child of a session that has those of `parent`: of each the narrower.
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

/// A child began; it stands in the parent's history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildStarted {
    /// The child; the session itself when it is shared.
    pub child: SessionId,
    /// How it is called.
    pub name: String,
    /// The last position of this history that the child's past has.
    pub at: Seq,
    /// How much of this session it has.
    pub isolation: Isolation,
    /// Under which agent's name it acts; empty for nobody's.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub agent: String,
    /// What it may do. A shared child is held to it here, by its agent's name; others have it in their own
    /// first event, too.
    #[serde(default, skip_serializing_if = "ChildLimits::is_unlimited")]
    pub limits: ChildLimits,
}

impl Event for ChildStarted {
    const KIND: &'static str = "ChildStarted";
}

/// Events were acknowledged, and lost before this one: the end of the journal was gone, and a person went on without it.
/// Later events have their positions, this one the first of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventsLost {
    /// The position of the first that was lost.
    pub first: Seq,
    /// The position of the last.
    pub last: Seq,
    /// The segment in which the journal ended.
    pub segment: u32,
}

impl Event for EventsLost {
    const KIND: &'static str = "EventsLost";
}

/// A host directory was copied into the workspace; the files' own events stand beside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountHydrated {
    /// The directory on the host, resolved.
    pub host_path: String,
    /// Where it stands in the workspace.
    pub mount_path: EntryPath,
    /// What was to be included; empty means everything.
    #[serde(default)]
    pub include_glob: Vec<String>,
    /// What was left out.
    #[serde(default)]
    pub exclude_glob: Vec<String>,
    /// The byte budget, if there was one.
    #[serde(default)]
    pub max_bytes: Option<u64>,
    /// Whether links on the host were followed.
    #[serde(default)]
    pub follow_symlinks: bool,
    /// Files copied.
    pub files: u64,
    /// Bytes copied.
    pub bytes: u64,
    /// Its top-level entries, for the text that describes the workspace to a model.
    pub preview: MountPreview,
}

/// The top of a mount.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MountPreview {
    /// Names of top-level entries, sorted; a directory's ends with a slash.
    pub entries: Vec<String>,
    /// How many more there are.
    pub more: u64,
}

impl Event for MountHydrated {
    const KIND: &'static str = "MountHydrated";
}
