//! sled 0.34. Its `flush` only asks for write-back, so its file is synced after it.

use std::fs::File;
use std::path::Path;

use anyhow::Result;

use super::{Peer, key};
use crate::log::Record;

/// A sled tree.
#[derive(Debug)]
pub(super) struct Sled {
    db: ::sled::Db,
    file: File,
}

impl Sled {
    /// Opens a tree that is flushed only when it is asked to.
    pub(super) fn open(directory: &Path) -> Result<Self> {
        let db = ::sled::Config::new().path(directory).flush_every_ms(None).open()?;
        let file = File::open(directory.join("db"))?;
        Ok(Self { db, file })
    }
}

impl Peer for Sled {
    fn append_batch(&mut self, batch: &[Record]) -> Result<()> {
        // One insert is atomic with one sync of the log, a batch costs two.
        if let [record] = batch {
            self.db.insert(key(record), &record.bytes[..])?;
        } else {
            let mut rows = ::sled::Batch::default();
            batch.iter().for_each(|record| rows.insert(&key(record), &record.bytes[..]));
            self.db.apply_batch(rows)?;
        }
        self.db.flush()?;
        self.file.sync_data()?;
        Ok(())
    }
}
