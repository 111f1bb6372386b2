//! Counts and durations of commits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::engine::Clock;
use crate::engine::durations::Durations;

/// Upper bounds of the duration buckets, in microseconds.
const ENDS: [u64; 12] =
    [100, 250, 500, 1_000, 2_500, 5_000, 10_000, 50_000, 250_000, 1_000_000, 10_000_000, 60_000_000];

/// The commits of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitFigures {
    /// Number of commits that the store accepted.
    pub accepted: u64,
    /// Times from submission until durable, of commits that a caller waited for.
    pub durations: Durations,
}

pub(crate) struct CommitMeter {
    clock: Arc<dyn Clock>,
    accepted: AtomicU64,
    micros: AtomicU64,
    /// Numbers of durations between two bounds, and above the last one.
    within: [AtomicU64; ENDS.len() + 1],
}

/// The start of a commit that is not durable yet.
pub(super) struct CommitTiming {
    meter: Arc<CommitMeter>,
    begun: u64,
    is_counted: AtomicBool,
}

impl CommitMeter {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { clock, accepted: AtomicU64::new(0), micros: AtomicU64::new(0), within: Default::default() })
    }

    /// Begins to measure a commit.
    pub(super) fn begin(self: &Arc<Self>) -> CommitTiming {
        let begun = self.clock.monotonic_micros();
        CommitTiming { meter: Arc::clone(self), begun, is_counted: AtomicBool::new(false) }
    }

    pub(crate) fn figures(&self) -> CommitFigures {
        let mut count = 0;
        let mut up_to = |number: &AtomicU64| {
            count += number.load(Ordering::Relaxed);
            count
        };
        let within = ENDS.iter().zip(&self.within).map(|(end, number)| (*end, up_to(number))).collect();
        let count = up_to(&self.within[ENDS.len()]);
        let durations = Durations { count, micros: self.micros.load(Ordering::Relaxed), within };
        CommitFigures { accepted: self.accepted.load(Ordering::Relaxed), durations }
    }
}

impl CommitTiming {
    /// Counts the commit as accepted.
    pub(super) fn accept(self) -> Self {
        self.meter.accepted.fetch_add(1, Ordering::Relaxed);
        self
    }

    /// Counts the commit as durable, once.
    pub(super) fn end(&self) {
        if !self.is_counted.swap(true, Ordering::Relaxed) {
            let took = self.meter.clock.monotonic_micros().saturating_sub(self.begun);
            self.meter.micros.fetch_add(took, Ordering::Relaxed);
            self.meter.within[ENDS.partition_point(|end| *end < took)].fetch_add(1, Ordering::Relaxed);
        }
    }
}
