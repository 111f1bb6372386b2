//! Entries that rules leave out, compared with git's.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use proptest::prelude::*;

use crate::backends::disk::locked::OnDisk;
use crate::backends::disk::{DirTree, IgnoreRules, PlainDisk, PlainOptions, RecordedBeyond};
use crate::backends::{ChangeDetector, DirtyPath, FileChange};
use crate::engine::path::EntryPath;
use crate::testing::eventually;

fn git(directory: &Path, arguments: &[&str]) -> Vec<u8> {
    let ran = Command::new("git").arg("-C").arg(directory).args(arguments).output().unwrap();
    assert!(ran.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&ran.stderr));
    ran.stdout
}

fn write(directory: &Path, path: &str, text: &str) {
    let path = directory.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

struct Ruled {
    files: tempfile::TempDir,
    disk: OnDisk,
    _aside: tempfile::TempDir,
}

/// A disk with the rules of its directory, or of its subdirectory `below`.
fn ruled(files: tempfile::TempDir, below: &str, included: &[&str]) -> Ruled {
    let included = included.iter().map(|path| EntryPath::lookup(path).unwrap()).collect();
    recording(files, below, RecordedBeyond { included, ..RecordedBeyond::default() })
}

fn recording(files: tempfile::TempDir, below: &str, beyond: RecordedBeyond) -> Ruled {
    let aside = tempfile::tempdir().unwrap();
    let root = files.path().join(below).canonicalize().unwrap();
    let rules = Some(Arc::new(IgnoreRules::of(&root, beyond)));
    let tree = DirTree::beneath("host", &root, aside.path(), None).unwrap();
    let options = PlainOptions { rules, may_watch: true, ..PlainOptions::default() };
    let disk = OnDisk::new("host", Box::new(PlainDisk::with_options(tree, options).unwrap()));
    Ruled { files, disk, _aside: aside }
}

/// Returns the files that a scan finds.
fn seen(disk: &OnDisk) -> BTreeSet<String> {
    disk.dirty().unwrap();
    let below = disk.below(&EntryPath::root()).unwrap();
    disk.mark_clean().unwrap();
    let files = below.entries.into_iter().filter(|(_, observed)| !observed.is_directory());
    files.map(|(path, _)| path.to_string()).collect()
}

/// Returns the reported paths of a scan, after earlier writes are old enough for changes to show.
fn named(disk: &OnDisk) -> BTreeSet<String> {
    let dirty = disk.dirty().unwrap();
    for path in &dirty {
        let (DirtyPath::Entry(path) | DirtyPath::Subtree(path)) = path;
        disk.observe(path).unwrap();
    }
    disk.mark_clean().unwrap();
    let shown = |path: &DirtyPath| match path {
        DirtyPath::Entry(path) => path.to_string(),
        DirtyPath::Subtree(path) => format!("{path}/"),
    };
    dirty.iter().map(shown).collect()
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

const NAMES: [&str; 6] = ["a", "b.log", "build", "src", "x", ".hidden"];
const PATTERNS: [&str; 14] = [
    "*.log", "!b.log", "build/", "/build", "src/x", "**/x", "a", "!a", "/src/*", "!/src/a", "x/**", "# a", "\\#a", "b*",
];

fn path() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(&NAMES[..]), 1..4).prop_map(|names| names.join("/"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn rules_leave_out_what_git_ignores(
        files in prop::collection::btree_set(path(), 1..25),
        rules in prop::collection::vec((prop_oneof![Just(String::new()), path()], prop::collection::vec(prop::sample::select(&PATTERNS[..]), 1..4)), 0..4),
        exclude in prop::collection::vec(prop::sample::select(&PATTERNS[..]), 0..2),
        tracked in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        git(root, &["init", "-q"]);
        fs::write(root.join(".git/info/exclude"), exclude.join("\n")).unwrap();
        let put = |path: &str, text: &str| {
            // Fails if a file is in the way.
            let path = root.join(path);
            drop(fs::create_dir_all(path.parent().unwrap()));
            drop(fs::write(path, text));
        };
        files.iter().for_each(|path| put(path, "1"));
        rules.iter().for_each(|(directory, lines)| put(format!("{directory}/.gitignore").trim_start_matches('/'), &lines.join("\n")));
        let files: Vec<_> = files.iter().filter(|path| root.join(path).is_file()).collect();
        for tracked in tracked {
            if !files.is_empty() {
                let tracked = files[tracked.index(files.len())].as_str();
                git(root, &["add", "-f", "--", tracked]);
            }
        }
        let printed = git(root, &["ls-files", "-z", "-c", "-o", "--exclude-standard"]);
        let expected: BTreeSet<_> = printed.split(|byte| *byte == 0).filter(|path| !path.is_empty())
            .map(|path| String::from_utf8(path.to_vec()).unwrap()).collect();
        let ruled = ruled(directory, "", &[]);
        prop_assert_eq!(seen(&ruled.disk), expected);
    }
}

#[test]
fn rules_without_repository_leave_out_what_programs_make() {
    let directory = tempfile::tempdir().unwrap();
    for path in ["a", "node_modules/x/y", "sub/target/z", "sub/b", ".env"] {
        write(directory.path(), path, "1");
    }
    let ruled = ruled(directory, "", &["sub/target"]);
    assert_eq!(seen(&ruled.disk), names(&[".env", "a", "sub/b", "sub/target/z"]));
    for name in [".env", "etc/shadow", "etc/gshadow"] {
        assert!(ruled.disk.is_secret(&EntryPath::lookup(name).unwrap()), "{name}");
    }
    assert!(!ruled.disk.is_secret(&EntryPath::lookup(".env.example").unwrap()));
}

#[test]
fn rules_gone_with_git_are_the_last_known() {
    let directory = tempfile::tempdir().unwrap();
    git(directory.path(), &["init", "-q"]);
    write(directory.path(), ".git/info/exclude", "made\n");
    for path in ["a", "made/x", ".gitignore"] {
        write(directory.path(), path, "*.log\n");
    }
    let ruled = ruled(directory, "", &[]);
    assert_eq!(seen(&ruled.disk), names(&[".gitignore", "a"]));
    fs::remove_dir_all(ruled.files.path().join(".git")).unwrap();
    fs::remove_file(ruled.files.path().join("a")).unwrap();
    write(ruled.files.path(), "made/y", "1");
    write(ruled.files.path(), "b.log", "1");
    assert_eq!(named(&ruled.disk), names(&["a"]));
    assert_eq!(ruled.disk.git_place().unwrap(), None);
    // A later process has only the rules in files.
    let again = IgnoreRules::of(ruled.files.path(), RecordedBeyond::default());
    assert!(again.repository().is_none());
}

#[test]
fn nested_repository_shows_what_it_tracks_though_ignored() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().to_owned();
    git(&root, &["init", "-q"]);
    write(&root, ".gitignore", "*.o\n");
    git(&root, &["init", "-q", "inner"]);
    for path in ["inner/.gitignore", "inner/deep/a.cmake", "inner/b.cmake", "inner/c.o", "inner/d"] {
        write(&root, path, "*.cmake\ndeep\n");
    }
    git(&root.join("inner"), &["add", "-f", "deep/a.cmake", "c.o"]);
    let ruled = ruled(directory, "", &[]);
    let expected = [".gitignore", "inner/.gitignore", "inner/c.o", "inner/d", "inner/deep/a.cmake"];
    assert_eq!(seen(&ruled.disk), names(&expected));
    git(&root.join("inner"), &["add", "-f", "b.cmake"]);
    assert!(named(&ruled.disk).contains("inner/b.cmake"));
}

#[test]
fn small_ignored_files_are_recorded_outside_of_built_directories() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().to_owned();
    git(&root, &["init", "-q"]);
    write(&root, ".gitignore", ".env\nnotes/\n*.db\nbuild/\n*.o\nnode_modules\n.my_cache\n");
    for path in [".env", "notes/a", "local.db", "build/x", "b.o", "notes/build/y", "node_modules/z", ".my_cache/c"] {
        write(&root, path, "1");
    }
    fs::write(root.join("big.db"), vec![0; 1 << 20]).unwrap();
    let beyond = |ignored, secrets| RecordedBeyond { included: Vec::new(), ignored, secrets };
    let both = recording(directory, "", beyond(true, true));
    assert_eq!(seen(&both.disk), names(&[".env", ".gitignore", "local.db", "notes/a"]));
    let secrets = recording(both.files, "", beyond(false, true));
    assert_eq!(seen(&secrets.disk), names(&[".env", ".gitignore"]));
    let ignored = recording(secrets.files, "", beyond(true, false));
    assert_eq!(seen(&ignored.disk), names(&[".gitignore", "local.db", "notes/a"]));
}

