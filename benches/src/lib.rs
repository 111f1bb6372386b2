//! Benches of foldspace beside its peers and the machine's own limits, measured in the same run.
//!
//! A load is written once, in [`loads`]; the `report` program and the criterion benches both call it.

pub mod disk;
pub mod journal;
pub mod loads;
pub mod log;
pub mod peers;
pub mod plots;
pub mod sample;
pub mod scale;
pub mod served;
pub mod table;

/// The allocator of the `foldspace` program, so that the figures are those that it will have.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
