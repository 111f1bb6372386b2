//! Forks of a session's log and state, however long it is, and what they take of memory and disk.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use foldspace::event::Isolation;
use foldspace::session::SnapshotPolicy;
use foldspace::store::Durability;
use foldspace::{ForkOptions, Session, Sessions, ToolRunner, WorkspaceSpec};

use super::Size;
use super::commands::options;
use super::grown::Grown;
use crate::disk::{Bare, Scratch};
use crate::journal::{self, Plan, Shape};
use crate::sample::{micros, quantile};
use crate::table::{Table, against, number};

/// Names the store in which a process of its own makes forks.
pub const CHILD: &str = "FOLDSPACE_BENCH_CHILDREN";
/// Bytes of a fork's two commits in the journal, about.
const COMMITS: usize = 700;

/// A session to be forked, in a store that has just been opened.
pub struct Parent {
    sessions: Sessions,
    session: Session,
    bare: Bare,
    _scratch: Scratch,
}

impl Parent {
    /// Writes a session of so many events.
    ///
    /// # Errors
    /// What the store says.
    pub fn of(events: u64, durability: Durability) -> Result<Self> {
        let scratch = Scratch::new("children")?;
        let store = scratch.path().join("store");
        write(&store, events)?;
        let sessions = journal::open(&store, durability, true, SnapshotPolicy::default())?;
        let session = sessions.session(sessions.find("parent")?.id)?;
        let bare = Bare::new(scratch.path())?;
        Ok(Self { sessions, session, bare, _scratch: scratch })
    }

    /// Forks it at its end.
    ///
    /// # Errors
    /// What the store says.
    pub fn fork(&self) -> Result<Duration> {
        let start = Instant::now();
        let child = self.sessions.child_of(&self.session, ForkOptions::new(Isolation::Fork))?;
        let took = start.elapsed();
        drop(child);
        Ok(took)
    }

    /// The same, and the child's state.
    ///
    /// # Errors
    /// What the store says.
    pub fn fork_and_look(&self) -> Result<Duration> {
        let start = Instant::now();
        let child = self.sessions.child_of(&self.session, ForkOptions::new(Isolation::Fork))?;
        let state = child.state()?;
        let took = start.elapsed();
        ensure!(state.seq() == child.head()?, "another position");
        Ok(took)
    }

    /// Makes the parent's state known, as it is where calls are made in it.
    ///
    /// # Errors
    /// What the store says.
    pub fn know(&self) -> Result<()> {
        self.session.state()?;
        Ok(())
    }

    /// As many bytes into a bare preallocated file, and one fdatasync.
    ///
    /// # Errors
    /// What the disk says.
    pub fn bare(&mut self) -> Result<Duration> {
        self.bare.write(&[7; COMMITS])
    }
}

fn write(store: &Path, events: u64) -> Result<()> {
    let sessions = journal::open(store, Durability::Buffered, true, SnapshotPolicy::default())?;
    let plan = Plan { shape: Shape::Calls, events, paths: (events / 10).clamp(10, 10_000) };
    drop(journal::write(&sessions, "parent", plan)?);
    sessions.close();
    Ok(())
}

/// Measures how long forks take, and what a thousand take of memory and disk.
///
/// # Errors
/// When something fails.
pub fn report(size: Size) -> Result<Vec<Table>> {
    let mut tables = vec![times(size)?, memory(size)?];
    if options().is_ok() {
        tables.push(overlays(size)?);
    }
    Ok(tables)
}

fn times(size: Size) -> Result<Table> {
    let mut table = Table::new(
        "fork of log and state (target: 200 us)",
        &[
            "session, durability",
            "p50 us",
            "p90 us",
            "with the child's state: p50 us",
            "bare write + fdatasync: p50, p90 us",
        ],
    );
    for (name, durability) in [("synced", Durability::Synced), ("buffered", Durability::Buffered)] {
        for events in [1_000, size.of(100_000, 1_000_000)] {
            let mut parent = Parent::of(events, durability)?;
            parent.know()?;
            let (mut forks, mut looks, mut bare) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..size.of(100, 1_000) {
                bare.push(parent.bare()?);
                forks.push(parent.fork()?);
                looks.push(parent.fork_and_look()?);
            }
            let at = |part, times: &mut Vec<Duration>| quantile(times, part).map_or(f64::NAN, micros);
            let limit = format!("{}, {}", number(at(0.5, &mut bare)), number(at(0.9, &mut bare)));
            table.row([
                format!("{} events, {name}", number(events as f64)),
                against(at(0.5, &mut forks), 200.0, false),
                number(at(0.9, &mut forks)),
                number(at(0.5, &mut looks)),
                limit,
            ]);
        }
    }
    Ok(table)
}

/// Bytes of memory that this process has, and that are its own.
fn resident() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).context("no RssAnon")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? << 10)
}

