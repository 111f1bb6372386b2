//! Events of the machine behind a session, and of changes outside of calls.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::engine::{Digest, Seq};

/// Event of a call that used the workspace's machine, which is therefore not idle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceTouched {
    /// Backend of the workspace.
    pub backend: String,
}

/// Event of drift: files on the disk differ from the events, because they were changed outside of any call. The
/// differences are in the same commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriftFound {
    /// Backend of the workspace.
    pub backend: String,
    /// Number of entries that differ.
    pub entries: u64,
    /// Number of late ones among them: found by a full scan, not reported by the kernel. They may have changed before
    /// earlier calls, which missed them.
    #[serde(default, skip_serializing_if = "is_none")]
    pub late: u64,
    /// Observed calls that may have made the changes, but possibly were not running then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub perhaps: Vec<Seq>,
}

fn is_none(number: &u64) -> bool {
    *number == 0
}

/// Event of a container that runs for the session, created or restarted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerStarted {
    /// Name of the container.
    pub name: String,
    /// Id of the container.
    pub id: String,
    /// Image of the container.
    pub image: String,
    /// Engine, `podman` or `docker`, with its version.
    pub engine: String,
    /// True if it was created, false if a stopped one was restarted.
    pub created: bool,
    /// True if the engine runs without root.
    pub rootless: bool,
    /// True if limits of memory, processes and processor are enforced.
    pub limits_enforced: bool,
    /// True if the workspace is an overlay, false for a plain directory.
    pub overlay: bool,
    /// Initial directory of commands.
    pub workdir: String,
    /// Variables for all commands of the session.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, VariableValue>,
    /// Directory on this machine with the overlay's layers; empty for a plain directory.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub overlay_path: String,
    /// Digest that identifies the image, `sha256:` and 64 hexadecimal digits; empty if the engine did not report it. The
    /// name of an image may move to another one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub image_digest: String,
    /// Release of the kernel; empty in older records.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kernel: String,
}

/// Event of a connection that the commands of a container asked for, at its end. It belongs to the call that recorded
/// it; with several calls at once, another one may have made it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkConnection {
    /// Host, by its name or address, as the command named it.
    pub host: String,
    /// Port; 0 if the rules refused to resolve the name.
    pub port: u16,
    /// Address that was connected to; empty if none was.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub address: String,
    /// Type of the request: `connect`, `http`, `socks`, or `name` for a program without proxy support.
    pub by: String,
    /// Outcome: `closed`, `refused` by the rules, or `failed`.
    pub outcome: String,
    /// Reason of a refusal or a failure.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Bytes sent to the host.
    pub sent: u64,
    /// Bytes received from it.
    pub received: u64,
    /// Time from the request to the end, in microseconds.
    pub micros: u64,
    /// Number of connections that the event stands for: equal ones are counted when there are very many.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub count: u64,
}

fn one() -> u64 {
    1
}

fn is_one(number: &u64) -> bool {
    *number == 1
}

/// The value of a session's variable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum VariableValue {
    /// The value.
    Text(String),
    /// Recorded form of a value that is stored outside the journal.
    Recorded {
        /// Its digest.
        digest: Digest,
    },
}

impl VariableValue {
    /// Returns the digest of the value.
    pub fn digest(&self) -> Digest {
        match self {
            Self::Text(text) => Digest::of(text.as_bytes()),
            Self::Recorded { digest } => *digest,
        }
    }
}

/// Event of a session's container that was stopped or found missing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerStopped {
    /// Name of the container.
    pub name: String,
    /// Reason: `asked`, `idle`, `uptime`, `vanished`, `closed`.
    pub reason: String,
}
