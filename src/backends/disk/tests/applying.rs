//! Changes are made all or none, and never outside.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::sync::atomic::{AtomicBool, Ordering};

use super::rig::{Rig, Seen, names, on_each, on_each_with, path};
use crate::backends::{BackendError, DirtyPath, FileChange};
use crate::engine::clock::Timestamp;
use crate::engine::event::{FileMode, Node};

fn file(at: &str, text: &str) -> FileChange {
    let bytes = bytes::Bytes::copy_from_slice(text.as_bytes());
    FileChange::Write { path: path(at), node: Node::file(&bytes, false), bytes, modified: None }
}

fn program(at: &str, text: &str) -> FileChange {
    let bytes = bytes::Bytes::copy_from_slice(text.as_bytes());
    FileChange::Write { path: path(at), node: Node::file(&bytes, true), bytes, modified: None }
}

fn directory(at: &str) -> FileChange {
    FileChange::Write { path: path(at), node: Node::DIRECTORY, bytes: bytes::Bytes::new(), modified: None }
}

fn link(at: &str, target: &str) -> FileChange {
    let node = Node::Symlink { target: target.as_bytes().to_vec() };
    FileChange::Write { path: path(at), node, bytes: bytes::Bytes::new(), modified: None }
}

fn delete(at: &str) -> FileChange {
    FileChange::Delete { path: path(at) }
}

type Change = fn(&mut Rig, &[FileChange]) -> Result<(), BackendError>;

/// The two ways to make changes: all or none, or one by one if nothing else uses the files.
const BOTH_WAYS: [Change; 2] = [|rig, changes| rig.disk.apply(changes), |rig, changes| rig.disk.populate(changes)];

/// Runs a test on disks with some initial files.
fn both_ways(test: impl Fn(&mut Rig, Change)) {
    for change in BOTH_WAYS {
        on_each_with(&some_files, |rig| test(rig, change));
    }
}

fn mode(rig: &Rig, at: &str) -> u32 {
    fs::metadata(rig.at(at)).unwrap().mode() & 0o7777
}

fn some_files(top: &std::path::Path) {
    fs::create_dir_all(top.join("d/e/f")).unwrap();
    for file in ["top", "d/one", "d/e/two", "d/e/f/three"] {
        fs::write(top.join(file), file).unwrap();
    }
    fs::set_permissions(top.join("top"), fs::Permissions::from_mode(0o640)).unwrap();
    symlink("top", top.join("link")).unwrap();
}

#[test]
fn apply_writes_every_kind() {
    both_ways(|rig, change| {
        let changes = [
            file("new/deep/file", "1"),
            program("run", "#!"),
            directory("empty/dir"),
            link("to", "/etc/passwd"),
            delete("d/e"),
        ];
        change(rig, &changes).unwrap();
        assert_eq!(fs::read(rig.at("new/deep/file")).unwrap(), b"1");
        assert_eq!((mode(rig, "new/deep/file"), mode(rig, "run"), mode(rig, "new/deep")), (0o644, 0o755, 0o755));
        assert!(rig.at("empty/dir").is_dir());
        assert_eq!(fs::read_link(rig.at("to")).unwrap().to_str(), Some("/etc/passwd"));
        assert!(!rig.at("d/e").exists() && rig.at("d/one").exists());
        assert_eq!(rig.take(), [], "{}: applied changes are known", rig.kind);
    });
}

#[test]
fn apply_keeps_concurrent_changes_touched() {
    on_each_with(&some_files, |rig| {
        fs::write(rig.at("d/one"), "by another").unwrap();
        fs::create_dir(rig.at("d/fresh")).unwrap();
        fs::write(rig.at("d/fresh/other"), "by another").unwrap();
        rig.disk.dirty().unwrap();
        rig.disk.apply(&[file("d/mine", "1"), file("d/fresh/mine", "1"), file("top", "2")]).unwrap();
        let touched = rig.take();
        assert!(names(&touched, "d/one") && names(&touched, "d/fresh/other"), "{touched:?}");
        rig.rest();
        rig.disk.apply(&(0..40).map(|n| file(&format!("d/many{n}"), "1")).collect::<Vec<_>>()).unwrap();
        assert_eq!(rig.take(), []);
        fs::write(rig.at("d/many7"), "2").unwrap();
        let touched = rig.take();
        assert!(names(&touched, "d/many7"));
        rig.disk.apply(&(0..40).map(|n| delete(&format!("d/many{n}"))).collect::<Vec<_>>()).unwrap();
        assert_eq!(rig.take(), []);
        assert!(rig.at("d/one").exists());
    });
}

