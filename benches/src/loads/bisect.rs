//! The search for the first bad change, beside nothing but its command.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use foldspace::WorkspaceSpec;
use foldspace::backends::{HostOptions, ShellCommand};
use foldspace::tools::{BisectReport, Bisection, CommandPolicy, ShellRules, bisect, first_position};
use serde_json::json;

use super::Size;
use super::grown::Grown;
use crate::sample::median;
use crate::table::{Table, against, number};

/// What is run at each position.
const COMMAND: &str = "sleep 0.2; [ ! -e bad ]";

/// A session in which something went wrong.
pub struct Search {
    grown: Grown,
    bisection: Bisection,
    runtime: tokio::runtime::Runtime,
}

impl Search {
    /// Makes files, then changes of them, one of which is bad.
    ///
    /// # Errors
    /// When that fails.
    pub fn of(files: u64, changes: u64) -> Result<Self> {
        let mut grown = Grown::of(WorkspaceSpec::Memory, files)?;
        let good = if files == 0 {
            first_position(grown.tool_runner.session())?
        } else {
            grown.tool_runner.session().head()?
        };
        for number in 1..=changes {
            match (number == changes * 7 / 10, files) {
                (true, _) => grown.call("write_file", json!({ "file_path": "bad", "content": "" }))?,
                (false, 0) => grown.write(number)?,
                (false, _) => grown.edit(number * 7_919 % files)?,
            }
        }
        let session = grown.tool_runner.session().clone();
        let bisection = Bisection {
            bad: session.head()?,
            session,
            spec: WorkspaceSpec::Host(HostOptions::default()),
            home: grown.directory().to_owned(),
            command: ShellCommand::shell(COMMAND),
            rules: ShellRules {
                policy: CommandPolicy { auto_confirm: true, ..CommandPolicy::default() },
                ..ShellRules::default()
            },
            good,
            jobs: 1,
        };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        Ok(Self { grown, bisection, runtime })
    }

    /// Searches.
    ///
    /// # Errors
    /// When that fails.
    pub fn once(&self) -> Result<(Duration, BisectReport)> {
        // A state in memory would be one that the program has not.
        self.grown.tool_runner.session().forget_states();
        let start = Instant::now();
        let report = self.runtime.block_on(bisect(&self.bisection, &|_| (), &Default::default()))?;
        Ok((start.elapsed(), report))
    }

    /// Runs the command by itself.
    ///
    /// # Errors
    /// When it fails.
    pub fn command(&self) -> Result<Duration> {
        let start = Instant::now();
        let mut command = Command::new("/bin/sh");
        let status = command.args(["-c", COMMAND]).stdin(Stdio::null()).status()?;
        ensure!(status.success(), "{status}");
        Ok(start.elapsed())
    }
}

/// Measures searches among 1,000 changes.
///
/// # Errors
/// When something fails.
pub fn report(size: Size) -> Result<Vec<Table>> {
    let mut table = Table::new(
        "bisect of a session on a host directory, a command of 0.2 s (targets: 10 probes; 10 % over the commands)",
        &["session", "probes", "and of the ends", "the command by itself, ms", "all, s", "x runs of the command"],
    );
    for (name, files, changes) in [
        ("1,000 events (333 changes)", 0, 333),
        ("1,000 changes (3,000 events)", 0, 1_000),
        ("1,000 changes after 10,000 files", 10_000, 1_000),
    ] {
        let search = Search::of(files, changes)?;
        let (mut all, mut alone, mut counts) = (Vec::new(), Vec::new(), (0, 0));
        for _ in 0..size.of(1, 5) {
            for _ in 0..3 {
                alone.push(search.command()?.as_secs_f64());
            }
            let (took, report) = search.once()?;
            counts = (report.probes.len(), report.checks.len());
            ensure!(report.found.bad.len() == 1, "{:?}", report.found);
            all.push(took.as_secs_f64());
        }
        let (all, alone) = (median(&all), median(&alone));
        table.row([
            name.to_owned(),
            against(counts.0 as f64, 10.0, false),
            counts.1.to_string(),
            number(alone * 1e3),
            number(all),
            against(all / alone / (counts.0 + counts.1) as f64, 1.1, false),
        ]);
    }
    Ok(vec![table])
}
