//! Losses that users of coding agents have published, to tools that put files back and to agents. None happens here.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::Repository;
use crate::rig::eventually;

/// Returns all files below a directory with their sizes, contents' digests and inodes.
fn seen(directory: &Path) -> Vec<(String, u64, String)> {
    let (mut seen, mut left) = (Vec::new(), vec![directory.to_owned()]);
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let stat = path.symlink_metadata().unwrap();
            if stat.is_dir() {
                left.push(path);
            } else {
                let text = format!(
                    "{:?}",
                    fs::read(&path)
                        .ok()
                        .map(|bytes| bytes.len() + bytes.iter().map(|byte| usize::from(*byte)).sum::<usize>())
                );
                seen.push((path.to_string_lossy().into_owned(), stat.ino(), text));
            }
        }
    }
    seen.sort();
    seen
}

fn undo(repository: &Repository, words: &[&str]) -> String {
    repository.program.run(&[&["undo", "repo", "--yes"], words].concat())
}

/// copilot-cli#1675: a restore ran `git clean -fd`, and a gigabyte of output was gone.
#[test]
fn undo_keeps_untracked_files_that_no_call_made() {
    let repository = Repository::unattached(&[("a.txt", "one\n")]);
    let big = fs::File::create(repository.root().join("output.bin")).unwrap();
    big.set_len(1 << 30).unwrap();
    repository.write("notes/mine.txt", "untracked\n");
    repository.attach();
    repository.command("t1", |repository| repository.write("a.txt", "two\n"));
    repository.write("later.txt", "the user's\n");
    assert!(undo(&repository, &["--to", "1"]).ends_with("[exit 0]"));
    assert_eq!(repository.read("a.txt"), "one\n");
    assert_eq!(fs::metadata(repository.root().join("output.bin")).unwrap().len(), 1 << 30);
    assert_eq!(
        (repository.read("notes/mine.txt"), repository.read("later.txt")),
        ("untracked\n".into(), "the user's\n".into())
    );
}

/// cline#9590: a checkpoint renamed the user's `.git`.
#[test]
fn undo_and_hooks_leave_git_alone() {
    let repository = Repository::unattached(&[("a.txt", "one\n"), ("sub/b.txt", "two\n")]);
    let before = seen(&repository.root().join(".git"));
    repository.attach();
    repository.command("t1", |repository| {
        repository.write("a.txt", "changed\n");
        repository.remove("sub/b.txt");
    });
    assert!(undo(&repository, &[]).ends_with("[exit 0]"));
    assert_eq!(seen(&repository.root().join(".git")), before);
    assert_eq!(repository.git(&["status", "--porcelain"]), "");
}

/// opencode#26893: a stale tree was put back over two days of work.
#[test]
fn undo_of_what_was_seen_before_others_changed_files_is_refused() {
    let repository = Repository::with(&[("a.txt", "one\n")]);
    repository.command("t1", |repository| repository.write("a.txt", "two\n"));
    let planned = repository.program.json(&["undo", "repo", "--dry-run"]);
    repository.command("t2", |repository| repository.write("b.txt", "new\n"));
    let asked = serde_json::json!({ "call": planned["calls"][0], "seen": planned["seen"] });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = foldspace::http::HttpClient::at(repository.program.data().join("http.sock"));
    let path = format!("/v1/sessions/{}/undo", planned["session"].as_str().unwrap());
    let refused = runtime.block_on(client.post::<serde_json::Value>(&path, &asked)).unwrap_err();
    assert!(refused.to_string().contains("files have changed since"), "{refused}");
    assert_eq!((repository.read("a.txt"), repository.read("b.txt")), ("two\n".into(), "new\n".into()));
}

/// A subdirectory's restore reset the whole monorepo.
#[test]
fn undo_touches_only_what_its_calls_changed() {
    let repository = Repository::with(&[("app/a.txt", "one\n"), ("lib/b.txt", "one\n"), ("lib/c.txt", "one\n")]);
    repository.command("t1", |repository| repository.write("app/a.txt", "agent\n"));
    repository.write("lib/b.txt", "user\n");
    repository.command("t2", |repository| repository.write("lib/c.txt", "agent\n"));
    let inode = fs::metadata(repository.root().join("lib/b.txt")).unwrap().ino();
    assert!(undo(&repository, &["--run", "last"]).ends_with("[exit 0]"));
    assert_eq!(repository.read("app/a.txt"), "one\n");
    assert_eq!(repository.read("lib/c.txt"), "one\n");
    assert_eq!(repository.read("lib/b.txt"), "user\n");
    assert_eq!(fs::metadata(repository.root().join("lib/b.txt")).unwrap().ino(), inode, "it was not touched at all");
}

