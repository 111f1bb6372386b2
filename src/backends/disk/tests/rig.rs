//! Disks of every kind, and their contents as two independent walks see them.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::backends::disk::locked::OnDisk;
use crate::backends::disk::pending_scan::KnownFiles;
use crate::backends::disk::workspace_disk::WorkspaceDisk;
use crate::backends::disk::{DirTree, OverlayDir, OverlayDisk, OverlayOptions, PlainDisk, PlainOptions, overlay};
use crate::backends::{BackendError, DirtyPath, FileChange};
use crate::engine::path::EntryPath;
use crate::testing::{eventually, skip};

/// A disk in its own directory.
pub(super) struct Rig {
    pub(super) kind: &'static str,
    pub(super) disk: Box<dyn WorkspaceDisk>,
    /// Outside of the disk, and out of reach.
    pub(super) directory: tempfile::TempDir,
}

/// An entry as seen by a walk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Seen {
    File { bytes: Vec<u8>, executable: bool },
    Link(Vec<u8>),
    Directory,
    Other,
}

pub(super) type World = BTreeMap<EntryPath, Seen>;

/// Runs a test on an empty disk of each kind that this machine supports.
pub(super) fn on_each(test: impl Fn(&mut Rig)) {
    for mut rig in rigs(&|_| {}) {
        test(&mut rig);
    }
}

/// Runs a test on disks with these initial, known files: an overlay has them in a lower layer.
pub(super) fn on_each_with(fill: &dyn Fn(&Path), test: impl Fn(&mut Rig)) {
    for mut rig in rigs(fill) {
        test(&mut rig);
    }
}

fn rigs(fill: &dyn Fn(&Path)) -> Vec<Rig> {
    let mut rigs = vec![plain(fill)];
    rigs.extend(watched(fill).map(|(disk, directory)| Rig { kind: WATCHED, disk: Box::new(disk), directory }));
    rigs.extend(new_overlay(fill).map(|(disk, directory)| Rig { kind: kind(), disk: Box::new(disk), directory }));
    rigs.extend(fast_overlay(fill).map(|(mut disk, directory)| {
        disk.options.flatten_above = 3;
        Rig { kind: SEALED, disk: Box::new(Sealing(disk)), directory }
    }));
    rigs
}

/// A plain directory with kernel reports of changes.
pub(super) const WATCHED: &str = "plain, watched";
/// An overlay that seals its upper layer whenever it is settled.
pub(super) const SEALED: &str = "overlay, sealed each time";
pub(super) const IN_NAMESPACE: &str = "FOLDSPACE_TEST_IN_USER_NAMESPACE";

fn kind() -> &'static str {
    if std::env::var_os(IN_NAMESPACE).is_some() { "overlay in a user namespace" } else { "overlay" }
}

struct Sealing(OverlayDisk);

impl WorkspaceDisk for Sealing {
    fn tree(&self) -> std::io::Result<&DirTree> {
        self.0.tree()
    }

    fn dirty(&mut self) -> std::io::Result<Vec<DirtyPath>> {
        self.0.dirty()
    }

    fn peek(&self) -> std::io::Result<Vec<DirtyPath>> {
        self.0.peek()
    }

    fn known(&mut self) -> &mut KnownFiles {
        self.0.known()
    }

    fn mark_clean(&mut self) -> std::io::Result<()> {
        self.0.mark_clean()?;
        self.0.seal().map_err(std::io::Error::other)
    }

    fn adopt(&mut self) -> std::io::Result<()> {
        self.0.adopt()
    }

    fn apply(&mut self, changes: &[FileChange]) -> Result<(), BackendError> {
        self.0.apply(changes)
    }

    fn populate(&mut self, changes: &[FileChange]) -> Result<(), BackendError> {
        self.0.populate(changes)
    }
}

/// `None` if this machine can't mount overlays, which is a failure in CI.
pub(super) fn new_overlay(fill: &dyn Fn(&Path)) -> Option<(OverlayDisk, tempfile::TempDir)> {
    overlay_in(tempfile::tempdir().unwrap(), fill)
}

/// In memory if possible, because sealing creates many directories.
fn fast_overlay(fill: &dyn Fn(&Path)) -> Option<(OverlayDisk, tempfile::TempDir)> {
    let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    overlay_in(directory, fill).or_else(|| new_overlay(fill))
}

fn overlay_in(directory: tempfile::TempDir, fill: &dyn Fn(&Path)) -> Option<(OverlayDisk, tempfile::TempDir)> {
    if let Err(reason) = overlay::supported(directory.path()) {
        skip(&format!("no overlay can be mounted: {reason}"));
        return None;
    }
    let options = OverlayOptions::new("overlay", OverlayDir::new(&directory.path().join("layered"), "own", ""));
    let fill = |tree: &DirTree| {
        fill(&through(tree.root.as_fd()));
        Ok(())
    };
    Some((OverlayDisk::create(options, fill).unwrap(), directory))
}

pub(super) fn plain(fill: &dyn Fn(&Path)) -> Rig {
    let mut rig = unknown(fill);
    rig.take();
    rig.rest();
    rig
}