#[test]
fn rules_above_a_subdirectory_count_there() {
    let directory = tempfile::tempdir().unwrap();
    git(directory.path(), &["init", "-q"]);
    write(directory.path(), ".gitignore", "*.log\n/sub/made\n");
    for path in ["sub/a", "sub/a.log", "sub/made/x", "sub/deep/b.log", "other"] {
        write(directory.path(), path, "1");
    }
    let ruled = ruled(directory, "sub", &[]);
    assert_eq!(seen(&ruled.disk), names(&["a"]));
}

#[test]
fn known_entry_stays_when_a_rule_ignores_it_later() {
    let directory = tempfile::tempdir().unwrap();
    git(directory.path(), &["init", "-q"]);
    write(directory.path(), "made/a", "1");
    write(directory.path(), "b", "1");
    let ruled = ruled(directory, "", &[]);
    let (files, disk) = (ruled.files.path(), &ruled.disk);
    assert_eq!(seen(disk).len(), 2);
    write(files, ".gitignore", "made\nb\nc\n");
    assert!(named(disk).contains(".gitignore"));
    eventually("nothing is new", || named(disk).is_empty());
    write(files, "made/a", "two");
    write(files, "made/new", "1");
    write(files, "c", "1");
    fs::remove_file(files.join("b")).unwrap();
    assert_eq!(named(disk), names(&["b", "made/a"]));
    // Removing a rule shows the entries that it ignored.
    write(files, ".gitignore", "");
    assert!(named(disk).is_superset(&names(&[".gitignore", "c", "made/new"])));
}