#[test]
fn apply_delete_in_moved_directory_is_named_on_return() {
    on_each_with(&some_files, |rig| {
        match fs::rename(rig.at("d"), rig.at("away")) {
            // In a user namespace a directory of a lower layer can't be renamed.
            Err(error) if error.kind() == std::io::ErrorKind::CrossesDevices => return,
            other => other.unwrap(),
        }
        rig.disk.apply(&[delete("d/one"), delete("d/e/f")]).unwrap();
        fs::rename(rig.at("away"), rig.at("d")).unwrap();
        assert!(rig.at("d/one").exists());
        let touched = rig.take();
        for path in ["d/one", "d/e/f"] {
            assert!(names(&touched, path) || names(&touched, "d"), "{}: {touched:?}", rig.kind);
        }
    });
}

#[test]
fn scan_reports_change_right_after_apply() {
    on_each(|rig| {
        for round in 0..100 {
            rig.disk.apply(&[file("same", "ours")]).unwrap();
            fs::write(rig.at("same"), "them").unwrap();
            assert!(names(&rig.take(), "same"), "{}: round {round}", rig.kind);
        }
    });
}

#[test]
fn apply_of_mode_leaves_contents_and_times() {
    on_each_with(&some_files, |rig| {
        let before = fs::metadata(rig.at("top")).unwrap().modified().unwrap();
        let bytes = bytes::Bytes::from(fs::read(rig.at("top")).unwrap());
        let node = Node::file_with(&bytes, FileMode::of(0o604));
        rig.disk.apply(&[FileChange::Write { path: path("top"), node, bytes, modified: None }]).unwrap();
        let mode_of = |at: &str, bits| FileChange::Mode { path: path(at), mode: FileMode::of(bits) };
        rig.disk.apply(&[mode_of("d", 0o2750)]).unwrap();
        assert_eq!((mode(rig, "top"), mode(rig, "d")), (0o604, 0o2750));
        assert_eq!(fs::metadata(rig.at("top")).unwrap().modified().unwrap(), before);
        assert_eq!(rig.take(), []);
        // A failure undoes it.
        let broken = [mode_of("top", 0o777), mode_of("d", 0o777), mode_of("nothing", 0o600)];
        assert!(rig.disk.apply(&broken).is_err());
        assert_eq!((mode(rig, "top"), mode(rig, "d")), (0o604, 0o2750));
    });
}

#[test]
fn apply_replaces_one_kind_by_another() {
    both_ways(|rig, change| {
        change(rig, &[file("d", "a file now"), directory("top"), file("link", "a file")]).unwrap();
        assert_eq!(fs::read(rig.at("d")).unwrap(), b"a file now");
        assert!(rig.at("top").is_dir());
        assert!(rig.at("link").symlink_metadata().unwrap().is_file());
        change(rig, &[delete("d"), file("d/e", "in it"), link("top", "d")]).unwrap();
        assert_eq!(rig.world().len(), 4);
        assert_eq!(rig.world()[&path("top")], Seen::Link(b"d".to_vec()));
        change(rig, &[directory("d")]).unwrap();
        assert!(rig.at("d/e").exists(), "an existing directory stays");
        assert_eq!(rig.take(), []);
    });
}

