//! Changes below directories that their owner may not enter or write.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use super::rig::{Rig, on_each_with, path};
use crate::backends::FileChange;
use crate::backends::disk::{DirTree, IgnoreRules, RecordedBeyond};
use crate::engine::event::{FileMode, Node};

/// Runs an action with only the rights of the files' owner.
fn as_owner<T: Send>(act: impl FnOnce() -> T + Send) -> T {
    let run = || {
        let mut own = capabilities(None).unwrap();
        own.effective.remove(CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH);
        set_capabilities(None, own).unwrap();
        act()
    };
    std::thread::scope(|scope| scope.spawn(run).join().unwrap())
}

fn file(at: &str, text: &str) -> FileChange {
    let bytes = bytes::Bytes::copy_from_slice(text.as_bytes());
    FileChange::Write { path: path(at), node: Node::file(&bytes, false), bytes, modified: None }
}

fn directory(at: &str, mode: u32) -> FileChange {
    let node = Node::Directory { mode: FileMode::of(mode) };
    FileChange::Write { path: path(at), node, bytes: bytes::Bytes::new(), modified: None }
}

fn delete(at: &str) -> FileChange {
    FileChange::Delete { path: path(at) }
}

fn bits(place: &Path) -> u32 {
    fs::metadata(place).unwrap().mode() & 0o7777
}

fn set(place: &Path, bits: u32) {
    fs::set_permissions(place, Permissions::from_mode(bits)).unwrap();
}

/// Directories and files that are all read-only, including the root.
fn read_only(top: &Path) {
    fs::create_dir_all(top.join("mod/v1/in")).unwrap();
    fs::create_dir_all(top.join("kept/in")).unwrap();
    for file in ["mod/go.mod", "mod/v1/a.go", "mod/v1/in/b.go", "kept/one", "kept/in/two", "loose"] {
        fs::write(top.join(file), file).unwrap();
        set(&top.join(file), 0o444);
    }
    for directory in ["mod/v1/in", "mod/v1", "mod", "kept/in", "kept"] {
        set(&top.join(directory), 0o555);
    }
    set(top, 0o555);
}

/// Changes everywhere below read-only directories.
fn changes() -> Vec<FileChange> {
    vec![
        delete("mod"),
        delete("kept/one"),
        file("kept/in/two", "other"),
        file("kept/in/deep/three", "new"),
        directory("made", 0o511),
        file("made/four", "new"),
        directory("made/in", 0o000),
        FileChange::Mode { path: path("kept/in"), mode: FileMode::of(0o500) },
        delete("loose"),
    ]
}

fn check_changed(top: &Path) {
    let text = |at: &str| fs::read_to_string(top.join(at)).unwrap();
    assert!(["mod", "kept/one", "loose"].iter().all(|gone| !top.join(gone).exists()));
    assert_eq!(
        (text("kept/in/two"), text("kept/in/deep/three"), text("made/four")),
        ("other".into(), "new".into(), "new".into())
    );
    let modes = [".", "kept", "kept/in", "kept/in/deep", "made", "made/in"].map(|at| bits(&top.join(at)));
    assert_eq!(modes, [0o555, 0o555, 0o500, 0o755, 0o511, 0o000]);
}

fn check_unchanged(top: &Path) {
    let text = |at: &str| fs::read_to_string(top.join(at)).unwrap();
    for file in ["mod/go.mod", "mod/v1/a.go", "mod/v1/in/b.go", "kept/one", "kept/in/two", "loose"] {
        assert_eq!((text(file), bits(&top.join(file))), (file.to_owned(), 0o444));
    }
    for directory in [".", "mod/v1/in", "mod/v1", "mod", "kept/in", "kept"] {
        assert_eq!(bits(&top.join(directory)), 0o555, "{directory}");
    }
    assert!(!top.join("made").exists() && !top.join("kept/in/deep").exists());
}

#[test]
fn apply_in_read_only_directories_changes_them_and_keeps_their_modes() {
    on_each_with(&read_only, |rig: &mut Rig| {
        let tree = rig.disk.tree().unwrap();
        as_owner(|| tree.apply(&changes()).unwrap());
        check_changed(&rig.view());
    });
}

#[test]
fn populate_in_read_only_directories_changes_them_and_keeps_their_modes() {
    on_each_with(&read_only, |rig: &mut Rig| {
        let tree = rig.disk.tree().unwrap();
        as_owner(|| tree.populate(&changes()).unwrap());
        check_changed(&rig.view());
    });
}

#[test]
fn apply_failed_in_read_only_directories_restores_their_modes() {
    on_each_with(&read_only, |rig: &mut Rig| {
        let mut changes = changes();
        changes.push(file("made/four/below", "a file is in the way"));
        let tree = rig.disk.tree().unwrap();
        let failure = as_owner(|| tree.apply(&changes).unwrap_err());
        assert!(!failure.reason.contains("could not be undone"), "{failure:?}");
        check_unchanged(&rig.view());
    });
}

#[test]
fn apply_in_attached_directory_opens_read_only_directories() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    ["files", "aside"].iter().for_each(|made| fs::create_dir(at(made)).unwrap());
    read_only(&at("files"));
    let rules = IgnoreRules::of(&at("files"), RecordedBeyond::default());
    let tree = DirTree::beneath("host", &at("files"), &at("aside"), None).unwrap().ruled_by(rules.into());
    let mut failing = changes();
    failing.push(file("made/four/below", "a file is in the way"));
    as_owner(|| tree.apply(&failing).unwrap_err());
    check_unchanged(&at("files"));
    as_owner(|| tree.apply(&changes()).unwrap());
    check_changed(&at("files"));
    assert_eq!(fs::read_dir(at("aside")).unwrap().count(), 0);
}
