//! The parts of rigs that both test binaries have.

mod disk;
pub(crate) mod portable;
mod process;
#[path = "../../src/testing.rs"]
pub(crate) mod testing;

pub(crate) use disk::Disk;
pub(crate) use process::{ordered, process};
pub(crate) use testing::{Random, eventually, skip};

/// Multiplies a number of rounds by `FOLDSPACE_TEST_TIMES`, which `.ci/long` sets.
pub(crate) fn rounds(usual: u64) -> u64 {
    let times = std::env::var("FOLDSPACE_TEST_TIMES").ok().and_then(|times| times.parse::<u64>().ok());
    usual * times.unwrap_or(1)
}
