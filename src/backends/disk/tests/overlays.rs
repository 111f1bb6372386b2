//! Tests of overlays only: sealing, merging, and showing their files in a container.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};

use super::rig::{IN_NAMESPACE, World, names, new_overlay, path, through, tick, walk};
use crate::backends::disk::workspace_disk::WorkspaceDisk;
use crate::backends::disk::{DirTree, OverlayDir, OverlayDisk, OverlayOptions, overlay};
use crate::backends::{DirtyPath, FileChange};
use crate::engine::event::Node;
use crate::engine::path::EntryPath;
use crate::testing::{eventually, skip};

fn view(disk: &OverlayDisk) -> PathBuf {
    through(disk.tree().unwrap().root.as_fd())
}

fn world(disk: &OverlayDisk) -> World {
    let mut world = BTreeMap::new();
    walk(&view(disk), &EntryPath::root(), &mut world);
    world
}

fn take(disk: &mut OverlayDisk) -> Vec<DirtyPath> {
    let touched = disk.dirty().unwrap();
    disk.mark_clean().unwrap();
    touched
}

fn file(at: &str, text: &str) -> FileChange {
    let bytes = bytes::Bytes::copy_from_slice(text.as_bytes());
    FileChange::Write { path: path(at), node: Node::file(&bytes, false), bytes, modified: None }
}

fn some_files(top: &Path) {
    fs::create_dir_all(top.join("a/b/c")).unwrap();
    for file in ["top", "a/one", "a/b/two", "a/b/c/three"] {
        fs::write(top.join(file), file).unwrap();
    }
}

#[test]
fn seal_of_small_upper_layer_does_nothing() {
    let Some((mut disk, directory)) = new_overlay(&some_files) else { return };
    fs::write(view(&disk).join("a/one"), "1").unwrap();
    take(&mut disk);
    let layers = || fs::read_dir(directory.path().join("layered/layers")).unwrap().count();
    let few = layers();
    disk.seal_if_large().unwrap();
    assert_eq!(layers(), few);
    for number in 0..70 {
        fs::write(view(&disk).join(format!("a/many{number}")), "1").unwrap();
    }
    take(&mut disk);
    let before = world(&disk);
    disk.seal_if_large().unwrap();
    assert_eq!((world(&disk), layers()), (before, few + 1));
    fs::write(view(&disk).join("a/many7"), "2").unwrap();
    assert!(names(&take(&mut disk), "a/many7"));
    disk.seal_if_large().unwrap();
    assert_eq!(layers(), few + 1);
}

#[test]
fn seal_keeps_unsettled_changes_touched() {
    let Some((mut disk, _directory)) = new_overlay(&some_files) else { return };
    fs::write(view(&disk).join("a/one"), "1").unwrap();
    disk.seal().unwrap();
    disk.seal().unwrap();
    assert!(names(&disk.dirty().unwrap(), "a/one"));
    assert!(names(&take(&mut disk), "a/one"));
    assert!(!names(&take(&mut disk), "a/one"));
}

#[test]
fn squash_shows_the_same_files() {
    let Some((mut disk, directory)) = new_overlay(&some_files) else { return };
    disk.options.flatten_above = 6;
    let layers = || fs::read_dir(directory.path().join("layered/layers")).unwrap().count();
    let acts: [&dyn Fn(&Path); 6] = [
        &|top| fs::write(top.join("a/one"), "again").unwrap(),
        &|top| fs::remove_dir_all(top.join("a/b")).unwrap(),
        &|top| fs::create_dir(top.join("a/b")).unwrap(),
        &|top| fs::write(top.join("a/b/c"), "a file now").unwrap(),
        &|top| fs::remove_file(top.join("top")).unwrap(),
        &|top| some_files(&top.join("deeper")),
    ];
    for round in 0..5 {
        for act in acts {
            act(&view(&disk));
            take(&mut disk);
            let before = world(&disk);
            disk.seal().unwrap();
            assert_eq!(world(&disk), before);
            assert!(layers() <= 8, "{} layers", layers());
        }
        disk.tree().unwrap().apply(&[FileChange::Delete { path: path("a/b") }]).unwrap();
        fs::remove_dir_all(view(&disk).join("deeper")).unwrap();
        some_files(&view(&disk));
        assert!(view(&disk).join("a/b/c/three").exists(), "round {round}");
    }
}

