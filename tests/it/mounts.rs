//! Mounts of sessions, through the program and the kernel.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::rig::{Program, eventually, skip};

/// The calls of the sessions here: three versions of one file, a link, a private file, a directory.
const CALLS: [&str; 3] = [
    "mkdir -p src/deep; echo one > a; ln -s a link; ln a hard; echo p > src/deep/key; chmod 600 src/deep/key",
    "echo two >> a; rm -r src; mkfifo pipe; printf '#!/bin/sh\\necho ran\\n' > run; chmod +x run",
    "rm a hard; mkdir a; echo three > a/b",
];

fn has_fuse() -> bool {
    let is_there = Path::new("/dev/fuse").exists();
    if !is_there {
        skip("this machine has no /dev/fuse");
    }
    is_there
}

/// A program with the session `demo`, which has made some of the calls, and the numbers of these calls.
struct World {
    program: Program,
    calls: Vec<u64>,
}

impl World {
    fn new(calls: usize) -> Self {
        let program = Program::new().through_owner();
        program.printed(&["new", "demo", "--backend", "host"]);
        let mut world = Self { program, calls: Vec::new() };
        CALLS[..calls].iter().for_each(|call| world.call(call));
        world
    }

    fn call(&mut self, command: &str) {
        self.program.printed(&["exec", "demo", "--yes", "--", "sh", "-c", command]);
        let calls = self.program.json_lines(&["log", "demo", "--calls"]);
        self.calls = calls.iter().map(|call| call["call"].as_u64().unwrap()).collect();
    }

    /// Mounts on a directory of the test.
    fn mount(&self, name: &str, options: &[&str]) -> PathBuf {
        let place = self.program.path(name);
        let words = [&["mount", "demo", place.to_str().unwrap()], options].concat();
        assert_eq!(self.program.printed(&words).trim(), place.canonicalize().unwrap().to_str().unwrap());
        place
    }

    fn mounts(&self) -> Vec<Value> {
        self.program.json(&["mounts"]).as_array().unwrap().clone()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for mount in self.mounts() {
            self.program.run(&["umount", "--lazy", mount["directory"].as_str().unwrap()]);
        }
    }
}

fn text(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path.as_ref()).unwrap_or_else(|error| panic!("{}: {error}", path.as_ref().display()))
}

fn names(directory: impl AsRef<Path>) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn kill(process: &Value) {
    let status = Command::new("kill").args(["-9", &process.to_string()]).status().unwrap();
    assert!(status.success());
}

#[test]
fn mount_at_position_has_files_as_recorded() {
    if !has_fuse() {
        return;
    }
    let world = World::new(2);
    let place = world.mount("then", &["--at", &world.calls[0].to_string()]);
    assert_eq!(names(&place), ["a", "hard", "link", "src"]);
    assert_eq!([text(place.join("a")), text(place.join("link"))], ["one\n", "one\n"]);
    assert_eq!(fs::read_link(place.join("link")).unwrap(), Path::new("a"));
    let about = |name: &str| fs::symlink_metadata(place.join(name)).unwrap();
    assert_eq!(about("src/deep/key").permissions().mode(), 0o100_600);
    assert_eq!((about("a").nlink(), about("a").ino()), (2, about("hard").ino()));
    let recorded = world.program.json(&["stat", "demo", "a", "--at", &world.calls[0].to_string()]);
    let changed =
        Command::new("date").args(["-u", "-r", place.join("a").to_str().unwrap(), "+%FT%T"]).output().unwrap();
    let changed = String::from_utf8(changed.stdout).unwrap();
    assert!(recorded.to_string().contains(changed.trim()), "{recorded} {changed}");
    let written = fs::write(place.join("new"), "x").unwrap_err();
    assert_eq!(written.kind(), std::io::ErrorKind::ReadOnlyFilesystem);

    // The mount of a position stays the same while the session works.
    let now = world.mount("now", &[]);
    let ran = Command::new(now.join("run")).output().unwrap();
    assert_eq!(ran.stdout, b"ran\n");
    assert_eq!((names(&now), names(&place).len()), (["a", "hard", "link", "pipe", "run"].map(String::from).into(), 4));
    assert_eq!(world.mounts().len(), 2);
    let umount = |name: &str| world.program.printed(&["umount", world.program.path(name).to_str().unwrap()]);
    umount("then");
    umount("now");
    assert_eq!(world.mounts().len(), 0);
    eventually("what was made for the mount is removed", || !place.exists());
}

