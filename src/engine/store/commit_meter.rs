//! Counts and durations of commits.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::engine::durations::Durations;
use crate::engine::{Clock, lock};

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
    durations: Mutex<Durations>,
}

/// The start of a commit that is not durable yet.
pub(super) struct CommitTiming {
    meter: Arc<CommitMeter>,
    begun: u64,
    is_counted: AtomicBool,
}

impl CommitMeter {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        let (accepted, durations) = (AtomicU64::new(0), Mutex::new(Durations::within(&ENDS)));
        Arc::new(Self { clock, accepted, durations })
    }

    /// Begins to measure a commit.
    pub(super) fn begin(self: &Arc<Self>) -> CommitTiming {
        let begun = self.clock.monotonic_micros();
        CommitTiming { meter: Arc::clone(self), begun, is_counted: AtomicBool::new(false) }
    }

    pub(crate) fn figures(&self) -> CommitFigures {
        CommitFigures { accepted: self.accepted.load(Ordering::Relaxed), durations: lock(&self.durations).clone() }
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
            lock(&self.meter.durations).add(Duration::from_micros(took));
        }
    }
}
