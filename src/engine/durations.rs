//! Histograms of durations.

use std::time::Duration;

/// A histogram of durations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Durations {
    /// Their number.
    pub count: u64,
    /// Their sum in microseconds.
    pub micros: u64,
    /// Cumulative buckets: an upper bound in microseconds, and the number of durations that are at most as long.
    pub within: Vec<(u64, u64)>,
}

impl Durations {
    /// Creates an empty histogram with these upper bounds, in microseconds.
    pub fn within(ends: &[u64]) -> Self {
        Self { count: 0, micros: 0, within: ends.iter().map(|end| (*end, 0)).collect() }
    }

    /// Counts a duration.
    pub fn add(&mut self, duration: Duration) {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        self.count += 1;
        self.micros = self.micros.saturating_add(micros);
        self.within.iter_mut().filter(|(end, _)| micros <= *end).for_each(|(_, count)| *count += 1);
    }
}
