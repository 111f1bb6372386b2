//! Overlays that share their layers: the isolation between them, and their remains.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::rig::{World, assert_covered, new_overlay, path, through, walk};
use crate::backends::disk::workspace_disk::{SealError, WorkspaceDisk};
use crate::backends::disk::{DirTree, OverlayDir, OverlayDisk, OverlayOptions};
use crate::backends::{DirtyPath, FileChange};
use crate::engine::event::Node;
use crate::engine::path::EntryPath;
use crate::testing::eventually;

/// The path of an overlay's manifest in its directory.
const WITHIN: &str = "layers/overlay";

/// Sibling overlays.
pub(super) struct Family {
    directory: tempfile::TempDir,
}

impl Family {
    /// `None` if this machine can't mount overlays.
    pub(super) fn new() -> Option<Self> {
        let (_, directory) = new_overlay(&|_| {})?;
        Some(Self { directory })
    }

    pub(super) fn dir(&self, name: &str) -> OverlayDir {
        OverlayDir::new(&self.all(), name, WITHIN)
    }

    pub(super) fn all(&self) -> PathBuf {
        self.directory.path().join("all")
    }

    pub(super) fn options(&self, name: &str) -> OverlayOptions {
        OverlayOptions { flatten_above: 4, ..OverlayOptions::new("overlay", self.dir(name)) }
    }

    pub(super) fn create(&self, name: &str) -> OverlayDisk {
        let fill = |tree: &DirTree| {
            some_files(&through(tree.root.as_fd()));
            Ok(())
        };
        OverlayDisk::create(self.options(name), fill).unwrap()
    }

    /// The disk `parent`, shared with these children.
    pub(super) fn parent_of(&self, children: &[&str]) -> OverlayDisk {
        let mut parent = self.create("parent");
        rest(&mut parent);
        for child in children {
            assert!(parent.share(child).unwrap());
        }
        parent
    }

    pub(super) fn open(&self, name: &str) -> Option<OverlayDisk> {
        OverlayDisk::open(self.options(name)).unwrap()
    }

    pub(super) fn home(&self, name: &str) -> PathBuf {
        self.dir(name).home()
    }

    pub(super) fn root(&self, name: &str) -> PathBuf {
        self.home(name).join(WITHIN)
    }

    /// The names in the pool.
    pub(super) fn layers(&self) -> Vec<String> {
        let mut layers = in_directory(&self.all().join("layers"));
        layers.retain(|name| name != "lock");
        layers
    }

    pub(super) fn sweep(&self) {
        OverlayDir::sweep(&self.all(), WITHIN).unwrap();
    }
}

