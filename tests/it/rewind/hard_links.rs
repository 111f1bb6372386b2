//! Hard links: names of one file come back as names of one file, and others as files of their own.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use foldspace::event::LinkFile;
use foldspace::reducers::MergeChoices;
use foldspace::tools::{RewindOptions, UndoOptions, UndoSubject, materialise, merge_child};
use foldspace::{EntryPath, VirtualFileSystem, WorkspaceSpec};

use crate::rig::{Family, Kind, Rig};

fn inode(root: &Path, name: &str) -> u64 {
    fs::symlink_metadata(root.join(name)).unwrap().ino()
}

fn are_one(root: &Path, one: &str, other: &str) -> bool {
    inode(root, one) == inode(root, other)
}

fn names(files: &VirtualFileSystem) -> Vec<Vec<String>> {
    let all = files.hard_links().into_iter();
    all.map(|names| names.iter().map(ToString::to_string).collect()).collect()
}

#[test]
fn names_of_one_file_are_recorded_until_they_come_apart() {
    let rig = Rig::new(Kind::Host).unwrap();
    let first = rig.ok("echo one > a && mkdir d && ln a d/b && ln a d/c && echo x > x");
    assert_eq!(first.of::<LinkFile>().len(), 2);
    assert_eq!(names(&rig.slice()), [["a", "d/b", "d/c"]]);
    assert_eq!(rig.ok("echo two >> d/b").of::<LinkFile>().len(), 2);
    assert_eq!(rig.ok("true").of::<LinkFile>(), []);
    rig.ok("cp d/c kept && mv kept d/c");
    assert_eq!(names(&rig.slice()), [["a", "d/b"]], "an equal file of its own");
    rig.ok("ln -f x d/c && ln x y");
    assert_eq!(names(&rig.slice()), [vec!["a", "d/b"], vec!["d/c", "x", "y"]]);
    rig.ok("mv a moved");
    assert_eq!(names(&rig.slice()), [vec!["d/b", "moved"], vec!["d/c", "x", "y"]]);
    rig.ok("ln -f x moved && ln -f d/b y");
    assert_eq!(names(&rig.slice()), [vec!["d/b", "y"], vec!["d/c", "moved", "x"]]);
    let outside = rig.data().join("outside");
    rig.ok(&format!("rm -r d && ln y {}", outside.display()));
    assert_eq!(names(&rig.slice()), [["moved", "x"]], "a name outside of the workspace is none");
    rig.verify();
}

#[test]
fn rewind_joins_names_and_takes_them_apart() {
    let rig = Rig::new(Kind::Host).unwrap();
    let root = rig.root();
    let linked = rig.ok("echo one > a && mkdir d && ln a d/b && echo c > c").outcome.finished;
    let before = fs::metadata(root.join("a")).unwrap().modified().unwrap();
    let apart = rig.ok("cp d/b kept && mv kept d/b && ln c d/c").outcome.finished;
    let written = rig.ok("echo two >> a && chmod 600 a").outcome.finished;
    let to = |seq| rig.rewind(seq, RewindOptions::default()).unwrap();
    assert!(to(linked).apart.is_empty());
    assert!(are_one(&root, "a", "d/b") && !root.join("d/c").exists());
    rig.check("rewind to linked names");
    assert_eq!(fs::metadata(root.join("a")).unwrap().nlink(), 2);
    to(apart);
    assert!(!are_one(&root, "a", "d/b") && are_one(&root, "c", "d/c"));
    to(written);
    assert!(!are_one(&root, "a", "d/b"));
    assert_eq!(fs::metadata(root.join("d/b")).unwrap().mode() & 0o777, 0o644);
    to(linked);
    assert!(are_one(&root, "a", "d/b"));
    assert!(fs::metadata(root.join("c")).unwrap().nlink() == 1);
    assert_eq!(rig.ok("echo three >> d/b && cat a").stdout().trim_end(), "one\nthree");
    assert_eq!(names(&rig.slice()), [["a", "d/b"]]);
    assert_eq!(rig.ok("true").writes_and_deletes(), (0, 0));
    assert!(before <= fs::metadata(root.join("a")).unwrap().modified().unwrap());
    rig.verify();
}

