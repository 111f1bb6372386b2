//! Forks of a session with the files of its workspace, until the child's first command has ended.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use foldspace::backends::WarmContainers;
use foldspace::event::Isolation;
use foldspace::{ForkOptions, WorkspaceSpec};
use serde_json::json;

use super::Size;
use super::commands::{Theirs, options};
use super::grown::{Grown, Plain};
use crate::sample::{micros, quantile};
use crate::table::{Table, against, number};

/// How long containers may take to be made.
const WARM_UP_LIMIT: Duration = Duration::from_secs(60);

/// A session whose workspace has many files, containers for its children, and a plain copy of the files.
pub struct Forks {
    parent: Grown,
    warm: Option<WarmContainers>,
    plain: Plain,
    rounds: u64,
}

/// How long a fork took.
#[derive(Debug, Clone, Copy)]
pub struct Took {
    /// Until the child was there, log and files.
    pub begun: Duration,
    /// Until a command could run in its container.
    pub ready: Duration,
    /// Until its first call, `/bin/true`, was recorded.
    pub ran: Duration,
}

impl Forks {
    /// Fills a workspace and starts its container; a child finds one that is warm, or none.
    ///
    /// # Errors
    /// Without an engine.
    pub fn of(files: u64, is_warm: bool) -> Result<Self> {
        let options = options()?;
        let warm = if is_warm { Some(WarmContainers::keep(&options, 1)?) } else { None };
        let parent = Grown::of(WorkspaceSpec::Podman(options), files)?;
        let plain = parent.plain()?;
        Ok(Self { parent, warm, plain, rounds: 0 })
    }

    /// Changes a file of the parent by a command, forks it, and runs `/bin/true` in the child. What is made for it
    /// is removed afterwards, and not measured.
    ///
    /// # Errors
    /// When something fails.
    pub fn once(&mut self) -> Result<Took> {
        self.rounds += 1;
        let text = format!("echo {} > d0001/f01.txt", self.rounds);
        self.parent.call("shell_execute", json!({ "command": text }))?;
        if let Some(warm) = &self.warm {
            warm.wait(WARM_UP_LIMIT)?;
        }
        // What was removed before is still being taken off the disk.
        std::thread::sleep(Duration::from_millis(200));
        let start = Instant::now();
        let new = ForkOptions::new(Isolation::Fork);
        let child = self.parent.block_on(self.parent.forker.start(&self.parent.tool_runner, new))?;
        let begun = start.elapsed();
        child.workspace().container().context("a sandbox has a container")?.start()?;
        let ready = start.elapsed();
        self.parent.call_of(&child, "shell_execute", json!({ "command": ["/bin/true"] }))?;
        let ran = start.elapsed();
        self.parent.remove(child)?;
        Ok(Took { begun, ready, ran })
    }

    /// The same files in a plain directory.
    pub fn plain(&mut self) -> &mut Plain {
        &mut self.plain
    }
}

/// Measures a fork of 10,000 files with and without warm containers, beside `cp -a`, `git worktree add` and
/// `podman run`.
///
/// # Errors
/// When something fails.
pub fn report(size: Size) -> Result<Vec<Table>> {
    let mut table = Table::new(
        "fork of a session with a Podman workspace of 10,000 files (target: ready to run in a warm container 5 ms)",
        &["what", "begun, p50 us", "ready, p50 us", "ready, p90 us", "first call recorded, p50 us"],
    );
    let at = |part, times: &[Duration]| quantile(&mut times.to_vec(), part).map_or(f64::NAN, micros);
    let nothing = || "-".to_owned();
    for (name, is_warm, rounds) in
        [("fork, warm container", true, size.of(10, 60)), ("fork, new container", false, size.of(3, 15))]
    {
        let mut forks = Forks::of(10_000, is_warm)?;
        let took = (0..rounds).map(|_| forks.once()).collect::<Result<Vec<Took>>>()?;
        let of = |which: fn(&Took) -> Duration| took.iter().map(which).collect::<Vec<_>>();
        let (begun, ready, ran) = (of(|took| took.begun), of(|took| took.ready), of(|took| took.ran));
        let middle = at(0.5, &ready);
        let judged = if is_warm { against(middle, 5_000.0, false) } else { number(middle) };
        table.row([name.to_owned(), number(at(0.5, &begun)), judged, number(at(0.9, &ready)), number(at(0.5, &ran))]);
        if !is_warm {
            let (mut copies, mut trees) = (Vec::new(), Vec::new());
            for _ in 0..size.of(2, 7) {
                copies.push(forks.plain().copy()?);
                trees.push(forks.plain().worktree()?);
            }
            for (name, times) in [("`cp -a` of the files", copies), ("`git worktree add` of them", trees)] {
                table.row([name.to_owned(), number(at(0.5, &times)), nothing(), nothing(), nothing()]);
            }
        }
    }
    let theirs = Theirs::start()?;
    let runs = (0..size.of(3, 15)).map(|_| theirs.run()).collect::<Result<Vec<_>>>()?;
    table.row(["`podman run`, no files".to_owned(), nothing(), nothing(), nothing(), number(at(0.5, &runs))]);
    Ok(vec![table])
}
