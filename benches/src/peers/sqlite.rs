//! SQLite with a write-ahead log, synced with every transaction.

use std::path::Path;

use anyhow::Result;
use rusqlite::{Connection, params};

use super::Peer;
use crate::log::Record;

/// A table of events.
#[derive(Debug)]
pub(super) struct Sqlite(Connection);

impl Sqlite {
    /// Makes a database.
    pub(super) fn open(directory: &Path) -> Result<Self> {
        let db = Connection::open(directory.join("events.sqlite"))?;
        db.pragma_update(None, "journal_mode", "WAL")?;
        db.pragma_update(None, "synchronous", "FULL")?;
        db.execute_batch(
            "CREATE TABLE events (session INTEGER, seq INTEGER, event BLOB, PRIMARY KEY (session, seq)) WITHOUT ROWID",
        )?;
        Ok(Self(db))
    }
}

impl Peer for Sqlite {
    fn append_batch(&mut self, batch: &[Record]) -> Result<()> {
        let transaction = self.0.transaction()?;
        {
            let mut insert = transaction.prepare_cached("INSERT INTO events VALUES (?1, ?2, ?3)")?;
            for record in batch {
                insert.execute(params![record.writer, record.seq as i64, &record.bytes[..]])?;
            }
        }
        transaction.commit()?;
        Ok(())
    }
}