pub(super) fn in_directory(at: &Path) -> Vec<String> {
    let entries = fs::read_dir(at).into_iter().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn some_files(top: &Path) {
    fs::create_dir_all(top.join("a/b")).unwrap();
    for file in ["top", "a/one", "a/b/two"] {
        fs::write(top.join(file), file).unwrap();
    }
    symlink("a/one", top.join("link")).unwrap();
}

pub(super) fn view(disk: &impl WorkspaceDisk) -> PathBuf {
    through(disk.tree().unwrap().root.as_fd())
}

pub(super) fn world(disk: &OverlayDisk) -> World {
    let mut world = World::new();
    walk(&view(disk), &EntryPath::root(), &mut world);
    world
}

pub(super) fn text(disk: &impl WorkspaceDisk, at: &str) -> Option<String> {
    fs::read_to_string(view(disk).join(at)).ok()
}

/// Scans until nothing is dirty, as a tool runner does before sharing.
pub(super) fn rest(disk: &mut impl WorkspaceDisk) {
    eventually("nothing is touched any more", || {
        let touched = disk.dirty().unwrap();
        disk.mark_clean().unwrap();
        touched.is_empty()
    });
}

pub(super) fn file(at: &str, text: &str) -> FileChange {
    let bytes = bytes::Bytes::copy_from_slice(text.as_bytes());
    FileChange::Write { path: path(at), node: Node::file(&bytes, false), bytes, modified: None }
}

#[test]
fn shared_child_has_files_and_knows_them() {
    let Some(family) = Family::new() else { return };
    let mut parent = family.create("parent");
    fs::write(view(&parent).join("a/new"), "new").unwrap();
    fs::remove_file(view(&parent).join("top")).unwrap();
    rest(&mut parent);
    let before = world(&parent);
    assert!(parent.share("child").unwrap());
    assert_eq!(world(&parent), before);
    assert_eq!(parent.dirty().unwrap(), []);
    let mut child = family.open("child").unwrap();
    assert_eq!(world(&child), before);
    assert_eq!(child.dirty().unwrap(), [], "nothing has changed since");
    fs::write(view(&child).join("a/one"), "child's").unwrap();
    // The changed file's directory was copied up.
    assert_eq!(child.dirty().unwrap(), [DirtyPath::Entry(path("a")), DirtyPath::Entry(path("a/one"))]);
}

#[test]
fn shared_child_and_parent_are_isolated() {
    let Some(family) = Family::new() else { return };
    let mut parent = family.parent_of(&["one", "other"]);
    let (mut one, other) = (family.open("one").unwrap(), family.open("other").unwrap());
    let before = world(&other);
    one.tree().unwrap().apply(&[file("a/one", "one's"), FileChange::Delete { path: path("a/b") }]).unwrap();
    assert_eq!((world(&parent), world(&other)), (before.clone(), before.clone()));
    fs::write(view(&parent).join("a/one"), "parent's").unwrap();
    fs::write(view(&parent).join("later"), "parent's").unwrap();
    assert_eq!(world(&other), before);
    assert_eq!((text(&one, "a/one"), text(&one, "later")), (Some("one's".to_owned()), None));
    for _ in 0..3 {
        parent.seal().unwrap();
        one.seal().unwrap();
    }
    assert_eq!(text(&parent, "a/one").unwrap(), "parent's");
    assert_eq!((text(&one, "a/one").unwrap(), text(&one, "a/b/two")), ("one's".to_owned(), None));
    assert_eq!(world(&other), before);
}

#[test]
fn shared_child_keeps_unscanned_changes_touched() {
    let Some(family) = Family::new() else { return };
    let mut parent = family.create("parent");
    rest(&mut parent);
    let before = world(&parent);
    fs::write(view(&parent).join("a/one"), "unseen").unwrap();
    fs::write(view(&parent).join("unseen"), "unseen").unwrap();
    assert!(parent.share("child").unwrap());
    for disk in [&mut parent, &mut family.open("child").unwrap()] {
        let touched = disk.dirty().unwrap();
        assert_covered("shared", &before, &world(disk), &touched);
        assert!(!touched.contains(&DirtyPath::Subtree(EntryPath::root())), "{touched:?}");
    }
    // Only the first opener knows the dirty paths.
    let touched = family.open("child").unwrap().dirty().unwrap();
    assert!(touched.contains(&DirtyPath::Subtree(EntryPath::root())), "{touched:?}");
}

#[test]
fn shared_child_can_share_again() {
    let Some(family) = Family::new() else { return };
    let mut disk = family.create("0");
    let mut worlds = Vec::new();
    for depth in 0..8 {
        fs::write(view(&disk).join("a/one"), depth.to_string()).unwrap();
        fs::write(view(&disk).join(format!("depth{depth}")), "").unwrap();
        rest(&mut disk);
        worlds.push(world(&disk));
        let next = (depth + 1).to_string();
        assert!(disk.share(&next).unwrap());
        disk = family.open(&next).unwrap();
        assert_eq!(Some(&world(&disk)), worlds.last());
    }
    let last = disk;
    // The disks in between may be removed, in any order.
    for gone in ["0", "3", "7", "1"] {
        family.dir(gone).remove().unwrap();
    }
    assert_eq!(Some(&world(&last)), worlds.last());
    drop(last);
    for depth in [2, 4, 5, 6] {
        assert_eq!(world(&family.open(&depth.to_string()).unwrap()), worlds[depth]);
    }
    assert_eq!(Some(&world(&family.open("8").unwrap())), worlds.last());
    for gone in ["8", "6", "5", "2", "4"] {
        family.dir(gone).remove().unwrap();
    }
    assert_eq!((in_directory(&family.all()), family.layers()), (vec!["layers".to_owned()], Vec::new()));
}

/// Seals a layer in each of these rounds.
fn seal_often(disk: &mut OverlayDisk, at: &str, rounds: impl IntoIterator<Item = u32>) {
    for round in rounds {
        fs::write(view(disk).join(at), round.to_string()).unwrap();
        disk.seal().unwrap();
    }
}

#[test]
fn parent_flattened_leaves_the_layers_of_its_child() {
    let Some(family) = Family::new() else { return };
    let mut parent = family.create("parent");
    seal_often(&mut parent, "a/one", 0..3);
    rest(&mut parent);
    let before = world(&parent);
    assert!(parent.share("child").unwrap());
    let child = family.open("child").unwrap();
    seal_often(&mut parent, "a/one", 10..18);
    assert_eq!(world(&child), before);
    drop(child);
    assert_eq!(world(&family.open("child").unwrap()), before);
    drop(parent);
    let parent = family.open("parent").unwrap();
    assert_eq!(text(&parent, "a/one").unwrap(), "17");
    let kept = family.layers();
    family.dir("child").remove().unwrap();
    assert!(!family.home("child").exists());
    assert!(family.layers().len() < kept.len(), "{kept:?} {:?}", family.layers());
    assert_eq!(text(&parent, "a/one").unwrap(), "17");
}

#[test]
fn child_flattened_needs_no_layer_of_its_parent() {
    let Some(family) = Family::new() else { return };
    let mut parent = family.create("parent");
    seal_often(&mut parent, "a/one", 0..3);
    rest(&mut parent);
    assert!(parent.share("child").unwrap());
    let mut child = family.open("child").unwrap();
    seal_often(&mut child, "a/b/two", 0..4);
    let expected = world(&child);
    assert_eq!((text(&child, "a/one").unwrap(), text(&child, "a/b/two").unwrap()), ("2".to_owned(), "3".to_owned()));
    drop(parent);
    family.dir("parent").remove().unwrap();
    assert!(family.layers().iter().all(|layer| layer.starts_with("child.")), "{:?}", family.layers());
    assert_eq!(world(&child), expected);
    drop(child);
    assert_eq!(world(&family.open("child").unwrap()), expected);
    family.dir("child").remove().unwrap();
    assert_eq!(family.layers(), Vec::<String>::new());
}

#[test]
fn parent_removed_leaves_what_its_child_names() {
    let Some(family) = Family::new() else { return };
    let mut parent = family.parent_of(&["child"]);
    for name in ["files", "run"] {
        fs::create_dir(family.home("parent").join(name)).unwrap();
    }
    fs::write(view(&parent).join("later"), "").unwrap();
    parent.seal().unwrap();
    drop(parent);
    family.dir("parent").remove().unwrap();
    assert!(!family.home("parent").exists());
    assert_eq!(family.layers(), ["parent.0"]);
    assert!(family.open("parent").is_none(), "its files are gone");
    let child = family.open("child").unwrap();
    assert_eq!(text(&child, "a/one").unwrap(), "a/one");
    family.dir("parent").remove().unwrap();
    assert_eq!(text(&child, "a/b/two").unwrap(), "a/b/two");
    // A new overlay of the same name does not affect the child's layers.
    let parent = family.create("parent");
    fs::write(view(&parent).join("a/one"), "another").unwrap();
    assert_eq!(text(&child, "a/one").unwrap(), "a/one");
    drop((parent, child));
    assert_eq!(text(&family.open("parent").unwrap(), "a/one").unwrap(), "another");
    assert_eq!(text(&family.open("child").unwrap(), "a/one").unwrap(), "a/one");
}

#[test]
fn share_with_an_overlay_that_has_files_gives_none() {
    let Some(family) = Family::new() else { return };
    let mut parent = family.create("parent");
    let mut other = family.create("other");
    other.tree().unwrap().apply(&[file("mine", "mine")]).unwrap();
    rest(&mut other);
    assert!(!parent.share("other").unwrap());
    assert_eq!(text(&other, "mine").unwrap(), "mine");
    drop(other);
    assert_eq!(text(&family.open("other").unwrap(), "mine").unwrap(), "mine");
}

#[test]
fn directory_moved_in_the_parent_is_moved_in_the_child() {
    let Some(family) = Family::new() else { return };
    let mut parent = family.create("parent");
    match fs::rename(view(&parent).join("a"), view(&parent).join("moved")) {
        // In a user namespace a directory of a lower layer can't be renamed.
        Err(error) if error.kind() == std::io::ErrorKind::CrossesDevices => return,
        other => other.unwrap(),
    }
    rest(&mut parent);
    let before = world(&parent);
    assert!(parent.share("child").unwrap());
    let child = family.open("child").unwrap();
    assert_eq!(world(&child), before);
    assert_eq!(text(&child, "moved/b/two").unwrap(), "a/b/two");
    drop((parent, child));
    family.dir("parent").remove().unwrap();
    assert_eq!(world(&family.open("child").unwrap()), before);
}

#[test]
fn deep_chain_of_forks_keeps_few_layers() {
    let Some(family) = Family::new() else { return };
    let mut disk = family.create("0");
    for depth in 1..40 {
        fs::write(view(&disk).join(format!("depth{depth}")), depth.to_string()).unwrap();
        rest(&mut disk);
        assert!(disk.share(&depth.to_string()).unwrap());
        drop(disk);
        family.dir(&(depth - 1).to_string()).remove().unwrap();
        disk = family.open(&depth.to_string()).unwrap();
        assert!(family.layers().len() <= 7, "{:?}", family.layers());
    }
    for depth in 1..40 {
        assert_eq!(text(&disk, &format!("depth{depth}")).unwrap(), depth.to_string());
    }
}

#[test]
fn manifests_of_an_earlier_start_are_blank_until_made_anew() {
    let Some(family) = Family::new() else { return };
    let parent = family.parent_of(&["child"]);
    drop(parent);
    for name in ["parent", "child"] {
        let list = family.root(name).join("list");
        let text = fs::read(&list).unwrap();
        let lines = &text[text.iter().position(|byte| *byte == b'\n').unwrap() + 1..];
        fs::write(&list, [b"another start\n", lines].concat()).unwrap();
        assert!(family.open(name).is_none());
    }
    // The parent is populated first, without reusing the child's layers.
    let parent = family.create("parent");
    assert!(family.layers().contains(&"parent.0".to_owned()));
    drop(family.create("child"));
    assert!(!family.layers().contains(&"parent.0".to_owned()), "{:?}", family.layers());
    drop(parent);
    assert_eq!(text(&family.open("parent").unwrap(), "a/one").unwrap(), "a/one");
}

#[test]
fn share_that_fails_changes_nothing() {
    let Some(family) = Family::new() else { return };
    let mut parent = family.create("parent");
    fs::write(view(&parent).join("later"), "later").unwrap();
    rest(&mut parent);
    let before = world(&parent);
    fs::create_dir_all(family.home("child")).unwrap();
    fs::write(family.home("child").join("layers"), "in the way").unwrap();
    let failed = parent.share("child").unwrap_err();
    assert!(matches!(failed, SealError::Unmade(_)), "{failed:?}");
    assert_eq!(world(&parent), before);
    fs::remove_file(family.home("child").join("layers")).unwrap();
    assert!(parent.share("child").unwrap());
}
