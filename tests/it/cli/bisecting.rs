//! `foldspace bisect`, and prompts into copies of what was.

use std::path::Path;

use insta::assert_snapshot;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::World;
use crate::rig::eventually;

/// So many calls, each of which writes a number; the bug comes with one of them.
fn script(calls: usize, bug: usize) -> String {
    let call = |number: usize| {
        let content = if number < bug { "all is well\n".to_owned() } else { format!("BUG in {bug}\n") };
        let state = json!({ "file_path": format!("state-{number}.txt"), "content": content });
        format!("{}\n", json!({ "tool": "write_file", "params": state }))
    };
    (1..=calls).map(call).collect()
}

const NO_BUG: [&str; 3] = ["--sh", "--", "! grep -q BUG *.txt"];

impl World {
    /// A world with a session `bug` of forty calls, the thirtieth of which has it.
    fn with_bug(backend: &str) -> Self {
        let world = Self::new();
        let script = world.file("bug.jsonl", script(40, 30));
        world.printed(&["run", &script, "--backend", backend, "--session", "bug"]);
        world
    }

    /// What is left of probes, in directories.
    fn probes(&self) -> usize {
        std::fs::read_dir(self.data().join("probes")).map_or(0, Iterator::count)
    }

    fn bisected(&self, arguments: &[&str], command: &[&str]) -> Value {
        self.json(&[&["bisect", "bug"], arguments, command].concat())
    }
}

/// The event of the thirtieth call's file.
const FIRST_BAD: u64 = 1 + 3 * 29 + 2;

#[test]
fn the_first_bad_change_is_found() {
    for backend in ["memory", "host"] {
        let world = World::with_bug(backend);
        let before = world.json(&["sessions"]);
        let found = world.bisected(&[], &NO_BUG);
        assert_eq!((&found["first_bad"], &found["good"]), (&json!(FIRST_BAD), &json!(FIRST_BAD - 3)));
        assert!(found["probes"].as_array().unwrap().len() <= 6, "{found}");
        assert_eq!(found["checks"].as_array().unwrap().len(), 2);
        assert_eq!(found["bad"][0]["call"]["event"]["params"]["file_path"], "state-30.txt");
        assert_eq!(found["bad"][0]["changes"][0]["path"], "state-30.txt");
        assert_eq!((world.probes(), world.json(&["sessions"])), (0, before), "nothing is left, nothing recorded");
    }
}

#[test]
fn what_was_found_is_shown() {
    let world = World::with_bug("memory");
    assert_snapshot!(world.run(&[&["bisect", "bug", "--good", "70"][..], &NO_BUG].concat()), @"");
}

#[test]
fn several_probes_at_once_find_the_same() {
    let world = World::with_bug("host");
    for jobs in ["2", "5", "64"] {
        let found = world.bisected(&["--jobs", jobs], &NO_BUG);
        assert_eq!(found["first_bad"], FIRST_BAD, "{jobs}");
    }
    assert_eq!(world.probes(), 0);
}

#[test]
fn what_a_probe_leaves_is_not_there_in_the_next() {
    let world = World::with_bug("host");
    let dirty = "test ! -e mess || exit 130; test ! -e d/sub || exit 131; n=$(ls | grep -c state); \
                 test $n = 0 || { grep -q . state-$n.txt || exit 132; }; \
                 grep -qs BUG *.txt; bug=$?; mkdir -p d/sub; echo x > mess; rm -f state-1.txt state-3.txt; \
                 echo spoilt > state-2.txt; rm -f state-5.txt; mkdir state-5.txt; chmod +x state-6.txt 2>/dev/null; test $bug != 0";
    let found = world.bisected(&["--jobs", "2"], &["--sh", "--", dirty]);
    assert_eq!(found["first_bad"], FIRST_BAD, "{found}");
}

