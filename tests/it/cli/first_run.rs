//! The README's first command, on `fixtures/first-run`.

use std::io::Write;
use std::process::{Command, Stdio};

use insta::assert_snapshot;

use super::fixture;
use crate::rig::{Program, skip};

fn sha256(bytes: &[u8]) -> String {
    let mut child = Command::new("sha256sum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(bytes).unwrap();
    let output = child.wait_with_output().unwrap();
    String::from_utf8(output.stdout).unwrap().split_whitespace().next().unwrap().to_owned()
}

fn run() -> Program {
    let program = Program::new();
    let (script, tree) = (fixture("first-run/script.jsonl"), fixture("first-run/tree"));
    let ran = program.run(&["run", script.to_str().unwrap(), "--mount", tree.to_str().unwrap()]);
    assert!(ran.ends_with("[exit 0]"), "{ran}");
    program
}

#[test]
fn first_run_ends_with_summary_and_hints() {
    let program = Program::new();
    let (script, tree) = (fixture("first-run/script.jsonl"), fixture("first-run/tree"));
    let ran = program.run(&["run", script.to_str().unwrap(), "--mount", tree.to_str().unwrap()]);
    assert_eq!(ran.lines().filter(|line| line.contains(" ok ") || line.ends_with("as expected")).count(), 95);
    let summary = ran.split_once("\nsession ").unwrap().1;
    assert_snapshot!(summary, @"
    first-run ([id])
      calls    94: 77 ok, 17 failed as expected
      events   240
      files    16 in 7 directories, 15.5 KiB
      time [duration]

    look further:
      foldspace log first-run --calls
      foldspace diff first-run 16..
      foldspace ls first-run -R --at 16
    [exit 0]
    ");
}

#[test]
fn first_run_gives_the_expected_tree() {
    let program = run();
    let expected = std::fs::read_to_string(fixture("first-run/expected.files")).unwrap();
    let mut found = String::new();
    for entry in program.json(&["ls", "first-run", "-R"]).as_array().unwrap() {
        let path = entry["path"].as_str().unwrap();
        if entry["node"] == "directory" {
            continue;
        }
        let contents = program.output(&["cat", "first-run", path]).stdout;
        found.push_str(&format!("{}  {path}\n", sha256(&contents)));
        assert_eq!(entry["executable"], path == "bin/shelfcount", "{path}");
    }
    assert_eq!(found, expected);
}

#[test]
fn first_run_hints_work() {
    let program = run();
    for arguments in [
        &["log", "first-run", "--calls"][..],
        &["diff", "first-run", ".."],
        &["show", "first-run", "60"],
        &["ls", "first-run", "-R", "--at", "-40"],
        &["cat", "first-run", "src/shelfcount/periods.py", "--before", "60"],
        &["state", "first-run", "Usage"],
        &["verify", "first-run"],
    ] {
        assert!(!program.printed(arguments).is_empty(), "{arguments:?}");
    }
    assert_eq!(program.json_lines(&["log", "first-run", "--calls"]).len(), 94);
}

#[test]
fn first_run_diff_can_be_applied() {
    let program = run();
    let tree = program.path("tree");
    let copied = Command::new("cp").arg("-r").arg(fixture("first-run/tree")).arg(&tree).status().unwrap();
    assert!(copied.success());
    let patch = program.file("run.patch", program.printed(&["diff", "first-run", "16.."]));
    let applied = Command::new("patch").args(["-s", "-p1", "-i", &patch]).current_dir(&tree).output();
    let Ok(applied) = applied else { return skip("no program called patch") };
    assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stdout));
    for line in std::fs::read_to_string(fixture("first-run/expected.files")).unwrap().lines() {
        let (digest, path) = line.split_once("  ").unwrap();
        assert_eq!(sha256(&std::fs::read(tree.join(path)).unwrap()), digest, "{path}");
    }
}