#[test]
fn mount_of_present_follows_session() {
    if !has_fuse() {
        return;
    }
    let mut world = World::new(2);
    let place = world.mount("now", &[]);
    assert_eq!(text(place.join("a")), "one\ntwo\n");
    let held = fs::File::open(place.join("a")).unwrap();
    world.call(CALLS[2]);
    eventually("the change shows", || place.join("a/b").exists());
    assert_eq!(
        (text(place.join("a/b")), names(&place)),
        ("three\n".to_owned(), vec!["a".to_owned(), "link".into(), "pipe".into(), "run".into()])
    );
    drop(held);
    // As on a disk, a file that was replaced or removed stays what it was for a process that has it open.
    let mut held = fs::File::open(place.join("a/b")).unwrap();
    world.call("printf 'longer than before\\n' > c; mv c a/b");
    eventually("the new file shows", || text(place.join("a/b")) == "longer than before\n");
    let mut kept = String::new();
    held.read_to_string(&mut kept).unwrap();
    assert_eq!((kept.as_str(), held.metadata().unwrap().len()), ("three\n", 6));
    world.program.printed(&["rewind", "demo", "--to", &world.calls[0].to_string(), "--yes"]);
    eventually("the rewind shows", || place.join("src/deep/key").exists() && place.join("a").is_file());
    assert_eq!(text(place.join("a")), "one\n");

    world.program.printed(&["remove", "demo", "--yes"]);
    eventually("it ends with its session", || world.mounts().is_empty() && !place.exists());
}

#[test]
fn mount_with_all_has_every_moment() {
    if !has_fuse() {
        return;
    }
    let world = World::new(3);
    let place = world.mount("all", &["--all"]);
    let [first, second, third] = world.calls[..] else { panic!("{:?}", world.calls) };
    assert_eq!(names(&place), ["a", "link", "pipe", "run"], "the directories of moments are hidden");
    assert_eq!(names(place.join(".call")).len(), 3);
    assert_eq!(text(place.join(format!(".call/{third}/before/a"))), "one\ntwo\n");
    assert_eq!(text(place.join(format!(".call/{third}/after/a/b"))), "three\n");
    assert_eq!(text(place.join(format!(".at/{first}/a"))), "one\n");
    assert_eq!(text(place.join(format!(".at/before:{third}/a"))), text(place.join(format!(".at/{second}/a"))));
    assert_eq!(text(place.join(".sessions/demo/a/b")), "three\n");
    assert!(!place.join(".sessions/demo/.sessions").exists());
    world.program.printed(&["fork", "demo", "--name", "child", "--at", &second.to_string()]);
    assert_eq!(names(place.join(".sessions")), ["child", "demo"]);
    assert_eq!(text(place.join(".sessions/child/.at/-0/a")), "one\ntwo\n");
    world.program.printed(&["remove", "child", "--yes"]);
    eventually("the removed session is gone", || !place.join(".sessions/child").exists());
    for missing in
        [".at/99999", ".at/nonsense", ".at/tag:none", ".call/1", ".call/x", ".sessions/none", ".call/1/before"]
    {
        assert!(!place.join(missing).exists(), "{missing}");
    }
}

#[test]
fn mount_outlives_killed_owner() {
    if !has_fuse() {
        return;
    }
    let mut world = World::new(1);
    let place = world.mount("now", &[]);
    assert_eq!(text(place.join("a")), "one\n");
    for owner in world.program.owners() {
        kill(&json!(owner));
        eventually("the owner has ended", || !Path::new(&format!("/proc/{owner}")).exists());
    }
    assert_eq!(text(place.join("src/deep/key")), "p\n", "it reads the files of the store");
    world.call(CALLS[1]);
    eventually("the next owner's events show", || text(place.join("a")) == "one\ntwo\n");

    // Its own process: the directory is free again.
    kill(&world.mounts()[0]["process"]);
    eventually("the killed mount is unmounted", || world.mounts().is_empty());
    assert!(place.is_dir() && names(&place).is_empty());
    world.mount("now", &[]);
    assert_eq!(text(place.join("a")), "one\ntwo\n");
}

