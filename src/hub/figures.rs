//! Counts and durations of finished calls.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use crate::backends::Durations;
use crate::engine::event::CallStatus;
use crate::engine::lock::lock;
use crate::tools::Tools;

/// Upper bounds of the duration buckets, in microseconds.
const ENDS: [u64; 12] =
    [100, 250, 500, 1_000, 2_500, 5_000, 10_000, 50_000, 250_000, 1_000_000, 10_000_000, 60_000_000];

/// Figures of a tool's calls with one status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallFigures {
    /// The tool; `unknown` for all unknown names.
    pub tool: String,
    /// Their status.
    pub status: CallStatus,
    /// Their durations.
    pub durations: Durations,
}

#[derive(Default)]
pub(super) struct Figures {
    calls: Mutex<BTreeMap<(String, CallStatus), CallFigures>>,
}

impl Figures {
    /// Counts a call. Unknown names share one entry, since clients choose them.
    pub(super) fn ended(&self, tool: &str, tools: &Tools, status: CallStatus, micros: u64) {
        let is_known = tools.names().any(|known| known == tool) || tools.effect_of_registered(tool).is_some();
        let tool = if is_known { tool } else { "unknown" };
        let mut calls = lock(&self.calls);
        let figures = calls.entry((tool.to_owned(), status)).or_insert_with(|| CallFigures {
            tool: tool.to_owned(),
            status,
            durations: Durations::within(&ENDS),
        });
        figures.durations.add(Duration::from_micros(micros));
    }

    pub(super) fn all(&self) -> Vec<CallFigures> {
        lock(&self.calls).values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_duration_counts_in_its_bucket_and_above() {
        let figures = Figures::default();
        let tools = Tools::standard();
        figures.ended("ls", &tools, CallStatus::Ok, 300);
        figures.ended("ls", &tools, CallStatus::Ok, u64::MAX);
        figures.ended("\"} 1\nx", &tools, CallStatus::Error, 300);
        let all = figures.all();
        let told: Vec<_> = all.iter().map(|one| (one.tool.as_str(), one.status, one.durations.count)).collect();
        assert_eq!(told, [("ls", CallStatus::Ok, 2), ("unknown", CallStatus::Error, 1)]);
        assert_eq!(all[0].durations.within[1..3], [(250, 0), (500, 1)]);
        assert_eq!(all[0].durations.within.last(), Some(&(60_000_000, 1)));
    }
}