/// entire#1408: a rewind left deleted files deleted.
#[test]
fn undo_brings_deleted_files_back() {
    let repository = Repository::unattached(&[("src/a.txt", "one\n"), ("src/deep/b.txt", "two\n")]);
    repository.write("untracked.txt", "three\n");
    repository.attach();
    repository.command("t1", |repository| {
        fs::remove_dir_all(repository.root().join("src")).unwrap();
        repository.remove("untracked.txt");
    });
    repository.check("after the removal");
    assert!(undo(&repository, &[]).ends_with("[exit 0]"));
    assert_eq!(repository.git(&["status", "--porcelain"]), "?? untracked.txt\n");
    assert_eq!(repository.read("untracked.txt"), "three\n");
    repository.check("undone");
}

/// claude-code#70363 and others: an agent ran `git reset --hard`, and uncommitted work was gone.
#[test]
fn undo_brings_uncommitted_work_back() {
    let repository = Repository::unattached(&[("a.txt", "one\n"), ("b.txt", "one\n")]);
    repository.write("a.txt", "hours of work\n");
    repository.attach();
    repository.write("b.txt", "more work\n");
    repository.command("t1", |repository| drop(repository.git(&["reset", "-q", "--hard"])));
    assert_eq!(repository.read("a.txt"), "one\n");
    assert!(undo(&repository, &[]).ends_with("[exit 0]"));
    assert_eq!((repository.read("a.txt"), repository.read("b.txt")), ("hours of work\n".into(), "more work\n".into()));
}

#[test]
fn undo_after_the_branch_has_moved_on_says_so_and_names_conflicts() {
    let repository = Repository::with(&[("a.txt", "one\ntwo\nthree\n"), ("b.txt", "one\n")]);
    repository.claude("SessionStart", serde_json::json!({}));
    repository.command("t1", |repository| {
        repository.write("a.txt", "one\nagent\nthree\n");
        repository.write("b.txt", "agent\n");
    });
    repository.git(&["checkout", "-q", "-b", "other"]);
    repository.write("a.txt", "one\nuser\nthree\n");
    repository.commit("second");
    repository.claude("Stop", serde_json::json!({}));
    crate::rig::eventually("the move is recorded", || repository.events("GitMoved").len() >= 2);
    let told = undo(&repository, &[]);
    assert!(told.contains("left     a.txt  changed at the same place since"), "{told}");
    assert!(told.contains("git has moved since these calls: the worktree is on other at"), "{told}");
    assert!(told.contains("(1 change left)") && told.ends_with("[exit 1]"), "{told}");
    assert_eq!((repository.read("a.txt"), repository.read("b.txt")), ("one\nuser\nthree\n".into(), "one\n".into()));
}

#[test]
fn undo_overwrites_what_others_changed_only_when_asked_and_a_redo_brings_it_back() {
    let repository = Repository::with(&[("w.js", "one\ntwo\n")]);
    repository.command("t1", |repository| repository.write("w.js", "one\nagent\n"));
    repository.write("w.js", "one\n  agent;\n");
    let left = undo(&repository, &[]);
    assert!(left.contains("left     w.js  changed at the same place since; --call "), "{left}");
    assert!(left.contains("nothing could be undone: 1 change left") && left.ends_with("[exit 1]"), "{left}");
    assert_eq!(repository.read("w.js"), "one\n  agent;\n");
    assert!(undo(&repository, &["--overwrite"]).ends_with("[exit 0]"));
    assert_eq!(repository.read("w.js"), "one\ntwo\n");
    assert!(undo(&repository, &["--redo"]).ends_with("[exit 0]"));
    assert_eq!(repository.read("w.js"), "one\n  agent;\n");
}