#[test]
fn rewind_to_a_new_name_keeps_the_file() {
    let rig = Rig::new(Kind::Host).unwrap();
    let root = rig.root();
    let linked = rig.ok("echo one > z && touch -d 2001-01-01 z && ln z a").outcome.finished;
    rig.ok("rm a");
    let (file, time) = (inode(&root, "z"), fs::metadata(root.join("z")).unwrap().mtime());
    rig.rewind(linked, RewindOptions::default()).unwrap();
    assert!(are_one(&root, "a", "z"));
    assert_eq!(inode(&root, "z"), file);
    // A build may know the file by the name that came back.
    assert!(fs::metadata(root.join("z")).unwrap().mtime() > time);
}

#[test]
fn mode_of_a_name_that_comes_apart_is_its_own() {
    let rig = Rig::new(Kind::Host).unwrap();
    let root = rig.root();
    let apart = rig.ok("echo one > a && cp a b && chmod 600 a").outcome.finished;
    rig.ok("chmod 644 a && ln -f a b");
    rig.rewind(apart, RewindOptions::default()).unwrap();
    let mode = |name: &str| fs::metadata(root.join(name)).unwrap().mode() & 0o777;
    assert_eq!((mode("a"), mode("b")), (0o600, 0o644));
    rig.check("names that came apart");
}

#[test]
fn undo_and_its_undos_keep_names_of_one_file() {
    let rig = Rig::new(Kind::Host).unwrap();
    let root = rig.root();
    rig.ok("echo one > a && ln a b && echo x > x");
    let call = rig.ok("echo two >> b && rm x && ln a c").outcome.call;
    let options = UndoOptions::default();
    let mut subject = UndoSubject::Call(call);
    for (text, exists) in [("one\n", false), ("one\ntwo\n", true), ("one\n", false), ("one\ntwo\n", true)] {
        let report = rig.runtime.block_on(rig.tool_runner().undo(subject, options)).unwrap();
        assert!(report.left.is_empty() && report.apart.is_empty());
        subject = UndoSubject::Call(report.call.unwrap());
        assert!(are_one(&root, "a", "b"));
        assert_eq!(fs::read_to_string(root.join("b")).unwrap(), text);
        assert_eq!(root.join("c").exists(), exists);
        assert!(!exists || are_one(&root, "a", "c"));
        rig.check("an undo");
    }
    assert_eq!(rig.ok("echo three > c && cat a b").stdout().trim_end(), "three\nthree");
    rig.verify();
}

#[test]
fn forks_copies_and_merges_have_names_of_one_file() {
    let family = Family::on_host();
    let parent = family.founder();
    family.sh(&parent, "echo one > a && mkdir d && ln a d/b && echo x > x");
    let child = family.fork(&parent);
    let (ours, theirs) = (family.files_of(parent.session()), family.files_of(child.session()));
    assert!(are_one(&theirs, "a", "d/b"));
    assert_eq!(family.sh(&child, "echo two >> a && ln x y && cat d/b").trim_end(), "one\ntwo");
    assert_eq!(fs::read_to_string(ours.join("d/b")).unwrap(), "one\n");

    let copy = tempfile::tempdir().unwrap();
    let state = child.session().state().unwrap();
    let written = materialise(child.session(), &state, copy.path()).unwrap();
    assert!(written.left.is_empty() && written.apart.is_empty());
    assert!(are_one(copy.path(), "a", "d/b") && are_one(copy.path(), "x", "y") && !are_one(copy.path(), "a", "x"));

    family.runtime.block_on(merge_child(&parent, child.session(), &MergeChoices::default())).unwrap();
    assert!(are_one(&ours, "a", "d/b") && are_one(&ours, "x", "y"));
    assert_eq!(fs::read_to_string(ours.join("d/b")).unwrap(), "one\ntwo\n");
    let files = VirtualFileSystem::of(&parent.session().state().unwrap());
    assert_eq!(files.names(&EntryPath::lookup("y").unwrap()).len(), 2);
    family.verify();
}

