//! Entries that existed before a call, unrecorded: no undo removes them.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::Repository;
use crate::rig::{eventually, report_skip, told};

/// A user who is not root.
const OTHER: u32 = 65_534;

fn undo(repository: &Repository, words: &[&str]) -> String {
    repository.program.run(&[&["undo", "repo", "--yes"], words].concat())
}

fn put(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Makes a repository that ignores `build`, waits, and attaches it.
fn repository() -> Repository {
    let repository = Repository::unattached(&[("a.txt", "one\n"), ("sub/b.txt", "two\n"), (".gitignore", "build\n")]);
    put(&repository.root().join("build/product"), "precious\n");
    put(&repository.root().join("sub/build/product"), "precious, too\n");
    let product = repository.root().join("sub/build/product");
    let age = || product.metadata().unwrap().modified().unwrap().elapsed().unwrap_or_default();
    eventually("the products are older than any call", || age().as_millis() > 300);
    repository.attach_with(&[]);
    repository
}

#[test]
fn moved_git_directory_stays_where_it_is() {
    let repository = repository();
    repository.command("mv .git .git.bak", |repository| {
        fs::rename(repository.root().join(".git"), repository.root().join(".git.bak")).unwrap();
        repository.write("a.txt", "by the call\n");
    });
    let undone = undo(&repository, &[]);
    assert!(undone.contains("left     .git.bak/HEAD  it existed before, moved or ignored; --call "), "{undone}");
    assert!(repository.has(".git.bak/HEAD") && repository.has(".git.bak/index"));
    assert_eq!(repository.read("a.txt"), "one\n");
    assert!(undone.ends_with("[exit 1]"), "{undone}");
}

#[test]
fn moved_and_uncovered_ignored_files_stay() {
    let repository = repository();
    let at = |name: &str| repository.root().join(name);
    repository.command("mv build out", |_| fs::rename(at("build"), at("out")).unwrap());
    let undone = undo(&repository, &[]);
    assert!(undone.contains("left     out/product  it existed before"), "{undone}");
    assert_eq!(repository.read("out/product"), "precious\n");
    repository.command("rm .gitignore", |repository| repository.write(".gitignore", "other\n"));
    let undone = undo(&repository, &[]);
    assert!(undone.contains("left     sub/build/product  it existed before"), "{undone}");
    assert_eq!(
        (repository.read("sub/build/product"), repository.read(".gitignore")),
        ("precious, too\n".into(), "build\n".into())
    );
    assert!(undo(&repository, &["--overwrite"]).contains("gone     out/product"));
    assert!(undo(&repository, &[]).contains("nothing to undo: the selection changed no files, or is undone already"));
}

#[test]
fn moved_recorded_files_go_back() {
    let repository = repository();
    let at = |name: &str| repository.root().join(name);
    repository.command("mv a.txt c.txt", |_| fs::rename(at("a.txt"), at("c.txt")).unwrap());
    assert!(undo(&repository, &[]).ends_with("[exit 0]"));
    assert!(repository.has("a.txt") && !repository.has("c.txt"));
}

#[test]
fn directories_with_unrecorded_entries_stay_and_are_named() {
    let repository = repository();
    let at = |name: &str| repository.root().join(name);
    repository.command("mv sub moved", |repository| {
        fs::rename(at("sub"), at("moved")).unwrap();
        repository.remove("a.txt");
        put(&at("a.txt/build/new"), "made by the call\n");
    });
    let undone = undo(&repository, &[]);
    for path in ["moved", "a.txt"] {
        assert!(undone.contains(&format!("left     {path}  it has unrecorded entries\n")), "{undone}");
    }
    assert_eq!(repository.read("sub/b.txt"), "two\n");
    assert!(repository.has("moved/build/product") && !repository.has("moved/b.txt"));
    assert!(repository.has("a.txt/build/new"));
}

#[test]
fn undo_while_a_call_runs_leaves_it_to_be_undone_again() {
    let repository = repository();
    let call = json!({ "tool_name": "Bash", "tool_input": { "command": "x" }, "tool_use_id": "x" });
    repository.claude("PreToolUse", call.clone());
    repository.remove("a.txt");
    assert!(undo(&repository, &[]).ends_with("[exit 0]"));
    repository.remove("sub/b.txt");
    repository.claude("PostToolUse", call);
    assert!(undo(&repository, &[]).ends_with("[exit 0]"));
    assert!(repository.has("a.txt") && repository.has("sub/b.txt"));
}

#[test]
fn advice_about_what_is_left_names_the_call() {
    let repository = repository();
    repository.command("first", |repository| repository.write("a.txt", "by the first\n"));
    repository.write("a.txt", "by the person\n");
    repository.command("second", |repository| repository.remove("sub/b.txt"));
    repository.write("sub/b.txt", "the person's\n");
    let left = undo(&repository, &[]);
    let (_, advice) = left.split_once("left     sub/b.txt  changed at the same place since; --call ").unwrap();
    let call = advice.split(' ').next().unwrap();
    assert!(left.contains(&format!("#{call} Bash second")), "{left}");
    assert!(undo(&repository, &["--call", call, "--overwrite"]).ends_with("[exit 0]"));
    assert_eq!((repository.read("sub/b.txt"), repository.read("a.txt")), ("two\n".into(), "by the person\n".into()));
}

#[test]
fn whole_requests_outlive_a_collection() {
    let repository = Repository::unattached(&[("a.txt", "one\n")]);
    repository.attach_with(&["--transcripts"]);
    let request = "Do all of this.\n".repeat(100);
    repository.claude("UserPromptSubmit", json!({ "prompt": request }));
    let digest = repository.events("RunPrompted")[0]["event"]["digest"].as_str().unwrap().to_owned();
    repository.program.printed(&["stop"]);
    repository.program.printed(&["gc"]);
    // An owner starts again.
    repository.claude("Stop", json!({}));
    assert_eq!(repository.session().content(&digest.parse().unwrap()).unwrap(), request.as_bytes());
}

#[test]
fn undo_names_what_a_call_changed_before_it_shut_the_directory() {
    if !rustix::process::geteuid().is_root() {
        return report_skip("another user takes root");
    }
    let repository = Repository::unattached(&[("d/f.txt", "one\n"), ("d/g.txt", "two\n"), ("e.txt", "three\n")]);
    let home = repository.root().parent().unwrap().to_owned();
    let binary = home.join("foldspace");
    assert!(Command::new("cp").arg(env!("CARGO_BIN_EXE_foldspace")).arg(&binary).status().unwrap().success());
    assert!(Command::new("chown").args(["-R", "65534:65534"]).arg(&home).status().unwrap().success());
    let run = |words: &[&str], stdin: &Value| {
        let mut program = Command::new(&binary);
        program.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", &home).uid(OTHER).gid(OTHER);
        program.current_dir(repository.root()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut program = program.args(words).spawn().unwrap();
        program.stdin.take().unwrap().write_all(stdin.to_string().as_bytes()).unwrap();
        told(&program.wait_with_output().unwrap())
    };
    let hook = |event: &str| {
        let call = json!({ "tool_name": "Bash", "tool_input": { "command": "x" }, "tool_use_id": "t1" });
        let mut payload = json!({ "session_id": "s1", "cwd": repository.root(), "hook_event_name": event });
        payload.as_object_mut().unwrap().extend(call.as_object().unwrap().clone());
        payload["tool_response"] = json!({ "stdout": "" });
        assert_eq!(run(&["hook", "claude"], &payload), "\n[exit 0]");
    };
    let attached = run(&["attach", "."], &Value::Null);
    assert!(attached.ends_with("[exit 0]"), "{attached}");
    hook("PreToolUse");
    repository.write("d/f.txt", "by the call\n");
    repository.remove("d/g.txt");
    repository.write("e.txt", "by the call\n");
    let set_mode = |mode| fs::set_permissions(repository.root().join("d"), fs::Permissions::from_mode(mode)).unwrap();
    set_mode(0);
    hook("PostToolUse");
    let undone = run(&["undo", "--yes"], &Value::Null);
    assert!(undone.ends_with("[exit 1]"), "{undone}");
    for path in ["d/f.txt", "d/g.txt"] {
        assert!(undone.contains(&format!("left     {path}  a person may have changed it;")), "{undone}");
    }
    let advice = undone.split("--call ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    let forced = run(&["undo", "--call", advice, "--overwrite", "--yes"], &Value::Null);
    assert!(forced.ends_with("[exit 0]"), "{forced}");
    let files = ["d/f.txt", "d/g.txt", "e.txt"].map(|path| repository.read(path));
    assert_eq!(files, ["one\n", "two\n", "three\n"]);
    run(&["stop"], &Value::Null);
}
