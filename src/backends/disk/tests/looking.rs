//! Scans find all changes, and access nothing outside of the workspace.

use std::fs;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::fs::{Mode, OFlags, mkdirat};

use super::rig::{
    IN_NAMESPACE, SEALED, Seen, World, assert_covered, names, on_each, on_each_with, path, through, tick,
};
use crate::backends::disk::beneath::open_in;
use crate::backends::disk::dir_xattrs::Forms;
use crate::backends::disk::index::StatIndex;
use crate::backends::disk::left_out::LeftOut;
use crate::backends::disk::locked::OnDisk;
use crate::backends::disk::scan::scan;
use crate::backends::disk::{DirTree, PlainDisk};
use crate::backends::{ChangeDetector, DirtyPath, Observed};
use crate::engine::event::Special;
use crate::engine::path::EntryPath;

fn some_files(top: &Path) {
    fs::create_dir_all(top.join("a/b/c")).unwrap();
    for file in ["top", "a/one", "a/two", "a/b/three", "a/b/c/four"] {
        fs::write(top.join(file), file).unwrap();
    }
    symlink("one", top.join("a/link")).unwrap();
}

#[test]
fn scan_of_unchanged_disk_is_empty() {
    on_each_with(&some_files, |rig| assert_eq!(rig.take(), []));
}

#[test]
fn scan_reports_only_the_change() {
    on_each_with(&some_files, |rig| {
        let touched = rig.watch(|top| fs::write(top.join("a/b/three"), "changed").unwrap());
        let files = touched
            .iter()
            .filter(|one| matches!(one, DirtyPath::Entry(path) if path.name() != b"a" && path.name() != b"b"));
        assert_eq!(files.collect::<Vec<_>>(), [&DirtyPath::Entry(path("a/b/three"))]);
        rig.rest();
        assert_eq!(rig.take(), []);
    });
}

#[test]
fn live_reading_disturbs_no_scan() {
    on_each_with(&some_files, |rig| {
        let (top, kind, disk) = (rig.view(), rig.kind, rig.capture());
        let live = disk.live().unwrap();
        fs::write(top.join("a/one"), "changed").unwrap();
        fs::remove_file(top.join("a/two")).unwrap();
        let all_seen = |found: &[DirtyPath]| names(found, "a/one") && names(found, "a/two");
        assert!(all_seen(&live.dirty().unwrap()), "{kind}");
        assert!(all_seen(&disk.dirty().unwrap()), "{kind}: a reader settles nothing");
        // A capture reads its findings now, and others change files that it has read.
        fs::write(top.join("a/b/three"), "late").unwrap();
        assert!(all_seen(&live.dirty().unwrap()) && names(&live.dirty().unwrap(), "a/b/three"), "{kind}");
        let mut text = String::new();
        live.open(&path("a/b/three")).unwrap().unwrap().read_to_string(&mut text).unwrap();
        assert_eq!((text.as_str(), live.observe(&path("a/two")).unwrap()), ("late", None), "{kind}");
        assert!(live.below(&EntryPath::root()).unwrap().entries.iter().any(|(found, _)| *found == path("a/b/c/four")));
        live.mark_clean().unwrap();
        if kind == SEALED {
            return;
        }
        disk.mark_clean().unwrap();
        // Its commit may not be visible yet.
        assert!(all_seen(&live.dirty().unwrap()), "{kind}");
        assert!(names(&disk.dirty().unwrap(), "a/b/three"), "{kind}: the next scan finds what only a reader has read");
    });
}

#[test]
fn scan_reports_every_kind_of_change() {
    on_each_with(&some_files, |rig| {
        rig.watch(|top| fs::write(top.join("new"), "1").unwrap());
        rig.watch(|top| fs::write(top.join("new"), "2").unwrap());
        rig.watch(|top| fs::remove_file(top.join("a/one")).unwrap());
        rig.watch(|top| fs::rename(top.join("a/two"), top.join("a/2")).unwrap());
        rig.watch(|top| fs::rename(top.join("a/2"), top.join("a/two")).unwrap());
        rig.watch(|top| fs::set_permissions(top.join("top"), fs::Permissions::from_mode(0o755)).unwrap());
        rig.watch(|top| {
            fs::remove_file(top.join("a/link")).unwrap();
            symlink("two", top.join("a/link")).unwrap();
        });
        rig.watch(|top| fs::create_dir_all(top.join("empty/inside")).unwrap());
        rig.watch(|top| fs::remove_dir(top.join("empty/inside")).unwrap());
        rig.watch(|top| fs::hard_link(top.join("a/two"), top.join("hard")).unwrap());
        rig.watch(|top| fs::write(top.join("hard"), "through one of its names").unwrap());
        rig.watch(|top| fs::remove_dir_all(top.join("a")).unwrap());
        rig.watch(some_files);
    });
}