#[test]
fn squash_keeps_renamed_directory() {
    let Some((mut disk, _directory)) = new_overlay(&some_files) else { return };
    disk.options.flatten_above = 2;
    if fs::rename(view(&disk).join("a/b"), view(&disk).join("moved")).is_err() {
        assert!(std::env::var_os(IN_NAMESPACE).is_some());
        return;
    }
    let touched = take(&mut disk);
    assert!(touched.contains(&DirtyPath::Subtree(path("moved"))), "{touched:?}");
    for round in 0..4 {
        fs::write(view(&disk).join("moved/c/more"), round.to_string()).unwrap();
        take(&mut disk);
        let before = world(&disk);
        disk.seal().unwrap();
        assert_eq!(world(&disk), before);
        assert!(before.contains_key(&path("moved/c/three")));
    }
}

#[test]
fn squash_keeps_owners() {
    if !rustix::process::geteuid().is_root() {
        return skip("owners need root");
    }
    let directory = tempfile::tempdir().unwrap();
    let mut options = OverlayOptions::new("overlay", OverlayDir::new(&directory.path().join("layered"), "own", ""));
    (options.owner, options.flatten_above) = (Some((65534, 65534)), 2);
    let Ok(mut disk) = OverlayDisk::create(options, |tree: &DirTree| tree.apply(&[file("base/file", "1")]).map(drop))
    else {
        return skip("no overlay can be mounted");
    };
    for round in 0..5 {
        disk.apply(&[file(&format!("new{round}/file"), "1")]).unwrap();
        disk.seal().unwrap();
        for at in ["", "base", "base/file", "new0", "new0/file"] {
            let metadata = fs::metadata(view(&disk).join(at)).unwrap();
            assert_eq!((metadata.uid(), metadata.gid()), (65534, 65534), "{at} after {round} seals");
        }
    }
    assert_eq!(take(&mut disk), []);
}

#[test]
fn overlay_is_reopened_by_another_process() {
    let Some((mut disk, directory)) = new_overlay(&some_files) else { return };
    disk.apply(&[file("new", "1"), FileChange::Delete { path: path("a/b") }]).unwrap();
    let before = world(&disk);
    let options = disk.options.clone();
    drop(disk);
    let mut disk = OverlayDisk::open(options.clone()).unwrap().unwrap();
    assert_eq!(world(&disk), before);
    assert_eq!(take(&mut disk), [DirtyPath::Subtree(EntryPath::root())]);
    assert_eq!(take(&mut disk), []);
    drop(disk);
    let list = directory.path().join("layered/own/list");
    let text = fs::read_to_string(&list).unwrap();
    let (_, numbers) = text.split_once('\n').unwrap();
    fs::write(&list, format!("another start of the machine\n{numbers}")).unwrap();
    assert!(OverlayDisk::open(options.clone()).unwrap().is_none());
    let disk = OverlayDisk::create(options, |_| Ok(())).unwrap();
    assert!(world(&disk).is_empty());
}

#[test]
fn overlay_reopened_often_has_few_layers() {
    let Some((disk, directory)) = new_overlay(&some_files) else { return };
    let mut options = disk.options.clone();
    options.flatten_above = 5;
    drop(disk);
    let count = |of: &str| fs::read_dir(directory.path().join("layered").join(of)).unwrap().count();
    let open = || OverlayDisk::open(options.clone()).unwrap().unwrap();
    for round in 0..60 {
        let mut disk = open();
        disk.apply(&[file("top", &round.to_string()), file(&format!("new{round}"), "1")]).unwrap();
        assert!(count("layers") <= 8 && count("own/work") == 1, "{round}: {} layers", count("layers"));
    }
    for _ in 0..3 {
        // It is not used, so it is not even mounted.
        assert!(!open().dirty().unwrap().is_empty());
    }
    let before = world(&open());
    assert_eq!(before.len(), 7 + 60);
    let layers = count("layers");
    for _ in 0..3 {
        assert_eq!(world(&open()), before);
        assert!(count("layers") <= layers, "without changes no layer remains");
    }
}

#[test]
fn overlay_layers_outside_manifest_stay_gone() {
    let Some((mut disk, directory)) = new_overlay(&some_files) else { return };
    disk.apply(&[FileChange::Delete { path: path("a/b") }]).unwrap();
    let before = world(&disk);
    let options = disk.options.clone();
    drop(disk);
    // Like a merged layer that could not be removed, above all others.
    let stray = directory.path().join("layered/layers/own.7");
    fs::create_dir_all(stray.join("tree")).unwrap();
    fs::write(stray.join("tree/ghost"), "").unwrap();
    let disk = OverlayDisk::open(options.clone()).unwrap().unwrap();
    assert_eq!(world(&disk), before);
    OverlayDir::sweep(&directory.path().join("layered"), "").unwrap();
    assert!(!stray.exists());
    assert_eq!(world(&disk), before);
    drop(disk);
    fs::remove_dir_all(directory.path().join("layered/layers/own.1")).unwrap();
    assert!(OverlayDisk::open(options).unwrap().is_none(), "without the deletion marks, deleted files would return");
}

