//! Recorded tool calls: `write_file` of 1 KiB, each a new path.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, ensure};
use foldspace::session::SnapshotPolicy;
use foldspace::store::Durability;
use foldspace::{MemoryWorkspace, NewSession, ToolCall, ToolRunner, Tools};
use serde_json::json;

use super::Size;
use crate::disk::Scratch;
use crate::journal;
use crate::sample::{Noise, median, micros, quantile};
use crate::table::{Table, against, number};

/// A session on which calls can be made.
pub struct Bench {
    tool_runner: ToolRunner,
    runtime: tokio::runtime::Runtime,
    made: u64,
    _scratch: Scratch,
}

impl Bench {
    /// Opens a store with one session.
    ///
    /// # Errors
    /// What the store says.
    pub fn open(durability: Durability) -> Result<Self> {
        let scratch = Scratch::new("calls")?;
        let sessions = journal::open(scratch.path(), durability, true, SnapshotPolicy::default())?;
        let session = sessions.create(NewSession::default())?.as_agent("agent-1");
        let tool_runner = ToolRunner::new(session, Tools::standard(), Arc::new(MemoryWorkspace))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        Ok(Self { tool_runner, runtime, made: 0, _scratch: scratch })
    }

    /// Makes so many calls, and gives how long each took.
    ///
    /// # Errors
    /// When a call fails.
    pub fn write_files(&mut self, count: u64) -> Result<Vec<std::time::Duration>> {
        let mut latencies = Vec::new();
        for _ in 0..count {
            let content = Noise::new(self.made).text(1 << 10);
            let params = json!({ "file_path": journal::path(self.made), "content": content });
            let start = Instant::now();
            let outcome = self.runtime.block_on(self.tool_runner.call(ToolCall::new("write_file", params)))?;
            latencies.push(start.elapsed());
            ensure!(outcome.is_ok(), "{}", outcome.text);
            self.made += 1;
        }
        Ok(latencies)
    }
}

/// Measures both kinds of durability in turn.
///
/// # Errors
/// When a call fails.
pub fn report(size: Size) -> Result<Vec<Table>> {
    let head = ["durability", "calls/s", "p50 us", "p99 us"];
    let mut table = Table::new("tool_calls: `write_file` of 1 KiB, one session (target: >= 10,000/s buffered)", &head);
    let mut buffered = (Bench::open(Durability::Buffered)?, Vec::new(), Vec::new(), size.of(2_000, 10_000));
    let mut synced = (Bench::open(Durability::Synced)?, Vec::new(), Vec::new(), size.of(500, 2_000));
    for round in 0..size.of(3, 6) {
        for (bench, rates, all, count) in [&mut buffered, &mut synced] {
            let latencies = bench.write_files(*count)?;
            let total: std::time::Duration = latencies.iter().sum();
            if round > 0 {
                rates.push(latencies.len() as f64 / total.as_secs_f64());
                all.extend(latencies);
            }
        }
    }
    for (name, (_, rates, mut all, _)) in [("buffered", buffered), ("synced", synced)] {
        let rate = median(&rates);
        let rate = if name == "buffered" { against(rate, 10_000.0, true) } else { number(rate) };
        let mut at = |part| number(quantile(&mut all, part).map_or(f64::NAN, micros));
        table.row([name.to_owned(), rate, at(0.5), at(0.99)]);
    }
    Ok(vec![table])
}
