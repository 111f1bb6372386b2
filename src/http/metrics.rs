//! The server's metrics.

use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use axum::http::StatusCode;

use crate::backends::{ContainerFigures, Durations, container_figures};
use crate::engine::lock::lock;
use crate::engine::store::{CommitFigures, HostFigures, SessionTotals};
use crate::hub::{CallFigures, Hub};
use crate::tools::policy_refusals;

use super::HttpFace;
use super::machine_figures::{DiskFigures, ProcessFigures};
use super::owner::ReplicationStatus;

#[derive(Default)]
pub(super) struct Metrics {
    requests: Mutex<BTreeMap<u16, u64>>,
    /// Each client that follows events holds a clone.
    pub(super) followers: Arc<()>,
    events_sent: AtomicU64,
}

impl Metrics {
    pub(super) fn answered(&self, status: StatusCode) {
        let mut requests = lock(&self.requests);
        *requests.entry(status.as_u16()).or_default() += 1;
    }

    pub(super) fn sent(&self, events: u64) {
        self.events_sent.fetch_add(events, Ordering::Relaxed);
    }

    fn text(&self, hub: &Hub, SessionTotals { sessions, events }: SessionTotals) -> String {
        let mut text = String::new();
        let mut one = |name: &str, kind: &str, help: &str, value: &dyn Display| put(&mut text, name, kind, help, value);
        one("foldspace_sessions", "gauge", "Sessions in the store.", &sessions);
        one("foldspace_open_workspaces", "gauge", "Workspaces that are open.", &hub.open_count());
        one("foldspace_events", "gauge", "Events in the sessions of the store.", &events);
        one("foldspace_calls_under_way", "gauge", "Calls, rewinds and merges under way.", &hub.calls_in_flight());
        let followers = Arc::strong_count(&self.followers) - 1;
        one("foldspace_sse_clients", "gauge", "Clients that follow events.", &followers);
        let sent = self.events_sent.load(Ordering::Relaxed);
        one("foldspace_sse_events_total", "counter", "Events sent to clients that follow.", &sent);
        let requests = lock(&self.requests);
        let _ = writeln!(text, "# HELP foldspace_http_requests_total HTTP requests answered.");
        let _ = writeln!(text, "# TYPE foldspace_http_requests_total counter");
        for (status, count) in &*requests {
            let _ = writeln!(text, "foldspace_http_requests_total{{status=\"{status}\"}} {count}");
        }
        drop(requests);
        write_calls(&mut text, &hub.call_figures());
        write_containers(&mut text, &container_figures());
        text
    }
}

impl HttpFace {
    /// Returns all metrics, from memory alone.
    pub(super) fn figures(&self, disk: Option<DiskFigures>, totals: SessionTotals) -> String {
        let mut text = self.metrics().text(self.hub(), totals);
        let mut one = |name: &str, kind: &str, help: &str, value: &dyn Display| put(&mut text, name, kind, help, value);
        let store = self.hub().sessions().store();
        one("foldspace_ready", "gauge", "1 if /readyz answers 200.", &u8::from(self.check_ready().is_ok()));
        let failed = u8::from(store.check_own().is_err());
        one("foldspace_store_failed", "gauge", "1 if a write failed, so that the store records nothing more.", &failed);
        let refusals = policy_refusals();
        one("foldspace_policy_refusals_total", "counter", "Refusals by a policy or an approver.", &refusals);
        let CommitFigures { accepted, durations } = self.hub().sessions().commit_figures();
        one("foldspace_commits_total", "counter", "Commits that the store accepted.", &accepted);
        if let Some(bytes) = disk.and_then(|disk| disk.journal_bytes) {
            one("foldspace_journal_bytes", "gauge", "Bytes of the journal's segments.", &bytes);
        }
        if let Some(disk) = disk {
            one("foldspace_disk_free_bytes", "gauge", "Free bytes on the disk with the data.", &disk.free_bytes);
        }
        if let Some(figures) = store.hosts().map(|hosts| hosts.figures()) {
            write_host(&mut one, &figures);
        }
        write_process(&mut one, &ProcessFigures::now());
        write_histogram(&mut text, "foldspace_commit_duration_seconds", "Time until a commit is durable.");
        write_durations(&mut text, "foldspace_commit_duration_seconds", "", &durations);
        self.replication().iter().for_each(|status| write_replication(&mut text, status));
        text
    }
}

