//! Copies of a journal in object storage, and stores made of them again.
//!
//! A copy is pieces of segment files, and a manifest that says which of them belong together. The manifest is replaced
//! last and only if it is the one that was read, so that a copy is whole at every moment and has one writer. Contents
//! stand in the segments, before the commits that refer to them: a copy of the segments has them, each once.

mod claim;
mod error;
mod journal_file;
mod manifest;
mod progress;
mod replicator;
mod restore;
mod running;
pub(in crate::engine::store) mod target;
#[cfg(test)]
mod tests;

pub use error::ReplicationError;
pub use manifest::CopyWriter;
pub use progress::{CopiedTo, ReplicationProgress};
pub use replicator::{Replicator, ReplicatorOptions};
pub use restore::{RestoreReport, restore};
pub use running::Replication;