#[test]
fn apply_error_undoes_everything() {
    on_each_with(&some_files, |rig| {
        let too_long = "n".repeat(300);
        let failing =
            [file("top/below/a/file", "x"), file(&format!("x/{too_long}"), "x"), file("link/below", "x"), delete("")];
        let before = rig.world();
        let kept =
            |rig: &Rig| fs::metadata(rig.at("top")).map(|top| (top.mode(), top.uid(), top.mtime(), top.mtime_nsec()));
        let top = kept(rig).unwrap();
        for last in failing {
            let mut changes = vec![
                file("top", "changed"),
                program("d/one", "changed"),
                delete("d/e"),
                file("d/e", "a file where a directory was"),
                delete("d/e"),
                file("d/e/f/again", "made again"),
                file("new/deep/file", "1"),
                delete("new"),
                file("d", "the whole directory"),
            ];
            changes.push(last.clone());
            let error = rig.disk.apply(&changes).unwrap_err();
            assert!(!error.reason.contains("undone"), "{error}");
            assert!(error.reason.contains(&last.path().rooted()) || error.reason.contains("top"), "{error}");
            assert_eq!(rig.world(), before, "{}: {error}", rig.kind);
            assert_eq!(kept(rig).unwrap(), top);
        }
        let error = rig.disk.apply(&[file("top/below", "x")]).unwrap_err();
        assert!(error.to_string().contains("cannot write /top/below: a parent is not a directory"), "{error}");
    });
}

#[test]
fn apply_error_undoes_what_exists() {
    let many = |top: &std::path::Path| (0..300).for_each(|n| fs::write(top.join(format!("f{n}")), "old").unwrap());
    on_each_with(&many, |rig| {
        let before = rig.world();
        let mut changes: Vec<_> = (0..300).map(|n| file(&format!("f{n}"), "new")).collect();
        rig.disk.apply(&changes).unwrap();
        let after = rig.world();
        assert!(after.values().all(|seen| *seen == Seen::File { bytes: b"new".to_vec(), executable: false }));
        assert_eq!((after.len(), rig.take()), (before.len(), Vec::new()), "{}", rig.kind);
        for change in &mut changes {
            *change = file(change.path().rooted().trim_start_matches('/'), "newer");
        }
        changes.push(delete(""));
        rig.disk.apply(&changes).unwrap_err();
        assert_eq!(rig.world(), after, "{}", rig.kind);
    });
}

#[test]
fn lay_out_replaces_link_not_its_target() {
    on_each_with(&some_files, |rig| {
        fs::hard_link(rig.at("top"), rig.at("other")).unwrap();
        rig.disk.populate(&[file("top", "1"), file("link", "2"), delete("d/none"), delete("top/none")]).unwrap();
        assert_eq!(fs::read(rig.at("other")).unwrap(), b"top");
        assert_eq!((fs::read(rig.at("top")).unwrap(), fs::read(rig.at("link")).unwrap()), (b"1".into(), b"2".into()));
        let error = rig.disk.populate(&[file("top/below", "x")]).unwrap_err();
        assert!(error.to_string().contains("cannot write /top/below: a parent is not a directory"), "{error}");
        assert!(rig.disk.populate(&[delete("")]).is_err());
    });
}

#[test]
fn scan_reports_changes_to_laid_out_files() {
    on_each(|rig| {
        rig.disk.populate(&["same", "theirs", "in/gone"].map(|at| file(at, "ours"))).unwrap();
        fs::write(rig.at("theirs"), "them").unwrap();
        fs::remove_file(rig.at("in/gone")).unwrap();
        let touched = rig.take();
        assert!(names(&touched, "theirs") && names(&touched, "in/gone"), "{}: {touched:?}", rig.kind);
        assert!(!names(&touched, "same"), "{}: {touched:?}", rig.kind);
    });
}

/// The kernel does not move a directory of a lower layer with a long path.
#[test]
fn apply_error_restores_directory_with_long_path() {
    let deep = format!("{}/{}/deep", "x".repeat(200), "y".repeat(200));
    let fill = |top: &std::path::Path| {
        fs::create_dir_all(top.join(&deep).join("in/empty")).unwrap();
        fs::write(top.join(&deep).join("in/file"), "old").unwrap();
    };
    on_each_with(&fill, |rig| {
        let before = rig.world();
        rig.disk.apply(&[delete(&deep), file(&deep, "a file"), delete("")]).unwrap_err();
        assert_eq!(rig.world(), before, "{}", rig.kind);
        rig.disk.apply(&[delete(&deep)]).unwrap();
        assert_eq!(rig.world().len(), 2, "{}", rig.kind);
    });
}