#[test]
fn overlay_deletions_are_whiteouts_in_upper_layer() {
    let Some((mut disk, directory)) = new_overlay(&some_files) else { return };
    fs::remove_file(view(&disk).join("top")).unwrap();
    assert!(names(&take(&mut disk), "top"));
    let mark = fs::symlink_metadata(directory.path().join("layered/layers/own.1/tree/top")).unwrap();
    assert!(mark.file_type().is_char_device() && mark.rdev() == 0);
    assert!(directory.path().join("layered/layers/own.0/tree/top").exists());
    tick();
    take(&mut disk);
    take(&mut disk);
    fs::remove_file(view(&disk).join("a/one")).unwrap();
    let touched = take(&mut disk);
    assert!(names(&touched, "a/one") && !names(&touched, "top"), "{touched:?}");
}

#[test]
fn overlay_unsupported_names_the_reason() {
    let reason = overlay::supported(Path::new("/proc")).unwrap_err();
    assert!(reason.contains("/proc"), "{reason}");
}

/// A process with its own mounts, like a container's.
struct Container(Child);

impl Container {
    fn start() -> Self {
        let mut command = Command::new("unshare");
        let child = command.args(["--mount", "--propagation", "private", "sleep", "1000"]).spawn().unwrap();
        let container = Self(child);
        let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/mnt")).unwrap();
        let command = || fs::read(format!("/proc/{}/cmdline", container.pid())).unwrap();
        eventually("a process has its own mounts", || command().starts_with(b"sleep"));
        assert_ne!(namespace("self"), namespace(&container.pid().to_string()));
        container
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.0.id()).unwrap()
    }

    fn sees(&self, at: &Path) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root", self.pid())).join(at.strip_prefix("/").unwrap())
    }

    /// Returns the number of mounts at a path, as seen by the process.
    fn mounts(&self, at: &Path) -> usize {
        let mounts = fs::read_to_string(format!("/proc/{}/mountinfo", self.pid())).unwrap();
        mounts.lines().filter(|line| line.split(' ').nth(4) == at.to_str()).count()
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn overlay_mounted_in_container_shows_the_files() {
    let Some((mut disk, directory)) = new_overlay(&some_files) else { return };
    let container = Container::start();
    let at = directory.path().canonicalize().unwrap().join("workspace");
    fs::create_dir(&at).unwrap();
    fs::write(at.join("below"), "").unwrap();
    disk.attach(container.pid(), &at).unwrap();
    let inside = container.sees(&at);
    assert_eq!(fs::read(inside.join("a/one")).unwrap(), b"a/one");
    assert!(!inside.join("below").exists() && !inside.join("../workspace/aside").exists());
    assert!(at.join("below").exists(), "this process sees nothing of it");
    take(&mut disk);
    fs::write(inside.join("a/one"), "by the container").unwrap();
    assert!(names(&take(&mut disk), "a/one"));
    disk.apply(&[file("ours", "1")]).unwrap();
    assert_eq!(fs::read(inside.join("ours")).unwrap(), b"1");
    let before = world(&disk);
    for _ in 0..3 {
        disk.seal().unwrap();
        assert_eq!(container.mounts(&at), 1);
    }
    fs::write(inside.join("after"), "1").unwrap();
    assert!(names(&take(&mut disk), "after"));
    assert_eq!(world(&disk).len(), before.len() + 1);
    disk.detach(container.pid()).unwrap();
    assert!(inside.join("below").exists() && !inside.join("ours").exists());
    assert_eq!(container.mounts(&at), 0);
}

#[test]
fn overlay_never_shows_lower_directory_while_sealing() {
    let Some((mut disk, directory)) = new_overlay(&some_files) else { return };
    let container = Container::start();
    let at = directory.path().canonicalize().unwrap().join("workspace");
    fs::create_dir(&at).unwrap();
    fs::write(at.join("below"), "").unwrap();
    disk.attach(container.pid(), &at).unwrap();
    let inside = container.sees(&at);
    let done = AtomicBool::new(false);
    let shown = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut shown = 0;
            while !done.load(Ordering::Relaxed) {
                shown += usize::from(inside.join("below").exists());
            }
            shown
        });
        (0..30).for_each(|_| disk.seal().unwrap());
        done.store(true, Ordering::Relaxed);
        watcher.join().unwrap()
    });
    assert_eq!(shown, 0);
}

