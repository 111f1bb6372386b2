//! The engines that are measured: the bare file as the limit, foldspace, and its peers.

mod fjall;
mod foldspace;
mod group;
mod limit;
mod redb;
mod sled;
mod sqlite;

use std::path::Path;

use anyhow::Result;

use crate::log::{Loaded, Record};

pub use foldspace::{Blob, Foldspace};
pub use group::Grouped;

/// An engine that makes a batch of events durable in one go.
pub trait Peer: Send {
    /// Returns when all of them are on the disk.
    ///
    /// # Errors
    /// What the engine says.
    fn append_batch(&mut self, batch: &[Record]) -> Result<()>;
}

/// Opens an engine in an empty directory.
pub type Open = fn(&Path) -> Result<Box<dyn Loaded>>;

/// All engines by name, the limit first and foldspace second.
pub const ALL: [(&str, Open); 7] = [
    ("bare file (the limit)", |at| Ok(Box::new(Grouped::new(limit::BareFile::open(at)?)))),
    ("foldspace", |at| Ok(Box::new(Foldspace::open(at)?))),
    ("foldspace, through the process that holds the store", |at| Ok(Box::new(Foldspace::through(at)?))),
    ("fjall 3.1", |at| Ok(Box::new(Grouped::new(fjall::Fjall::open(at)?)))),
    ("SQLite WAL FULL", |at| Ok(Box::new(Grouped::new(sqlite::Sqlite::open(at)?)))),
    ("sled 0.34 + fdatasync", |at| Ok(Box::new(Grouped::new(sled::Sled::open(at)?)))),
    ("redb 4.4", |at| Ok(Box::new(Grouped::new(redb::Redb::open(at)?)))),
];

/// The key of an event in a peer that has keys.
fn key(record: &Record) -> [u8; 12] {
    let mut key = [0; 12];
    key[..4].copy_from_slice(&record.writer.to_be_bytes());
    key[4..].copy_from_slice(&record.seq.to_be_bytes());
    key
}
