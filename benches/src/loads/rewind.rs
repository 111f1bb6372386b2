//! Going back: log and files together.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use foldspace::WorkspaceSpec;
use foldspace::backends::HostOptions;
use foldspace::tools::RewindOptions;
use serde_json::json;

use super::Size;
use super::commands::options;
use super::grown::Grown;
use crate::sample::{micros, quantile};
use crate::table::{Table, against, number};

/// How many events are taken back.
const EVENTS: u64 = 100;

/// A session whose workspace has many files.
pub struct Rewinds {
    grown: Grown,
    files: u64,
    rounds: u64,
}

/// What the events are that are taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Calls that edit a file each: 25 files, with three or four events for each.
    Calls,
    /// One command that changes 98 files.
    Command,
}

impl Rewinds {
    /// Fills a workspace.
    ///
    /// # Errors
    /// When that fails.
    pub fn of(spec: WorkspaceSpec, files: u64) -> Result<Self> {
        Ok(Self { grown: Grown::of(spec, files)?, files, rounds: 0 })
    }

    /// Lets some work be done, of a hundred events, and goes back to before it.
    ///
    /// # Errors
    /// When that fails.
    pub fn once(&mut self, work: Work) -> Result<Duration> {
        self.rounds += 1;
        let head = self.grown.tool_runner.session().head()?;
        match work {
            Work::Calls => {
                while self.grown.tool_runner.session().head()? < head + EVENTS {
                    self.rounds += 1;
                    self.grown.edit(self.rounds * 7_919 % self.files)?;
                }
            }
            Work::Command => {
                let number = self.rounds % (self.files / 100);
                let (directory, text) = (format!("d{number:04}"), self.rounds);
                // All but two of a hundred.
                let text =
                    format!("for f in {directory}/f[0-8]?.txt {directory}/f9[0-7].txt; do echo {text} >$f; done");
                self.grown.call("shell_execute", json!({ "command": text }))?;
            }
        }
        let now = self.grown.tool_runner.session().head()?;
        ensure!((EVENTS..EVENTS + 10).contains(&(now - head)), "{} events", now - head);
        let start = Instant::now();
        let rewound = self.grown.block_on(self.grown.tool_runner.rewind(head, RewindOptions::default()))?;
        let took = start.elapsed();
        ensure!(rewound.changes.len() >= 20 && rewound.left.is_empty(), "{} changes", rewound.changes.len());
        Ok(took)
    }
}

/// Measures workspaces of 10,000 files.
///
/// # Errors
/// When something fails.
pub fn report(size: Size) -> Result<Vec<Table>> {
    let mut table = Table::new(
        "rewind by 100 events, workspace of 10,000 files (target, Podman: 10 ms)",
        &["workspace", "25 to 34 calls of `edit_file`: p50, p90 us", "a command that changed 98 files: p50, p90 us"],
    );
    let host = || Ok(WorkspaceSpec::Host(HostOptions::default()));
    let podman = || Ok(WorkspaceSpec::Podman(options()?));
    type Kind<'a> = (&'a str, bool, &'a dyn Fn() -> Result<WorkspaceSpec>);
    let specs: [Kind<'_>; 2] = [("Podman", true, &podman), ("host directory", false, &host)];
    for (name, is_judged, spec) in specs {
        let mut rewinds = Rewinds::of(spec()?, 10_000)?;
        let mut cells = Vec::new();
        for work in [Work::Calls, Work::Command] {
            let mut times = (0..size.of(5, 40)).map(|_| rewinds.once(work)).collect::<Result<Vec<Duration>>>()?;
            let mut at = |part| quantile(&mut times, part).map_or(f64::NAN, micros);
            let (middle, high) = (at(0.5), at(0.9));
            let judged = if is_judged { against(middle, 10_000.0, false) } else { number(middle) };
            cells.push(format!("{judged}, {}", number(high)));
        }
        let (command, calls) = (cells.pop().unwrap_or_default(), cells.pop().unwrap_or_default());
        table.row([name.to_owned(), calls, command]);
    }
    Ok(vec![table])
}