#[test]
fn scan_reports_same_size_in_same_tick() {
    on_each_with(&some_files, |rig| {
        for round in 0..60 {
            rig.watch(|top| fs::write(top.join("a/one"), format!("{round:03}")).unwrap());
        }
    });
}

#[test]
fn scan_reports_change_with_restored_mtime() {
    on_each_with(&some_files, |rig| {
        let times = |file: &fs::File| fs::FileTimes::new().set_modified(file.metadata().unwrap().modified().unwrap());
        rig.watch(|top| {
            let file = fs::OpenOptions::new().write(true).open(top.join("a/one")).unwrap();
            let old = times(&file);
            std::io::Write::write_all(&mut &file, b"b/eno").unwrap();
            file.set_times(old).unwrap();
        });
    });
}

#[test]
fn scan_reports_renamed_and_replaced_directories() {
    on_each_with(&some_files, |rig| {
        let may_rename = fs::rename(rig.at("a/b"), rig.at("a/B")).is_ok();
        assert!(may_rename || std::env::var_os(IN_NAMESPACE).is_some(), "{}: a directory can't be renamed", rig.kind);
        if may_rename {
            fs::rename(rig.at("a/B"), rig.at("a/b")).unwrap();
            rig.take();
            rig.watch(|top| fs::rename(top.join("a/b"), top.join("moved")).unwrap());
            rig.watch(|top| fs::write(top.join("moved/c/four"), "changed below").unwrap());
            rig.watch(|top| fs::remove_file(top.join("moved/three")).unwrap());
            rig.watch(|top| fs::rename(top.join("moved"), top.join("a/b")).unwrap());
        }
        rig.watch(|top| {
            fs::remove_dir_all(top.join("a/b")).unwrap();
            fs::create_dir(top.join("a/b")).unwrap();
        });
        rig.watch(|top| fs::write(top.join("a/b/after"), "").unwrap());
        rig.watch(|top| {
            fs::remove_dir_all(top.join("a")).unwrap();
            fs::write(top.join("a"), "a file").unwrap();
        });
        rig.watch(|top| {
            fs::remove_file(top.join("a")).unwrap();
            some_files(top);
        });
    });
}

#[test]
fn scan_reports_names_of_any_bytes() {
    on_each(|rig| {
        let odd = |top: &Path| top.join(std::ffi::OsStr::from_bytes(b"\xff\xfe \n"));
        rig.watch(|top| fs::create_dir(odd(top)).unwrap());
        let touched = rig.watch(|top| fs::write(odd(&odd(top)), "x").unwrap());
        let inner = EntryPath::from_bytes(b"\xff\xfe \n/\xff\xfe \n").unwrap();
        assert!(
            touched.contains(&DirtyPath::Entry(inner.clone()))
                || touched.contains(&DirtyPath::Subtree(inner.parent().unwrap()))
        );
        assert!(matches!(
            rig.disk.tree().unwrap().observe(&inner).unwrap().unwrap().kind,
            Observed::File { size: 1, .. }
        ));
    });
}

