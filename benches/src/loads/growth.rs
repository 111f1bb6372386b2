//! How much disk a recorded call takes, early and late in a session.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, ensure};
use foldspace::session::SnapshotPolicy;
use foldspace::store::Durability;
use foldspace::{MemoryWorkspace, NewSession, Sessions, ToolCall, ToolRunner, Tools};
use serde_json::{Value, json};

use super::Size;
use crate::disk::{Scratch, bytes_below};
use crate::journal;
use crate::sample::Noise;
use crate::table::{Table, number};

/// Bytes of a new file.
const FILE_BYTES: usize = 2 << 10;

/// Makes calls: one in ten creates a file, the others replace a line of one.
struct Agent {
    noise: Noise,
    files: Vec<String>,
}

impl Agent {
    fn next(&mut self) -> (&'static str, Value) {
        if self.files.is_empty() || self.noise.below(10) == 0 {
            let text = self.noise.text(FILE_BYTES);
            self.files.push(text.clone());
            let params = json!({ "file_path": journal::path(self.files.len() as u64 - 1), "content": text });
            return ("write_file", params);
        }
        // Work stays with the latest files.
        let back = self.noise.below(50.min(self.files.len() as u64)) as usize;
        let at = self.files.len() - 1 - back;
        let lines: Vec<&str> = self.files[at].lines().collect();
        let old = lines[self.noise.below(lines.len() as u64 - 1) as usize].to_owned();
        let new = self.noise.text(old.len().max(16)).replace('\n', " ");
        self.files[at] = self.files[at].replacen(&old, &new, 1);
        let params = json!({ "file_path": journal::path(at as u64), "old_string": old, "new_string": new });
        ("edit_file", params)
    }
}

/// Makes calls in the session until there are so many, beside a log with a line of JSON per call.
fn make_calls(sessions: &Sessions, agent: &mut Agent, lines: &mut impl Write, count: u64) -> Result<()> {
    let session = sessions.session(sessions.find("growing")?.id)?;
    let tool_runner = ToolRunner::new(session, Tools::standard(), Arc::new(MemoryWorkspace))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    for _ in 0..count {
        let (tool, params) = agent.next();
        let outcome = runtime.block_on(tool_runner.call(ToolCall::new(tool, params.clone())))?;
        ensure!(outcome.is_ok(), "{}", outcome.text);
        let line = json!({
            "call": outcome.call, "tool": tool, "params": params, "status": outcome.status, "result": outcome.result,
            "micros": outcome.micros, "time": tool_runner.session().now(), "agent": "agent-1",
        });
        serde_json::to_writer(&mut *lines, &line)?;
        lines.write_all(b"\n")?;
    }
    Ok(())
}

fn open(directory: &Path) -> Result<Sessions> {
    journal::open(directory, Durability::Buffered, true, SnapshotPolicy::default())
}

/// Measures one session as it grows; it is closed for each look at the disk.
///
/// # Errors
/// When a call fails.
pub fn report(size: Size) -> Result<Vec<Table>> {
    let scratch = Scratch::new("growth")?;
    let store = scratch.path().join("store");
    let log = scratch.path().join("calls.jsonl");
    let mut lines = std::io::BufWriter::new(std::fs::File::create(&log)?);
    let mut agent = Agent { noise: Noise::new(1), files: Vec::new() };
    let sessions = open(&store)?;
    sessions.create(NewSession::named("growing"))?;
    sessions.close();
    let head = ["calls", "store bytes", "bytes a call", "journal", "index", "JSON lines, bytes a call"];
    let mut table = Table::new("growth: one session, 9 of 10 calls edit a 2 KiB file, 1 creates one", &head);
    let mut made = 0;
    for calls in [1_000, 10_000, 100_000].into_iter().take(size.of(2, 3)) {
        let sessions = open(&store)?;
        make_calls(&sessions, &mut agent, &mut lines, calls - made)?;
        made = calls;
        sessions.close();
        lines.flush()?;
        let (all, plain) = (bytes_below(&store)?, std::fs::metadata(&log)?.len());
        let a_call = |bytes: u64| number(bytes as f64 / calls as f64);
        let (journal, index) = (bytes_below(&store.join("journal"))?, bytes_below(&store.join("index"))?);
        table.row([
            number(calls as f64),
            number(all as f64),
            a_call(all),
            a_call(journal),
            a_call(index),
            a_call(plain),
        ]);
    }
    Ok(vec![table])
}