#[test]
fn apply_leaves_nothing_aside() {
    on_each_with(&some_files, |rig| {
        rig.disk.apply(&[file("top", "1"), delete("d"), file("d", "2")]).unwrap();
        rig.disk.apply(&[file("top", "1"), delete("d"), file("top/x", "2")]).unwrap_err();
        let aside = super::rig::through(std::os::fd::AsFd::as_fd(&rig.disk.tree().unwrap().aside));
        assert_eq!(fs::read_dir(aside).unwrap().count(), 0);
    });
}

/// Another thread keeps replacing a parent with a link to a place outside, and back.
#[test]
fn apply_through_swapped_link_leads_nowhere() {
    both_ways(|rig, change| {
        let outside = rig.directory.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("victim"), "untouched").unwrap();
        let view = rig.view();
        fs::create_dir(view.join("parent")).unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let _ = fs::rename(view.join("parent"), view.join("real"));
                    let _ = symlink(&outside, view.join("parent"));
                    let _ = fs::remove_file(view.join("parent"));
                    let _ = fs::rename(view.join("real"), view.join("parent"));
                }
            });
            for round in 0..200 {
                let changes = [
                    file("parent/victim", "overwritten"),
                    file("parent/deep/new", "made"),
                    delete("parent/victim"),
                    delete(if round % 2 == 0 { "parent/deep" } else { "parent" }),
                ];
                let _ = change(rig, &changes);
                let _ = fs::create_dir(view.join("real"));
            }
            done.store(true, Ordering::Relaxed);
        });
        assert_eq!(fs::read(outside.join("victim")).unwrap(), b"untouched");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    });
}

#[test]
fn apply_restores_modification_time() {
    let millis = 1_700_000_000_123;
    let FileChange::Write { path, node, bytes, .. } = file("old", "1") else { panic!("it is a write") };
    let old = FileChange::Write { path, node, bytes, modified: Some(Timestamp(millis)) };
    both_ways(|rig, change| {
        change(rig, &[file("new", "2"), old.clone()]).unwrap();
        let written = |at: &str| fs::metadata(rig.at(at)).unwrap();
        assert_eq!((written("old").mtime(), written("old").mtime_nsec()), (millis / 1000, millis % 1000 * 1_000_000));
        assert!(written("new").mtime() > millis / 1000, "by default the time is now");
    });
}

#[test]
fn scan_skips_adopted_files() {
    on_each(|rig| {
        let old = |change: FileChange| match change {
            FileChange::Write { path, node, bytes, .. } => {
                FileChange::Write { path, node, bytes, modified: Some(Timestamp(1_700_000_000_123)) }
            }
            other => other,
        };
        for part in 0..4 {
            let some = (0..100).map(|n| old(file(&format!("d{}/f{n}", part % 2 * 10 + n % 3), "text")));
            rig.disk.populate(&some.collect::<Vec<_>>()).unwrap();
        }
        rig.disk.adopt().unwrap();
        rig.disk.populate(&[old(file("more", "1")), old(file("d12/more", "1"))]).unwrap();
        rig.disk.adopt().unwrap();
        assert_eq!(rig.disk.dirty().unwrap(), [], "{}", rig.kind);
        fs::write(rig.at("more"), "2").unwrap();
        fs::write(rig.at("d12/theirs"), "them").unwrap();
        let touched = rig.take();
        let is_whole = |touched: &DirtyPath| matches!(touched, DirtyPath::Subtree(_));
        assert!(
            names(&touched, "d12/theirs") && names(&touched, "more") && !touched.iter().any(is_whole),
            "{}: {touched:?}",
            rig.kind
        );
    });
}
