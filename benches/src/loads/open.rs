//! Opening a store of many sessions in a process of its own, and what memory that takes.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use foldspace::session::SnapshotPolicy;
use foldspace::store::Durability;

use super::Size;
use crate::disk::Scratch;
use crate::journal::{self, Plan, Shape};
use crate::sample::median;
use crate::table::{Table, against, number};

/// Names the store that a child process opens.
pub const CHILD: &str = "FOLDSPACE_BENCH_OPEN";

const SESSIONS: u64 = 136;

/// The child's part: opens the store, finds a session, folds its state; prints milliseconds of each,
/// and KiB of memory at most.
///
/// # Errors
/// What the store says.
pub fn child(directory: &Path) -> Result<String> {
    let start = Instant::now();
    let sessions = journal::open(directory, Durability::Synced, true, SnapshotPolicy::default())?;
    let opened = start.elapsed();
    let session = sessions.session(sessions.find("session-77")?.id)?;
    let found = start.elapsed();
    let state = session.state()?;
    let all = start.elapsed();
    ensure!(state.seq() > 1, "the state is empty");
    let status = std::fs::read_to_string("/proc/self/status")?;
    let memory = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
    let memory = memory.trim().trim_end_matches(" kB");
    let ms = |time: std::time::Duration| time.as_secs_f64() * 1e3;
    Ok(format!("{} {} {} {memory}", ms(opened), ms(found), ms(all)))
}

/// Measures by child processes.
///
/// # Errors
/// What a store or a child says.
pub fn report(size: Size) -> Result<Vec<Table>> {
    let scratch = Scratch::new("open")?;
    let sessions = journal::open(scratch.path(), Durability::Buffered, true, SnapshotPolicy::default())?;
    let mut events = 0;
    for number in 0..SESSIONS {
        let plan = Plan { shape: Shape::Calls, events: 55_000 / SESSIONS, paths: 40 };
        events += journal::write(&sessions, &format!("session-{number}"), plan)?.head()?;
    }
    sessions.close();
    let mut figures: [Vec<f64>; 4] = Default::default();
    for _ in 0..size.of(3, 11) {
        let child = std::process::Command::new(std::env::current_exe()?).env(CHILD, scratch.path()).output()?;
        ensure!(child.status.success(), "{}", String::from_utf8_lossy(&child.stderr));
        let line = String::from_utf8(child.stdout)?;
        for (figure, text) in figures.iter_mut().zip(line.split_whitespace()) {
            figure.push(text.parse()?);
        }
    }
    let [opened, found, all, memory] = figures.map(|figure| median(&figure));
    let title =
        format!("open: a store of {SESSIONS} sessions with {events} events, closed cleanly; in a process of its own");
    let head =
        ["open ms", "+ find ms", "+ state ms, all together (target <= 100)", "memory MiB at most (target <= 50)"];
    let mut table = Table::new(title, &head);
    table.row([
        number(opened),
        number(found - opened),
        against(all, 100.0, false),
        against(memory / 1024.0, 50.0, false),
    ]);
    Ok(vec![table])
}
