//! Crash tests: stores on a simulated disk, one seed per run.
//!
//! `FOLDSPACE_SEED=n` runs one seed, `FOLDSPACE_SEEDS=n` that many.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a test stops at what it does not expect; the index is on a real disk"
)]

mod damage;
pub(crate) mod disk;
mod fuzz;
mod moments;
pub(crate) mod random;
mod repairs;
mod run;
#[expect(dead_code, reason = "the other tests use the rest")]
#[path = "../../src/testing.rs"]
mod testing;
mod witness;
mod work;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use disk::Lie;
use foldspace_tools::{backends, engine, reducers, tools};
use run::{Figures, Run};

use testing::rounds;

/// Seeds that are tested with every change; `.ci/long` tests ten times as many.
const SEEDS: u64 = 300;

/// Makes a directory, in memory if possible: the simulation decides what is durable.
fn place() -> tempfile::TempDir {
    let place = tempfile::Builder::new().prefix("foldspace-sim-").tempdir_in("/dev/shm");
    place.or_else(|_| tempfile::tempdir()).unwrap()
}

fn run(seed: u64, lie: Lie) -> Result<Figures, String> {
    let place = place();
    let outcome = std::panic::catch_unwind(|| Run::new(seed, lie, place.path()).whole());
    outcome.unwrap_or_else(|_| Err("panicked".to_owned()))
}

fn wanted(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|number| number.parse().expect("a number of a seed"))
}

#[test]
fn simulated_crashes_keep_every_acknowledged_event() {
    let seeds = match wanted("FOLDSPACE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..wanted("FOLDSPACE_SEEDS").unwrap_or(rounds(SEEDS)),
    };
    let count = seeds.end - seeds.start;
    let (next, done) = (AtomicU64::new(seeds.start), AtomicU64::new(0));
    let (figures, failed) = (Mutex::new(Figures::default()), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    match run(seed, Lie::None) {
                        Ok(run) => figures.lock().unwrap().add(run),
                        Err(error) => failed.lock().unwrap().push(format!("FOLDSPACE_SEED={seed}: {error}")),
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{} of {count} seeds fail:\n{}", failed.len(), failed.join("\n"));
    assert_eq!(done.into_inner(), count);
    let figures = figures.into_inner().unwrap();
    println!("{count} seeds: {figures:?}");
    if count >= SEEDS {
        let Figures { commits, power_cuts, kills, failures, collections, packed, .. } = figures;
        let Figures { stale_indexes, rewinds, merges, declared, torn, .. } = figures;
        let each =
            [commits, power_cuts, kills, failures, collections, packed, stale_indexes, rewinds, merges, declared, torn];
        assert!(each.iter().all(|number| *number >= count / 20), "a simulation that does too little: {figures:?}");
    }
}

/// A simulation that finds nothing proves nothing.
#[test]
fn simulated_lying_disk_is_detected() {
    for lie in [Lie::Names, Lie::Late, Lie::AllButTheLast] {
        let found = (0..40).find_map(|seed| Some((seed, run(seed, lie).err()?)));
        let (seed, error) = found.unwrap_or_else(|| panic!("{lie:?} is not detected"));
        println!("{lie:?} is detected by seed {seed}: {error}");
    }
}