#[test]
fn skips_hide_the_first() {
    let world = World::with_bug("memory");
    let skip = |from: usize| {
        format!("n=$(ls | grep -c state); test $n -lt {from} || test $n -gt 32 || exit 125; ! grep -q BUG *.txt")
    };
    let found = world.bisected(&[], &["--sh", "--", &skip(28)]);
    let bad: Vec<u64> = found["bad"].as_array().unwrap().iter().map(|bad| bad["seq"].as_u64().unwrap()).collect();
    assert_eq!(bad, [28, 29, 30, 31, 32, 33].map(|call| 3 * call), "{found}");
    assert_eq!((&found["first_bad"], &found["good"]), (&Value::Null, &json!(81)));
    let told = world.run(&["bisect", "bug", "--sh", "--", &skip(28)]);
    assert!(told.contains("the first bad change is one of 84, 87, 90, 93, 96, 99: those before"), "{told}");
    // Where nobody can tell at an end, that is told.
    let told = world.run(&["bisect", "bug", "--", "sh", "-c", "exit 125"]);
    assert!(told.contains("error: position 1 is not good: the command ends with 125, it can't tell"), "{told}");
    let all = "n=$(ls | grep -c state); test $n = 0 || test $n = 40 || exit 125; ! grep -qs BUG *.txt";
    let found = world.bisected(&["--jobs", "4"], &["--sh", "--", all]);
    assert_eq!(found["bad"].as_array().unwrap().len(), 40);
}

#[test]
fn wrong_questions_are_told_apart() {
    let world = World::with_bug("memory");
    let told = |arguments: &[&str]| world.run(&[&["bisect", "bug"], arguments].concat());
    assert_snapshot!(told(&["--", "true"]), @"");
    assert_snapshot!(told(&["--", "sh", "-c", "echo why >&2; exit 3"]), @"");
    assert_snapshot!(told(&["--good", "9", "--bad", "9", "--", "true"]), @"");
    assert_snapshot!(told(&["--good", "9", "--bad", "10", "--", "true"]), @"");
    assert_snapshot!(told(&["--", "no-such-program"]), @"");
    assert_snapshot!(told(&["--", "sh", "-c", "exit 200"]), @"");
    assert_snapshot!(told(&["--", "rm", "-rf", "/"]), @"");
    assert_snapshot!(told(&["--timeout", "0.01", "--", "true"]), @"");
    for wrong in [
        &[][..],
        &["--jobs", "0", "--", "true"],
        &["--slice", "Usage.calls > 1", "--", "true"],
        &["--backend", "memory", "--", "true"],
    ] {
        assert!(told(wrong).ends_with("[exit 2]"), "{wrong:?}");
    }
    assert!(told(&["--bad", "999", "--", "true"]).ends_with("[exit 3]"));
    assert_eq!(world.probes(), 0);
}

#[test]
fn taking_too_long_is_failing() {
    let world = World::with_bug("host");
    let slow = "if grep -qs BUG *.txt; then sleep 60; fi";
    let found = world.bisected(&["--timeout", "1", "--good", "80", "--bad", "100"], &["--sh", "--", slow]);
    assert_eq!(found["first_bad"], FIRST_BAD);
    assert!(found["probes"].as_array().unwrap().iter().any(|probe| probe["timed_out"] == true));
}

#[test]
fn a_predicate_is_searched_without_a_workspace() {
    let world = World::with_bug("memory");
    let first = |predicate: &str| world.json(&["bisect", "bug", "--slice", predicate])["first_bad"].as_u64().unwrap();
    assert_eq!(first("VirtualFileSystem./state-30.txt exists"), FIRST_BAD);
    assert_eq!(first("Usage.calls >= 30"), FIRST_BAD - 1);
    assert_eq!(first("count(VirtualFileSystem) == 40"), 120);
    assert_snapshot!(world.run(&["bisect", "bug", "--slice", "Usage.calls > 38"]), @"");
    assert_snapshot!(world.run(&["bisect", "bug", "--slice", "Usage.calls > 100"]), @"");
    assert_snapshot!(world.run(&["bisect", "bug", "--slice", "Usage.events > 0", "--good", "5"]), @"");
    assert_snapshot!(world.run(&["bisect", "bug", "--slice", "Usag.calls > 1"]), @"");
}