#[test]
fn names_in_a_container_stay_one_file_in_forks_and_layers() {
    let Some(options) = Rig::options(Kind::Overlay) else { return };
    let family = Family::new(WorkspaceSpec::Podman(options));
    let parent = family.founder();
    family.sh(&parent, "echo one > a && mkdir d && ln a d/b && ln a c");
    let child = family.fork(&parent);
    assert_eq!(family.sh(&child, "echo two >> d/b && cat a").trim_end(), "one\ntwo");
    let grandchild = family.fork(&child);
    assert_eq!(family.sh(&grandchild, "echo three >> a && cat c").trim_end(), "one\ntwo\nthree");
    assert_eq!(family.sh(&parent, "echo other >> c && cat d/b").trim_end(), "one\nother");
    // More entries than an upper layer may have: it becomes a lower one.
    family.sh(&parent, "for i in $(seq 90); do echo $i > f$i; done");
    assert_eq!(family.sh(&parent, "echo last > a && cat c d/b").trim_end(), "last\nlast");
    for member in [&parent, &child, &grandchild] {
        let files = VirtualFileSystem::of(&member.session().state().unwrap());
        assert_eq!(names(&files), [["a", "c", "d/b"]]);
    }
    family.verify();
}

#[test]
fn names_in_new_and_moved_directories_are_recorded() {
    let rig = Rig::new(Kind::Host).unwrap();
    rig.ok("mkdir src && echo 1 > src/d && echo 1 > f");
    rig.ok("cp -al src snap && mkdir n && ln f n/x");
    assert_eq!(names(&rig.slice()), [["f", "n/x"], ["snap/d", "src/d"]]);
    rig.ok("mv n moved");
    assert_eq!(names(&rig.slice()), [["f", "moved/x"], ["snap/d", "src/d"]]);
    rig.verify();
}

#[test]
fn rewound_name_of_a_file_is_newer_than_what_was_built_since() {
    let rig = Rig::new(Kind::Host).unwrap();
    let root = rig.root();
    let linked = rig.ok("echo v1 > h && ln h g && touch -d 2001-01-01 h").outcome.finished;
    rig.ok("sed -i s/v1/v2/ h && cp h product");
    let built = fs::metadata(root.join("product")).unwrap().modified().unwrap();
    rig.rewind(linked, RewindOptions::default()).unwrap();
    assert!(are_one(&root, "g", "h"));
    assert!(fs::metadata(root.join("h")).unwrap().modified().unwrap() > built);
}

#[test]
fn undo_in_a_new_layer_keeps_names_of_one_file() {
    let Some(options) = Rig::options(Kind::Overlay) else { return };
    let family = Family::new(WorkspaceSpec::Podman(options));
    let parent = family.founder();
    family.sh(&parent, "echo q > q && ln q q2 && ln q q3");
    family.sh(&parent, "rm q3");
    // Its layer becomes a lower one.
    drop(family.fork(&parent));
    let undone = family.runtime.block_on(parent.undo(UndoSubject::Last, UndoOptions::default())).unwrap();
    assert!(undone.left.is_empty() && undone.apart.is_empty());
    assert_eq!(family.sh(&parent, "echo new >> q; cat q2 q3").trim_end(), "q\nnew\nq\nnew");
    family.verify();
}

#[test]
fn archive_has_links_for_further_names() {
    let rig = Rig::new(Kind::Host).unwrap();
    rig.ok("echo one > a && mkdir d && ln a d/b && ln a d/c");
    let state = rig.session().state().unwrap();
    let linked = |below: &str| {
        let mut bytes = Vec::new();
        let below = EntryPath::lookup(below).unwrap();
        foldspace::tools::write_tar(rig.session(), &state, &below, &mut bytes).unwrap();
        let mut archive = tar::Archive::new(&bytes[..]);
        let links = archive.entries().unwrap().filter_map(|entry| {
            let entry = entry.unwrap();
            let link = entry.link_name().unwrap()?;
            Some((entry.path().unwrap().into_owned(), link.into_owned()))
        });
        links.map(|(path, to)| format!("{} {}", path.display(), to.display())).collect::<Vec<_>>()
    };
    assert_eq!(linked(""), ["d/b a", "d/c a"]);
    assert_eq!(linked("d"), ["c b"], "a name that is not in it is none");
}
