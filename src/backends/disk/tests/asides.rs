//! Staging directories, and directories that replace the opened one.

use std::fs;
use std::path::Path;

use super::rig::{path, tick};
use crate::backends::disk::staging_dir::{StagingDir, WITHIN};
use crate::backends::disk::workspace_disk::WorkspaceDisk;
use crate::backends::disk::{DirTree, PlainDisk};
use crate::backends::{FileChange, HostOptions, HostWorkspace, Workspace};
use crate::engine::event::Node;

fn file(at: &str) -> FileChange {
    FileChange::Write { path: path(at), node: Node::file(b"ours", false), bytes: "ours".into(), modified: None }
}

fn host(directory: &Path) -> HostWorkspace {
    HostWorkspace::open(directory, &HostOptions::default()).unwrap()
}

fn entries(directory: &Path) -> Vec<String> {
    let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

#[test]
fn aside_is_removed_with_workspace() {
    let top = tempfile::tempdir().unwrap();
    let workspace = host(&top.path().join("project"));
    assert!(workspace.is_blank());
    workspace.filling().unwrap();
    workspace.apply(&[file("a")]).unwrap();
    assert_eq!(entries(top.path()), [".foldspace-project", "project"]);
    drop(workspace);
    let workspace = host(&top.path().join("project"));
    assert!(workspace.is_blank(), "it was not populated");
    workspace.filled().unwrap();
    drop(workspace);
    assert_eq!(entries(top.path()), ["project"]);
    assert!(!host(&top.path().join("project")).is_blank());
}

#[test]
fn aside_within_workspace_is_hidden() {
    let top = tempfile::tempdir().unwrap();
    // Any prefix makes the name too long.
    let root = top.path().join("n".repeat(250));
    let workspace = host(&root);
    assert!(workspace.is_blank());
    workspace.apply(&[file("a"), file("b/c")]).unwrap();
    assert_eq!((entries(&root).len(), entries(top.path()).len()), (3, 1));
    let disk = workspace.capture().unwrap();
    let below = disk.below(&path("")).unwrap().entries;
    assert!(below.len() == 3 && !below.iter().any(|(found, _)| found.to_string().contains(WITHIN)));
    for _ in 0..5 {
        disk.dirty().unwrap();
        disk.mark_clean().unwrap();
        tick();
    }
    fs::write(root.join(WITHIN).join("0/hidden"), "").unwrap();
    assert_eq!(disk.dirty().unwrap(), []);
    assert_eq!(disk.observe(&path(".foldspace/0")).unwrap(), None);
    assert!(workspace.apply(&[file(".foldspace/x")]).is_err());
    assert!(workspace.apply(&[FileChange::Delete { path: path(".foldspace") }]).is_err());
    drop(workspace);
    assert_eq!(entries(&root), ["a", "b"]);
}

#[test]
fn aside_of_killed_process_is_removed() {
    let top = tempfile::tempdir().unwrap();
    let (root, home) = (top.path().join("project"), top.path().join(".foldspace-project"));
    for made in [&root, &home.join("0/directory"), &home.join("1")] {
        fs::create_dir_all(made).unwrap();
    }
    for made in ["0/directory/7", "1/8", "1/kept-2-9", "filling"] {
        fs::write(home.join(made), "").unwrap();
    }
    let first = StagingDir::of(&root).unwrap();
    fs::write(first.path().join("mine"), "").unwrap();
    let second = StagingDir::of(&root).unwrap();
    assert_ne!(first.path(), second.path());
    assert!(first.path().join("mine").exists());
    drop((first, second));
    assert_eq!(
        (entries(&home), entries(&home.join("1"))),
        (vec!["1".into(), "filling".into()], vec!["kept-2-9".into()])
    );
}

#[test]
fn workspace_replaced_directory_is_refused() {
    let top = tempfile::tempdir().unwrap();
    let at = |name: &str| top.path().join(name);
    fs::create_dir(at("files")).unwrap();
    fs::create_dir(at("aside")).unwrap();
    let mut disk = PlainDisk::new(DirTree::beneath("host", &at("files"), &at("aside"), None).unwrap()).unwrap();
    disk.apply(&[file("a")]).unwrap();
    fs::rename(at("files"), at("old")).unwrap();
    let gone = disk.dirty().unwrap_err().to_string();
    assert!(gone.contains("files is gone"), "{gone}");
    let others: [&dyn Fn(); 2] = [&|| fs::create_dir(at("files")).unwrap(), &|| {
        fs::remove_dir(at("files")).unwrap();
        std::os::unix::fs::symlink("old", at("files")).unwrap();
    }];
    for put in others {
        put();
        let replaced = disk.dirty().unwrap_err().to_string();
        assert!(replaced.contains("files is not the directory that was opened"), "{replaced}");
        assert!(disk.apply(&[file("b")]).unwrap_err().reason.contains("is not the directory that was opened"));
    }
    fs::remove_file(at("files")).unwrap();
    fs::rename(at("old"), at("files")).unwrap();
    disk.apply(&[file("b")]).unwrap();
    disk.dirty().unwrap();
    assert_eq!(entries(&at("files")), ["a", "b"]);
}

#[test]
fn command_in_replaced_directory_is_refused() {
    let top = tempfile::tempdir().unwrap();
    let root = top.path().join("project");
    let workspace = host(&root);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let run = |text: &str| {
        let command = crate::backends::ShellCommand::shell(text);
        runtime.block_on(workspace.unrecorded_shell().unwrap().execute(
            command,
            crate::backends::unwatched(),
            Default::default(),
        ))
    };
    assert_eq!(run("cd ..; mv project old; ln -s / project").unwrap().exit_code, 0);
    let error = run("touch made").unwrap_err().to_string();
    assert!(error.contains("is not the directory that was opened"), "{error}");
}

/// Runs in its own namespace, where it may mount.
#[test]
#[ignore = "disk_tests_pass_in_user_namespace runs it"]
fn apply_into_other_mount_is_refused() {
    let top = tempfile::tempdir().unwrap();
    let at = |name: &str| top.path().join(name);
    for made in ["files/mount", "aside"] {
        fs::create_dir_all(at(made)).unwrap();
    }
    rustix::mount::mount("none", at("files/mount"), "tmpfs", rustix::mount::MountFlags::empty(), None).unwrap();
    fs::write(at("files/mount/there"), "").unwrap();
    let tree = DirTree::beneath("host", &at("files"), &at("aside"), None).unwrap();
    for change in [file("mount/new"), file("mount/there"), FileChange::Delete { path: path("mount/there") }] {
        let error = tree.apply(std::slice::from_ref(&change)).unwrap_err().reason;
        assert!(error.contains(&change.path().rooted()) && error.contains("in another mount"), "{error}");
    }
    assert_eq!(entries(&at("files/mount")), ["there"]);
    rustix::mount::unmount(at("files/mount"), rustix::mount::UnmountFlags::empty()).unwrap();
}
