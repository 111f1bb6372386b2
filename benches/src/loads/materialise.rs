//! The files of a past position, written into a plain directory.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use foldspace::session::SnapshotPolicy;
use foldspace::store::Durability;
use foldspace::tools::materialise;
use foldspace::{Session, Sessions, WorkspaceSpec};

use super::Size;
use super::grown::{Grown, Plain};
use crate::disk::Scratch;
use crate::journal;
use crate::sample::{micros, quantile};
use crate::table::{Table, against, number};

/// A session that went on after it had many files.
pub struct Past {
    store: PathBuf,
    at: u64,
    files: u64,
    plain: Plain,
    _scratch: Scratch,
}

impl Past {
    /// Makes the files, and then a hundred changes of them.
    ///
    /// # Errors
    /// When that fails.
    pub fn of(files: u64) -> Result<Self> {
        let mut grown = Grown::of(WorkspaceSpec::Memory, files)?;
        let at = grown.tool_runner.session().head()?;
        let plain = grown.plain()?;
        for number in 0..100 {
            grown.edit(number * 7_919 % files)?;
        }
        let scratch = Scratch::new("past")?;
        let store = scratch.path().join("store");
        // The store is held by `grown` as long as that lives; its files are what it leaves.
        let from = grown.forker.home.clone();
        grown.forker.sessions.store().sync()?;
        let status = Command::new("cp").arg("-a").args([&from, &store]).status()?;
        ensure!(status.success(), "cp: {status}");
        let past = Self { store, at, files, plain, _scratch: scratch };
        // Once to make the index anew, and to pack.
        past.open()?.0.close();
        Ok(past)
    }

    fn open(&self) -> Result<(Sessions, Session)> {
        let sessions = journal::open(&self.store, Durability::default(), true, SnapshotPolicy::default())?;
        let session = sessions.session(sessions.find("grown")?.id)?;
        Ok((sessions, session))
    }

    /// Opens the store, which knows nothing in memory then, and writes the files; the opening is not measured.
    ///
    /// # Errors
    /// When that fails.
    pub fn once(&mut self) -> Result<Duration> {
        let (sessions, session) = self.open()?;
        let to = self.plain.fresh();
        let start = Instant::now();
        let written = materialise(&session, &session.state_at(self.at)?, &to)?;
        let took = start.elapsed();
        ensure!(written.entries >= self.files && written.left.is_empty(), "{written:?}");
        drop(session);
        sessions.close();
        Ok(took)
    }

    /// The whole program; none where `FOLDSPACE_PROGRAM` does not say where it is.
    ///
    /// # Errors
    /// When it fails.
    pub fn program(&mut self) -> Result<Option<Duration>> {
        let Some(program) = std::env::var_os("FOLDSPACE_PROGRAM") else { return Ok(None) };
        let to = self.plain.fresh();
        let mut command = Command::new(&program);
        command.env("FOLDSPACE_DATA", &self.store).arg("materialise").arg("grown").arg(&to);
        command.args(["--at", &self.at.to_string()]);
        let start = Instant::now();
        let output = command.output().with_context(|| format!("{command:?}"))?;
        let took = start.elapsed();
        ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(Some(took))
    }

    /// The same files in a plain directory.
    pub fn plain(&mut self) -> &mut Plain {
        &mut self.plain
    }
}

/// Measures 10,000 files of 4 KiB; copies stay until the end, because a disk is slow after much was removed.
///
/// # Errors
/// When something fails.
pub fn report(size: Size) -> Result<Vec<Table>> {
    let mut past = Past::of(10_000)?;
    let (mut ours, mut whole, mut copies, mut trees) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..size.of(3, 9) {
        copies.push(past.plain().copy()?);
        ours.push(past.once()?);
        trees.push(past.plain().worktree()?);
        whole.extend(past.program()?);
    }
    let at = |part, times: &[Duration]| quantile(&mut times.to_vec(), part).map_or(f64::NAN, micros) / 1e3;
    let copy = at(0.5, &copies);
    let mut table = Table::new(
        "materialise: 10,000 files of 4 KiB of a past position, in a plain directory",
        &["what", "p50 ms", "p90 ms", "x `cp -a` (target: 1.5)"],
    );
    for (name, times, is_judged) in [
        ("`cp -a` of the same files", copies, false),
        ("`git worktree add` of them", trees, false),
        ("`materialise`, the store just opened", ours, true),
        ("`foldspace materialise`, the whole process", whole, true),
    ] {
        let (middle, high) = (at(0.5, &times), at(0.9, &times));
        let ratio = if is_judged { against(middle / copy, 1.5, false) } else { number(middle / copy) };
        table.row([name.to_owned(), number(middle), number(high), ratio]);
    }
    Ok(vec![table])
}
