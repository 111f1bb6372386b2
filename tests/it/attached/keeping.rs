//! Contents that are kept: of what git has, of ignored files, and of secrets.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use super::Repository;
use crate::rig::eventually;

const FILES: [(&str, &str); 3] = [("a.txt", "one\n"), ("b.txt", "two\n"), ("src/c.txt", "three\n")];

fn undo(repository: &Repository) -> String {
    repository.program.run(&["undo", "repo", "--yes"])
}

/// Waits until what only git has is copied.
fn await_copies(repository: &Repository, contents: u64) {
    eventually("what only git has is copied", || {
        let status = repository.program.json(&["attach", "--status"]);
        let copies = &status["directories"][0]["own_copies"];
        (&copies["copied"], &copies["left"]) == (&json!(contents), &json!(0))
    });
}

#[test]
fn undo_restores_what_a_nested_repository_tracks_though_ignored() {
    let repository = Repository::unattached(&[("a.txt", "one\n")]);
    let inner = repository.root().join("lib");
    repository.git(&["init", "-q", "lib"]);
    fs::write(inner.join(".gitignore"), "*.cmake\n").unwrap();
    fs::write(inner.join("a.cmake"), "find\n").unwrap();
    repository.git(&["-C", "lib", "add", "-f", "a.cmake", ".gitignore"]);
    repository.git(&["-C", "lib", "commit", "-q", "-m", "inner"]);
    repository.attach_with(&["--keep-ignored", "no"]);
    repository.command("t1", |_| {
        fs::remove_file(inner.join("a.cmake")).unwrap();
        fs::remove_file(inner.join(".gitignore")).unwrap();
    });
    assert!(undo(&repository).ends_with("[exit 0]"));
    assert_eq!(repository.read("lib/a.cmake"), "find\n");
}

#[test]
fn undo_after_git_is_gone_restores_from_own_copies() {
    let repository = Repository::unattached(&FILES);
    repository.write("new.txt", "not committed\n");
    repository.attach();
    await_copies(&repository, 3);
    repository.command("t1", |repository| {
        for path in ["src", ".git"] {
            fs::remove_dir_all(repository.root().join(path)).unwrap();
        }
        ["a.txt", "b.txt", "new.txt"].iter().for_each(|path| repository.remove(path));
    });
    let undone = undo(&repository);
    assert!(undone.ends_with("[exit 0]"), "{undone}");
    FILES.iter().for_each(|(path, text)| assert_eq!(repository.read(path), *text));
    assert_eq!(repository.read("new.txt"), "not committed\n");
    assert!(!repository.has(".git"));
}

#[test]
fn directory_that_is_gone_counts_as_empty() {
    let repository = Repository::with(&FILES);
    await_copies(&repository, 3);
    let call = json!({ "tool_name": "Bash", "tool_input": { "command": "rm -rf ../repo" }, "tool_use_id": "t1" });
    repository.claude("PreToolUse", call);
    fs::remove_dir_all(repository.root()).unwrap();
    let undone = undo(&repository);
    assert!(undone.ends_with("[exit 0]"), "{undone}");
    FILES.iter().for_each(|(path, text)| assert_eq!(repository.read(path), *text));
}

#[test]
fn content_that_git_has_lost_withholds_its_path_only() {
    let repository = Repository::unattached(&FILES);
    repository.write("new.txt", "not committed\n");
    repository.attach_with(&["--own-copy", "no"]);
    fs::remove_dir_all(repository.root().join(".git")).unwrap();
    fs::remove_file(repository.root().join("a.txt")).unwrap();
    repository.write("new.txt", "changed\n");
    repository.claude("SessionStart", json!({}));
    let diff = repository.program.run(&["diff", "repo", "0.."]);
    assert!(diff.contains("Binary files /dev/null and b/b.txt differ") && diff.contains("+changed"), "{diff}");
    assert!(diff.ends_with("[exit 0]"), "{diff}");
    let copy = repository.program.path("copy");
    let made = repository.program.run(&["materialise", "repo", &copy.to_string_lossy()]);
    assert!(made.contains("left     b.txt") && made.ends_with("[exit 1]"), "{made}");
    assert_eq!(fs::read_to_string(copy.join("new.txt")).unwrap(), "changed\n");
    assert!(!copy.join("b.txt").exists());
}

#[test]
fn undo_restores_ignored_files_and_secrets() {
    let repository = Repository::unattached(&[("a.txt", "one\n"), (".gitignore", ".env\n*.db\n")]);
    repository.write(".env", "PASSWORD=1\n");
    repository.write("local.db", "rows\n");
    repository.attach();
    repository.command("t1", |repository| {
        repository.git(&["clean", "-q", "-fdx"]);
    });
    assert!(!repository.has(".env") && !repository.has("local.db"));
    let undone = undo(&repository);
    assert!(undone.ends_with("[exit 0]"), "{undone}");
    assert_eq!((repository.read(".env"), repository.read("local.db")), ("PASSWORD=1\n".into(), "rows\n".into()));
}

