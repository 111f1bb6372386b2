//! Files that a child has from its parent.

use std::sync::{Arc, Mutex};

use foldspace::backends::compliance::{CheckOutcome, Fork, Means, check_forks};
use foldspace::backends::{DirtyPath, ShellCommand, remove_leftovers, unwatched};
use foldspace::event::{Clock, SystemClock};
use foldspace::{EntryPath, SessionId, Workspace, WorkspaceSpec};
use tokio_util::sync::CancellationToken;

use super::Sandbox;
use crate::rig::{Kind, Rig, cache, eventually, named};

const FILES: [(&str, &str); 3] = [("a/one", "one"), ("a/two", "two"), ("top", "top")];

fn home(id: SessionId) -> std::path::PathBuf {
    cache().join(id.to_string())
}

#[test]
fn shared_layers_are_not_seen_by_relatives() {
    let Some(options) = Rig::options(Kind::Overlay) else { return };
    let parent = Sandbox::filled(&options, &FILES);
    parent.sh("echo made > a/made; rm top; ln -s a/one link");
    parent.rest();
    let child = parent.fork();
    assert_eq!(child.dirty(), [], "what it has is what the parent's history says");
    let all = "find . -type f -exec cat {} + | sort | tr '\\n' ' '; cat link; ls -A";
    let before = parent.sh(all);
    assert_eq!(child.sh(all), before);
    assert_eq!(child.dirty(), [], "reading changes nothing");
    child.sh("echo child > a/one; rm a/two; mkdir a/d; echo x > a/d/x; rm -r link");
    assert_eq!(parent.sh(all), before);
    assert!(child.dirty().contains(&DirtyPath::Entry(EntryPath::lookup("a/one").unwrap())));
    assert_eq!(parent.dirty(), []);
    parent.sh("echo parent > a/made; rm a/one; echo new > a/new");
    assert_eq!(child.sh("cat a/one a/made a/d/x; ls a; ls link top 2>&1 | wc -l"), "child\nmade\nx\nd\nmade\none\n2\n");
    let names = |touched: &[DirtyPath]| touched.iter().map(|touched| format!("{touched:?}")).collect::<String>();
    assert!(!names(&child.dirty()).contains("new"));
}

#[test]
fn shared_layers_carry_files_only() {
    let Some(options) = Rig::options(Kind::Overlay) else { return };
    let parent = Sandbox::filled(&options, &FILES);
    parent.sh("echo secret > /tmp/secret; echo secret > /dev/shm/secret");
    let kept = "ls -A /tmp /dev/shm | grep secret || true";
    assert_eq!(parent.sh(kept), "secret\nsecret\n", "it lasts in the parent");
    parent.rest();
    let child = parent.fork();
    assert_eq!(child.sh(kept), "");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let cancel = CancellationToken::new();
    let mut command = ShellCommand::shell("touch began; sleep 1000");
    command.env.insert("KEPT".to_owned(), "parents".to_owned());
    let running = runtime.spawn(parent.unrecorded_shell().unwrap().execute(command, unwatched(), cancel.clone()));
    let processes = "cat /proc/[0-9]*/cmdline | tr '\\0' ' '";
    eventually("the parent's command runs", || parent.sh(processes).contains("sleep 1000"));
    assert!(!child.sh(processes).contains("sleep 1000"));
    // That of a process that runs yet, for every call has an environment of its own.
    let environments = "cat /proc/[0-9]*/environ | tr '\\0' '\\n' | grep -a ^KEPT= | sort -u";
    assert_eq!(parent.sh(environments), "KEPT=parents\n");
    assert_eq!(child.sh(environments), "");
    cancel.cancel();
    runtime.block_on(running).unwrap().unwrap();
    let door = "stat -c %i /run/foldspace/door/socket; cat /proc/sys/kernel/hostname";
    assert_ne!(child.sh(door), parent.sh(door));
    assert_ne!(parent.started()[0].id, child.started()[0].id);
    assert_eq!(parent.sh("cat /tmp/secret"), "secret\n");
}

#[test]
fn layers_are_not_shared_while_command_runs() {
    let Some(options) = Rig::options(Kind::Overlay) else { return };
    let parent = Sandbox::filled(&options, &FILES);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let cancel = CancellationToken::new();
    let command = ShellCommand::shell("touch began; sleep 100");
    let running = runtime.spawn(parent.unrecorded_shell().unwrap().execute(command, unwatched(), cancel.clone()));
    eventually("it has begun", || {
        parent.capture().unwrap().observe(&EntryPath::lookup("began").unwrap()).unwrap().is_some()
    });
    let child = Sandbox::new(&options);
    let id = child.id;
    drop(child);
    assert!(!parent.fork_to(id).unwrap());
    cancel.cancel();
    runtime.block_on(running).unwrap().unwrap();
    parent.rest();
    assert!(parent.fork_to(id).unwrap());
    drop(Sandbox::of(id, &options));
    assert!(!home(id).exists());
}