/// vscode#317021: an agent deleted a file and created it again; undo lost the first.
#[test]
fn undo_brings_back_what_one_call_removed_and_another_wrote_again() {
    let all_ways: [&[&[&str]]; 3] = [&[&["--run", "s1"]], &[&["--to", "6"]], &[&[], &[]]];
    for ways in all_ways {
        let repository = Repository::unattached(&[("b.txt", "b\n"), ("src/x.c", "int x;\n"), ("src/y.c", "int y;\n")]);
        repository.write("dirty.txt", "not committed\n");
        repository.attach();
        repository.command("t1", |repository| {
            repository.remove("b.txt");
            repository.remove("dirty.txt");
            fs::remove_dir_all(repository.root().join("src")).unwrap();
        });
        repository.command("t2", |repository| {
            repository.write("b.txt", "new\n");
            repository.write("dirty.txt", "not committed\n");
            repository.write("src/x.c", "other\n");
        });
        for way in ways {
            let undone = undo(&repository, way);
            assert!(undone.ends_with("[exit 0]") && !undone.contains("left"), "{ways:?}: {undone}");
        }
        let files = ["b.txt", "src/x.c", "src/y.c", "dirty.txt"].map(|path| repository.read(path));
        assert_eq!(files, ["b\n", "int x;\n", "int y;\n", "not committed\n"], "{ways:?}");
        repository.check("undone");
    }
}

#[test]
fn undo_walks_back_and_redo_forward_naming_each_call() {
    let repository = Repository::with(&[("a.txt", "0\n")]);
    repository.command("one", |repository| repository.write("a.txt", "1\n"));
    repository.command("two", |repository| repository.write("a.txt", "2\n"));
    for (words, first, contents) in [
        (&[][..], "undoes #11 Bash two by claude, ", "1\n"),
        (&[], "undoes #6 Bash one by claude, ", "0\n"),
        (&["--redo"], "redoes #6 Bash one by claude, ", "1\n"),
        (&["--redo"], "redoes #11 Bash two by claude, ", "2\n"),
        (&[], "undoes #11 Bash two by claude, ", "1\n"),
    ] {
        let planned = repository.program.run(&[&["undo", "repo", "--dry-run"], words].concat());
        let told = undo(&repository, words);
        assert!(told.starts_with(first) && told.ends_with("[exit 0]"), "{words:?}: {told}");
        assert_eq!(planned.lines().nth(1), told.lines().nth(1), "the plan is what is done");
        assert_eq!(repository.read("a.txt"), contents, "{words:?}");
    }
    assert!(undo(&repository, &[]).ends_with("[exit 0]"));
    let nothing = undo(&repository, &[]);
    assert!(nothing.contains("nothing to undo") && nothing.ends_with("[exit 3]"), "{nothing}");
}

#[test]
fn undo_takes_external_changes_back_by_name_only() {
    let repository = Repository::with(&[("a.txt", "one\n")]);
    repository.write("a.txt", "mine\n");
    let hint = undo(&repository, &[]);
    assert!(hint.contains("`foldspace undo --external` reverts changes from outside of calls"), "{hint}");
    assert!(hint.ends_with("[exit 3]"), "{hint}");
    let undone = undo(&repository, &["--external"]);
    assert!(undone.starts_with("undoes what changed outside of any call, event "), "{undone}");
    assert_eq!(repository.read("a.txt"), "one\n");
    assert!(undo(&repository, &["--external"]).ends_with("[exit 3]"), "what was there at attach is no such change");
    assert!(undo(&repository, &["--redo"]).ends_with("[exit 0]"));
    assert_eq!(repository.read("a.txt"), "mine\n");
}

#[test]
fn revert_brings_paths_back_and_removes_nothing() {
    let repository = Repository::with(&[("src/a.txt", "one\n"), ("src/b.txt", "two\n"), ("c.txt", "three\n")]);
    let at = repository.session().head().unwrap().to_string();
    repository.remove("src/a.txt");
    repository.write("src/b.txt", "changed\n");
    repository.write("src/new.txt", "new\n");
    repository.write("c.txt", "changed\n");
    let revert = |paths: &[&str]| repository.program.run(&[&["revert", "repo", "--at", &at, "-y"], paths].concat());
    assert!(revert(&["nothing"]).contains("nothing did not exist at"), "a path that did not exist is refused");
    assert!(revert(&["src"]).ends_with("[exit 0]"));
    let files = ["src/a.txt", "src/b.txt", "src/new.txt", "c.txt"].map(|path| repository.read(path));
    assert_eq!(files, ["one\n", "two\n", "new\n", "changed\n"]);
    let undone = undo(&repository, &[]);
    assert!(undone.contains(" revert ") && undone.ends_with("[exit 0]"), "{undone}");
    assert!(!repository.has("src/a.txt") && repository.read("src/b.txt") == "changed\n");
}

