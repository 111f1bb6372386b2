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
    let files =
        [repository.lost_files().unwrap(), repository.all_files().unwrap(), repository.tracked_files().unwrap()];
    let ids = files.iter().flatten().map(|file| file.id.clone());
    repository.contents(ids, 100, |_, bytes| assert_eq!(bytes, b"1")).unwrap();
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

#[test]
fn lost_files_have_the_paths_of_their_commits() {
    let made = repository(&[("a", "1"), ("dir/b", "1")]);
    let at = |name: &str| made.path().join(name);
    fs::write(at("line\nbreak\t"), "lost").unwrap();
    fs::set_permissions(at("line\nbreak\t"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    std::os::unix::fs::symlink("a", at("link")).unwrap();
    git(made.path(), &["add", "."]);
    git(made.path(), &["commit", "-q", "-m", "lost\n\nbody"]);
    git(made.path(), &["reset", "-q", "--hard", "HEAD~1"]);
    for (text, stash) in [("older", "first"), ("newer", "second")] {
        fs::write(at("a"), text).unwrap();
        git(made.path(), &["stash", "push", "-q", "-m", stash]);
    }
    fs::write(at("nameless"), "staged").unwrap();
    git(made.path(), &["add", "nameless"]);
    git(made.path(), &["rm", "-q", "-f", "nameless"]);
    let found = found(made.path());
    let files = found.lost_files().unwrap();
    let mut shown: Vec<_> = files
        .iter()
        .map(|file| {
            let path = file.path.as_ref().map(|path| String::from_utf8_lossy(path).into_owned());
            let origin = file.origin.split_once(' ').unwrap().1.split_once(' ').map_or("", |(_, subject)| subject);
            assert!(file.seconds.is_some_and(|seconds| seconds > 1_600_000_000));
            (path, file.is_sure, file.executable, origin.to_owned())
        })
        .collect();
    shown.sort();
    let named =
        |path: &str, is_executable, origin: &str| (Some(path.to_owned()), true, is_executable, origin.to_owned());
    let branch = shown[1].3.split(':').next().unwrap().to_owned();
    assert_eq!(
        shown,
        [
            (None, false, false, String::new()),
            named("a", false, &format!("{branch}: first")),
            named("a", false, &format!("{branch}: second")),
            named("line\nbreak\t", true, "lost"),
        ]
    );
    let mut read = Vec::new();
    let over = found
        .contents(files.iter().map(|file| file.id.clone()), 5, |_, bytes| read.push(String::from_utf8(bytes).unwrap()))
        .unwrap();
    read.sort();
    assert_eq!((read, over.len()), (vec!["lost".to_owned(), "newer".to_owned(), "older".to_owned()], 1));
}

#[test]
fn lost_files_of_a_damaged_repository_are_read_as_far_as_possible() {
    let made = repository(&[("a", "1")]);
    fs::write(made.path().join("b"), "lost").unwrap();
    git(made.path(), &["add", "."]);
    git(made.path(), &["commit", "-q", "-m", "lost"]);
    git(made.path(), &["reset", "-q", "--hard", "HEAD~1"]);
    let found = found(made.path());
    assert_eq!(found.lost_files().unwrap().len(), 1);
    let blob = found.blobs("HEAD").unwrap()[0].1.clone();
    fs::remove_file(made.path().join(".git/objects").join(&blob[..2]).join(&blob[2..])).unwrap();
    let files = found.lost_files().unwrap();
    assert_eq!(files.iter().map(|file| file.path.as_deref()).collect::<Vec<_>>(), [Some(&b"b"[..])]);
    let mut read = Vec::new();
    found.contents([blob, files[0].id.clone()].into_iter(), 100, |_, bytes| read.push(bytes)).unwrap();
    assert_eq!(read, [b"lost"]);
}
