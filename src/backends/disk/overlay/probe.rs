//! Trying whether overlays work in a directory.

use std::collections::BTreeSet;
use std::io::Read;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use super::attach::{MountPoint, NEEDED};
use super::{OverlayDisk, OverlayOptions, TREE};
use crate::backends::disk::{DirtyPath, WorkspaceDisk};
use crate::backends::{BackendError, FileChange, Observed};
use crate::engine::event::Node;
use crate::engine::path::EntryPath;

/// Whether overlays work in a directory. A file system on which they have worked is not tried again.
pub(super) fn is_known_to_work(directory: &Path) -> bool {
    static WORKING: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());
    let working = || WORKING.lock().unwrap_or_else(PoisonError::into_inner);
    let device = rustix::fs::stat(directory).map(|stat| stat.st_dev).ok();
    if device.is_some_and(|device| working().contains(&device)) {
        return true;
    }
    let works = probe(directory).is_ok();
    if works {
        working().extend(device);
    }
    works
}

/// Mounts an overlay in a temporary directory and uses it.
pub(super) fn probe(directory: &Path) -> Result<(), String> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let root = directory.join(format!(".overlay-probe-{}-{number}", std::process::id()));
    let outcome = attempt(&root);
    let removed = rustix::fs::open(directory, rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).and_then(|handle| {
        let name = root.file_name().map(std::os::unix::ffi::OsStrExt::as_bytes).unwrap_or_default();
        crate::backends::disk::entries::remove_all(std::os::fd::AsFd::as_fd(&handle), name)
    });
    if let Err(error) = removed {
        tracing::debug!(%error, directory = %directory.display(), "what was tried out could not be removed");
    }
    outcome
}

fn attempt(root: &Path) -> Result<(), String> {
    let words = |error: std::io::Error| error.to_string();
    let path = |text: &str| EntryPath::lookup(text).map_err(|error| error.to_string());
    let write = |text: &str| -> Result<FileChange, String> {
        Ok(FileChange::Write { path: path(text)?, node: Node::file(b"x", false), bytes: "x".into(), modified: None })
    };
    let base = [write("directory/kept")?, write("directory/removed")?];
    let fill = |tree: &crate::backends::disk::DirTree| -> Result<(), BackendError> { tree.apply(&base).map(drop) };
    let needed = |reason: String| format!("{reason}; overlays need {NEEDED}");
    let created = OverlayDisk::create(OverlayOptions::new("overlay", root), fill);
    let mut disk = created.map_err(|error| needed(error.reason))?;
    MountPoint::can_attach(disk.mounted.mount.as_fd(), TREE).map_err(|error| needed(error.to_string()))?;
    let changes = [write("directory/new")?, FileChange::Delete { path: path("directory/removed")? }];
    disk.tree().map_err(words)?.apply(&changes).map_err(|error| error.reason)?;
    let mut text = String::new();
    let kept = path("directory/kept")?;
    let read = disk.tree().and_then(|tree| tree.open(&kept)).and_then(|mut file| file.read_to_string(&mut text));
    read.map_err(words)?;
    let touched = disk.touched().map_err(words)?;
    for change in &changes {
        let named = touched.contains(&DirtyPath::Entry(change.path().clone()));
        let there = disk.tree().and_then(|tree| tree.observe(change.path())).map_err(words)?;
        let is_file = there.is_some_and(|found| matches!(found.kind, Observed::File { .. }));
        if !named || is_file != matches!(change, FileChange::Write { .. }) {
            return Err(format!("an overlay in {} does not show its changes", root.display()));
        }
    }
    Ok(())
}
