//! Counts of the containers that this process started and stopped.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use super::warm;
use crate::engine::durations::Durations;
use crate::engine::lock::lock;

/// Upper bounds of the buckets, in microseconds.
const ENDS: [u64; 10] =
    [5_000, 10_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 10_000_000, 60_000_000];

static FIGURES: Mutex<ContainerFigures> =
    Mutex::new(ContainerFigures { ready: BTreeMap::new(), stops: BTreeMap::new(), warm: 0 });

/// Starts and stops of containers.
#[derive(Debug, Clone, Default)]
pub struct ContainerFigures {
    /// Times until a session's commands could run: of `created`, `restarted` and `warm` containers.
    pub ready: BTreeMap<&'static str, Durations>,
    /// Stops by reason, as in `ContainerStopped`.
    pub stops: BTreeMap<String, u64>,
    /// Containers that are ready for the next sessions.
    pub warm: usize,
}

/// Returns the figures of this process.
pub fn container_figures() -> ContainerFigures {
    ContainerFigures { warm: warm::ready(), ..lock(&FIGURES).clone() }
}

pub(super) fn started(was_warm: bool, is_created: bool, ready: Duration) {
    let start = match (was_warm, is_created) {
        (true, _) => "warm",
        (false, true) => "created",
        (false, false) => "restarted",
    };
    let mut figures = lock(&FIGURES);
    figures.ready.entry(start).or_insert_with(|| Durations::within(&ENDS)).add(ready);
}

pub(super) fn stopped(reason: &str) {
    *lock(&FIGURES).stops.entry(reason.to_owned()).or_default() += 1;
}
