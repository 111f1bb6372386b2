//! The journal: append-only segments of frames, a local store's source of truth.

#[doc(hidden)]
pub mod disk;
mod flipped;
pub(crate) mod frame;
mod fsck;
mod gaps;
mod grouped;
mod last;
mod pack;
pub(crate) mod scan;
pub(crate) mod segment;
mod segments;
mod trailer;
mod writer;

pub(crate) use flipped::mended;
pub(crate) use fsck::{CheckedJournal, Item, check, identity, rewrite, walk};
pub use fsck::{FsckReport, JournalProblem};
pub use gaps::Gap;
pub(crate) use grouped::{NO_SESSION, session_group};
pub(crate) use last::{Last, last};
pub(crate) use pack::pack;
pub(crate) use segment::FramePosition;
pub(crate) use segments::Segments;
pub(crate) use writer::{Group, LatestNotes, StagedFrame, StagingBuffer, Writer};

#[cfg(test)]
mod tests;
