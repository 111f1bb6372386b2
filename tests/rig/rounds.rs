//! Rounds of tests that may be longer.

/// Multiplies a number of rounds by `FOLDSPACE_TEST_TIMES`, which `.ci/long` sets.
pub(crate) fn rounds(usual: u64) -> u64 {
    let times = std::env::var("FOLDSPACE_TEST_TIMES").ok().and_then(|times| times.parse::<u64>().ok());
    usual * times.unwrap_or(1)
}
