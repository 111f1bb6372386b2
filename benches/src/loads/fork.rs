//! Forking the files of a workspace, until the child's first command has ended.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use foldspace::{
    Clock, HostOptions, HostWorkspace, PodmanOptions, PodmanSandbox, SessionId, ShellCommand, SystemClock,
    WarmContainers, Workspace,
};

use super::Size;
use super::capture::fill;
use super::commands::{Theirs, options};
use crate::disk::Scratch;
use crate::sample::{micros, quantile};
use crate::table::{Table, against, number};

/// How long containers may take to be made.
const PATIENCE: Duration = Duration::from_secs(60);

/// A workspace with many files, containers for its children, and a plain copy of the files.
pub struct Forks {
    parent: Option<PodmanSandbox>,
    options: PodmanOptions,
    warm: Option<WarmContainers>,
    runtime: tokio::runtime::Runtime,
    scratch: Scratch,
    rounds: u64,
}

/// How long a fork took.
#[derive(Debug, Clone, Copy)]
pub struct Took {
    /// Until a command could run.
    pub ready: Duration,
    /// Until its first command, `/bin/true`, had ended.
    pub ran: Duration,
}

impl Forks {
    /// Fills a workspace and starts its container; a child finds one that is warm, or none.
    ///
    /// # Errors
    /// Without an engine, or where no overlay can be mounted.
    pub fn of(files: u64, is_warm: bool) -> Result<Self> {
        let scratch = Scratch::new("fork")?;
        let options = options()?;
        let warm = if is_warm { Some(WarmContainers::keep(&options, 1)?) } else { None };
        let parent = Some(PodmanSandbox::open(fresh(), &options)?);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let forks = Self { parent, options, warm, runtime, scratch, rounds: 0 };
        fill(forks.parent()?, files)?;
        forks.parent()?.filled()?;
        let copied = HostWorkspace::open(&forks.scratch.path().join("files"), &HostOptions::default())?;
        fill(&copied, files)?;
        forks.run(forks.parent()?, "true")?;
        Ok(forks)
    }

    fn parent(&self) -> Result<&PodmanSandbox> {
        self.parent.as_ref().context("the parent is there until the end")
    }

    fn run(&self, sandbox: &PodmanSandbox, text: &str) -> Result<()> {
        let shell = sandbox.shell().context("a sandbox has a shell")?;
        let running = shell.execute(ShellCommand::shell(text), foldspace::unwatched(), Default::default());
        let result = self.runtime.block_on(running)?;
        ensure!(result.success(), "{result:?}");
        Ok(())
    }

    /// Changes a file of the parent, forks it, and runs `/bin/true` in the child. What is made for it is removed
    /// afterwards, and not measured.
    ///
    /// # Errors
    /// When something fails.
    pub fn once(&mut self) -> Result<Took> {
        self.rounds += 1;
        let parent = self.parent()?;
        self.run(parent, &format!("echo {} > d0001/f01.txt", self.rounds))?;
        let capture = parent.capture().context("an overlay is looked at")?;
        capture.touched()?;
        capture.settle()?;
        if let Some(warm) = &self.warm {
            warm.wait(PATIENCE)?;
        }
        // What was removed before is still being taken off the disk.
        std::thread::sleep(Duration::from_millis(200));
        let child = fresh();
        let start = Instant::now();
        ensure!(parent.fork_to(child)?, "no overlay can be mounted here; `foldspace doctor` says why");
        let child = PodmanSandbox::open(child, &self.options)?;
        child.capture().context("an overlay is looked at")?.touched()?;
        child.container().context("a sandbox has a container")?.start()?;
        let ready = start.elapsed();
        self.run(&child, "true")?;
        let ran = start.elapsed();
        child.close();
        child.remove_files()?;
        Ok(Took { ready, ran })
    }

    /// `cp -a` of the same files.
    ///
    /// # Errors
    /// When it fails.
    pub fn copy(&self) -> Result<Duration> {
        let (from, to) = (self.scratch.path().join("files"), self.scratch.path().join("copy"));
        let start = Instant::now();
        let status = Command::new("cp").arg("-a").args([&from, &to]).stdin(Stdio::null()).status()?;
        let took = start.elapsed();
        ensure!(status.success(), "cp: {status}");
        std::fs::remove_dir_all(to)?;
        Ok(took)
    }
}

impl Drop for Forks {
    fn drop(&mut self) {
        if let Some(parent) = self.parent.take() {
            parent.close();
            drop(parent.remove_files());
        }
    }
}

fn fresh() -> SessionId {
    SessionId::from_bytes(SystemClock::default().fresh_id())
}

/// Measures a fork of 10,000 files with and without warm containers, beside `cp -a` of them and `podman run`.
///
/// # Errors
/// When something fails.
pub fn report(size: Size) -> Result<Vec<Table>> {
    let mut table = Table::new(
        "fork of a Podman workspace of 10,000 files (target: ready to run a command in a warm container 5 ms)",
        &["what", "ready, p50 us", "first command ended, p50 us"],
    );
    let middle = |mut times: Vec<Duration>| quantile(&mut times, 0.5).map_or(f64::NAN, micros);
    for (name, is_warm, rounds) in
        [("fork, warm container", true, size.of(10, 60)), ("fork, new container", false, size.of(3, 15))]
    {
        let mut forks = Forks::of(10_000, is_warm)?;
        let took = (0..rounds).map(|_| forks.once()).collect::<Result<Vec<Took>>>()?;
        let ready = middle(took.iter().map(|took| took.ready).collect());
        let ran = middle(took.iter().map(|took| took.ran).collect());
        let ready = if is_warm { against(ready, 5_000.0, false) } else { number(ready) };
        table.row([name.to_owned(), ready, number(ran)]);
        if !is_warm {
            let copies = (0..size.of(2, 7)).map(|_| forks.copy()).collect::<Result<Vec<_>>>()?;
            table.row(["`cp -a` of the files".to_owned(), number(middle(copies)), "-".to_owned()]);
        }
    }
    let theirs = Theirs::start()?;
    let runs = (0..size.of(3, 15)).map(|_| theirs.run()).collect::<Result<Vec<_>>>()?;
    table.row(["`podman run`".to_owned(), "-".to_owned(), number(middle(runs))]);
    Ok(vec![table])
}
