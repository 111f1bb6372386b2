//! redb 4, every transaction synced.

use std::path::Path;

use ::redb::{Database, Durability, TableDefinition};
use anyhow::Result;

use super::{Peer, key};
use crate::log::Record;

const EVENTS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("events");

/// A redb table.
#[derive(Debug)]
pub(super) struct Redb(Database);

impl Redb {
    /// Makes a database.
    pub(super) fn open(directory: &Path) -> Result<Self> {
        Ok(Self(Database::create(directory.join("events.redb"))?))
    }
}

impl Peer for Redb {
    fn append_batch(&mut self, batch: &[Record]) -> Result<()> {
        let mut transaction = self.0.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        {
            let mut table = transaction.open_table(EVENTS)?;
            for record in batch {
                table.insert(&key(record)[..], &record.bytes[..])?;
            }
        }
        transaction.commit()?;
        Ok(())
    }
}