#[test]
fn secret_is_in_no_export_and_no_command_shows_it() {
    let repository = Repository::unattached(&[("a.txt", "one\n")]);
    repository.write(".env", "PASSWORD=1\n");
    repository.attach();
    repository.command("t1", |repository| repository.write(".env", "PASSWORD=2\n"));
    for words in [&["cat", "repo", ".env"][..], &["diff", "repo", "1.."], &["grep", "repo", "PASSWORD"]] {
        let shown = repository.program.run(words);
        assert!(!shown.contains("PASSWORD=1") && !shown.contains("PASSWORD=2"), "{words:?}: {shown}");
    }
    let withheld = repository.program.data().join("withheld");
    let kept: Vec<_> = fs::read_dir(&withheld).unwrap().map(Result::unwrap).collect();
    assert_eq!(kept.len(), 2);
    assert!(kept.iter().all(|entry| entry.metadata().unwrap().permissions().mode() & 0o777 == 0o600));
    let export = repository.program.path("export");
    let exported = repository.program.run(&["export", "repo", "-o", &export.to_string_lossy()]);
    assert!(exported.ends_with("[exit 0]"), "{exported}");
    let imported = repository.program.run(&["import", &export.to_string_lossy(), "--name", "copy"]);
    assert!(imported.ends_with("[exit 0]"), "{imported}");
    assert!(repository.program.run(&["verify", "repo"]).ends_with("[exit 0]"));
}

#[test]
fn tracked_secret_is_restored_from_its_blob() {
    let repository = Repository::unattached(&[("a.txt", "one\n"), (".env.test", "KEY=1\n")]);
    repository.attach_with(&["--keep-secrets", "no"]);
    // A look that reads it again finds the same contents.
    repository.command("t1", |repository| repository.write(".env.test", "KEY=1\n"));
    repository.command("t2", |repository| repository.remove(".env.test"));
    let undone = undo(&repository);
    assert!(undone.ends_with("[exit 0]"), "{undone}");
    assert_eq!(repository.read(".env.test"), "KEY=1\n");
}

#[test]
fn attach_with_more_included_stays_in_the_same_session() {
    let repository = Repository::unattached(&[("a.txt", "one\n"), (".gitignore", "made/\n")]);
    repository.write("made/x.o", "1\n");
    repository.attach_with(&["--keep-ignored", "no"]);
    repository.attach_with(&["--include", "made"]);
    repository.command("t1", |repository| repository.remove("made/x.o"));
    assert!(undo(&repository).ends_with("[exit 0]"));
    assert_eq!(repository.read("made/x.o"), "1\n");
    // What was included stays so.
    repository.attach();
    let status = repository.program.json(&["attach", "--status"]);
    let attached = &status["directories"][0];
    assert_eq!((&attached["include"], &attached["keep_ignored"]), (&json!(["made"]), &json!(false)));
}

#[test]
fn file_over_the_limit_is_named_by_the_status() {
    let repository = Repository::with(&[("a.txt", "one\n")]);
    repository.command("t1", |repository| {
        fs::File::create(repository.root().join("big.bin")).unwrap().set_len((64 << 20) + 1).unwrap();
    });
    let status = repository.program.json(&["attach", "--status"]);
    assert_eq!(status["directories"][0]["not_kept"], json!(["big.bin"]));
}

/// Replaces the repository by another one with two files.
fn clone_another(repository: &Repository) {
    fs::remove_dir_all(repository.root()).unwrap();
    fs::create_dir(repository.root()).unwrap();
    repository.git(&["init", "-q", "-b", "main"]);
    ["new.txt", "more.txt"].iter().for_each(|path| repository.write(path, path));
    repository.commit("another first");
}

#[test]
fn new_clone_that_is_attached_again_is_copied_from_git() {
    let repository = Repository::with(&FILES);
    await_copies(&repository, 3);
    clone_another(&repository);
    repository.attach();
    await_copies(&repository, 2);
    repository.command("t1", |repository| {
        fs::remove_dir_all(repository.root().join(".git")).unwrap();
        ["new.txt", "more.txt"].iter().for_each(|path| repository.remove(path));
    });
    let undone = undo(&repository);
    assert!(undone.ends_with("[exit 0]"), "{undone}");
    ["new.txt", "more.txt"].iter().for_each(|path| assert_eq!(repository.read(path), *path));
}

#[test]
fn new_clone_is_copied_from_git_after_reports() {
    let repository = Repository::with(&FILES);
    await_copies(&repository, 3);
    clone_another(&repository);
    eventually("what only git has is copied", || {
        repository.claude("UserPromptSubmit", json!({ "prompt": "go" }));
        let status = repository.program.json(&["attach", "--status"]);
        let copies = &status["directories"][0]["own_copies"];
        (&copies["copied"], &copies["left"]) == (&json!(2), &json!(0))
    });
}

#[test]
fn attach_counts_ignored_entries_beyond_the_limits() {
    let repository = Repository::unattached(&[("a.txt", "one\n"), (".gitignore", "conf/\nnode_modules/\n*.big\n")]);
    (0..2003).for_each(|number| repository.write(&format!("conf/{number}"), "x\n"));
    repository.write("node_modules/a.js", "x\n");
    fs::File::create(repository.root().join("x.big")).unwrap().set_len(1 << 20).unwrap();
    let attached = repository.program.json(&["attach", &repository.root().to_string_lossy()]);
    let counted = json!({ "left_out": 5, "file_bytes": 1 << 20, "entries": 4000, "bytes": 128 << 20 });
    assert_eq!(attached["ignored"], counted);
    assert_eq!(repository.program.json(&["attach", "--status"])["directories"][0]["ignored"], counted);
    let told = "over a limit (below 1.0 MiB each, 2000 entries, 64.0 MiB in all): 5 ignored entries, not recorded";
    assert!(repository.program.run(&["attach", "--status"]).contains(told));
    repository.command("t1", |repository| fs::remove_dir_all(repository.root().join("conf")).unwrap());
    assert!(undo(&repository).ends_with("[exit 0]"));
    assert_eq!(fs::read_dir(repository.root().join("conf")).unwrap().count(), 1999);
}