fn write_host(one: &mut impl FnMut(&str, &str, &str, &dyn Display), figures: &HostFigures) {
    let waited = figures.waited.unwrap_or_default().as_secs_f64();
    let help = "Seconds that this host has waited for the cluster; 0 if it answers.";
    one("foldspace_cluster_waited_seconds", "gauge", help, &waited);
    one("foldspace_sessions_held", "gauge", "Sessions that this host has claimed.", &figures.held);
    one("foldspace_takeovers_total", "counter", "Sessions taken over from a dead host.", &figures.takeovers);
    let help = "Sessions taken by another host, or released because the cluster did not answer.";
    one("foldspace_sessions_lost_total", "counter", help, &figures.lost);
}

fn write_process(one: &mut impl FnMut(&str, &str, &str, &dyn Display), process: &ProcessFigures) {
    one("process_cpu_seconds_total", "counter", "Processor time of the process in seconds.", &process.cpu_seconds);
    if let Some(bytes) = process.resident_bytes {
        one("process_resident_memory_bytes", "gauge", "Memory of the process in bytes.", &bytes);
    }
    if let Some(files) = process.open_files {
        one("process_open_fds", "gauge", "Open file descriptors.", &files);
    }
    if let Some(files) = process.max_files {
        one("process_max_fds", "gauge", "The limit of open file descriptors.", &files);
    }
    if let Some(started) = process.started {
        one("process_start_time_seconds", "gauge", "Start of the process, in seconds since 1970.", &started);
    }
}

fn write_histogram(text: &mut String, name: &str, help: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} histogram");
}

fn put(text: &mut String, name: &str, kind: &str, help: &str, value: &dyn Display) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
}

fn write_replication(text: &mut String, status: &ReplicationStatus) {
    let mut one = |name: &str, help: &str, value: &dyn Display| {
        put(text, &format!("foldspace_replication_{name}"), "gauge", help, value);
    };
    if let Some(seconds) = status.lag_seconds {
        one("lag_seconds", "Lag of the journal's copy in seconds.", &seconds);
    }
    one("lag_bytes", "Bytes of the journal that are not yet in its copy.", &status.lag_bytes);
    one("segment", "Last segment in the copy of the journal.", &status.segment);
    one("offset", "End of the copy in that segment, in bytes.", &status.offset);
    one("failing", "1 if the last attempt to copy the journal failed.", &u8::from(status.problem.is_some()));
}

fn write_calls(text: &mut String, calls: &[CallFigures]) {
    const NAME: &str = "foldspace_tool_call_duration_seconds";
    write_histogram(text, NAME, "Tool calls and how long they took.");
    for CallFigures { tool, status, durations } in calls {
        write_durations(text, NAME, &format!("tool=\"{tool}\",status=\"{}\"", status.word()), durations);
    }
}

fn write_containers(text: &mut String, figures: &ContainerFigures) {
    const NAME: &str = "foldspace_container_ready_seconds";
    let (starts, stops) = ("foldspace_container_starts_total", "foldspace_container_stops_total");
    let _ = writeln!(text, "# HELP {starts} Containers that started.\n# TYPE {starts} counter");
    for (start, ready) in &figures.ready {
        let _ = writeln!(text, "{starts}{{start=\"{start}\"}} {}", ready.count);
    }
    put(text, "foldspace_warm_containers", "gauge", "Containers that are ready for a session.", &figures.warm);
    let _ = writeln!(text, "# HELP {stops} Containers that stopped or vanished.\n# TYPE {stops} counter");
    for (reason, count) in &figures.stops {
        let _ = writeln!(text, "{stops}{{reason=\"{reason}\"}} {count}");
    }
    write_histogram(text, NAME, "Time until a container could run commands.");
    for (start, ready) in &figures.ready {
        write_durations(text, NAME, &format!("start=\"{start}\""), ready);
    }
}

fn write_durations(text: &mut String, name: &str, labels: &str, Durations { count, micros, within }: &Durations) {
    let comma = if labels.is_empty() { "" } else { "," };
    for (end, below) in within {
        let _ = writeln!(text, "{name}_bucket{{{labels}{comma}le=\"{}\"}} {below}", *end as f64 / 1e6);
    }
    let _ = writeln!(text, "{name}_bucket{{{labels}{comma}le=\"+Inf\"}} {count}");
    let labels = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
    let _ = writeln!(text, "{name}_sum{labels} {}\n{name}_count{labels} {count}", *micros as f64 / 1e6);
}
