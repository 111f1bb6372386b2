//! The server's figures.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::StatusCode;

use crate::tools::{ToolOutcome, Tools};
use crate::view::status_word;

/// Upper ends of the classes of durations, in microseconds.
const ENDS: [u64; 12] =
    [100, 250, 500, 1_000, 2_500, 5_000, 10_000, 50_000, 250_000, 1_000_000, 10_000_000, 60_000_000];

/// Counts of what was done.
#[derive(Default)]
pub(super) struct Metrics {
    /// By tool and status.
    calls: Mutex<BTreeMap<(String, &'static str), Durations>>,
    requests: Mutex<BTreeMap<u16, u64>>,
    followers: Arc<AtomicI64>,
    events_sent: AtomicU64,
}

#[derive(Default)]
struct Durations {
    classes: [u64; ENDS.len()],
    count: u64,
    micros: u64,
}

/// A client that follows events, until this is dropped.
pub(super) struct Follower(Arc<AtomicI64>);

impl Drop for Follower {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Metrics {
    pub(super) fn answered(&self, status: StatusCode) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        *requests.entry(status.as_u16()).or_default() += 1;
    }

    /// Counts a call. Names that are no tool's are one name here: clients choose them.
    pub(super) fn called(&self, tool: &str, tools: &Tools, outcome: &ToolOutcome) {
        let name = if tools.names().any(|known| known == tool) { tool } else { "unknown" };
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let durations = calls.entry((name.to_owned(), status_word(outcome.status))).or_default();
        durations.count += 1;
        durations.micros += outcome.micros;
        if let Some(class) = ENDS.iter().position(|end| outcome.micros <= *end) {
            durations.classes[class] += 1;
        }
    }

    pub(super) fn follower(&self) -> Follower {
        self.followers.fetch_add(1, Ordering::Relaxed);
        Follower(Arc::clone(&self.followers))
    }

    pub(super) fn sent(&self, events: u64) {
        self.events_sent.fetch_add(events, Ordering::Relaxed);
    }

    /// All of them, and what is counted elsewhere, as Prometheus reads it.
    pub(super) fn text(&self, open: usize, sessions: usize, events: u64, under_way: usize) -> String {
        let mut text = String::new();
        let mut one = |name: &str, kind: &str, help: &str, value: &dyn std::fmt::Display| {
            // Writing into a text does not fail.
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
        };
        one("foldspace_sessions", "gauge", "Sessions in the store.", &sessions);
        one("foldspace_open_workspaces", "gauge", "Workspaces that are open.", &open);
        one("foldspace_events", "gauge", "Events in the sessions of the store.", &events);
        one("foldspace_calls_under_way", "gauge", "Calls, rewinds and merges under way.", &under_way);
        let followers = self.followers.load(Ordering::Relaxed);
        one("foldspace_sse_clients", "gauge", "Clients that follow events.", &followers);
        let sent = self.events_sent.load(Ordering::Relaxed);
        one("foldspace_sse_events_total", "counter", "Events sent to clients that follow.", &sent);
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = writeln!(text, "# HELP foldspace_http_requests_total HTTP requests answered.");
        let _ = writeln!(text, "# TYPE foldspace_http_requests_total counter");
        for (status, count) in &*requests {
            let _ = writeln!(text, "foldspace_http_requests_total{{status=\"{status}\"}} {count}");
        }
        drop(requests);
        self.write_calls(&mut text);
        text
    }

    fn write_calls(&self, text: &mut String) {
        const NAME: &str = "foldspace_tool_call_duration_seconds";
        let calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let _ =
            writeln!(text, "# HELP {NAME} Tool calls through HTTP and how long they took.\n# TYPE {NAME} histogram");
        for ((tool, status), durations) in &*calls {
            let labels = format!("tool=\"{tool}\",status=\"{status}\"");
            let mut below = 0;
            for (end, count) in ENDS.iter().zip(durations.classes) {
                below += count;
                let _ = writeln!(text, "{NAME}_bucket{{{labels},le=\"{}\"}} {below}", *end as f64 / 1e6);
            }
            let _ = writeln!(text, "{NAME}_bucket{{{labels},le=\"+Inf\"}} {}", durations.count);
            let _ = writeln!(text, "{NAME}_sum{{{labels}}} {}", durations.micros as f64 / 1e6);
            let _ = writeln!(text, "{NAME}_count{{{labels}}} {}", durations.count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::event::CallStatus;

    #[test]
    fn a_call_is_in_its_class_and_all_above() {
        let metrics = Metrics::default();
        let status = CallStatus::Ok;
        let (result, text) = (serde_json::Value::Null, String::new());
        let outcome = ToolOutcome { call: 1, finished: 2, status, result, text, micros: 300 };
        metrics.called("ls", &Tools::standard(), &outcome);
        metrics.called("\"} 1\nx", &Tools::standard(), &outcome);
        let text = metrics.text(1, 2, 3, 0);
        for line in [
            "foldspace_tool_call_duration_seconds_bucket{tool=\"ls\",status=\"ok\",le=\"0.00025\"} 0",
            "foldspace_tool_call_duration_seconds_bucket{tool=\"ls\",status=\"ok\",le=\"0.0005\"} 1",
            "foldspace_tool_call_duration_seconds_bucket{tool=\"ls\",status=\"ok\",le=\"+Inf\"} 1",
            "foldspace_tool_call_duration_seconds_sum{tool=\"unknown\",status=\"ok\"} 0.0003",
            "foldspace_events 3",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }
}
