//! Messages about changes that can't be undone, reports that are not recorded, and a full disk.

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::Command;

use foldspace::hub::{ReportId, keep_report};
use serde_json::{Value, json};

use super::Repository;
use crate::rig::{Disk, eventually};

fn undo(repository: &Repository, words: &[&str]) -> String {
    repository.program.run(&[&["undo", "repo", "--yes"], words].concat())
}

/// Has a person change a file while an agent waits for a permission that it does not get.
fn in_doubt(repository: &Repository, id: &str, path: &str) {
    let call = json!({ "tool_name": "Bash", "tool_use_id": id, "tool_input": { "command": id } });
    repository.claude("PreToolUse", call.clone());
    repository.claude("PermissionRequest", call);
    repository.write(path, "the person's\n");
    repository.claude("UserPromptSubmit", json!({ "prompt": "something else" }));
}

#[test]
fn undo_passes_over_calls_in_doubt_and_names_them_once() {
    let repository = Repository::with(&[("a.txt", "one\n"), ("b.txt", "two\n")]);
    repository.command("t1", |repository| repository.write("a.txt", "by the first\n"));
    repository.command("t2", |repository| repository.write("b.txt", "by the second\n"));
    in_doubt(&repository, "t3", "mine.txt");
    let planned = repository.program.output(&["--json", "undo", "repo", "--dry-run"]).stdout;
    let planned: Value = serde_json::from_slice(&planned).unwrap();
    assert_eq!(planned["latest"]["subject"], json!("t2"));
    let passed = &planned["passed"][0];
    assert_eq!((&passed["subject"], &passed["left"][0]["reason"]), (&json!("t3"), &json!("doubtful")));
    let first = undo(&repository, &[]);
    assert!(first.starts_with(&format!("skips #{} Bash t3 by claude", passed["call"])), "{first}");
    assert!(first.contains("left     mine.txt") && first.ends_with("[exit 1]"), "{first}");
    assert_eq!((repository.read("a.txt"), repository.read("b.txt")), ("by the first\n".into(), "two\n".into()));
    let second = undo(&repository, &[]);
    assert!(!second.contains("mine.txt") && second.ends_with("[exit 0]"), "{second}");
    assert_eq!(repository.read("a.txt"), "one\n");
    // Nothing else is left to undo.
    let third = undo(&repository, &[]);
    assert!(third.contains("left     mine.txt") && third.ends_with("[exit 1]"), "{third}");
    assert!(repository.has("mine.txt"));
    assert!(undo(&repository, &["--overwrite"]).ends_with("[exit 0]"));
    assert!(!repository.has("mine.txt"));
}

#[test]
fn log_marks_what_calls_left_or_removed_for_good() {
    let repository = Repository::unattached(&[("a.txt", "one\n")]);
    repository.attach_with(&["--keep-secrets", "no"]);
    let root = repository.root();
    repository.command("t1", |repository| {
        repository.write(".env", "KEY=1\n");
        fs::File::create(root.join("big")).unwrap().set_len(65 << 20).unwrap();
        assert!(Command::new("mkfifo").arg(root.join("pipe")).status().unwrap().success());
        drop(UnixListener::bind(root.join("socket")).unwrap());
    });
    repository.command("t2", |_| fs::rename(root.join("big"), root.join("moved")).unwrap());
    repository.command("t3", |repository| [".env", "moved", "pipe"].iter().for_each(|path| repository.remove(path)));
    let calls = repository.program.json_lines(&["log", "repo", "--calls"]);
    let marks: Vec<_> = calls.iter().map(|call| (call["not_kept"].clone(), call["lost"].clone())).collect();
    let wanted = [
        (json!([".env", "big", "socket"]), json!([])),
        (json!(["moved"]), json!([])),
        (json!([]), json!([".env", "moved"])),
    ];
    assert_eq!(marks, wanted);
    let shown = repository.program.json(&["show", "repo", &calls[2]["call"].to_string()]);
    assert_eq!(shown["call"]["lost"], json!([".env", "moved"]), "it reads the files before the call");
    let log = repository.program.printed(&["log", "repo", "--calls"]);
    assert!(log.contains("3 not kept\n") && log.contains("2 gone for good\n"), "{log}");
}

