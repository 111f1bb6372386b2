//! The parts of rigs that both test binaries have.

mod disk;
pub(crate) mod portable;
mod process;
#[path = "../../src/testing.rs"]
pub(crate) mod testing;

pub(crate) use disk::Disk;
pub(crate) use process::{ordered, process};
pub(crate) use testing::{Random, eventually, rounds, skip};
