//! Snapshots: unused forks of sandboxes, the templates of other sandboxes.

use serde::{Deserialize, Serialize};

use super::E2bApi;
use super::connect::Wrong;
use super::sandbox::Sandbox;
use crate::engine::clock::Timestamp;
use crate::engine::event::Isolation;
use crate::engine::lock::lock;
use crate::engine::session::children::ForkOptions;

/// The name of the annotation for a snapshot.
pub(super) const SNAPSHOT: &str = "e2b-snapshot";
const NAME_MAX: usize = 200;

/// The record of a snapshot, an annotation of its session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct SnapshotRecord {
    /// The name of the session.
    pub(super) snapshot: String,
    /// The sandbox.
    pub(super) of: String,
    /// The client's name for it.
    pub(super) name: Option<String>,
    pub(super) taken: Timestamp,
}

impl E2bApi {
    /// Finds a snapshot by its id, or the latest snapshot of a name.
    pub(super) fn snapshot(&self, wanted: &str) -> Option<SnapshotRecord> {
        let all = lock(&self.table.snapshots);
        let named =
            || all.values().filter(|known| known.name.as_deref() == Some(wanted)).max_by_key(|known| known.taken);
        all.get(wanted).or_else(named).cloned()
    }

    /// Returns the snapshots, the newest first.
    pub(super) fn snapshots(&self) -> Vec<SnapshotRecord> {
        let mut all: Vec<SnapshotRecord> = lock(&self.table.snapshots).values().cloned().collect();
        all.sort_by(|a, b| (b.taken, &b.snapshot).cmp(&(a.taken, &a.snapshot)));
        all
    }

    pub(super) async fn take_snapshot(&self, of: &Sandbox, name: Option<String>) -> Result<SnapshotRecord, Wrong> {
        if name.as_ref().is_some_and(|name| name.len() > NAME_MAX) {
            return Err(Wrong::invalid(format!("the snapshot's name is over the limit of {NAME_MAX} bytes")));
        }
        let fork = ForkOptions { name: Some(Self::fresh_name("snap-")?), ..ForkOptions::new(Isolation::Fork) };
        let (session, _) = self.face.hub().fork_once(of.session, fork).await?;
        let (snapshot, of) = (session.name().to_owned(), of.name().to_owned());
        let record = SnapshotRecord { snapshot, of, name, taken: self.now() };
        self.annotate(&record.snapshot, SNAPSHOT, &record).await?;
        lock(&self.table.snapshots).insert(record.snapshot.clone(), record.clone());
        Ok(record)
    }

    /// Removes a snapshot. Sandboxes from it keep their history.
    pub(super) async fn remove_snapshot(&self, wanted: &str) -> Result<(), Wrong> {
        let unknown = || Wrong::not_found(format!("the snapshot {wanted:.100} was not found"));
        let found = self.snapshot(wanted).ok_or_else(unknown)?;
        let session = self.face.session(&found.snapshot).await?;
        self.face.hub().release(session.id()).await?;
        self.face.hub().remove(session.id()).await?;
        lock(&self.table.snapshots).remove(&found.snapshot);
        Ok(())
    }
}
