//! Cloning a state, whatever its size.

use std::hint::black_box;
use std::time::Instant;

use anyhow::Result;
use foldspace::State;
use foldspace::session::SnapshotPolicy;
use foldspace::store::Durability;

use super::Size;
use crate::disk::Scratch;
use crate::journal::{self, Plan, Shape};
use crate::sample::median;
use crate::table::{Table, against, number};

/// A state with that many files.
///
/// # Errors
/// What the store says.
pub fn state(files: u64) -> Result<State> {
    let scratch = Scratch::new("clone")?;
    let sessions = journal::open(scratch.path(), Durability::Buffered, true, SnapshotPolicy::default())?;
    let session = journal::write(&sessions, "wide", Plan { shape: Shape::Writes, events: files, paths: files })?;
    sessions.store().sync()?;
    Ok(session.state()?)
}

/// Measures states of several sizes.
///
/// # Errors
/// What the store says.
pub fn report(size: Size) -> Result<Vec<Table>> {
    let mut table = Table::new("clone of a `State`", &["files", "ns (target <= 1,000)"]);
    for files in [100, 10_000, 100_000] {
        let state = state(files)?;
        let count = 100_000;
        let mut rounds = Vec::new();
        for _ in 0..size.of(5, 15) {
            let start = Instant::now();
            for _ in 0..count {
                drop(black_box(state.clone()));
            }
            rounds.push(start.elapsed().as_secs_f64() * 1e9 / f64::from(count));
        }
        table.row([number(files as f64), against(median(&rounds), 1_000.0, false)]);
    }
    Ok(vec![table])
}
