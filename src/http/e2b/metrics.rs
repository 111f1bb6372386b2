//! Metrics of sandboxes: the present use of their containers.

use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::response::IntoResponse;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::connect::Wrong;
use super::sandbox::Sandbox;
use super::{Api, E2bAnswer, E2bApi};
use crate::backends::{MachineUsage, WorkspaceSpec};
use crate::engine::clock::Timestamp;
use crate::hub::blocking;

/// Interval in which the use of processors is measured.
const SPAN: Duration = Duration::from_millis(100);
/// The least distance between two of E2B's samples, in seconds.
const BUCKET: i64 = 5;

#[derive(Deserialize)]
pub(super) struct TimeRange {
    start: Option<i64>,
    end: Option<i64>,
}

/// Returns a sample of now, if the asked interval, in seconds, has it. Earlier ones are not kept.
pub(super) async fn show(State(api): Api, Path(id): Path<String>, Query(asked): Query<TimeRange>) -> E2bAnswer {
    let (sandbox, now) = (api.sandbox(&id)?, api.now());
    api.check_measured()?;
    let seconds = now.0.div_euclid(1000);
    let is_asked =
        asked.start.is_none_or(|start| start <= seconds) && asked.end.is_none_or(|end| seconds <= end + BUCKET);
    let samples = if is_asked { vec![api.sample(&sandbox, now).await] } else { Vec::new() };
    Ok(axum::Json(samples).into_response())
}

#[derive(Deserialize)]
pub(super) struct Several {
    sandbox_ids: String,
}

pub(super) async fn list(State(api): Api, Query(asked): Query<Several>) -> E2bAnswer {
    api.check_measured()?;
    let mut samples = Map::new();
    for sandbox in asked.sandbox_ids.split(',').take(100).filter_map(|id| api.table.get(id)) {
        samples.insert(sandbox.name().to_owned(), api.sample(&sandbox, api.now()).await);
    }
    Ok(axum::Json(json!({ "sandboxes": samples })).into_response())
}

impl E2bApi {
    fn check_measured(&self) -> Result<(), Wrong> {
        match &self.options.workspace {
            WorkspaceSpec::Podman(_) => Ok(()),
            _ => Err(Wrong::missing("metrics of sandboxes without containers")),
        }
    }

    /// Measures a sandbox. One whose container does not run uses nothing.
    async fn sample(&self, sandbox: &Sandbox, now: Timestamp) -> Value {
        let (cpus, memory) = match &self.options.workspace {
            WorkspaceSpec::Podman(options) => (options.cpus.ceil(), options.memory_bytes),
            _ => (1.0, 0),
        };
        let (used, share) = self.usage(sandbox).await.unwrap_or_default();
        json!({
            "timestamp": now,
            "timestampUnix": now.0.div_euclid(1000),
            "cpuCount": cpus as u32,
            "cpuUsedPct": share,
            "memUsed": used.memory_bytes,
            "memTotal": memory,
            "memCache": used.cache_bytes,
            "diskUsed": used.disk_bytes,
            "diskTotal": used.disk_total_bytes,
        })
    }

    /// Returns the resources that a sandbox uses, and its use of one processor in percent; `None` without a container.
    async fn usage(&self, sandbox: &Sandbox) -> Option<(MachineUsage, f64)> {
        let open = self.face.open(sandbox.name()).await.ok()?;
        let container = open.tool_runner().workspace().container()?;
        let measured = blocking(move || {
            let before = container.usage();
            std::thread::sleep(SPAN);
            before.zip(container.usage())
        });
        let (before, after) = measured.await.ok()??;
        Some((after, after.cpu.saturating_sub(before.cpu).as_secs_f64() / SPAN.as_secs_f64() * 100.0))
    }
}