#[test]
fn mount_on_used_directory_is_refused() {
    if !has_fuse() {
        return;
    }
    let world = World::new(1);
    let full = world.program.path("full");
    world.program.file("full/mine", "x");
    let file = world.program.file("file", "x");
    let refused = |place: &str, options: &[&str]| world.program.run(&[&["mount", "demo", place], options].concat());
    let told = refused(full.to_str().unwrap(), &[]);
    assert!(told.contains("it is not empty") && told.ends_with("[exit 1]"), "{told}");
    let told = refused(&file, &[]);
    assert!(told.contains("it is not a directory"), "{told}");
    let told = refused(world.program.path("no/such").to_str().unwrap(), &[]);
    assert!(told.contains("failed to create"), "{told}");
    let told = refused(world.program.data().join("inside").to_str().unwrap(), &[]);
    assert!(told.contains("the data directory"), "{told}");
    assert!(!world.program.data().join("inside").exists());
    let new = world.program.path("new");
    let told = refused(new.to_str().unwrap(), &["--at", "999"]);
    assert!(told.contains("no position 999") && !new.exists(), "{told}");
    let place = world.mount("once", &[]);
    let told = refused(place.to_str().unwrap(), &[]);
    assert!(told.contains("something is mounted there already"), "{told}");

    let inside = fs::File::open(place.join("a")).unwrap();
    let told = world.program.run(&["umount", place.to_str().unwrap()]);
    assert!(told.contains("is in use") && told.ends_with("[exit 4]"), "{told}");
    world.program.printed(&["umount", "--lazy", place.to_str().unwrap()]);
    drop(inside);
    let told = world.program.run(&["umount", full.to_str().unwrap()]);
    assert!(told.contains("no mount of foldspace") && full.join("mine").exists(), "{told}");
}

#[test]
fn mount_of_unstored_file_says_so() {
    if !has_fuse() {
        return;
    }
    let mut world = World::new(1);
    world.call("head -c 70000000 /dev/zero | tr '\\0' x > big");
    let place = world.mount("now", &[]);
    assert_eq!(fs::metadata(place.join("big")).unwrap().len(), 70_000_000);
    let error = fs::read(place.join("big")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(61), "{error}: no data available");
    assert_eq!(text(place.join("a")), "one\n");
}

/// A workspace in a mount, or `None` where none can be mounted.
fn mounted_world() -> Option<World> {
    let program = Program::new().through_owner();
    let told = program.run(&["new", "demo", "--backend", "mount"]);
    if !told.ends_with("[exit 0]") {
        skip(&told);
        return None;
    }
    Some(World { program, calls: Vec::new() })
}

fn shown(world: &World, session: &str, command: &str) -> String {
    world.program.printed(&["exec", session, "--yes", "--", "sh", "-c", command])
}