#[test]
fn git_directories_are_nobody_elses() {
    let directory = tempfile::tempdir().unwrap();
    git(directory.path(), &["init", "-q"]);
    git(directory.path(), &["init", "-q", "vendor/inner"]);
    write(directory.path(), "vendor/inner/a", "1");
    let ruled = ruled(directory, "", &[]);
    assert_eq!(seen(&ruled.disk), names(&["vendor/inner/a"]));
    let config = EntryPath::lookup("vendor/inner/.git/config").unwrap();
    assert_eq!(ruled.disk.observe(&config).unwrap(), None);
    let change = FileChange::Delete { path: config };
    assert!(ruled.disk.apply(&[change]).unwrap_err().to_string().contains("not permitted"));
    assert!(ruled.files.path().join("vendor/inner/.git/config").exists());
}

#[test]
fn directory_removed_keeps_what_is_left_out() {
    let directory = tempfile::tempdir().unwrap();
    git(directory.path(), &["init", "-q"]);
    write(directory.path(), ".gitignore", "*.o\n");
    for path in ["src/a.c", "src/a.o", "src/deep/b.c", "lib/c.c"] {
        write(directory.path(), path, "1");
    }
    let ruled = ruled(directory, "", &[]);
    seen(&ruled.disk);
    let delete = |path: &str| FileChange::Delete { path: EntryPath::lookup(path).unwrap() };
    ruled.disk.apply(&[delete("src"), delete("lib")]).unwrap();
    let there = |path: &str| ruled.files.path().join(path).exists();
    assert_eq!(["src/a.o", "src/a.c", "src/deep", "lib"].map(there), [true, false, false, false]);
    assert!(named(&ruled.disk).contains("src/"), "it still exists, unexpectedly");
}
