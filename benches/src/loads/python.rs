//! `evaluate_python` in process, beside the writes that record it.

use std::time::Instant;

use anyhow::{Result, ensure};
use foldspace::backends::PythonEvaluator;
use foldspace::session::SnapshotPolicy;
use foldspace::store::Durability;
use foldspace::{MemoryWorkspace, NewSession, ToolCall, ToolRunner, Tools};
use serde_json::json;

use super::Size;
use crate::disk::{Bare, Scratch};
use crate::journal;
use crate::sample::{micros, quantile};
use crate::served::program;
use crate::table::{Table, against, number};

/// Bytes of the two commits of a call.
const COMMITS: [usize; 2] = [100, 740];
const P50_MS: f64 = 2.0;

/// Measures `1 + 1`, acknowledged when it is on the disk.
///
/// # Errors
/// When something fails.
pub fn report(size: Size) -> Result<Vec<Table>> {
    PythonEvaluator::set_program(program()?.with_file_name("foldspace-evaluator"));
    let scratch = Scratch::new("python")?;
    let sessions = journal::open(&scratch.path().join("data"), Durability::default(), true, SnapshotPolicy::default())?;
    let session = sessions.create(NewSession::default())?.as_agent("agent-1");
    let tool_runner = ToolRunner::new(session, Tools::standard(), std::sync::Arc::new(MemoryWorkspace))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let mut bare = Bare::new(scratch.path())?;
    let call = || -> Result<f64> {
        let start = Instant::now();
        let call = ToolCall::new("evaluate_python", json!({ "code": "1 + 1" }));
        let outcome = runtime.block_on(tool_runner.call(call))?;
        let took = start.elapsed();
        ensure!(outcome.result["value_repr"] == "2", "{}", outcome.text);
        Ok(micros(took))
    };
    let first = call()?;
    let (mut calls, mut limit) = (Vec::new(), Vec::new());
    for _ in 0..size.of(200, 5000) {
        calls.push(call()?.to_bits());
        let mut took = 0.0;
        for bytes in COMMITS {
            took += micros(bare.write(&vec![7; bytes])?);
        }
        limit.push(took.to_bits());
    }
    let of = |values: &mut Vec<u64>, part| quantile(values, part).map_or(f64::NAN, f64::from_bits) / 1e3;
    let (p50, p99, least) = (of(&mut calls, 0.5), of(&mut calls, 0.99), of(&mut limit, 0.5));
    let mut table = Table::new("`evaluate_python` of `1 + 1` in process, recorded", &["what", "ms"]);
    table.row(["p50".to_owned(), against(p50, P50_MS, false)]);
    table.row(["p99".to_owned(), number(p99)]);
    table.row(["the first one, which starts the process".to_owned(), number(first / 1e3)]);
    table.row(["write + fdatasync of its two commits (the limit), p50".to_owned(), number(least)]);
    table.row(["p50 by the limit".to_owned(), number(p50 / least)]);
    Ok(vec![table])
}
