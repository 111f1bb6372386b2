//! A sandbox: a session with E2B's record of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{E2bApi, ENVD_VERSION};
use crate::backends::{NetworkRules, WorkspaceSpec};
use crate::engine::clock::Timestamp;
use crate::engine::id::SessionId;

/// The record of a sandbox, an annotation of its session: the last one counts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct SandboxRecord {
    /// The name of the session; a fork has its parent's annotations, too.
    pub(super) sandbox: String,
    pub(super) template: String,
    #[serde(default)]
    pub(super) metadata: BTreeMap<String, String>,
    pub(super) started: Timestamp,
    /// The time when it ends or is paused.
    pub(super) ends: Timestamp,
    pub(super) state: SandboxState,
    /// True to pause it instead of ending it.
    #[serde(default)]
    pub(super) auto_pause: bool,
    /// True if such a pause freezes its processes instead of ending them.
    #[serde(default = "yes")]
    pub(super) keeps_memory: bool,
    /// True to resume it on a request.
    #[serde(default)]
    pub(super) auto_resume: bool,
    #[serde(default)]
    pub(super) ports: PortRules,
    /// The rules for connections to the outside, if they are not the server's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) egress: Option<NetworkRules>,
}

fn yes() -> bool {
    true
}

/// The rules for requests to the ports of a sandbox.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct PortRules {
    /// True to require the sandbox's traffic token.
    #[serde(default)]
    pub(super) are_private: bool,
    /// The `Host` header of requests, with `${PORT}` for the port; by default the client's.
    #[serde(default)]
    pub(super) host: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum SandboxState {
    Running,
    Paused,
    Ended,
}

/// A sandbox that runs or is paused.
#[derive(Debug, Clone)]
pub(super) struct Sandbox {
    pub(super) session: SessionId,
    pub(super) record: SandboxRecord,
    /// Variables that the client set for a sandbox from a snapshot; held until the server ends.
    pub(super) envs: BTreeMap<String, String>,
    /// Cancelled when it is paused or ends, to end its streams.
    pub(super) over: CancellationToken,
}

impl Sandbox {
    pub(super) fn new(session: SessionId, record: SandboxRecord) -> Self {
        Self { session, record, envs: BTreeMap::new(), over: CancellationToken::new() }
    }

    pub(super) fn name(&self) -> &str {
        &self.record.sandbox
    }
}

impl E2bApi {
    /// Returns the token of a sandbox for requests to its `envd`.
    pub(super) fn token_of(&self, sandbox: &str) -> String {
        self.options.token.derived(&format!("e2b sandbox {sandbox}")).to_hex().to_string()
    }

    /// Returns true if the text is the token of a sandbox; compares in constant time.
    pub(super) fn is_token_of(&self, sandbox: &str, shown: &str) -> bool {
        let shown = blake3::Hash::from_hex(shown);
        shown.is_ok_and(|shown| shown == self.options.token.derived(&format!("e2b sandbox {sandbox}")))
    }

    /// Returns the token for requests to the ports of a sandbox.
    fn traffic_token_of(&self, sandbox: &str) -> blake3::Hash {
        self.options.token.derived(&format!("e2b traffic {sandbox}"))
    }

    /// Returns true if the text is the token for the ports of a sandbox; compares in constant time.
    pub(super) fn is_traffic_token_of(&self, sandbox: &str, shown: &str) -> bool {
        blake3::Hash::from_hex(shown).is_ok_and(|shown| shown == self.traffic_token_of(sandbox))
    }

    /// Describes a sandbox in the answer to its creation.
    pub(super) fn created(&self, sandbox: &Sandbox) -> Value {
        json!({
            "templateID": sandbox.record.template,
            "sandboxID": sandbox.name(),
            "clientID": "foldspace",
            "envdVersion": ENVD_VERSION,
            "envdAccessToken": self.token_of(sandbox.name()),
            "trafficAccessToken":
                sandbox.record.ports.are_private.then(|| self.traffic_token_of(sandbox.name()).to_hex().to_string()),
        })
    }

    /// Describes a sandbox in a list.
    pub(super) fn listed(&self, sandbox: &Sandbox) -> Value {
        let (cpus, memory) = match &self.options.workspace {
            WorkspaceSpec::Podman(options) => (options.cpus.ceil(), options.memory_bytes >> 20),
            _ => (1.0, 0),
        };
        let record = &sandbox.record;
        json!({
            "templateID": record.template,
            "sandboxID": record.sandbox,
            "clientID": "foldspace",
            "envdVersion": ENVD_VERSION,
            "startedAt": record.started,
            "endAt": record.ends,
            "cpuCount": cpus as u32,
            "memoryMB": memory,
            "diskSizeMB": 0,
            "state": record.state,
            "metadata": record.metadata,
        })
    }

    /// Describes a single sandbox.
    pub(super) fn shown(&self, sandbox: &Sandbox) -> Value {
        let mut shown = self.listed(sandbox);
        if let Some(shown) = shown.as_object_mut() {
            shown.insert("envdAccessToken".to_owned(), self.token_of(sandbox.name()).into());
        }
        shown
    }
}