#[test]
fn shared_layers_survive_any_removal_order() {
    let Some(options) = Rig::options(Kind::Overlay) else { return };
    let parent = Sandbox::filled(&options, &FILES);
    parent.sh("echo 0 > depth");
    parent.rest();
    let mut child = parent.fork();
    child.sh("echo 1 > depth; echo child > child");
    child.rest();
    let mut grandchild = child.fork();
    let parent_home = home(parent.id);
    drop(parent);
    assert!(!parent_home.exists(), "only its layers stay, in the pool");
    assert_eq!(grandchild.sh("cat depth a/one child; echo 2 > depth; rm a/two"), "1\nonechild\n");
    // As later processes find them.
    child.reopen();
    assert_eq!(child.sh("cat depth a/one a/two"), "1\nonetwo");
    let child_home = home(child.id);
    drop(child);
    grandchild.reopen();
    assert!(!grandchild.is_blank());
    assert_eq!(grandchild.sh("cat depth a/one; ls"), "2\nonea\nchild\ndepth\ntop\n");
    assert!(remove_leftovers(Some("unix:///nowhere.sock"), false).unwrap().failed.is_empty());
    assert_eq!(grandchild.sh("cat a/one"), "one", "what is in use is no leftover");
    let last = home(grandchild.id);
    drop(grandchild);
    assert!(!last.exists() && !child_home.exists() && !parent_home.exists());
}

#[test]
fn layers_of_plain_or_blank_parent_are_not_shared() {
    let Some(options) = Rig::options(Kind::Plain) else { return };
    let plain = Sandbox::filled(&options, &FILES);
    let child = SessionId::from_bytes([7; 16]);
    assert!(!plain.fork_to(child).unwrap());
    let Some(options) = Rig::options(Kind::Overlay) else { return };
    let blank = Sandbox::new(&options);
    assert!(blank.is_blank() && !blank.fork_to(child).unwrap());
    assert!(!home(child).exists());
    let (one, other) = (Sandbox::filled(&options, &FILES), Sandbox::filled(&options, &[("mine", "mine")]));
    let id = other.id;
    assert!(one.fork_to(id).unwrap_err().to_string().contains("in use"), "somebody has it open");
    let open = other.sh("ls");
    assert_eq!(open, "mine\n");
}

#[test]
fn leftover_container_cannot_write_into_child() {
    let Some(options) = Rig::options(Kind::Overlay) else { return };
    let mut parent = Sandbox::filled(&options, &FILES);
    parent.sh("true");
    parent.rest();
    // Its container runs on, and shows the files.
    let lost = parent.lose(&options);
    assert_eq!(named(&parent.name()).len(), 1);
    parent.rest();
    let child = parent.fork();
    assert_eq!(named(&parent.name()), Vec::<String>::new());
    assert_eq!(child.sh("cat a/one"), "one");
    drop(lost);
    assert_eq!(child.sh("cat a/one"), "one");
}

#[test]
fn removed_parent_leaves_shared_layers() {
    let Some(options) = Rig::options(Kind::Overlay) else { return };
    let mut parent = Sandbox::filled(&options, &FILES);
    let child = parent.fork();
    let spec = WorkspaceSpec::Podman(options.clone());
    parent.open.take().unwrap().close();
    spec.remove(parent.id, &cache()).unwrap();
    assert_eq!(child.sh("cat a/one a/two top"), "onetwotop");
    child.close();
    spec.remove(parent.id, &cache()).unwrap();
    assert_eq!(child.sh("cat a/one a/two top"), "onetwotop");
}

#[test]
fn forked_workspaces_are_compliant() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let check = |options: &foldspace::backends::PodmanOptions| {
        let id = SessionId::from_bytes(SystemClock::default().fresh_id());
        let (children, ids) = (Arc::new(Mutex::new(vec![id])), options.clone());
        let made = Arc::clone(&children);
        let fork: Fork = Arc::new(move |parent: &dyn Workspace| {
            let child = SessionId::from_bytes(SystemClock::default().fresh_id());
            if !parent.fork_to(child)? {
                return Ok(None);
            }
            made.lock().unwrap().push(child);
            Ok(Some(Arc::new(foldspace::PodmanSandbox::open(child, &ids)?) as Arc<dyn Workspace>))
        });
        let parent = Arc::new(foldspace::PodmanSandbox::open(id, options).unwrap());
        parent.filled().unwrap();
        let report = runtime.block_on(check_forks(Arc::clone(&parent) as Arc<dyn Workspace>, fork, Means::Processes));
        parent.close();
        drop(parent);
        let family = children.lock().unwrap().clone();
        family.iter().for_each(|id| WorkspaceSpec::Podman(options.clone()).remove(*id, &cache()).unwrap());
        assert!(family.iter().all(|id| !home(*id).exists()), "nothing is left of {family:?}");
        report
    };
    let Some(options) = Rig::options(Kind::Overlay) else { return };
    let report = check(&options);
    assert!(report.passed(), "{report}");
    for name in ["fork-files", "fork-apart", "fork-nested"] {
        assert_eq!(report.check(name).unwrap().outcome, CheckOutcome::Passed, "{name}");
    }
    let report = check(&Rig::options(Kind::Plain).unwrap());
    let applies = |outcome: &CheckOutcome| !matches!(outcome, CheckOutcome::NotApplicable { .. });
    assert!(!report.checks.iter().any(|check| applies(&check.outcome)), "{report}");
}