#[test]
fn status_tells_of_reports_that_are_not_recorded() {
    let repository = Repository::with(&[("a.txt", "one\n")]);
    repository.program.printed(&["stop"]);
    assert_eq!(repository.program.json(&["status"])["reports"], json!({ "waiting": 0, "refused": [] }));
    let payload = json!({ "session_id": "s1", "cwd": repository.root(), "hook_event_name": "Stop" });
    let message = json!({ "agent": "claude", "directory": repository.root(), "payload": payload });
    repository.program.file("data/attached/spool/1.json", message.to_string());
    let refused = repository.program.file("data/attached/spool/2.unfit", "no message");
    let reports = |repository: &Repository| repository.program.json(&["status"])["reports"].clone();
    assert_eq!(reports(&repository), json!({ "waiting": 1, "refused": [refused] }));
    let told = repository.program.printed(&["status"]);
    assert!(told.contains("1 hook report not recorded yet") && told.contains("1 hook report can't be"), "{told}");
    repository.program.printed(&["log", "repo"]);
    assert_eq!(reports(&repository)["waiting"], json!(0));
}

/// Fills a disk but for some bytes. Returns the file that does.
fn fill(disk: &Disk, left: u64) -> PathBuf {
    let path = disk.root().join("filler");
    let mut filler = fs::File::create(&path).unwrap();
    drop(std::io::copy(&mut std::io::repeat(7), &mut filler));
    filler.set_len(filler.metadata().unwrap().len().saturating_sub(left)).unwrap();
    path
}

/// Returns bytes that can't be compressed.
fn noise(count: usize) -> Vec<u8> {
    let next =
        |state: &u64| Some(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407));
    std::iter::successors(Some(7), next).take(count).map(|state| state.to_le_bytes()[7]).collect()
}

#[test]
fn full_disk_is_told_and_reports_are_recorded_later() {
    let repository = Repository::unattached(&[("a.txt", "one\n"), ("b.txt", "two\n")]);
    fs::create_dir_all(repository.program.data()).unwrap();
    let Some(disk) = Disk::over(&repository.program.data(), 32) else { return };
    repository.attach();
    repository.command("t1", |repository| repository.remove("a.txt"));
    let filler = fill(&disk, 256 << 10);
    repository.command("t2", |repository| {
        repository.remove("b.txt");
        fs::write(repository.root().join("big"), noise(9 << 20)).unwrap();
    });
    let told = undo(&repository, &[]);
    assert!(told.contains("hook report") && told.contains("No space left on device"), "{told}");
    assert!(told.contains("hint: make room") && told.ends_with("[exit 6]"), "{told}");
    let status = repository.program.run(&["status"]);
    assert!(status.contains("not recorded yet") && status.contains("No space left on device"), "{status}");
    assert!(!repository.has("b.txt") && repository.has("big"));
    fs::remove_file(filler).unwrap();
    eventually("the next owner records the reports", || undo(&repository, &[]).ends_with("[exit 0]"));
    assert!(repository.read("b.txt") == "two\n" && !repository.has("big"));
    assert!(undo(&repository, &[]).ends_with("[exit 0]") && repository.read("a.txt") == "one\n");
    repository.program.printed(&["stop"]);
    // A report that can't even be kept shows.
    let filler = fill(&disk, 0);
    assert!(keep_report(disk.root(), ReportId::of_now(), &[b'x'; 9000]).is_err());
    let reports = repository.program.json(&["status"])["reports"].clone();
    assert_eq!(reports["refused"].as_array().map(Vec::len), Some(1), "{reports}");
    fs::remove_file(filler).unwrap();
    assert!(repository.program.run(&["verify"]).ends_with("[exit 0]"));
    let is_undo = |call: &&Value| call["tool"] == "undo";
    let calls = repository.program.json_lines(&["log", "repo", "--calls"]);
    assert_eq!((calls.len(), calls.iter().filter(is_undo).count()), (4, 2), "{calls:?}");
    repository.program.run(&["stop"]);
}
