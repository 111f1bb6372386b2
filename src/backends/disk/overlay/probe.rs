//! Checks that overlays work in a directory.

use std::collections::BTreeSet;
use std::io::Read;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use super::attach::{MountPoint, NEEDED};
use super::overlay_dir::OverlayDir;
use super::overlay_disk::{OverlayDisk, OverlayOptions};
use super::pool::TREE;
use crate::backends::disk::remove::remove_path;
use crate::backends::disk::workspace_disk::WorkspaceDisk;
use crate::backends::{BackendError, DirtyPath, FileChange, Observed};
use crate::engine::event::Node;
use crate::engine::lock::lock;
use crate::engine::path::EntryPath;

/// Checks [`supported`], unless it has succeeded on this file system before.
pub(crate) fn is_supported(directory: &Path) -> bool {
    static WORKING: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());
    let device = rustix::fs::stat(directory).map(|stat| stat.st_dev).ok();
    if device.is_some_and(|device| lock(&WORKING).contains(&device)) {
        return true;
    }
    let works = supported(directory).is_ok();
    if works {
        lock(&WORKING).extend(device);
    }
    works
}

/// Tries to mount and attach an overlay with layers in this directory. The error is the reason that it failed.
pub(crate) fn supported(directory: &Path) -> Result<(), String> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let root = directory.join(format!(".overlay-probe-{}-{number}", std::process::id()));
    let outcome = attempt(&root);
    if let Err(error) = remove_path(&root) {
        tracing::debug!(%error, directory = %directory.display(), "failed to remove the probe's files");
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
    let created = OverlayDisk::create(OverlayOptions::new("overlay", OverlayDir::new(root, "own", "")), fill);
    let mut disk = created.map_err(|error| needed(error.reason))?;
    let attached = disk.mounted().and_then(|mounted| MountPoint::can_attach(mounted.mount.as_fd(), TREE));
    attached.map_err(|error| needed(error.to_string()))?;
    let changes = [write("directory/new")?, FileChange::Delete { path: path("directory/removed")? }];
    disk.tree().map_err(words)?.apply(&changes).map_err(|error| error.reason)?;
    let mut text = String::new();
    let kept = path("directory/kept")?;
    let read = disk.tree().and_then(|tree| tree.open(&kept)).and_then(|mut file| file.read_to_string(&mut text));
    read.map_err(words)?;
    let touched = disk.dirty().map_err(words)?;
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
