//! Overlays that share their layers: what either sees of the other, and what is left of them.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::rig::{World, assert_covered, overlay, path, through, walk};
use crate::backends::FileChange;
use crate::backends::disk::{DirTree, DirtyPath, LayerUser, OverlayDisk, OverlayOptions, SealError, WorkspaceDisk};
use crate::engine::event::Node;
use crate::engine::path::EntryPath;
use crate::testing::eventually;

/// Overlays beside each other.
pub(super) struct Family {
    directory: tempfile::TempDir,
}

impl Family {
    /// None where this machine mounts no overlay.
    pub(super) fn new() -> Option<Self> {
        let (_, directory) = overlay(&|_| {})?;
        Some(Self { directory })
    }

    pub(super) fn kin(&self, name: &str) -> LayerUser {
        LayerUser::new(&self.all(), name, "layers/overlay")
    }

    pub(super) fn all(&self) -> PathBuf {
        self.directory.path().join("all")
    }

    pub(super) fn options(&self, name: &str) -> OverlayOptions {
        OverlayOptions { squash_above: 4, ..OverlayOptions::among("overlay", self.kin(name)) }
    }

    pub(super) fn create(&self, name: &str) -> OverlayDisk {
        fs::create_dir_all(self.home(name).join("layers")).unwrap();
        let fill = |tree: &DirTree| {
            some_files(&through(tree.root.as_fd()));
            Ok(())
        };
        OverlayDisk::create(self.options(name), fill).unwrap()
    }

