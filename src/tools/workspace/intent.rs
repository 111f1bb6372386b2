//! Note of planned changes, written next to the disk before the first change.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::plan::{PlannedChange, after};
use crate::backends::BackendError;
use crate::engine::event::Node;
use crate::engine::id::{Digest, SessionId};
use crate::engine::path::EntryPath;
use crate::engine::session::Session;
use crate::reducers::{Change, VirtualFileSystem};

const VERSION: u32 = 1;

/// Entries that a landing changes. After a crash, the note separates its partial changes from external changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Intent {
    version: u32,
    session: SessionId,
    pub(in crate::tools) entries: Vec<Intended>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::tools) struct Intended {
    pub(in crate::tools) path: EntryPath,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    before: Option<Node>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    after: Option<Node>,
}

impl Intent {
    pub(crate) fn of(session: &Session, now: &VirtualFileSystem, steps: &[PlannedChange]) -> Self {
        let then = after(steps, now, steps.len(), session.now());
        let mut entries = BTreeMap::new();
        // One step may remove an entry that a later one restores.
        let paths = steps.iter().map(|step| step.path().clone());
        for path in paths.chain(now.diff(&then).iter().map(Change::path).cloned()) {
            let (before, after) = (now.node(&path).cloned(), then.node(&path).cloned());
            entries.entry(path.clone()).or_insert(Intended { path, before, after });
        }
        Self { version: VERSION, session: session.id(), entries: entries.into_values().collect() }
    }

    pub(crate) fn encode(&self) -> Result<Vec<u8>, BackendError> {
        let failed = |error: serde_json::Error| BackendError { backend: "session's", reason: error.to_string() };
        serde_json::to_vec(self).map_err(failed)
    }

    pub(in crate::tools) fn decode(session: &Session, note: &[u8]) -> Option<Self> {
        let intent: Self = serde_json::from_slice(note).ok()?;
        (intent.version == VERSION && intent.session == session.id()).then_some(intent)
    }
}

impl Intended {
    /// Returns true if an interrupted landing may have left this node. An empty file counts: a crash leaves one if
    /// contents were not synced.
    pub(in crate::tools) fn may_leave(&self, found: &Node) -> bool {
        let is_empty = matches!(found, Node::File { size: 0, .. });
        is_empty || [&self.before, &self.after].into_iter().flatten().any(|node| is_same(node, found))
    }
}

fn is_same(one: &Node, other: &Node) -> bool {
    match (one, other) {
        (Node::File { content, mode, .. }, Node::File { content: found, mode: has, .. }) => {
            // An unreadable file equals no other.
            content == found && mode == has && *found != Digest::from_bytes([0; 32])
        }
        // A directory may have wider permissions while its entries are written.
        (Node::Directory { .. }, Node::Directory { .. }) => true,
        _ => one == other,
    }
}
