#![expect(clippy::disallowed_methods, reason = "the tests create repositories directly")]

use std::fs;
use std::path::Path;
use std::process::Command;

use super::*;
use crate::engine::id::Digest;

/// Creates a repository with some tracked files, and runs git in it.
fn repository(files: &[(&str, &str)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    git(directory.path(), &["init", "-q"]);
    for (path, text) in files {
        let path = directory.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    git(directory.path(), &["add", "-f", "."]);
    git(directory.path(), &["commit", "-q", "-m", "first"]);
    directory
}

fn git(directory: &Path, arguments: &[&str]) {
    let name = ["-c", "user.name=a", "-c", "user.email=a@example.org"];
    let ran = Command::new("git").arg("-C").arg(directory).args(name).args(arguments).output().unwrap();
    assert!(ran.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&ran.stderr));
}

fn found(directory: &Path) -> GitRepository {
    GitRepository::find(directory).unwrap().unwrap()
}

#[test]
fn repository_in_directory_with_line_break_is_found() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().canonicalize().unwrap().join("a\nb\n");
    fs::create_dir(&directory).unwrap();
    git(&directory, &["init", "-q"]);
    let found = found(&directory);
    assert_eq!((&found.top, &found.git_directory), (&directory, &directory.join(".git")));
    assert!(found.is_sha1 && found.common_directory == found.git_directory);
}

#[test]
fn repository_of_directory_without_one_is_none() {
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(GitRepository::find(directory.path()).unwrap(), None);
}

#[test]
fn repository_is_found_from_below_its_top() {
    let made = repository(&[("src/a", "1")]);
    let top = made.path().canonicalize().unwrap();
    let found = found(&top.join("src"));
    assert_eq!(
        (&found.top, &found.git_directory, &found.common_directory),
        (&top, &top.join(".git"), &top.join(".git"))
    );
    let clean = CleanFiles::of(&found).unwrap();
    assert_eq!(clean.digest(b"a"), Some(Digest::as_git_blob(b"1")), "paths are relative to the directory");
}

#[test]
fn clean_files_are_those_that_are_as_committed() {
    let made = repository(&[("clean", "1\n"), ("edited", "1\n"), ("staged", "1\n"), ("gone", "1\n"), ("kept", "1\n")]);
    fs::write(made.path().join("edited"), "2\n").unwrap();
    fs::write(made.path().join("staged"), "2\n").unwrap();
    fs::write(made.path().join("new"), "1\n").unwrap();
    fs::remove_file(made.path().join("gone")).unwrap();
    git(made.path(), &["add", "staged"]);
    git(made.path(), &["update-index", "--assume-unchanged", "kept"]);
    let clean = CleanFiles::of(&found(made.path())).unwrap();
    assert_eq!(clean.digest(b"clean"), Some(Digest::as_git_blob(b"1\n")));
    assert_eq!(clean.digest(b"staged"), Some(Digest::as_git_blob(b"2\n")), "the blob is the index's");
    for path in ["edited", "new", "gone", "kept"] {
        assert_eq!(clean.digest(path.as_bytes()), None, "{path}");
    }
}

#[test]
fn clean_files_leave_out_what_git_converts() {
    let made = repository(&[("a.txt", "1\n"), ("b.bin", "1\n"), (".gitattributes", "*.txt text=auto\n")]);
    let clean = CleanFiles::of(&found(made.path())).unwrap();
    assert_eq!(clean.digest(b"a.txt"), None);
    assert!(clean.digest(b"b.bin").is_some());
    git(made.path(), &["config", "core.autocrlf", "input"]);
    assert!(CleanFiles::of(&found(made.path())).unwrap().is_empty());
}

#[test]
fn tracked_though_ignored_lists_those_only() {
    let made = repository(&[("a.log", "1"), ("b.txt", "1"), (".gitignore", "*.log\n")]);
    fs::write(made.path().join("c.log"), "1").unwrap();
    assert_eq!(found(made.path()).tracked_though_ignored(&[]).unwrap(), [b"a.log"]);
}

