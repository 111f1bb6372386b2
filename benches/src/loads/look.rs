//! Commands that look, and the start of an owner, on large stores: whole processes.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use foldspace::session::SnapshotPolicy;
use foldspace::store::Durability;

use super::Size;
use crate::disk::Scratch;
use crate::journal::{self, Plan, Shape};
use crate::sample::median;
use crate::served::program;
use crate::table::{Table, against, number};

/// Names the store into which a child process writes until it is killed.
pub const CHILD: &str = "FOLDSPACE_BENCH_LOOK";
const WRITTEN: u64 = 20_000;
/// Lines of a first page.
const PAGE: usize = 40;

/// The child's part: records a session, says so, and waits for its end.
///
/// # Errors
/// What the store says.
pub fn child(directory: &Path) -> Result<std::convert::Infallible> {
    let sessions = journal::open(directory, Durability::Synced, true, SnapshotPolicy::default())?;
    let name = format!("killed-{}", std::process::id());
    journal::write(&sessions, &name, Plan { shape: Shape::Calls, events: WRITTEN, paths: 100 })?;
    sessions.store().sync()?;
    rustix::stdio::dup2_stdout(std::fs::File::open("/dev/null")?)?;
    loop {
        std::thread::park();
    }
}

/// A store, and the program that looks at it.
struct Place {
    program: PathBuf,
    scratch: Scratch,
    runs: usize,
}

impl Place {
    fn new(size: Size, sessions: u64, plan: Plan) -> Result<Self> {
        let scratch = Scratch::new("look")?;
        let opened = journal::open(scratch.path(), Durability::Buffered, true, SnapshotPolicy::default())?;
        for number in 0..sessions {
            drop(journal::write(&opened, &format!("session-{number}"), plan)?);
        }
        opened.close();
        Ok(Self { program: program()?, scratch, runs: size.of(3, 21) })
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("--data").arg(self.scratch.path()).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        command
    }

    /// Milliseconds until that many lines are read, or all.
    fn lines(&self, arguments: &[&str], most: usize) -> Result<f64> {
        let once = || {
            let start = Instant::now();
            let mut child = self.command(arguments).spawn()?;
            let lines = BufReader::new(child.stdout.take().context("no output")?).lines();
            let count = lines.take(most).collect::<Result<Vec<_>, _>>()?.len();
            child.wait()?;
            ensure!(count > 0, "{arguments:?} shows nothing");
            Ok(millis(start.elapsed()))
        };
        Ok(median(&(0..self.runs).map(|_| once()).collect::<Result<Vec<_>>>()?))
    }

    /// Starts an owner, as the first command does that acts; returns it with the milliseconds until it serves.
    fn owner(&self) -> Result<(Child, f64)> {
        let start = Instant::now();
        let mut child = self.command(&["serve", "--background"]).spawn()?;
        let mut said = String::new();
        child.stdout.take().context("no output")?.read_to_string(&mut said)?;
        ensure!(said.contains("ready"), "the owner says {said:?}");
        Ok((child, millis(start.elapsed())))
    }

    /// Leaves the store as a process does that is killed after it wrote.
    fn kill_writer(&self) -> Result<()> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = command.env(CHILD, self.scratch.path()).stdout(Stdio::piped()).spawn()?;
        child.stdout.take().context("no output")?.read_to_string(&mut String::new())?;
        end(child)
    }
}

fn end(mut child: Child) -> Result<()> {
    child.kill()?;
    child.wait()?;
    Ok(())
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// Measures the list of many sessions, and the calls and the owner of a long one.
///
/// # Errors
/// What a store or the program says.
pub fn report(size: Size) -> Result<Vec<Table>> {
    let plan = |events| Plan { shape: Shape::Calls, events, paths: 100 };
    let (count, each) = (size.of(100, 1_000), size.of(1_000, 10_000));
    let many = Place::new(size, count, plan(each))?;
    let long = Place::new(size, 1, plan(size.of(100_000, 1_000_000)))?;
    let title = format!("look: {count} sessions of {each} events, and one of {}", size.of(100_000, 1_000_000));
    let head = ["whole process", "store closed, ms", "owner runs, ms", "after 20,000 events and kill -9, ms"];
    let mut table = Table::new(title, &head);
    let looks: [(&str, &Place, &[&str], usize, f64); 4] = [
        ("`sessions` (target <= 30)", &many, &["sessions"], usize::MAX, 30.0),
        ("`log --calls`, first page (<= 50)", &long, &["log", "session-0", "--calls"], PAGE, 50.0),
        ("`log --calls --limit 20` (<= 50)", &long, &["log", "session-0", "--calls", "--limit", "20"], PAGE, 50.0),
        ("`--version`: the spawn", &long, &["--version"], PAGE, f64::NAN),
    ];
    let mut figures = Vec::new();
    for (_, place, arguments, most, _) in looks {
        let closed = place.lines(arguments, most)?;
        let (owner, _) = place.owner()?;
        let owned = place.lines(arguments, most);
        end(owner)?;
        figures.push((closed, owned?));
    }
    let mut starts = [Vec::new(), Vec::new()];
    for _ in 0..size.of(3, 11) {
        let (owner, _) = long.owner()?;
        ensure!(long.command(&["stop"]).status()?.success(), "the owner does not stop");
        drop(owner);
        let (owner, clean) = long.owner()?;
        end(owner)?;
        long.kill_writer()?;
        let (owner, killed) = long.owner()?;
        end(owner)?;
        starts[0].push(clean);
        starts[1].push(killed);
    }
    many.kill_writer()?;
    long.kill_writer()?;
    for ((what, place, arguments, most, target), (closed, owned)) in looks.into_iter().zip(figures) {
        let killed = place.lines(arguments, most)?;
        let cell = |value| if target.is_nan() { number(value) } else { against(value, target, false) };
        table.row([what.to_owned(), cell(closed), cell(owned), cell(killed)]);
    }
    let [clean, killed] = starts.map(|all| median(&all));
    let what = "start of the owner (<= 150; 200 after kill -9)".to_owned();
    table.row([what, against(clean, 150.0, false), "-".to_owned(), against(killed, 200.0, false)]);
    Ok(vec![table])
}