#[test]
fn scan_does_not_open_special_files() {
    on_each(|rig| {
        let touched = rig.watch(|top| {
            let top = open_in(rustix::fs::CWD, format!("{}/.", top.display()), OFlags::PATH).unwrap();
            rustix::fs::mknodat(&top, "pipe", rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
            UnixListener::bind(through(top.as_fd()).join("socket")).unwrap();
        });
        assert!(names(&touched, "pipe") && names(&touched, "socket"));
        let tree = rig.disk.tree().unwrap();
        assert_eq!(tree.observe(&path("pipe")).unwrap().unwrap().kind, Observed::Special(Special::Fifo));
        assert_eq!(tree.observe(&path("socket")).unwrap().unwrap().kind, Observed::Special(Special::Socket));
        for name in ["pipe", "socket", ""] {
            assert!(tree.open(&path(name)).unwrap_err().to_string().contains("not a regular file"));
        }
    });
}

#[test]
fn scan_does_not_follow_links() {
    on_each_with(&some_files, |rig| {
        fs::write(rig.directory.path().join("secret"), "secret").unwrap();
        let outside = rig.directory.path().to_owned();
        rig.watch(|top| {
            symlink(&outside, top.join("out")).unwrap();
            symlink("a", top.join("in")).unwrap();
        });
        let tree = rig.disk.tree().unwrap();
        assert_eq!(tree.observe(&path("out/secret")).unwrap(), None);
        assert_eq!(tree.observe(&path("in/one")).unwrap(), None);
        assert!(tree.open(&path("out/secret")).is_err());
        assert!(tree.open(&path("out")).is_err());
        let target = outside.as_os_str().as_bytes().to_vec();
        assert_eq!(tree.observe(&path("out")).unwrap().unwrap().kind, Observed::Symlink { target });
        let mut walked = Vec::new();
        tree.walk(&EntryPath::root(), &mut |path, _| walked.push(path)).unwrap();
        assert!(walked.contains(&path("out")) && walked.contains(&path("a/b/c/four")));
        assert!(!walked.iter().any(|found| found.is_below(&path("out")) || found.is_below(&path("in"))));
    });
}

#[test]
fn scan_of_a_thousand_levels_works() {
    on_each(|rig| {
        let make = |top: &Path, levels: usize| {
            let mut at = open_in(rustix::fs::CWD, format!("{}/.", top.display()), OFlags::PATH).unwrap();
            for _ in 0..levels {
                let _ = mkdirat(&at, "level", Mode::RWXU);
                fs::write(through(at.as_fd()).join("file"), "").unwrap();
                at = open_in(&at, "level", OFlags::PATH).unwrap();
            }
        };
        make(&rig.view(), 1000);
        let bottom = path(&vec!["level"; 1000].join("/"));
        let covers = |touched: &[DirtyPath], wanted: &EntryPath| {
            touched.iter().any(|one| match one {
                DirtyPath::Entry(path) => path == wanted,
                DirtyPath::Subtree(path) => path == wanted || wanted.is_below(path),
            })
        };
        assert!(covers(&rig.take(), &bottom));
        assert!(rig.disk.tree().unwrap().observe(&bottom).unwrap().unwrap().kind.is_directory());
        let mut walked = 0;
        rig.disk.tree().unwrap().walk(&EntryPath::root(), &mut |_, _| walked += 1).unwrap();
        assert_eq!(walked, 2000);
        rig.rest();
        make(&rig.view(), 1001);
        assert!(covers(&rig.take(), &bottom.join(b"level").unwrap()));
        let delete = crate::backends::FileChange::Delete { path: path("level") };
        rig.disk.apply(&[delete]).unwrap();
        assert_eq!(rig.disk.tree().unwrap().observe(&path("level")).unwrap(), None);
    });
}

#[test]
fn scan_reports_too_deep_directory_unopened() {
    on_each(|rig| {
        let name = "n".repeat(200);
        let mut at = open_in(rustix::fs::CWD, format!("{}/.", rig.view().display()), OFlags::PATH).unwrap();
        for _ in 0..120 {
            mkdirat(&at, name.as_str(), Mode::RWXU).unwrap();
            fs::write(through(at.as_fd()).join("file"), "").unwrap();
            at = open_in(&at, name.as_str(), OFlags::PATH).unwrap();
        }
        let deepest = path(&vec![name.as_str(); 82].join("/"));
        let touched = rig.take();
        assert!(touched.iter().all(|one| {
            let (DirtyPath::Entry(path) | DirtyPath::Subtree(path)) = one;
            path == &deepest || !path.is_below(&deepest)
        }));
        let mut walked = Vec::new();
        let closed = rig.disk.tree().unwrap().walk(&EntryPath::root(), &mut |path, _| walked.push(path)).unwrap();
        assert_eq!((closed, walked.len()), (vec![deepest.clone()], 2 * 82));
        assert_eq!(
            rig.disk.tree().unwrap().walk(&deepest, &mut |_, _| panic!()).unwrap(),
            std::slice::from_ref(&deepest)
        );
        rig.rest();
        if rig.kind != SEALED {
            fs::write(through(at.as_fd()).join("late"), "").unwrap();
            assert_eq!(rig.take(), [], "{}", rig.kind);
        }
        let delete = crate::backends::FileChange::Delete { path: path(&name) };
        let deleted = rig.disk.apply(&[delete]);
        if rig.kind == SEALED && std::env::var_os(IN_NAMESPACE).is_some() {
            // Sealed in a namespace, it would be moved path by path.
            assert!(deleted.is_err());
            return;
        }
        deleted.unwrap();
        assert_eq!(rig.world().len(), 1);
        let aside = through(rig.disk.tree().unwrap().aside.as_fd());
        assert_eq!(fs::read_dir(aside).unwrap().count(), 0);
    });
}

/// Other processes change made entries before they are first scanned.
#[test]
fn scan_reports_changes_before_first_look() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join("files").join(name);
    for name in ["files", "aside", "files/again"] {
        fs::create_dir(directory.path().join(name)).unwrap();
    }
    let tree = DirTree::beneath("host", &at(""), &directory.path().join("aside"), None).unwrap();
    let file = |name: &str| crate::backends::FileChange::Write {
        path: path(name),
        node: crate::engine::event::Node::file(b"ours", false),
        bytes: "ours".into(),
        modified: None,
    };
    let delete = |name: &str| crate::backends::FileChange::Delete { path: path(name) };
    let changes = ["same", "theirs", "gone", "in/gone", "directory", "twice"].map(file).into_iter().chain([
        delete("again"),
        delete("twice"),
        file("twice/in"),
    ]);
    let changes: Vec<_> = changes.collect();
    let mut index = scan(tree.root.as_fd(), &StatIndex::default(), Forms::Plain, &LeftOut::default()).unwrap().index;
    let made = tree.apply(&changes).unwrap();
    fs::write(at("theirs"), "them").unwrap();
    fs::remove_file(at("gone")).unwrap();
    fs::remove_dir_all(at("in")).unwrap();
    fs::remove_file(at("directory")).unwrap();
    fs::create_dir(at("directory")).unwrap();
    fs::create_dir(at("again")).unwrap();
    index.learn(tree.root.as_fd(), &made, Forms::Plain).unwrap();
    let touched = scan(tree.root.as_fd(), &index, Forms::Plain, &LeftOut::default()).unwrap().touched;
    for named in ["theirs", "again", "directory", "gone", "in"] {
        assert!(names(&touched, named), "{named}: {touched:?}");
    }
    assert!(!names(&touched, "same") && !names(&touched, "twice/in"), "{touched:?}");
}

