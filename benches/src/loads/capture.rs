//! Finding out what a command has changed.

use std::io::Read;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use foldspace::{
    EntryPath, FileChange, HostOptions, HostWorkspace, Node, PodmanSandbox, SessionId, Touched, Workspace,
};

use super::Size;
use super::commands::options;
use crate::disk::Scratch;
use crate::sample::{Noise, micros, quantile};
use crate::table::{Table, against, number};

/// Bytes of each file.
const FILE: usize = 4 << 10;
/// Files in a directory.
const DIRECTORY: u64 = 100;

fn write(number: u64, noise: &mut Noise) -> Result<FileChange> {
    let path = EntryPath::for_creation(&format!("d{:04}/f{:02}.txt", number / DIRECTORY, number % DIRECTORY))?;
    let bytes = noise.text(FILE).into_bytes();
    Ok(FileChange::Write { path, node: Node::file(&bytes, false), bytes: bytes.into() })
}

fn fill(workspace: &dyn Workspace, files: u64) -> Result<()> {
    let mut noise = Noise::new(files);
    for from in (0..files).step_by(2_000) {
        let changes = (from..files.min(from + 2_000)).map(|number| write(number, &mut noise));
        workspace.project(&changes.collect::<Result<Vec<_>>>()?)?;
        // Between commands large layers are sealed.
        drop(workspace.news());
    }
    settle(workspace)?;
    Ok(())
}

/// Looks for changes, reads what has changed, and settles it; gives how many there were.
fn settle(workspace: &dyn Workspace) -> Result<usize> {
    let disk = workspace.capture().context("the workspace can't tell what has changed")?;
    let touched = disk.touched()?;
    for touched in &touched {
        let (Touched::Entry(path) | Touched::Subtree(path)) = touched;
        if let Some(foldspace::Observed::File { .. }) = disk.observe(path)? {
            let mut bytes = Vec::new();
            disk.open(path)?.context("a file can't be read")?.read_to_end(&mut bytes)?;
            ensure!(matches!(Node::file(&bytes, false), Node::File { .. }));
        }
    }
    disk.settle()?;
    Ok(touched.len())
}

struct Row {
    nothing: Vec<Duration>,
    two: Vec<Duration>,
}

fn measure(workspace: &dyn Workspace, change: &dyn Fn(u64) -> Result<()>, rounds: u64) -> Result<Row> {
    // What was written a moment ago is looked at twice; nobody's command is that quick.
    std::thread::sleep(Duration::from_millis(1_500));
    settle(workspace)?;
    let mut row = Row { nothing: Vec::new(), two: Vec::new() };
    for round in 0..rounds {
        let start = Instant::now();
        let found = settle(workspace)?;
        row.nothing.push(start.elapsed());
        ensure!(found == 0, "{found} entries changed by themselves");
        if round % 8 == 0 {
            change(round)?;
            let start = Instant::now();
            let found = settle(workspace)?;
            row.two.push(start.elapsed());
            ensure!(found >= 2, "of two changes {found} were found");
            drop(workspace.news());
            std::thread::sleep(Duration::from_millis(50));
            while settle(workspace)? > 0 {
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }
    Ok(row)
}

/// Measures both kinds of disk with trees of two sizes.
///
/// # Errors
/// When something fails.
pub fn report(size: Size) -> Result<Vec<Table>> {
    let mut table = Table::new(
        "capture: what has changed, found and read (targets: nothing changed of 10,000 files 0.3 ms with an overlay, 25 ms \
         with the stat index; 2 changed of 100,000 with an overlay 1 ms)",
        &["disk", "files", "nothing changed, p50 us", "2 changed, p50 us"],
    );
    let (small, large) = (10_000, size.of(20_000, 100_000));
    for files in [small, large] {
        let (overlay, plain) = (overlay(files, size.of(24, 80))?, plain(files, size.of(16, 48))?);
        for (name, row, targets) in [
            ("overlay", overlay, [(small, 300.0), (large, 1_000.0)]),
            ("stat index", plain, [(small, 25_000.0), (large, f64::INFINITY)]),
        ] {
            let middle = |mut times: Vec<Duration>| quantile(&mut times, 0.5).map_or(f64::NAN, micros);
            let (nothing, two) = (middle(row.nothing), middle(row.two));
            let judged = |value: f64, judged: bool, target: f64| match judged && target.is_finite() {
                true => against(value, target, false),
                false => number(value),
            };
            let nothing = judged(nothing, files == small, targets[0].1);
            let two = judged(two, files == large, targets[1].1);
            table.row([name.to_owned(), files.to_string(), nothing, two]);
        }
    }
    Ok(vec![table])
}

fn overlay(files: u64, rounds: u64) -> Result<Row> {
    let session = SessionId::from_bytes(u128::from(std::process::id()).wrapping_add(u128::from(files)).to_be_bytes());
    let sandbox = PodmanSandbox::open(session, &options()?)?;
    let capture = sandbox.capture().context("the workspace can't tell what has changed")?;
    ensure!(capture.is_quick(), "no overlay can be mounted here, so it would be measured as what it is not");
    fill(&sandbox, files)?;
    let shell = sandbox.shell().context("a sandbox has a shell")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let change = |round: u64| {
        let text = format!("echo {round} > d0001/f01.txt; echo {round} > d0005/f02.txt");
        let command = foldspace::ShellCommand::shell(text);
        let result = runtime.block_on(shell.execute(command, foldspace::unwatched(), Default::default()))?;
        ensure!(result.success(), "{result:?}");
        Ok(())
    };
    let row = measure(&sandbox, &change, rounds)?;
    sandbox.close();
    sandbox.remove_files()?;
    Ok(row)
}

fn plain(files: u64, rounds: u64) -> Result<Row> {
    let scratch = Scratch::new("capture")?;
    let root = scratch.path().join("files");
    let host = HostWorkspace::open(&root, &HostOptions::default())?;
    fill(&host, files)?;
    let change = |round: u64| {
        std::fs::write(root.join("d0001/f01.txt"), format!("{round}\n"))?;
        std::fs::write(root.join("d0005/f02.txt"), format!("{round}\n"))?;
        Ok(())
    };
    measure(&host, &change, rounds)
}