#[test]
fn blame_of_what_an_undo_brings_back_names_who_wrote_it() {
    let repository = Repository::with(&[("a.txt", "one\n")]);
    repository.command("t1", |repository| repository.write("a.txt", "one\nagent\n"));
    let before = repository.program.run(&["blame", "repo", "a.txt"]);
    repository.command("t2", |repository| repository.remove("a.txt"));
    assert!(undo(&repository, &[]).ends_with("[exit 0]"));
    assert_eq!(repository.program.run(&["blame", "repo", "a.txt"]), before);
    assert!(undo(&repository, &["--call", "6"]).ends_with("[exit 0]"));
    assert!(undo(&repository, &["--redo"]).ends_with("[exit 0]"));
    assert_eq!(repository.program.run(&["blame", "repo", "a.txt"]), before);
}

#[test]
fn undo_asks_what_was_there_before_the_call_and_not_at_attach() {
    let repository = Repository::unattached(&[("a.txt", "one\n")]);
    repository.write("mine.txt", "mine\n");
    repository.attach();
    repository.remove("mine.txt");
    repository.command("t1", |repository| repository.write("mine.txt", "the agent's\n"));
    assert!(undo(&repository, &[]).ends_with("[exit 0]"));
    assert!(!repository.has("mine.txt"), "its owner had removed it");
    assert!(undo(&repository, &["--external"]).ends_with("[exit 0]"));
    assert_eq!(repository.read("mine.txt"), "mine\n");
}

#[test]
fn undo_names_what_was_kept_by_digest_only() {
    let repository = Repository::unattached(&[("a.txt", "one\n")]);
    repository.write(".env", "PASSWORD=1\n");
    repository.attach_with(&["--keep-secrets", "no"]);
    repository.command("t1", |repository| {
        repository.write(".env", "PASSWORD=2\n");
        repository.write("a.txt", "two\n");
    });
    let store = fs::read(repository.program.data().join("journal/00000001.seg")).unwrap_or_default();
    assert!(!store.windows(9).any(|window| window == b"PASSWORD="), "no secret is in the store");
    let told = undo(&repository, &[]);
    assert!(told.contains("left     .env  its earlier contents were not stored"), "{told}");
    assert!(told.ends_with("[exit 1]"), "{told}");
    assert_eq!((repository.read(".env"), repository.read("a.txt")), ("PASSWORD=2\n".into(), "one\n".into()));
}

#[test]
fn undo_puts_back_what_git_has_pruned() {
    let repository = Repository::unattached(&[("a.txt", "one\n")]);
    repository.write("staged.txt", "never committed\n");
    repository.git(&["add", "staged.txt"]);
    repository.attach();
    repository.command("t1", |repository| drop(repository.git(&["rm", "-q", "--cached", "staged.txt"])));
    // A busy owner may still be looking when the hook has returned.
    eventually("the index was looked at", || !repository.events("GitMoved").is_empty());
    repository.git(&["prune", "--expire", "now"]);
    assert!(repository.git(&["count-objects", "-v"]).contains("count: 3\n"), "only those of the commit are left");
    repository.command("t2", |repository| repository.remove("staged.txt"));
    assert!(undo(&repository, &[]).ends_with("[exit 0]"));
    assert_eq!(repository.read("staged.txt"), "never committed\n");
}

#[test]
fn undo_keeps_a_new_file_that_nothing_could_bring_back() {
    let repository = Repository::unattached(&[("a.txt", "one\n")]);
    repository.attach_with(&["--keep-secrets", "no"]);
    repository.command("t1", |repository| {
        repository.write(".env", "PASSWORD=2\n");
        repository.write("a.txt", "two\n");
    });
    let told = undo(&repository, &[]);
    assert!(told.contains("left     .env  its current contents were not stored"), "{told}");
    assert!(told.ends_with("[exit 1]"), "{told}");
    assert_eq!((repository.read(".env"), repository.read("a.txt")), ("PASSWORD=2\n".into(), "one\n".into()));
}

#[test]
fn undo_is_undone_by_an_undo() {
    let repository = Repository::with(&[("a.txt", "one\n"), ("b.txt", "one\n")]);
    repository.command("t1", |repository| {
        repository.write("a.txt", "two\n");
        repository.remove("b.txt");
        repository.write("c.txt", "new\n");
    });
    assert!(undo(&repository, &[]).ends_with("[exit 0]"));
    assert_eq!(repository.git(&["status", "--porcelain"]), "");
    let calls: Vec<_> = repository.program.json_lines(&["log", "repo", "--calls"]);
    let latest = calls.last().unwrap()["call"].to_string();
    assert!(undo(&repository, &["--call", &latest]).ends_with("[exit 0]"));
    assert_eq!((repository.read("a.txt"), repository.read("c.txt")), ("two\n".into(), "new\n".into()));
    assert!(!repository.has("b.txt"));
    repository.check("done again");
}
