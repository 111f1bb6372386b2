//! A small file system, which can be filled.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A file system of its own in memory, gone with this.
pub(crate) struct Disk {
    root: PathBuf,
    directory: Option<tempfile::TempDir>,
}

impl Disk {
    /// Mounts one on a directory of its own; none, and the test is skipped, where mounting is not allowed.
    pub(crate) fn new(megabytes: u64) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let mut disk = Self::over(directory.path(), megabytes)?;
        disk.directory = Some(directory);
        Some(disk)
    }

    /// Mounts one that covers a directory.
    pub(crate) fn over(directory: &Path, megabytes: u64) -> Option<Self> {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={megabytes}m,mode=755"), "tmpfs"]).arg(directory);
        let mounted = mount.stderr(Stdio::null()).status().is_ok_and(|status| status.success());
        if !mounted {
            super::skip("no file system can be mounted");
        }
        mounted.then(|| Self { root: directory.to_owned(), directory: None })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("-l").arg(self.root()).status();
        assert!(std::thread::panicking() || unmounted.is_ok_and(|status| status.success()));
    }
}
