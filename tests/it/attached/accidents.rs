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
    let refused = undo(&repository, &[]);
    assert!(refused.contains("a.txt  stays: others changed the same place since"), "{refused}");
    assert!(refused.contains("git has moved since these calls: the worktree is on other at"), "{refused}");
    assert!(refused.contains("not all of it can be undone") && refused.ends_with("[exit 1]"), "{refused}");
    assert_eq!(repository.read("b.txt"), "agent\n", "nothing was done");
    assert!(undo(&repository, &["--force"]).ends_with("[exit 0]"));
    assert_eq!((repository.read("a.txt"), repository.read("b.txt")), ("one\nuser\nthree\n".into(), "one\n".into()));
}

#[test]
fn undo_never_removes_what_was_there_at_attach() {
    let repository = Repository::unattached(&[("a.txt", "one\n")]);
    repository.write("mine.txt", "mine\n");
    repository.attach();
    repository.remove("mine.txt");
    repository.command("t1", |repository| repository.write("mine.txt", "the agent's\n"));
    let kept = undo(&repository, &["--force"]);
    assert!(kept.contains("mine.txt  stays: it was there before the session"), "{kept}");
    assert_eq!(repository.read("mine.txt"), "the agent's\n");
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
    let refused = undo(&repository, &[]);
    assert!(refused.contains(".env  stays: its contents were not kept"), "{refused}");
    assert!(undo(&repository, &["--force"]).ends_with("[exit 0]"));
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
    let refused = undo(&repository, &[]);
    assert!(refused.contains(".env  stays: its contents were not kept"), "{refused}");
    assert!(undo(&repository, &["--force"]).ends_with("[exit 0]"));
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
    // The latest call is the undo. A file that was there at attach is not removed again.
    let kept = undo(&repository, &["--force"]);
    assert!(kept.contains("b.txt  stays: it was there before the session"), "{kept}");
    assert_eq!((repository.read("a.txt"), repository.read("b.txt")), ("two\n".into(), "one\n".into()));
    assert_eq!(repository.read("c.txt"), "new\n");
    repository.check("done again");
}