/// The caller of a first scan finds entries that were made after it and are in no listing.
#[test]
fn scan_reports_short_lived_file_when_gone() {
    let directory = tempfile::tempdir().unwrap();
    let (files, aside) = (directory.path().join("files"), directory.path().join("aside"));
    fs::create_dir_all(files.join("in")).unwrap();
    fs::create_dir(&aside).unwrap();
    tick();
    let disk = PlainDisk::new(DirTree::beneath("host", &files, &aside, None).unwrap()).unwrap();
    let disk = OnDisk::new("host", Box::new(disk));
    disk.dirty().unwrap();
    fs::write(files.join("in/.x.swp"), "").unwrap();
    tick();
    let shown = disk.below(&EntryPath::root()).unwrap().entries;
    assert!(shown.iter().any(|(shown, _)| *shown == path("in/.x.swp")));
    disk.mark_clean().unwrap();
    fs::remove_file(files.join("in/.x.swp")).unwrap();
    assert_eq!(disk.dirty().unwrap(), [DirtyPath::Entry(path("in/.x.swp"))]);
    disk.mark_clean().unwrap();
    tick();
    for named in [1, 0] {
        assert!(disk.dirty().unwrap().len() <= named);
        disk.mark_clean().unwrap();
    }
}

#[test]
fn scan_of_ten_thousand_files_reports_one_change() {
    let fill = |top: &Path| {
        for directory in 0..100 {
            fs::create_dir(top.join(format!("d{directory}"))).unwrap();
            for file in 0..100 {
                fs::write(top.join(format!("d{directory}/f{file}")), "x").unwrap();
            }
        }
    };
    on_each_with(&fill, |rig| {
        let touched = rig.watch(|top| fs::write(top.join("d7/f7"), "y").unwrap());
        assert!(names(&touched, "d7/f7") && touched.len() <= 2, "{touched:?}");
        rig.watch(|top| fs::remove_dir_all(top.join("d8")).unwrap());
        rig.watch(|top| fs::remove_file(top.join("d9/f99")).unwrap());
    });
}

#[test]
fn scan_repeated_reports_same_entries() {
    let (before, after) = (World::new(), World::from([(path("a"), Seen::Directory)]));
    let found = std::panic::catch_unwind(|| assert_covered("", &before, &after, &[]));
    assert!(found.is_err(), "the suite itself detects an omission");
}