#[test]
fn overlay_forgets_gone_container() {
    let Some((mut disk, directory)) = new_overlay(&some_files) else { return };
    let container = Container::start();
    let at = directory.path().canonicalize().unwrap();
    let pid = container.pid();
    assert!(disk.attach(pid, &at.join("none")).unwrap_err().to_string().contains("none"));
    disk.attach(pid, &at).unwrap();
    drop(container);
    disk.seal().unwrap();
    assert!(disk.places.is_empty());
    disk.detach(pid).unwrap();
    let error = disk.attach(pid, &at).unwrap_err().to_string();
    assert!(error.contains(&format!("of process {pid}")), "{error}");
}

/// Runs the whole suite again, as a user who may mount only in their own namespace.
#[test]
fn disk_tests_pass_in_user_namespace() {
    let inside = |args: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount"]).args(args).env(IN_NAMESPACE, "1").output()
    };
    if !inside(&["true"]).is_ok_and(|output| output.status.success()) {
        return skip("user namespaces are not available");
    }
    let program = std::env::current_exe().unwrap();
    let mut suite = vec![program.to_str().unwrap(), "backends::disk::tests", "--nocapture", "--include-ignored"];
    for left_out in ["ten_thousand", "squash_keeps_owners", "disk_tests_pass_in_user_namespace"] {
        suite.extend(["--skip", left_out]);
    }
    let output = inside(&suite).unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
}

/// One file with three names, one with two and one with one.
fn linked_files(top: &Path) {
    fs::create_dir(top.join("d")).unwrap();
    for (file, names) in [("a", &["c", "d/b"][..]), ("x", &["y"]), ("z", &[])] {
        fs::write(top.join(file), file).unwrap();
        names.iter().for_each(|name| fs::hard_link(top.join(file), top.join(name)).unwrap());
    }
}

fn linked_names() -> Vec<Vec<EntryPath>> {
    [&["a", "c", "d/b"][..], &["x", "y"]].map(|names| names.iter().map(|name| path(name)).collect()).to_vec()
}

#[test]
fn joined_names_are_one_file_after_each_seal() {
    let Some((mut disk, _directory)) = new_overlay(&linked_files) else { return };
    let read = |disk: &OverlayDisk, name: &str| fs::read_to_string(view(disk).join(name)).unwrap();
    let inode = |disk: &OverlayDisk, name: &str| fs::metadata(view(disk).join(name)).unwrap().ino();
    for written in ["d/b", "a", "c"] {
        let before = world(&disk);
        let times = || ["", "d"].map(|name| fs::metadata(view(&disk).join(name)).unwrap().modified().unwrap());
        let old = times();
        disk.join_names(&linked_names).unwrap();
        let times = || ["", "d"].map(|name| fs::metadata(view(&disk).join(name)).unwrap().modified().unwrap());
        assert_eq!(times(), old, "of the directories");
        assert_eq!(world(&disk), before);
        assert!(!take(&mut disk).iter().any(|touched| matches!(touched, DirtyPath::Entry(_))), "nothing was changed");
        fs::write(view(&disk).join(written), format!("by {written}")).unwrap();
        assert_eq!(["a", "c", "d/b"].map(|name| read(&disk, name)), [(); 3].map(|()| format!("by {written}")));
        assert_eq!(inode(&disk, "a"), inode(&disk, "d/b"));
        assert_eq!(inode(&disk, "x"), inode(&disk, "y"));
        take(&mut disk);
        disk.seal().unwrap();
    }
}

#[test]
fn name_written_before_it_is_joined_stays_a_separate_file() {
    let Some((mut disk, _directory)) = new_overlay(&linked_files) else { return };
    fs::write(view(&disk).join("x"), "new").unwrap();
    disk.join_names(&linked_names).unwrap();
    assert_eq!(fs::read_to_string(view(&disk).join("x")).unwrap(), "new");
    assert_eq!(fs::read_to_string(view(&disk).join("y")).unwrap(), "x");
}

#[test]
fn many_joined_names_cause_no_seal() {
    let number = |number: usize| format!("n{number}");
    let fill = |top: &Path| {
        for file in 0..200 {
            fs::write(top.join(number(2 * file)), "text").unwrap();
            fs::hard_link(top.join(number(2 * file)), top.join(number(2 * file + 1))).unwrap();
        }
    };
    let Some((mut disk, directory)) = new_overlay(&fill) else { return };
    disk.join_names(&|| (0..200).map(|file| vec![path(&number(2 * file)), path(&number(2 * file + 1))]).collect())
        .unwrap();
    let layers = || fs::read_dir(directory.path().join("layered/layers")).unwrap().count();
    let few = layers();
    take(&mut disk);
    disk.seal_if_large().unwrap();
    assert_eq!(layers(), few);
    for file in 0..70 {
        fs::write(view(&disk).join(format!("more{file}")), "1").unwrap();
    }
    take(&mut disk);
    disk.seal_if_large().unwrap();
    assert_eq!(layers(), few + 1);
}
