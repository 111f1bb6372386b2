//! A small file system, which can be filled.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A file system of its own in memory, gone with this.
pub(crate) struct Disk {
    root: PathBuf,
    _directory: Option<tempfile::TempDir>,
}

impl Disk {
    /// None where the machine does not let us have one, which in CI is a failure.
    pub(crate) fn new(megabytes: u64) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        Self::mounted(directory.path().to_owned(), Some(directory), megabytes)
    }

    /// One that covers a directory.
    pub(crate) fn over(directory: &Path, megabytes: u64) -> Option<Self> {
        Self::mounted(directory.to_owned(), None, megabytes)
    }

    fn mounted(root: PathBuf, directory: Option<tempfile::TempDir>, megabytes: u64) -> Option<Self> {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={megabytes}m,mode=755"), "tmpfs"]).arg(&root);
        let mounted = mount.stderr(Stdio::null()).status().is_ok_and(|status| status.success());
        assert!(mounted || !crate::engine::in_ci(), "no file system can be mounted");
        mounted.then_some(Self { root, _directory: directory })
    }

    pub(crate) fn remount(&self, how: &str) {
        let mut mount = Command::new("mount");
        assert!(mount.args(["-o", &format!("remount,{how}")]).arg(self.root()).status().unwrap().success());
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Leaves no byte on it; what fills it is given, to be removed again.
    pub(crate) fn fill(&self) -> PathBuf {
        let path = self.root().join("filler");
        let mut file = std::fs::File::create(&path).unwrap();
        let mut piece = vec![b'x'; 1 << 16];
        loop {
            if std::io::Write::write_all(&mut file, &piece).is_err() {
                match piece.len() {
                    1 => return path,
                    length => piece.truncate(length / 2),
                }
            }
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("-l").arg(self.root()).status();
        assert!(std::thread::panicking() || unmounted.is_ok_and(|status| status.success()));
    }
}