#[test]
fn ctrl_c_leaves_nothing_behind() {
    let world = World::with_bug("host");
    let mut running = world.spawn(&["bisect", "bug", "--jobs", "2", "--sh", "--", "touch begun; sleep 600.25"]);
    let begun = |directory: &Path| has(directory, "begun");
    eventually("a probe runs", || begun(&world.data().join("probes")));
    kill_process(Pid::from_child(&running.0), Signal::INT).unwrap();
    assert_eq!(running.0.wait().unwrap().code(), Some(130));
    assert_eq!(world.probes(), 0);
    let sleeping = std::process::Command::new("pgrep").args(["-f", "sleep 600.25"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&sleeping.stdout), "");
}

#[test]
fn what_a_killed_bisection_left_is_swept() {
    let world = World::with_bug("host");
    let running = world.spawn(&["bisect", "bug", "--sh", "--", "touch begun; sleep 600"]);
    eventually("a probe runs", || has(&world.data().join("probes"), "begun"));
    let told = world.run(&["gc"]);
    assert!(!told.contains("throw-away"), "one at work is left: {told}");
    drop(running);
    assert!(world.run(&["gc", "--dry-run"]).contains("would remove 1 throw-away workspace, whose process has ended"));
    assert!(world.run(&["gc"]).contains("\nremoved 1 throw-away workspace, whose process has ended"));
    assert_eq!(world.probes(), 0);
}

/// Whether a file of that name is somewhere in a directory.
fn has(directory: &Path, name: &str) -> bool {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| entry.file_name() == name || has(&entry.path(), name))
}

#[test]
fn a_prompt_into_what_was_changes_nothing() {
    let world = World::with_bug("host");
    let head = world.json(&["sessions"])[0]["head"].clone();
    let typed =
        b"ls | wc -l\nmkdir sub\ncd sub\npwd | sed 's:.*/files::'\necho x > y\ncd ..\nls sub\nrm -rf /\nfalse\n";
    let told = world.fed(&["shell", "bug", "--at", "6"], typed);
    assert!(told.starts_with("2\n/sub\ny\n") && told.contains("not allowed") && told.ends_with("[exit 1]"), "{told}");
    assert_eq!((world.probes(), &world.json(&["sessions"])[0]["head"]), (0, &head));
    assert!(world.fed(&["shell", "bug", "--at", "999"], b"").ends_with("[exit 3]"));
}

#[test]
fn probes_run_in_containers_of_their_own() {
    let Some(world) = World::with_podman() else { return };
    for text in ["two", "three BUG", "four"] {
        world.printed(&["exec", "work", "--sh", "--", &format!("echo {text} >> a.txt; mkdir -p d; echo {text} > d/x")]);
    }
    let command = "test $(id -u) = 65534 && test $PWD = /workspace || exit 200; rm -r d; ! grep -q BUG a.txt";
    let found =
        world.json(&["bisect", "work", "--jobs", "2", "--good", "3", "--sh", "--", &format!("mkdir -p d; {command}")]);
    let call = &found["bad"][0]["call"]["event"]["params"]["command"];
    assert!(call.as_str().unwrap().contains("three BUG"), "{found}");
    assert_eq!(world.probes(), 0);
    let containers = crate::rig::podman(async |podman| {
        let all = podman_api::opts::ContainerListOpts::builder().all(true).build();
        podman.containers().list(&all).await.unwrap()
    });
    let cache = world.path("cache").to_string_lossy().into_owned();
    let ours = containers.iter().filter(|container| format!("{container:?}").contains(&cache)).count();
    assert_eq!(ours, 0, "{containers:?}");
    assert_eq!(std::fs::read_dir(world.path("cache")).unwrap().count(), 1, "only the session's own files are left");
    assert!(world.run(&["verify"]).ends_with("[exit 0]"));
}
