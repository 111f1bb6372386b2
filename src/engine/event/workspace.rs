//! The workspace behind a session: its machine, and changes that no call made.

use serde::{Deserialize, Serialize};

use super::Event;

/// A call used the machine of the workspace, which is so kept from being idle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceTouched {
    /// The backend.
    pub backend: String,
}

impl Event for WorkspaceTouched {
    const KIND: &'static str = "WorkspaceTouched";
}

/// The files on the disk were not what the events say: somebody changed them outside of any call. What
/// differs stands beside it, in the same commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriftFound {
    /// The backend.
    pub backend: String,
    /// How many entries differ.
    pub entries: u64,
}

impl Event for DriftFound {
    const KIND: &'static str = "DriftFound";
}

/// A container runs for the session, made or started again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerStarted {
    /// Its name.
    pub name: String,
    /// Its id.
    pub id: String,
    /// Its image.
    pub image: String,
    /// The engine: `podman` or `docker`, with its version.
    pub engine: String,
    /// Whether it was made anew; otherwise a stopped one was started again.
    pub created: bool,
    /// Whether the engine runs without root.
    #[serde(default)]
    pub rootless: bool,
    /// Whether limits of memory, processes and processor are in force.
    pub limits_enforced: bool,
    /// Whether the workspace is an overlay; otherwise a plain directory.
    pub overlay: bool,
    /// Whether the resident runner runs commands; otherwise the engine's own, slower way.
    pub runner: bool,
    /// Why the resident runner does not run them; empty when it does.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub without_runner: String,
}

impl Event for ContainerStarted {
    const KIND: &'static str = "ContainerStarted";
}

/// The session's container was stopped or found gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerStopped {
    /// Its name.
    pub name: String,
    /// Why: `asked`, `idle`, `vanished`, `closed`.
    pub reason: String,
}

impl Event for ContainerStopped {
    const KIND: &'static str = "ContainerStopped";
}