/// A plain directory with an empty index.
pub(super) fn unknown(fill: &dyn Fn(&Path)) -> Rig {
    let directory = tempfile::tempdir().unwrap();
    let files = directory.path().join("files");
    fs::create_dir(&files).unwrap();
    fs::create_dir(directory.path().join("aside")).unwrap();
    fill(&files);
    let disk = plain_in(directory.path(), PlainOptions::default());
    Rig { kind: "plain", disk: Box::new(disk), directory }
}

/// The disk of an existing directory.
pub(super) fn plain_in(directory: &Path, options: PlainOptions) -> PlainDisk {
    let tree = DirTree::beneath("host", &directory.join("files"), &directory.join("aside"), None).unwrap();
    PlainDisk::with_options(tree, options).unwrap()
}

/// A watched disk without fresh files; `None` if inotify is exhausted.
pub(super) fn watched(fill: &dyn Fn(&Path)) -> Option<(PlainDisk, tempfile::TempDir)> {
    let directory = unknown(fill).directory;
    let mut disk = plain_in(directory.path(), PlainOptions { may_watch: true, ..PlainOptions::default() });
    eventually("nothing is touched any more", || {
        let touched = disk.walk().unwrap();
        disk.mark_clean().unwrap();
        touched.dirty.is_empty()
    });
    if !disk.is_watching() {
        skip("inotify can't be used");
        return None;
    }
    Some((disk, directory))
}

impl Rig {
    /// The path of the files for any program.
    pub(super) fn view(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.disk.tree().unwrap().root.as_raw_fd()))
    }

    pub(super) fn at(&self, path: &str) -> PathBuf {
        self.view().join(path)
    }

    /// Returns the disk as workspaces use it; this rig gets a new one in its place.
    pub(super) fn capture(&mut self) -> OnDisk {
        OnDisk::new(self.kind, std::mem::replace(&mut self.disk, plain(&|_| {}).disk))
    }

    /// Returns the dirty paths and settles them.
    pub(super) fn take(&mut self) -> Vec<DirtyPath> {
        let touched = self.disk.dirty().unwrap();
        self.disk.mark_clean().unwrap();
        touched
    }

    /// Settles until nothing is fresh.
    pub(super) fn rest(&mut self) {
        eventually("nothing is touched any more", || self.take().is_empty());
    }

    pub(super) fn world(&self) -> World {
        world(&self.view())
    }

    /// Runs an action and checks that the dirty paths cover its changes. Returns the dirty paths.
    pub(super) fn watch(&mut self, act: impl FnOnce(&Path)) -> Vec<DirtyPath> {
        let before = self.world();
        act(&self.view());
        let after = self.world();
        let touched = self.disk.dirty().unwrap();
        assert_covered(self.kind, &before, &after, &touched);
        let again = self.disk.dirty().unwrap();
        assert_covered(self.kind, &before, &after, &again);
        self.disk.mark_clean().unwrap();
        assert_eq!(self.world(), after, "{}: settling changes nothing", self.kind);
        touched
    }
}

/// Waits for a few ticks of the file clock, so that later changes have another time than earlier ones. One tick is not
/// enough: a file that was read may have a finer time, ahead of that clock.
pub(super) fn tick() {
    let now = || rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    for _ in 0..5 {
        let before = now();
        eventually("the clock of files ticks", || now() > before);
    }
}

pub(super) fn path(text: &str) -> EntryPath {
    EntryPath::lookup(text).unwrap()
}

pub(super) fn names(touched: &[DirtyPath], text: &str) -> bool {
    touched
        .iter()
        .any(|one| matches!(one, DirtyPath::Entry(path) | DirtyPath::Subtree(path) if *path == self::path(text)))
}

pub(super) fn assert_covered(kind: &str, before: &World, after: &World, touched: &[DirtyPath]) {
    let is_directory = |path: &EntryPath| after.get(path) == Some(&Seen::Directory);
    for path in before.keys().chain(after.keys()) {
        if before.get(path) == after.get(path) {
            continue;
        }
        let covered = touched.iter().any(|one| match one {
            DirtyPath::Entry(named) => named == path || path.is_below(named) && !is_directory(named),
            DirtyPath::Subtree(named) => named == path || path.is_below(named),
        });
        assert!(
            covered,
            "{kind}: {path} was {:?} and is {:?}, but only {touched:?} were reported",
            before.get(path),
            after.get(path)
        );
    }
}

/// Lists a directory.
pub(super) fn world(top: &Path) -> World {
    let mut world = World::new();
    walk(top, &EntryPath::root(), &mut world);
    world
}

pub(super) fn walk(directory: &Path, at: &EntryPath, world: &mut World) {
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let path = at.join(entry.file_name().as_bytes()).unwrap();
        let metadata = entry.metadata().unwrap();
        let kind = metadata.file_type();
        let seen = if kind.is_file() {
            let executable = metadata.permissions().mode() & 0o100 != 0;
            Seen::File { bytes: fs::read(entry.path()).unwrap(), executable }
        } else if kind.is_symlink() {
            Seen::Link(fs::read_link(entry.path()).unwrap().as_os_str().as_bytes().to_vec())
        } else if kind.is_dir() {
            walk(&entry.path(), &path, world);
            Seen::Directory
        } else {
            assert!(kind.is_fifo() || kind.is_socket());
            Seen::Other
        };
        world.insert(path, seen);
    }
}

/// A path that leads to an open directory.
pub(super) fn through(handle: BorrowedFd<'_>) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", handle.as_raw_fd()))
}
