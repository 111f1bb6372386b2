//! Figures of the server's process, and of the disk with its data.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::Semaphore;

use crate::engine::lock::lock;

/// The server's process.
pub(super) struct ProcessFigures {
    pub(super) cpu_seconds: f64,
    pub(super) resident_bytes: Option<u64>,
    pub(super) open_files: Option<usize>,
    pub(super) max_files: Option<u64>,
    /// Seconds since 1970.
    pub(super) started: Option<f64>,
}

impl ProcessFigures {
    pub(super) fn now() -> Self {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        Self {
            cpu_seconds: cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9,
            resident_bytes: resident_bytes(),
            open_files: open_files(),
            max_files: getrlimit(Resource::Nofile).current,
            started: started(),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the kernel reports processes in files")]
fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

/// Returns the memory that this process uses.
pub(super) fn resident_bytes() -> Option<u64> {
    let status = read("/proc/self/status")?;
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?.split_whitespace().next()?;
    Some(kib.parse::<u64>().ok()? << 10)
}

#[expect(clippy::disallowed_methods, reason = "the kernel lists descriptors in a directory")]
fn open_files() -> Option<usize> {
    // One of them is the directory that is being listed.
    Some(std::fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1))
}

fn started() -> Option<f64> {
    let (own, machine) = (read("/proc/self/stat")?, read("/proc/stat")?);
    // The program's name, in parentheses, may have spaces; the start is the 20th field behind it.
    let ticks: f64 = own.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
    let booted: f64 = machine.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(booted + ticks / rustix::param::clock_ticks_per_second() as f64)
}

/// The disk with the server's data.
#[derive(Clone, Copy)]
pub(super) struct DiskFigures {
    /// `None` without a local journal.
    pub(super) journal_bytes: Option<u64>,
    pub(super) free_bytes: u64,
}

/// Measures the disk for one scrape at a time, since a disk may hang.
pub(super) struct DiskGauge {
    turn: Arc<Semaphore>,
    last: Arc<Mutex<Option<DiskFigures>>>,
}

impl Default for DiskGauge {
    fn default() -> Self {
        Self { turn: Arc::new(Semaphore::new(1)), last: Arc::default() }
    }
}

/// Time that a scrape waits for the disk.
const PATIENCE: Duration = Duration::from_millis(500);

impl DiskGauge {
    /// Returns the figures; the last ones if the disk does not answer in time.
    pub(super) async fn read(&self, data: &Path) -> Option<DiskFigures> {
        if let Ok(turn) = Arc::clone(&self.turn).try_acquire_owned() {
            let (data, last) = (data.to_owned(), Arc::clone(&self.last));
            let measured = tokio::task::spawn_blocking(move || {
                *lock(&last) = measure(&data);
                drop(turn);
            });
            // After the time limit it continues in the background.
            drop(tokio::time::timeout(PATIENCE, measured).await);
        }
        *lock(&self.last)
    }
}

fn measure(data: &Path) -> Option<DiskFigures> {
    let disk = rustix::fs::statvfs(data).ok()?;
    Some(DiskFigures { journal_bytes: bytes_in(&data.join("journal")), free_bytes: disk.f_bavail * disk.f_frsize })
}

#[expect(clippy::disallowed_methods, reason = "only the lengths of the journal's files are read")]
fn bytes_in(directory: &Path) -> Option<u64> {
    let files = std::fs::read_dir(directory).ok()?.flatten().filter_map(|file| file.metadata().ok());
    // A segment is preallocated, so its length says little.
    Some(files.map(|file| file.len().min(file.blocks() * 512)).sum())
}