/// Bytes on the disk, of directories, too, as `du` counts them: a file with several names once.
fn taken(directory: &Path) -> Result<u64> {
    fn below(directory: &Path, seen: &mut BTreeSet<(u64, u64)>) -> Result<u64> {
        let mut total = 0;
        for entry in std::fs::read_dir(directory)? {
            let entry = entry?;
            let found = entry.metadata()?;
            if seen.insert((found.dev(), found.ino())) {
                total += found.blocks() * 512;
            }
            if found.is_dir() {
                total += below(&entry.path(), seen)?;
            }
        }
        Ok(total)
    }
    below(directory, &mut BTreeSet::new())
}

/// The part of a process of its own: makes so many forks, keeps them, and prints the bytes of memory of each, and how
/// many there were.
///
/// # Errors
/// What the store says.
pub fn child(store: &Path) -> Result<String> {
    let sessions = journal::open(store, Durability::Synced, true, SnapshotPolicy::default())?;
    let parent = sessions.session(sessions.find("parent")?.id)?;
    parent.state()?;
    let fork = || sessions.child_of(&parent, ForkOptions::new(Isolation::Fork));
    // What the first ones need, the others find.
    let first = (0..50).map(|_| fork()).collect::<Result<Vec<_>, _>>()?;
    let before = resident()?;
    let others = (0..1_000).map(|_| fork()).collect::<Result<Vec<_>, _>>()?;
    let after = resident()?;
    others.iter().try_for_each(|child| child.state().map(drop))?;
    let looked = resident()?;
    drop((first, others));
    sessions.close();
    let each = |bytes: u64| bytes.saturating_sub(before) as f64 / 1_000.0;
    Ok(format!("{} {}", each(after), each(looked)))
}

fn memory(size: Size) -> Result<Table> {
    let mut table = Table::new(
        "1,000 forks of one session, kept open in memory (target: 20 KiB each)",
        &["session", "memory, KiB each", "when the state of each was asked for", "disk, KiB each"],
    );
    for events in [1_000, size.of(100_000, 1_000_000)] {
        let scratch = Scratch::new("children")?;
        write(scratch.path(), events)?;
        let before = taken(scratch.path())?;
        let made = std::process::Command::new(std::env::current_exe()?).env(CHILD, scratch.path()).output()?;
        ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let line = String::from_utf8(made.stdout)?;
        let figures = line.split_whitespace().map(str::parse).collect::<Result<Vec<f64>, _>>()?;
        let [forked, looked] = figures[..] else { anyhow::bail!("{line}") };
        let disk = taken(scratch.path())?.saturating_sub(before) as f64 / 1_050.0;
        table.row([
            format!("{} events", number(events as f64)),
            against(forked / 1024.0, 20.0, false),
            number(looked / 1024.0),
            against(disk / 1024.0, 20.0, false),
        ]);
    }
    Ok(table)
}

/// Forks with a workspace each. What the engine keeps of containers is not there yet: none is started.
fn overlays(size: Size) -> Result<Table> {
    let mut table = Table::new(
        "forks of a session with a workspace of 10,000 files, each opened, before its first write (target: 20 KiB each)",
        &["workspace", "forks", "time, ms each", "memory, KiB each", "store, KiB each", "workspaces, KiB each"],
    );
    let cache = std::env::var("FOLDSPACE_CACHE").context("FOLDSPACE_CACHE must be set for this load")?;
    let specs = [("Podman, overlay", WorkspaceSpec::Podman(options()?)), ("memory", WorkspaceSpec::Memory)];
    for (name, spec) in specs {
        let is_podman = matches!(spec, WorkspaceSpec::Podman(_));
        let parent = Grown::of(spec, 10_000)?;
        let new = || ForkOptions::new(Isolation::Fork);
        let fork = || parent.block_on(parent.forker.start(&parent.tool_runner, new()));
        let mut children: Vec<ToolRunner> = (0..10).map(|_| fork()).collect::<Result<_, _>>()?;
        let count = size.of(100, 1_000);
        let places = || -> Result<(u64, u64)> {
            parent.forker.sessions.store().sync()?;
            let files = if is_podman { taken(Path::new(&cache))? } else { 0 };
            Ok((taken(&parent.forker.home)?, files))
        };
        let (memory, (store, files), start) = (resident()?, places()?, Instant::now());
        for _ in 0..count {
            children.push(fork()?);
        }
        let took = start.elapsed();
        let (memory_now, (store_now, files_now)) = (resident()?, places()?);
        let kib = |now: u64, before: u64| now.saturating_sub(before) as f64 / 1024.0 / count as f64;
        table.row([
            name.to_owned(),
            count.to_string(),
            number(took.as_secs_f64() * 1e3 / count as f64),
            against(kib(memory_now, memory), 20.0, false),
            number(kib(store_now, store)),
            if is_podman { against(kib(files_now, files), 20.0, false) } else { "-".to_owned() },
        ]);
        children.into_iter().try_for_each(|child| parent.remove(child))?;
    }
    Ok(table)
}