#[test]
fn forks_in_mounts_share_files_and_diverge() {
    let Some(mut world) = mounted_world() else { return };
    world.call("mkdir -p src/deep; seq 1000 > src/deep/key; ln src/deep/key hard");
    world.call("mv src lib; echo changed >> hard");
    world.program.printed(&["fork", "demo", "--name", "child"]);
    let first = world.calls[0].to_string();
    world.program.printed(&["fork", "demo", "--name", "old", "--at", &first]);
    assert_eq!(shown(&world, "child", "tail -n 1 lib/deep/key; rm -r lib; echo child > hard; ls"), "changed\nhard\n");
    assert_eq!(
        shown(&world, "old", "ls; tail -n 1 hard; echo more >> src/deep/key; tail -n 1 hard"),
        "hard\nsrc\n1000\nmore\n"
    );
    assert_eq!(shown(&world, "demo", "ls; cat lib/deep/key | wc -l"), "hard\nlib\n1001\n");
    for session in ["demo", "child", "old"] {
        let live = PathBuf::from(shown(&world, session, "pwd").trim());
        let copy = world.program.path(&format!("copy-{session}"));
        world.program.printed(&["materialise", session, copy.to_str().unwrap()]);
        let same = Command::new("diff").args(["-r", "--no-dereference"]).args([&live, &copy]).output().unwrap();
        assert!(same.status.success(), "{session}: {}", String::from_utf8_lossy(&same.stdout));
    }
    // A process that stands in a directory keeps the mount from before a fork, which nothing can change any more.
    let live = PathBuf::from(shown(&world, "demo", "pwd").trim());
    let inside = fs::File::open(&live).unwrap();
    world.program.printed(&["fork", "demo", "--name", "third"]);
    let stale = format!("/proc/self/fd/{}/hard", std::os::fd::AsRawFd::as_raw_fd(&inside));
    assert_eq!(fs::write(stale, "stale").unwrap_err().kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    assert_eq!(shown(&world, "third", "tail -n 1 hard"), "changed\n");
    // While a file is open for writing, the fork gets a copy.
    let mut open = fs::OpenOptions::new().append(true).open(live.join("hard")).unwrap();
    world.program.printed(&["fork", "demo", "--name", "fourth"]);
    open.write_all(b"later\n").unwrap();
    drop(open);
    assert_eq!(shown(&world, "fourth", "tail -n 1 hard"), "changed\n");
    assert_eq!(shown(&world, "demo", "tail -n 1 hard; rm hard; ln lib/deep/key hard"), "later\n");
    // What a killed owner leaves mounted is replaced.
    for owner in world.program.owners() {
        kill(&json!(owner));
        eventually("the owner has ended", || !Path::new(&format!("/proc/{owner}")).exists());
    }
    assert_eq!(shown(&world, "child", "cat hard"), "child\n");
    assert_eq!(shown(&world, "demo", "tail -n 1 hard"), "changed\n");
    for session in ["demo", "child", "old", "third", "fourth"] {
        world.program.printed(&["remove", session, "--yes"]);
    }
    let left = names(world.program.data().join("workspaces"));
    assert_eq!(left, ["layers"], "nothing is left of removed sessions");
    assert_eq!(names(world.program.data().join("workspaces/layers")), ["lock"]);
}

#[test]
fn fork_by_mount_of_host_session_has_its_files() {
    if mounted_world().is_none() {
        return;
    }
    let mut world = World::new(1);
    world.call("seq 1000 > numbers");
    let fork = |name: &str, options: &[&str]| {
        world.program.printed(&[&["fork", "demo", "--fork-by", "mount", "--name", name], options].concat());
    };
    fork("one", &[]);
    fork("past", &["--at", &world.calls[0].to_string()]);
    fork("two", &[]);
    assert_eq!(shown(&world, "one", "cat a; wc -l < numbers; echo one > a; cat hard"), "one\n1000\none\n");
    assert_eq!(shown(&world, "past", "cat a; ls"), "one\na\nhard\nlink\nsrc\n");
    assert_eq!(shown(&world, "two", "cat src/deep/key; rm -r src; ls"), "p\na\nhard\nlink\nnumbers\n");
    assert_eq!(shown(&world, "demo", "cat src/deep/key a"), "p\none\n");
    let told = world.program.run(&["fork", "demo", "--fork-by", "mount", "--isolation", "full"]);
    assert!(told.contains("only a fork") && told.ends_with("[exit 2]"), "{told}");
    world.program.printed(&["new", "memory", "--backend", "memory"]);
    world.program.printed(&[
        "run",
        &world.program.file("w.jsonl", json!({"tool": "ls"}).to_string()),
        "--session",
        "memory",
    ]);
    let told = world.program.run(&["fork", "memory", "--fork-by", "mount"]);
    assert!(told.contains("only a session on the host"), "{told}");
    world.program.printed(&["remove", "demo", "--yes"]);
    assert_eq!(shown(&world, "two", "cat a"), "one\n");
}

#[test]
fn unmounted_workspace_runs_no_command() {
    let Some(mut world) = mounted_world() else { return };
    world.call("echo one > a");
    let live = shown(&world, "demo", "pwd");
    let unmounted = Command::new("umount").args(["-l", live.trim()]).status().unwrap();
    assert!(unmounted.success());
    let told = world.program.run(&["exec", "demo", "--yes", "--", "sh", "-c", "echo lost > a"]);
    assert!(told.contains("are not mounted at") && !told.ends_with("[exit 0]"), "{told}");
    world.program.printed(&["stop"]);
    assert_eq!(shown(&world, "demo", "cat a"), "one\n");
    for owner in world.program.owners() {
        kill(&json!(owner));
        eventually("the owner has ended", || !Path::new(&format!("/proc/{owner}")).exists());
    }
    world.program.printed(&["gc"]);
    assert!(!fs::read_to_string("/proc/self/mountinfo").unwrap().contains(live.trim()), "gc unmounts it");
    assert_eq!(shown(&world, "demo", "cat a"), "one\n");
}

#[test]
fn workspace_in_mount_refuses_directory() {
    let program = Program::new();
    let told = program.run(&["new", "demo", "--backend", "mount", "--dir", "."]);
    assert!(told.contains("mount needs a new directory") && told.ends_with("[exit 2]"), "{told}");
}
