//! `foldspace bisect`, and prompts into copies of what was.

use std::path::Path;

use insta::assert_snapshot;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::rig::{Program, eventually};

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

impl Program {
    /// A world with a session `bug` of forty calls, the thirtieth of which has it.
    fn with_bug(backend: &str) -> Self {
        let program = Self::new();
        let script = program.file("bug.jsonl", script(40, 30));
        program.printed(&["run", &script, "--backend", backend, "--session", "bug"]);
        program
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
fn bisect_finds_first_bad_change() {
    for backend in ["memory", "host"] {
        let program = Program::with_bug(backend);
        let before = program.json(&["sessions"]);
        let found = program.bisected(&[], &NO_BUG);
        assert_eq!((&found["first_bad"], &found["good"]), (&json!(FIRST_BAD), &json!(FIRST_BAD - 3)));
        assert!(found["probes"].as_array().unwrap().len() <= 6, "{found}");
        assert_eq!(found["checks"].as_array().unwrap().len(), 2);
        assert_eq!(found["bad"][0]["call"]["event"]["params"]["file_path"], "state-30.txt");
        assert_eq!(found["bad"][0]["changes"][0]["path"], "state-30.txt");
        assert_eq!((program.probes(), program.json(&["sessions"])), (0, before), "nothing is left, nothing recorded");
    }
}

#[test]
fn bisect_result_is_shown() {
    let program = Program::with_bug("memory");
    assert_snapshot!(program.run(&[&["bisect", "bug", "--good", "70"][..], &NO_BUG].concat()), @"
        70  good  exit 0 in [duration]
       121  bad   exit 1 in [duration]
        96  bad   exit 1 in [duration]
        84  good  exit 0 in [duration]
        90  bad   exit 1 in [duration]
        87  good  exit 0 in [duration]

    the first bad change is event 90
    90  [time]  #89 write_file state-30.txt
    diff --git a/state-30.txt b/state-30.txt
    new file mode 100644
    --- /dev/null
    +++ b/state-30.txt
    @@ -0,0 +1 @@
    +BUG in 30

    4 probes, and 2 of the ends, for 17 changes between 70 and 121
    [exit 0]
    ");
}

#[test]
fn bisect_with_parallel_probes_finds_the_same() {
    let program = Program::with_bug("host");
    for jobs in ["2", "5", "64"] {
        let found = program.bisected(&["--jobs", jobs], &NO_BUG);
        assert_eq!(found["first_bad"], FIRST_BAD, "{jobs}");
    }
    assert_eq!(program.probes(), 0);
}

#[test]
fn bisect_probe_leaves_nothing_for_the_next() {
    let program = Program::with_bug("host");
    let dirty = "test ! -e mess || exit 130; test ! -e d || exit 131; test ! -e d-e || exit 133; n=$(ls | grep -c state); \
                 test $n = 0 || { grep -q . state-$n.txt || exit 132; }; \
                 grep -qs BUG *.txt; bug=$?; mkdir -p d/sub d-e; echo x > d/sub/x; echo x > mess; rm -f state-1.txt state-3.txt; \
                 echo spoilt > state-2.txt; rm -f state-5.txt; mkdir state-5.txt; chmod +x state-6.txt 2>/dev/null; test $bug != 0";
    let found = program.bisected(&["--jobs", "2"], &["--sh", "--", dirty]);
    assert_eq!(found["first_bad"], FIRST_BAD, "{found}");
}

#[test]
fn bisect_probe_lacks_files_never_kept() {
    let program = Program::new();
    let call = |command: &str| json!({ "tool": "shell_execute", "params": { "command": command } });
    let calls =
        ["true", "echo 1 > n; echo small > out", "echo 2 > n", "yes | head -c 3000 > out; echo 3 > n", "echo 4 > n"];
    let script: String = calls.iter().map(|command| format!("{}\n", call(command))).collect();
    let script = program.file("bug.jsonl", script);
    let budget = ["--keep-file-bytes", "1000"];
    program.printed(&[&["run", &script, "--backend", "host", "--yes", "--session", "bug"][..], &budget].concat());
    let big = program.json(&["history", "bug", "out"])[1]["seq"].as_u64().unwrap();
    let good = format!("before:{big}");
    // What was small is not there any more where something larger stood.
    let found = program.bisected(&["--good", &good], &["--", "test", "-e", "out"]);
    assert_eq!((&found["first_bad"], &found["left_out"]), (&json!(big), &json!(["out"])), "{found}");
    // What a command makes in its place is gone in the next probe, though nothing tells it from what stood there.
    let build = "test \"$(head -c 6 out 2>&1)\" != yes || exit 130; n=$(cat n 2>&1); test \"$n\" -lt 3 || \
                 { test ! -e out || exit 131; }; yes | head -c 3000 > out; test \"$n\" -lt 4";
    let found = program.bisected(&["--good", &good], &["--sh", "--", build]);
    assert_eq!(found["first_bad"].as_u64().unwrap(), program.json(&["history", "bug", "n"])[3]["seq"], "{found}");
    let told = program.run(&["bisect", "bug", "--good", &good, "--", "test", "-e", "out"]);
    assert!(told.contains("note: failed to recreate 1 entry in the probes, such as /out"), "{told}");
    let told = program.run(&["bisect", "bug", "--good", &big.to_string(), "--", "test", "-e", "out"]);
    assert!(told.contains("the probe is incomplete: failed to recreate 1 entry"), "{told}");
}

#[test]
fn bisect_does_not_block_the_session() {
    let program = Program::with_bug("host");
    let running = program.spawn(&["bisect", "bug", "--sh", "--", "touch begun; sleep 600"]);
    eventually("a probe runs", || has(&program.data().join("probes"), "begun"));
    assert!(program.run(&["exec", "bug", "--", "true"]).ends_with("[exit 0]"));
    drop(running);
    let (own, data) = (env!("CARGO_BIN_EXE_foldspace"), program.data());
    let line = format!("{own} --data {} exec bug -- echo done\n", data.display());
    let told = program.fed(&["shell", "bug", "--at", "5"], line.as_bytes());
    assert!(told.contains("done") && told.ends_with("[exit 0]"), "{told}");
}

#[test]
fn bisect_with_skips_names_a_range() {
    let program = Program::with_bug("memory");
    let skip = |from: usize| {
        format!("n=$(ls | grep -c state); test $n -lt {from} || test $n -gt 32 || exit 125; ! grep -q BUG *.txt")
    };
    let found = program.bisected(&[], &["--sh", "--", &skip(28)]);
    let bad: Vec<u64> = found["bad"].as_array().unwrap().iter().map(|bad| bad["seq"].as_u64().unwrap()).collect();
    assert_eq!(bad, [28, 29, 30, 31, 32, 33].map(|call| 3 * call), "{found}");
    assert_eq!((&found["first_bad"], &found["good"]), (&Value::Null, &json!(81)));
    let told = program.run(&["bisect", "bug", "--sh", "--", &skip(28)]);
    assert!(told.contains("the first bad change is one of 84, 87, 90, 93, 96, 99: all but the last"), "{told}");
    // Where nobody can tell at an end, that is told.
    let told = program.run(&["bisect", "bug", "--", "sh", "-c", "exit 125"]);
    assert!(told.contains("error: position 1 is not good: the command exited with 125, which skips it"), "{told}");
    let all = "n=$(ls | grep -c state); test $n = 0 || test $n = 40 || exit 125; ! grep -qs BUG *.txt";
    let found = program.bisected(&["--jobs", "4"], &["--sh", "--", all]);
    assert_eq!(found["bad"].as_array().unwrap().len(), 40);
}

#[test]
fn bisect_of_limited_child_runs_no_denied_program() {
    let program = Program::with_bug("memory");
    program.printed(&["clone", "bug", "--name", "limited", "--deny", "grep"]);
    assert_snapshot!(program.run(&[&["bisect", "limited"][..], &NO_BUG].concat()), @"
    error: the command is not allowed: the policy denies this program: grep -q BUG *.txt
    [exit 1]
    ");
}

#[test]
fn bisect_wrong_arguments_are_refused() {
    let program = Program::with_bug("memory");
    let told = |arguments: &[&str]| program.run(&[&["bisect", "bug"], arguments].concat());
    assert_snapshot!(told(&["--", "true"]), @"
         1  good  exit 0 in [duration]
       121  good  exit 0 in [duration]
    error: position 121 is not bad: the command succeeded
    hint: set a bad position with --bad
    [exit 1]
    ");
    assert_snapshot!(told(&["--", "sh", "-c", "echo why >&2; exit 3"]), @"
         1  bad   exit 3 in [duration]
    error: position 1 is not good: the command exited with 3
    hint: set a good position with --good
      why
    [exit 1]
    ");
    assert_snapshot!(told(&["--good", "@9", "--bad", "@9", "--", "true"]), @"
    error: the good position, 9, must be before the bad one, 9
    hint: --good and --bad set the range
    [exit 2]
    ");
    assert_snapshot!(told(&["--good", "@9", "--bad", "10", "--", "true"]), @"
    error: no file changed between 9 and 10
    hint: `foldspace log --path '**'` shows what changed when
    [exit 2]
    ");
    assert_snapshot!(told(&["--", "no-such-program"]), @"
         1  bad   exit 127 in [duration]
    error: the command can't be run at position 1: the command exited with 127
    hint: does the program exist in the probe?
      no-such-program: not found
    [exit 1]
    ");
    assert_snapshot!(told(&["--", "sh", "-c", "exit 200"]), @"
    error: the search was aborted at position 1: the command exited with 200, and exit codes from 128 mean abort
    hint: exit code 125 skips a position
    [exit 1]
    ");
    assert_snapshot!(told(&["--", "rm", "-rf", "/"]), @"
    error: the command is not allowed: it would remove everything below /, a system directory, the home directory or a directory above the workspace: rm -rf /
    [exit 1]
    ");
    assert_snapshot!(told(&["--timeout", "0.01", "--", "true"]), @"
    error: the command can't be run: the timeout is 0. [duration]; it must be 0.1 to [duration]
    [exit 2]
    ");
    for wrong in [
        &[][..],
        &["--jobs", "0", "--", "true"],
        &["--slice", "Usage.calls > 1", "--", "true"],
        &["--backend", "memory", "--", "true"],
    ] {
        assert!(told(wrong).ends_with("[exit 2]"), "{wrong:?}");
    }
    assert!(told(&["--bad", "999", "--", "true"]).ends_with("[exit 3]"));
    assert_eq!(program.probes(), 0);
}

#[test]
fn bisect_timeout_counts_as_bad() {
    let program = Program::with_bug("host");
    let slow = "if grep -qs BUG *.txt; then sleep 60; fi";
    let found = program.bisected(&["--timeout", "1", "--good", "80", "--bad", "100"], &["--sh", "--", slow]);
    assert_eq!(found["first_bad"], FIRST_BAD);
    assert!(found["probes"].as_array().unwrap().iter().any(|probe| probe["timed_out"] == true));
}

#[test]
fn bisect_of_predicate_needs_no_workspace() {
    let program = Program::with_bug("memory");
    let first = |predicate: &str| program.json(&["bisect", "bug", "--slice", predicate])["first_bad"].as_u64().unwrap();
    assert_eq!(first("VirtualFileSystem./state-30.txt exists"), FIRST_BAD);
    assert_eq!(first("Usage.calls >= 30"), FIRST_BAD - 1);
    assert_eq!(first("count(VirtualFileSystem) == 40"), 120);
    assert_snapshot!(program.run(&["bisect", "bug", "--slice", "Usage.calls > 38"]), @"
        60  does not hold
        90  does not hold
       105  does not hold
       113  does not hold
       117  holds
       115  does not hold
       116  holds

    the predicate first holds at event 116
    116  [time]  #116 write_file state-39.txt

    7 looks, and 2 at the ends, for 121 events between 0 and 121
    [exit 0]
    ");
    assert_snapshot!(program.run(&["bisect", "bug", "--slice", "Usage.calls > 100"]), @"
    error: the predicate does not hold at position 121
    hint: it must hold at the bad position and not at the good one; set them with --good and --bad; if it changed more than once, `foldspace replay SESSION --until PREDICATE` finds the first change
    [exit 1]
    ");
    assert_snapshot!(program.run(&["bisect", "bug", "--slice", "Usage.events > 0", "--good", "5"]), @"
    error: the predicate already holds at position 7
    hint: it must hold at the bad position and not at the good one; set them with --good and --bad
    [exit 1]
    ");
    let told = program.run(&["bisect", "bug", "--slice", "Usag.calls > 1"]);
    let begin = "error: invalid predicate at character 1: unknown slice \"Usag\" (did you mean Usage?); slices: ";
    assert!(told.starts_with(begin) && told.contains("VirtualFileSystem") && told.ends_with("[exit 2]"), "{told}");
}

#[test]
fn bisect_interrupted_leaves_nothing() {
    let program = Program::with_bug("host");
    let mut running = program.spawn(&["bisect", "bug", "--jobs", "2", "--sh", "--", "touch begun; sleep 600.25"]);
    let begun = |directory: &Path| has(directory, "begun");
    eventually("a probe runs", || begun(&program.data().join("probes")));
    kill_process(Pid::from_child(&running.0), Signal::INT).unwrap();
    assert_eq!(running.0.wait().unwrap().code(), Some(130));
    assert_eq!(program.probes(), 0);
    let sleeping = std::process::Command::new("pgrep").args(["-f", "sleep 600.25"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&sleeping.stdout), "");
}

#[test]
fn bisect_killed_is_cleaned_by_gc() {
    let program = Program::with_bug("host");
    let running = program.spawn(&["bisect", "bug", "--sh", "--", "touch begun; sleep 600"]);
    eventually("a probe runs", || has(&program.data().join("probes"), "begun"));
    let told = program.run(&["gc"]);
    assert!(!told.contains("throw-away"), "one at work is left: {told}");
    drop(running);
    assert!(program.run(&["gc", "--dry-run"]).contains("would remove 1 throw-away workspace, whose process has ended"));
    assert!(program.run(&["gc"]).contains("\nremoved 1 throw-away workspace, whose process has ended"));
    assert_eq!(program.probes(), 0);
}

/// Whether a file of that name is somewhere in a directory.
fn has(directory: &Path, name: &str) -> bool {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| entry.file_name() == name || has(&entry.path(), name))
}

#[test]
fn shell_at_a_past_seq_changes_nothing() {
    let program = Program::with_bug("host");
    let head = program.json(&["sessions"])[0]["head"].clone();
    let typed =
        b"ls | wc -l\nmkdir sub\ncd sub\npwd | sed 's:.*/files::'\necho x > y\ncd ..\nls sub\nrm -rf /\nfalse\n";
    let told = program.fed(&["shell", "bug", "--at", "6"], typed);
    assert!(told.starts_with("2\n/sub\ny\n") && told.contains("not allowed") && told.ends_with("[exit 1]"), "{told}");
    assert_eq!((program.probes(), &program.json(&["sessions"])[0]["head"]), (0, &head));
    assert!(program.fed(&["shell", "bug", "--at", "999"], b"").ends_with("[exit 3]"));
}

#[test]
fn bisect_probes_have_their_own_containers() {
    let Some(program) = Program::with_container() else { return };
    for text in ["two", "three BUG", "four"] {
        program.printed(&[
            "exec",
            "work",
            "--sh",
            "--",
            &format!("echo {text} >> a.txt; mkdir -p d; echo {text} > d/x"),
        ]);
    }
    let command = "test $(id -u) = 65534 && test $PWD = /workspace || exit 200; rm -r d; ! grep -q BUG a.txt";
    let found = program.json(&[
        "bisect",
        "work",
        "--jobs",
        "2",
        "--good",
        "3",
        "--sh",
        "--",
        &format!("mkdir -p d; {command}"),
    ]);
    let call = &found["bad"][0]["call"]["event"]["params"]["command"];
    assert!(call.as_str().unwrap().contains("three BUG"), "{found}");
    assert_eq!(program.probes(), 0);
    let containers =
        crate::rig::engine_cli(&["ps", "--all", "--quiet", "--filter", "label=foldspace.session"]).unwrap();
    let cache = program.path("cache").to_string_lossy().into_owned();
    for id in containers.lines() {
        // One of another test may be gone meanwhile.
        let mounts = crate::rig::field(id, "{{json .Mounts}}").unwrap_or_default();
        assert!(!mounts.contains(&cache), "{id}: {mounts}");
    }
    let left = std::fs::read_dir(program.path("cache")).unwrap().count();
    assert_eq!(left, 2, "only the session's own directory and the pool of layers are left");
    assert!(program.run(&["verify"]).ends_with("[exit 0]"));
}
