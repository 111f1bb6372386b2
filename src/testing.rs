//! Waiting, skipping and random numbers for tests; the test binaries below `tests` include this file, too.
#![expect(clippy::disallowed_methods, reason = "a wait measures real time")]

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Longer than any condition takes on a slow machine.
pub(crate) const WAIT_LIMIT: Duration = Duration::from_secs(120);

/// Multiplies a number of rounds by `FOLDSPACE_TEST_TIMES`, which `.ci/long` sets.
pub(crate) fn rounds(usual: u64) -> u64 {
    let times = std::env::var("FOLDSPACE_TEST_TIMES").ok().and_then(|times| times.parse::<u64>().ok());
    usual * times.unwrap_or(1)
}

/// Waits until a condition holds; panics with its name if it never does.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < WAIT_LIMIT, "not within {WAIT_LIMIT:?}: {what}");
        std::thread::sleep(Duration::from_millis(3));
    }
}

/// Skips the running test, or a part of it; fails it in CI.
pub(crate) fn skip(reason: &str) {
    let in_ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty());
    assert!(!in_ci, "skipped in CI: {reason}");
    report_skip(reason);
}

/// Prints that the running test, or a part of it, is skipped, once for each reason.
pub(crate) fn report_skip(reason: &str) {
    static REPORTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let thread = std::thread::current();
    let line = format!("skipped: {}: {reason}\n", thread.name().unwrap_or("a test"));
    // Not with `eprintln!`: the harness hides its output if a test passes.
    if REPORTED.lock().unwrap().insert(line.clone()) {
        std::io::stderr().write_all(line.as_bytes()).unwrap();
    }
}

/// Random numbers, determined by the seed (splitmix64).
#[derive(Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }
}
