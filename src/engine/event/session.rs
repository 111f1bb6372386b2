//! The beginning of a session and of its workspace.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Event;
use crate::engine::path::EntryPath;

/// The first event of every session.
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
}

impl Event for SessionStarted {
    const KIND: &'static str = "SessionStarted";
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
