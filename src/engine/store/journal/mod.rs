//! The journal: append-only segments of frames. The truth of a local store.

pub(crate) mod disk;
pub(crate) mod frame;
mod fsck;
mod packed;
pub(crate) mod scan;
pub(crate) mod segment;
mod segments;
mod writer;

pub use fsck::{FsckReport, Problem};
pub(crate) use fsck::{Item, fsck, rewrite, walk};
pub(crate) use packed::pack;
pub(crate) use segment::Place;
pub(crate) use segments::Segments;
pub(crate) use writer::{Group, Noted, Staged, Writer};
