//! What is left where a process was killed, or something could not be done.

use std::path::Path;
use std::process::Command;

use foldspace::backends::{MachineNews, PodmanOptions};
use foldspace::event::{Clock, SystemClock};
use foldspace::{NewSession, Registry, SessionId, Sessions, Workspace, WorkspaceSpec};

use super::{Sandbox, file};
use crate::rig::{Kind, Rig, cache, eventually, named};

fn fresh() -> SessionId {
    SessionId::from_bytes(SystemClock::default().fresh_id())
}

fn home(id: SessionId) -> std::path::PathBuf {
    cache().join(id.to_string())
}

#[test]
fn layers_of_writing_container_are_not_shared() {
    let Some(options) = Rig::options(Kind::Overlay) else { return };
    let mut parent = Sandbox::filled(&options, &[("a", "a")]);
    parent.sh("true");
    parent.rest();
    let nowhere = PodmanOptions { connection: Some("unix:///nowhere.sock".to_owned()), ..options.clone() };
    let lost = parent.lose(&nowhere);
    let child = fresh();
    assert!(!parent.fork_to(child).unwrap(), "nobody knows what runs");
    assert!(!home(child).exists());
    assert_eq!(named(&parent.name()).len(), 1);
    drop(lost);
    parent.reopen();
    parent.rest();
    drop(parent.fork());
}

#[test]
fn failed_child_keeps_parent_container() {
    let Some(options) = Rig::options(Kind::Overlay) else { return };
    let parent = Sandbox::filled(&options, &[("a", "a")]);
    parent.sh("echo made > made; echo kept > /tmp/kept");
    parent.rest();
    let child = fresh();
    std::fs::create_dir(home(child)).unwrap();
    std::fs::write(home(child).join("layers"), "in the way").unwrap();
    parent.fork_to(child).unwrap_err();
    let stopped = parent.news().into_iter().find(|news| matches!(news, MachineNews::Stopped(_)));
    assert_eq!(stopped, None);
    assert_eq!(parent.sh("cat made /tmp/kept a"), "made\nkept\na");
    std::fs::remove_dir_all(home(child)).unwrap();
}

fn gc(store: &Path, more: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_foldspace"));
    let output = command.arg("gc").args(more).env("FOLDSPACE_DATA", store).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn files_of_unborn_child_are_removed() {
    let Some(options) = Rig::options(Kind::Overlay) else { return };
    let place = tempfile::tempdir().unwrap();
    let [store, other] = ["store", "other"].map(|name| place.path().join(name));
    drop(Sessions::open(&other, Registry::standard()).unwrap());
    let sessions = Sessions::open(&store, Registry::standard()).unwrap();
    let spec = WorkspaceSpec::Podman(options.clone());
    let new =
        NewSession { name: None, backend: Some(spec.backend_name().to_owned()), options: spec.options(), id: None };
    let known = sessions.create(new).unwrap().id();
    sessions.close();
    drop(spec.open(known, &store).unwrap());
    let (parent, child, nobodys) = (fresh(), fresh(), fresh());
    drop(foldspace::PodmanSandbox::open(nobodys, &options).unwrap());
    let open = spec.open(parent, &store).unwrap();
    open.apply(&[file("a", "a")]).unwrap();
    open.filled().unwrap();
    // Killed before the child's first event.
    assert!(open.fork_to(child).unwrap());
    let layers = |of: SessionId| {
        let pool = std::fs::read_dir(cache().join("layers")).unwrap();
        pool.filter(|layer| layer.as_ref().unwrap().file_name().to_str().unwrap().contains(&of.to_string())).count()
    };

    assert_eq!(gc(&other, &[]).matches("sandbox").count(), 0);
    let would = gc(&store, &["--dry-run"]);
    assert!(would.contains("would remove the files of 1 sandbox, whose session is gone"), "{would}");
    let would: serde_json::Value = serde_json::from_str(&gc(&store, &["--dry-run", "--json"])).unwrap();
    assert_eq!(would["sandboxes"], serde_json::json!([home(child)]));
    assert!(home(child).exists());
    let told = gc(&store, &[]);
    assert!(told.contains("removed the files of 1 sandbox, whose session is gone"), "{told}");
    assert!(!home(child).exists() && layers(child) == 0);
    assert!(home(parent).exists(), "somebody has it open");

    let grandchild = fresh();
    assert!(open.fork_to(child).unwrap());
    let begun = spec.open(child, &store).unwrap();
    assert!(begun.fork_to(grandchild).unwrap());
    drop(open);
    eventually("the layers that the open one names stay of the parent", || {
        gc(&store, &[]);
        !home(parent).exists() && !home(grandchild).exists()
    });
    assert!(layers(parent) > 0 && home(known).exists() && home(nobodys).exists());
    drop(begun);
    eventually("the last of them takes all along", || {
        gc(&store, &[]);
        !home(child).exists() && layers(parent) + layers(child) == 0
    });
    assert!(home(known).exists() && home(nobodys).exists());
    for id in [known, nobodys] {
        spec.remove(id, &store).unwrap();
        assert!(!home(id).exists());
    }
}
