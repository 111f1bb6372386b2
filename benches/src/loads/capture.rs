//! Finding out what a command has changed.

use std::io::Read;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use foldspace::backends::{BackendError, ChangeDetector, DirtyPath, FileChange, HostOptions, MachineNews, Shell};
use foldspace::event::Node;
use foldspace::{EntryPath, HostWorkspace, PodmanSandbox, SessionId, Workspace};

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
    Ok(FileChange::Write { path, node: Node::file(&bytes, false), bytes: bytes.into(), modified: None })
}

pub(super) fn fill(workspace: &dyn Workspace, files: u64) -> Result<()> {
    let mut noise = Noise::new(files);
    for from in (0..files).step_by(2_000) {
        let changes = (from..files.min(from + 2_000)).map(|number| write(number, &mut noise));
        workspace.apply(&changes.collect::<Result<Vec<_>>>()?)?;
        // Between commands large layers are sealed.
        drop(workspace.news());
    }
    settle(workspace)?;
    Ok(())
}

/// Looks for changes, reads what has changed, and settles it; gives how many there were.
fn settle(workspace: &dyn Workspace) -> Result<usize> {
    let disk = workspace.capture().context("the workspace can't tell what has changed")?;
    let touched = disk.dirty()?;
    for touched in &touched {
        let (DirtyPath::Entry(path) | DirtyPath::Subtree(path)) = touched;
        if let Some(foldspace::backends::Observed::File { .. }) = disk.observe(path)? {
            let mut bytes = Vec::new();
            disk.open(path)?.context("a file can't be read")?.read_to_end(&mut bytes)?;
            ensure!(matches!(Node::file(&bytes, false), Node::File { .. }));
        }
    }
    disk.mark_clean()?;
    Ok(touched.len())
}

/// A workspace with many files, of which two can be changed from inside.
pub struct Files {
    workspace: Box<dyn Workspace>,
    change: Box<dyn Fn(u64) -> Result<()>>,
    rounds: u64,
}

impl Files {
    fn new(workspace: Box<dyn Workspace>, files: u64, change: Box<dyn Fn(u64) -> Result<()>>) -> Result<Self> {
        fill(workspace.as_ref(), files)?;
        // What was written a moment ago is looked at twice; nobody's command is that quick.
        std::thread::sleep(Duration::from_millis(1_500));
        settle(workspace.as_ref())?;
        Ok(Self { workspace, change, rounds: 0 })
    }

    /// Looks for changes where there are none.
    ///
    /// # Errors
    /// When something has changed by itself.
    pub fn nothing(&self) -> Result<Duration> {
        let start = Instant::now();
        let found = settle(self.workspace.as_ref())?;
        let took = start.elapsed();
        ensure!(found == 0, "{found} entries changed by themselves");
        Ok(took)
    }

    /// Looks for changes after two files were changed, and reads them.
    ///
    /// # Errors
    /// When they are not found.
    pub fn two(&mut self) -> Result<Duration> {
        self.rounds += 1;
        (self.change)(self.rounds)?;
        let start = Instant::now();
        let found = settle(self.workspace.as_ref())?;
        let took = start.elapsed();
        ensure!(found >= 2, "of two changes {found} were found");
        drop(self.workspace.news());
        std::thread::sleep(Duration::from_millis(50));
        while settle(self.workspace.as_ref())? > 0 {
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(took)
    }
}

struct Row {
    nothing: Vec<Duration>,
    two: Vec<Duration>,
}

fn measure(mut files: Files, rounds: u64) -> Result<Row> {
    let mut row = Row { nothing: Vec::new(), two: Vec::new() };
    for round in 0..rounds {
        row.nothing.push(files.nothing()?);
        if round % 8 == 0 {
            row.two.push(files.two()?);
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
        let overlay = measure(overlay(files)?, size.of(24, 80))?;
        let plain = measure(plain(files)?, size.of(16, 48))?;
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

/// An overlay in a container.
///
/// # Errors
/// Without an engine, or where no overlay can be mounted.
pub fn overlay(files: u64) -> Result<Files> {
    let session = SessionId::from_bytes(u128::from(std::process::id()).wrapping_add(u128::from(files)).to_be_bytes());
    let sandbox = Sandbox(Some(PodmanSandbox::open(session, &options()?)?));
    let is_overlay = sandbox.capture().is_some_and(ChangeDetector::is_quick);
    ensure!(is_overlay, "no overlay can be mounted here; `foldspace doctor` says why");
    let shell = sandbox.unrecorded_shell().context("a sandbox has a shell")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let change = move |round: u64| {
        let text = format!("echo {round} > d0001/f01.txt; echo {round} > d0005/f02.txt");
        let command = foldspace::backends::ShellCommand::shell(text);
        let result = runtime.block_on(shell.execute(command, foldspace::backends::unwatched(), Default::default()))?;
        ensure!(result.success(), "{result:?}");
        Ok(())
    };
    Files::new(Box::new(sandbox), files, Box::new(change))
}

/// A plain directory of the host.
///
/// # Errors
/// When it can't be filled.
pub fn plain(files: u64) -> Result<Files> {
    let scratch = Scratch::new("capture")?;
    let root = scratch.path().join("files");
    let host = HostWorkspace::open(&root, &HostOptions::default())?;
    let change = move |round: u64| {
        // It goes with this.
        let root = scratch.path().join("files");
        std::fs::write(root.join("d0001/f01.txt"), format!("{round}\n"))?;
        std::fs::write(root.join("d0005/f02.txt"), format!("{round}\n"))?;
        Ok(())
    };
    Files::new(Box::new(host), files, Box::new(change))
}

/// A sandbox whose files go with it.
struct Sandbox(Option<PodmanSandbox>);

impl Drop for Sandbox {
    fn drop(&mut self) {
        if let Some(sandbox) = self.0.take() {
            sandbox.close();
            drop(sandbox.remove_files());
        }
    }
}

impl Workspace for Sandbox {
    fn backend_name(&self) -> &'static str {
        "podman"
    }

    fn apply(&self, changes: &[FileChange]) -> Result<(), BackendError> {
        self.0.as_ref().map_or(Ok(()), |sandbox| sandbox.apply(changes))
    }

    fn unrecorded_shell(&self) -> Option<Arc<dyn Shell>> {
        self.0.as_ref()?.unrecorded_shell()
    }

    fn capture(&self) -> Option<&dyn ChangeDetector> {
        self.0.as_ref()?.capture()
    }

    fn news(&self) -> Vec<MachineNews> {
        self.0.as_ref().map(Workspace::news).unwrap_or_default()
    }
}
