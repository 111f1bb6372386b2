//! The journal: append-only segments of frames. The truth of a local store.

pub(crate) mod disk;
pub(crate) mod frame;
mod fsck;
mod last;
mod packed;
pub(crate) mod scan;
pub(crate) mod segment;
mod segments;
mod writer;

pub(crate) use fsck::{CheckedJournal, Item, check, identity, rewrite, walk};
pub use fsck::{FsckReport, JournalProblem};
pub(crate) use last::{Last, last};
pub(crate) use segment::{FramePosition, pack};
pub(crate) use segments::Segments;
pub(crate) use writer::{Group, LatestNotes, StagedFrame, StagingBuffer, Writer};

#[cfg(test)]
mod tests;
