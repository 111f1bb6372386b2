//! fjall 3, every batch synced.

use std::path::Path;

use ::fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use anyhow::Result;

use super::{Peer, key};
use crate::log::Record;

/// A fjall keyspace.
pub(super) struct Fjall {
    db: Database,
    events: Keyspace,
}

impl Fjall {
    /// Makes a database.
    pub(super) fn open(directory: &Path) -> Result<Self> {
        let db = Database::builder(directory.join("fjall")).open()?;
        let events = db.keyspace("events", KeyspaceCreateOptions::default)?;
        Ok(Self { db, events })
    }
}

impl Peer for Fjall {
    fn append_batch(&mut self, batch: &[Record]) -> Result<()> {
        let mut rows = self.db.batch().durability(Some(PersistMode::SyncAll));
        for record in batch {
            rows.insert(&self.events, key(record), record.bytes);
        }
        rows.commit()?;
        Ok(())
    }
}
