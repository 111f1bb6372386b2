//! Where measured data lies: on a real disk, below the build directory.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::fs::FallocateFlags;

/// Names another place than `<target>/bench-data`.
pub const PLACE: &str = "FOLDSPACE_BENCH_DATA";
const TMPFS: i64 = 0x0102_1994;

/// A directory that is removed with the value.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes an empty directory on a real disk.
    ///
    /// # Errors
    /// When it would lie in memory, where a sync costs nothing, or can't be made.
    pub fn new(name: &str) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let directory = place()?.join(format!("{name}-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&directory).with_context(|| format!("create {}", directory.display()))?;
        let kind = rustix::fs::statfs(&directory)?.f_type;
        ensure!(kind as i64 != TMPFS, "{} is in memory; set {PLACE} to a directory on a disk", directory.display());
        Ok(Self(directory))
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What is left over is only space below the build directory.
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// A preallocated file, the least that something can take which has to be on the disk.
#[derive(Debug)]
pub struct Bare {
    file: File,
    end: u64,
}

impl Bare {
    /// Makes one of 64 MiB in a directory.
    ///
    /// # Errors
    /// What the disk says.
    pub fn new(directory: &Path) -> Result<Self> {
        let file = File::create_new(directory.join("bare"))?;
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 64 << 20)?;
        file.sync_all()?;
        Ok(Self { file, end: 0 })
    }

    /// One write behind the last one, and one fdatasync; gives how long they took.
    ///
    /// # Errors
    /// What the disk says.
    pub fn write(&mut self, bytes: &[u8]) -> Result<Duration> {
        let start = Instant::now();
        self.file.write_all_at(bytes, self.end)?;
        self.file.sync_data()?;
        let took = start.elapsed();
        self.end += bytes.len() as u64;
        Ok(took)
    }
}

fn place() -> Result<PathBuf> {
    if let Some(place) = std::env::var_os(PLACE) {
        return Ok(PathBuf::from(place));
    }
    let program = std::env::current_exe()?;
    let is_profile = |at: &&Path| ["dist", "release", "debug"].iter().any(|name| at.ends_with(name));
    let profile = program.ancestors().find(is_profile);
    let target = profile.and_then(Path::parent).context("the program does not lie in a build directory")?;
    Ok(target.join("bench-data"))
}

/// Bytes that a directory takes on the disk, as `du` counts them.
///
/// # Errors
/// When it can't be read.
pub fn bytes_below(directory: &Path) -> Result<u64> {
    use std::os::unix::fs::MetadataExt;
    let mut total = 0;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let found = entry.metadata()?;
        total += if found.is_dir() { bytes_below(&entry.path())? } else { found.blocks() * 512 };
    }
    Ok(total)
}
