//! Copies of a journal in object storage, and stores restored from them.
//!
//! A copy consists of pieces of segment files, and a manifest that names the pieces of each segment. The manifest is
//! replaced last, by compare-and-swap, so that a copy is complete at every moment and has one writer. The segments
//! contain each content once, before the commits that refer to it, so a copy of the segments includes the contents.

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