#[test]
fn repository_whose_worktree_is_elsewhere_is_refused() {
    let (made, elsewhere) = (repository(&[("src/a", "1")]), tempfile::tempdir().unwrap());
    let (top, other) = (made.path().canonicalize().unwrap(), elsewhere.path().canonicalize().unwrap());
    let worktree = |place: &Path| git(&top, &["config", "core.worktree", &place.to_string_lossy()]);
    fs::create_dir(top.join("src/below")).unwrap();
    for wrong in [&other, &top.join("src")] {
        worktree(wrong);
        let refused = GitRepository::find(&top).unwrap_err().to_string();
        assert!(refused.contains(&format!("use {} itself", wrong.display())), "{refused}");
    }
    assert_eq!(found(&top.join("src/below")).top, top.join("src"), "the directory is inside of it");
    // The repository that another directory's `.git` points to is also rejected.
    worktree(&other);
    let linked = tempfile::tempdir().unwrap();
    fs::write(linked.path().join(".git"), format!("gitdir: {}", top.join(".git").display())).unwrap();
    GitRepository::find(linked.path()).unwrap_err();
    worktree(&top);
    assert_eq!(found(&top).top, top);
    fs::create_dir(elsewhere.path().join("in")).unwrap();
    std::os::unix::fs::symlink(&top, elsewhere.path().join("in/link")).unwrap();
    assert_eq!(found(&elsewhere.path().join("in/link/src")).top, top, "a link to the worktree is the worktree");
}

#[test]
fn git_runs_no_program_of_a_repository() {
    let made = repository(&[("a", "1")]);
    let marker = made.path().join("ran");
    let script = format!("#!/bin/sh\necho \"$0\" >> '{}'\n", marker.display());
    for name in ["fsmonitor", "hooks/post-index-change", "hooks/reference-transaction", "hooks/post-checkout"] {
        let path = made.path().join(".git").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &script).unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    git(made.path(), &["config", "core.fsmonitor", &made.path().join(".git/fsmonitor").to_string_lossy()]);
    git(made.path(), &["status"]);
    assert!(fs::remove_file(&marker).is_ok(), "by default git runs them");
    let repository = found(made.path());
    CleanFiles::of(&repository).unwrap();
    repository.place().unwrap();
    let (commit, into) = (repository.commit("HEAD").unwrap(), tempfile::tempdir().unwrap());
    write_commit(made.path(), &commit, into.path()).unwrap();
    assert_eq!(fs::read_to_string(into.path().join("a")).unwrap(), "1");
    repository.write_note("notes", &commit, "a note").unwrap();
    assert!(!marker.exists(), "{}", fs::read_to_string(&marker).unwrap());
}

#[test]
fn missing_object_is_not_fetched_by_any_git() {
    let made = repository(&[("a", "1")]);
    let marker = made.path().join("asked");
    git(made.path(), &["config", "core.repositoryFormatVersion", "1"]);
    git(made.path(), &["config", "extensions.partialClone", "origin"]);
    git(made.path(), &["config", "remote.origin.url", &made.path().to_string_lossy()]);
    git(made.path(), &["config", "remote.origin.promisor", "true"]);
    git(made.path(), &["config", "remote.origin.uploadpack", &format!("touch '{}'; false", marker.display())]);
    git(made.path(), &["config", "protocol.file.allow", "always"]);
    let asked = |change: fn(&mut Command)| {
        let mut git = git_in(made.path(), &["cat-file", "-p", "0123456789012345678901234567890123456789"]);
        change(&mut git);
        assert!(!git.output().unwrap().status.success());
        fs::remove_file(&marker).is_ok()
    };
    assert!(!asked(|_| ()));
    // Like git before 2.45.
    assert!(!asked(|git| _ = git.env_remove("GIT_NO_LAZY_FETCH")));
    assert!(
        asked(|git| _ = git.env_remove("GIT_NO_LAZY_FETCH").env_remove("GIT_ALLOW_PROTOCOL")),
        "without protection it is"
    );
}