    /// The disk `parent` after it was shared with these.
    fn parent_of(&self, children: &[&str]) -> OverlayDisk {
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

    fn home(&self, name: &str) -> PathBuf {
        self.kin(name).home()
    }

    pub(super) fn root(&self, name: &str) -> PathBuf {
        self.home(name).join("layers/overlay")
    }

    /// The numbers of the layers that lie there.
    fn layers(&self, name: &str) -> Vec<String> {
        in_directory(&self.root(name).join("layers"))
    }

    pub(super) fn users(&self, name: &str) -> Vec<String> {
        in_directory(&self.root(name).join("users"))
    }

    fn sweep(&self, name: &str) {
        self.kin(name).sweep(&|_| true).unwrap();
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

/// Looks until nothing is touched any more, as a dispatcher has before it shares.
pub(super) fn rest(disk: &mut impl WorkspaceDisk) {
    eventually("nothing is touched any more", || {
        let touched = disk.touched().unwrap();
        disk.settle().unwrap();
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
    assert_eq!(parent.touched().unwrap(), []);
    let mut child = family.open("child").unwrap();
    assert_eq!(world(&child), before);
    assert_eq!(child.touched().unwrap(), [], "nothing has changed since");
    fs::write(view(&child).join("a/one"), "child's").unwrap();
    // The directory was copied to be changed.
    assert_eq!(child.touched().unwrap(), [DirtyPath::Entry(path("a")), DirtyPath::Entry(path("a/one"))]);
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
        let touched = disk.touched().unwrap();
        assert_covered("shared", &before, &world(disk), &touched);
        assert!(!touched.contains(&DirtyPath::Subtree(EntryPath::root())), "{touched:?}");
    }
    // Only who opens it first knows what was touched.
    let touched = family.open("child").unwrap().touched().unwrap();
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
    // Those between may go, in whatever order.
    for gone in ["0", "3", "7", "1"] {
        family.kin(gone).remove().unwrap();
    }
    assert_eq!(Some(&world(&last)), worlds.last());
    drop(last);
    for depth in [2, 4, 5, 6] {
        assert_eq!(world(&family.open(&depth.to_string()).unwrap()), worlds[depth]);
    }
    assert_eq!(Some(&world(&family.open("8").unwrap())), worlds.last());
    for gone in ["8", "6", "5", "2", "4"] {
        family.kin(gone).remove().unwrap();
    }
    assert_eq!(in_directory(&family.all()), Vec::<String>::new());
}

#[test]
fn shared_layers_survive_parent_squash() {
    let Some(family) = Family::new() else { return };
    let mut parent = family.create("parent");
    for round in 0..3 {
        fs::write(view(&parent).join("a/one"), round.to_string()).unwrap();
        parent.seal().unwrap();
    }
    rest(&mut parent);
    let before = world(&parent);
    assert!(parent.share("child").unwrap());
    let shared = family.layers("parent");
    let child = family.open("child").unwrap();
    for round in 0..8 {
        fs::write(view(&parent).join("a/one"), format!("later{round}")).unwrap();
        parent.seal().unwrap();
    }
    assert!(family.layers("parent").len() > 6, "{:?}", family.layers("parent"));
    assert_eq!(world(&child), before);
    drop(child);
    assert_eq!(world(&family.open("child").unwrap()), before);
    drop(parent);
    let parent = family.open("parent").unwrap();
    assert_eq!(text(&parent, "a/one").unwrap(), "later7");
    let kept = family.layers("parent");
    assert!(shared.iter().take(3).all(|layer| kept.contains(layer)), "{shared:?} {kept:?}");
    family.kin("child").remove().unwrap();
    assert!(!family.home("child").exists());
    assert_eq!(family.users("parent"), Vec::<String>::new());
    drop(parent);
    drop(family.open("parent").unwrap());
    assert!(family.layers("parent").len() < kept.len() - 1, "{:?}", family.layers("parent"));
}

#[test]
fn squashed_child_releases_parent_layers() {
    let Some(family) = Family::new() else { return };
    let mut parent = family.create("parent");
    for round in 0..3 {
        fs::write(view(&parent).join("a/one"), round.to_string()).unwrap();
        parent.seal().unwrap();
    }
    rest(&mut parent);
    assert!(parent.share("child").unwrap());
    let mark = || fs::read_link(family.root("parent").join("users/child")).unwrap().into_os_string();
    let before = mark();
    let mut child = family.open("child").unwrap();
    for round in 0..4 {
        fs::write(view(&child).join("a/b/two"), round.to_string()).unwrap();
        child.seal().unwrap();
    }
    assert!(before.len() > 1 && mark() == "0", "{before:?} {:?}", mark());
    let expected = world(&child);
    assert_eq!((text(&child, "a/one").unwrap(), text(&child, "a/b/two").unwrap()), ("2".to_owned(), "3".to_owned()));
    // What the squash has linked is the child's own now.
    family.kin("parent").remove().unwrap();
    assert_eq!(family.layers("parent"), ["0"]);
    drop(parent);
    assert_eq!(world(&child), expected);
    drop(child);
    assert_eq!(world(&family.open("child").unwrap()), expected);
    family.kin("child").remove().unwrap();
    assert!(!family.home("parent").exists(), "the last user takes it along");
}

#[test]
fn removed_parent_leaves_used_layers() {
    let Some(family) = Family::new() else { return };
    let mut parent = family.parent_of(&["child"]);
    for name in ["files", "run"] {
        fs::create_dir(family.home("parent").join(name)).unwrap();
    }
    fs::write(view(&parent).join("later"), "").unwrap();
    parent.seal().unwrap();
    drop(parent);
    family.kin("parent").remove().unwrap();
    assert_eq!(in_directory(&family.home("parent")), ["layers"]);
    assert_eq!(in_directory(&family.root("parent")), ["gone", "layers", "users"]);
    assert_eq!(family.layers("parent"), ["0"]);
    assert!(family.open("parent").is_none(), "its files are gone");
    let child = family.open("child").unwrap();
    assert_eq!(text(&child, "a/one").unwrap(), "a/one");
    family.kin("parent").remove().unwrap();
    assert_eq!(text(&child, "a/b/two").unwrap(), "a/b/two");
}

#[test]
fn share_into_filled_child_is_refused() {
    let Some(family) = Family::new() else { return };
    let mut parent = family.create("parent");
    let mut other = family.create("other");
    other.tree().unwrap().apply(&[file("mine", "mine")]).unwrap();
    rest(&mut other);
    assert!(!parent.share("other").unwrap());
    assert_eq!(family.users("parent"), Vec::<String>::new());
    assert_eq!(text(&other, "mine").unwrap(), "mine");
}

/// A process that is killed while it shares leaves one of these: the list that counts for nothing yet, and with it
/// the mark.
#[test]
fn half_made_child_is_blank() {
    let Some(family) = Family::new() else { return };
    let mut parent = family.create("parent");
    rest(&mut parent);
    for has_mark in [false, true] {
        assert!(parent.share("child").unwrap());
        let root = family.root("child");
        fs::rename(root.join("list"), root.join("list.next")).unwrap();
        if !has_mark {
            fs::remove_file(family.root("parent").join("users/child")).unwrap();
        }
        assert!(family.open("child").is_none(), "nothing of it counts");
        family.sweep("parent");
        assert_eq!(family.users("parent").len(), usize::from(has_mark), "it may be on its way");
        let child = family.create("child");
        assert_eq!(family.users("parent"), Vec::<String>::new());
        assert_eq!(text(&child, "a/one").unwrap(), "a/one");
        drop(child);
        family.kin("child").remove().unwrap();
    }
    assert!(parent.share("child").unwrap(), "the name is free again");
    assert_eq!(text(&parent, "a/one").unwrap(), "a/one");
}

#[test]
fn layers_of_interrupted_processes_are_removed() {
    let Some(family) = Family::new() else { return };
    let parent = family.parent_of(&["vanished", "kept"]);
    fs::remove_dir_all(family.home("vanished")).unwrap();
    family.kin("parent").sweep(&|name| name != "vanished").unwrap();
    assert_eq!(family.users("parent"), ["kept", "vanished"], "somebody has it open");
    family.sweep("parent");
    assert_eq!(family.users("parent"), ["kept"]);
    // Killed right after it was noted that the parent is gone, or right before the rest of it was removed.
    drop(parent);
    fs::write(family.root("parent").join("gone"), "").unwrap();
    family.sweep("parent");
    assert_eq!(in_directory(&family.root("parent")), ["gone", "layers", "users"]);
    assert_eq!(text(&family.open("kept").unwrap(), "top").unwrap(), "top");
    fs::write(family.root("kept").join("gone"), "").unwrap();
    family.sweep("kept");
    family.sweep("parent");
    assert_eq!(in_directory(&family.all()), Vec::<String>::new());
}

#[test]
fn shared_child_after_reboot_is_blank() {
    let Some(family) = Family::new() else { return };
    let parent = family.parent_of(&["child"]);
    drop(parent);
    for name in ["parent", "child"] {
        let list = family.root(name).join("list");
        let text = fs::read(&list).unwrap();
        fs::write(
            &list,
            [b"another start\n", &text[text.iter().position(|byte| *byte == b'\n').unwrap() + 1..]].concat(),
        )
        .unwrap();
        assert!(family.open(name).is_none());
    }
    // The parent is filled first, beside what the child has named.
    let parent = family.create("parent");
    assert!(family.layers("parent").contains(&"0".to_owned()));
    drop(family.create("child"));
    assert_eq!(family.users("parent"), Vec::<String>::new());
    drop(parent);
    let parent = family.open("parent").unwrap();
    assert_eq!(text(&parent, "a/one").unwrap(), "a/one");
    assert!(!family.layers("parent").contains(&"0".to_owned()), "{:?}", family.layers("parent"));
}

/// Another process makes the parent anew at the moment when its last user goes.
#[test]
fn layer_begun_again_survives_former_user() {
    let Some(family) = Family::new() else { return };
    let parent = family.parent_of(&["child"]);
    drop(parent);
    family.kin("parent").remove().unwrap();
    // Who has it now has not said yet that it is somebody's again.
    let held = family.kin("parent").try_hold().unwrap().unwrap();
    assert!(family.kin("parent").try_hold().unwrap().is_none());
    family.kin("child").remove().unwrap();
    family.sweep("parent");
    assert_eq!(in_directory(&family.root("parent")), ["gone", "layers", "users"]);
    let parent = family.create("parent");
    drop(held);
    family.sweep("parent");
    assert_eq!(text(&parent, "a/one").unwrap(), "a/one");
    drop(parent);
    family.kin("parent").remove().unwrap();
    assert!(!family.home("parent").exists());
}

#[test]
fn failed_share_changes_nothing() {
    let Some(family) = Family::new() else { return };
    let mut parent = family.create("parent");
    fs::write(view(&parent).join("later"), "later").unwrap();
    rest(&mut parent);
    let before = world(&parent);
    fs::create_dir_all(family.home("child")).unwrap();
    fs::write(family.home("child").join("layers"), "in the way").unwrap();
    let failed = parent.share("child").unwrap_err();
    assert!(matches!(failed, SealError::Unmade(_)), "{failed:?}");
    assert_eq!((world(&parent), family.users("parent")), (before, Vec::new()));
    fs::remove_file(family.home("child").join("layers")).unwrap();
    assert!(parent.share("child").unwrap());
}
