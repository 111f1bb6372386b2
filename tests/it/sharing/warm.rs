//! Containers that are made before anybody needs one.

use std::process::{Command, Stdio};
use std::time::Duration;

use foldspace::backends::{MachineNews, PodmanOptions, WarmContainers};
use foldspace::{Registry, Sessions, Workspace};

use super::Sandbox;
use crate::rig::{Kind, Rig, Running, engine_cli, eventually, field, named, process};

const WAIT_LIMIT: Duration = Duration::from_secs(120);

/// Options that no other test has, so that nobody else takes a container.
fn options(pids: u32) -> Option<PodmanOptions> {
    Some(PodmanOptions { pids, ..Rig::options(Kind::Overlay)? })
}

fn keep(options: &PodmanOptions, count: usize) -> WarmContainers {
    let warm = WarmContainers::keep(options, count).unwrap();
    warm.wait(WAIT_LIMIT).unwrap();
    warm
}

/// The ids of all containers that nobody has taken, of the process of that number.
fn spares(process: u32) -> Vec<String> {
    let filters = ["--filter", "label=foldspace.session=warm", "--filter", "name=^foldspace-warm-"];
    let listed = engine_cli(&[&["ps", "--all", "--quiet", "--no-trunc"], &filters[..]].concat()).unwrap();
    let owner = format!("{process}:");
    let is_its = |id: &str| {
        let label = field(id, "{{index .Config.Labels \"foldspace.owner\"}}");
        label.is_some_and(|label| label.starts_with(&owner))
    };
    listed.lines().filter(|id| is_its(id)).map(str::to_owned).collect()
}

#[test]
fn warm_container_is_taken_and_replaced() {
    let Some(options) = options(401) else { return };
    let warm = keep(&options, 1);
    let sandbox = Sandbox::filled(&options, &[("a/one", "one")]);
    let before = spares(std::process::id());
    assert_eq!(sandbox.sh("cat a/one; pwd; id -u; ls -A /tmp; ls -A; echo x > made"), "one/workspace\n65534\na\n");
    let started = sandbox.started();
    let [started] = &started[..] else { panic!("{started:?}") };
    assert!(before.contains(&started.id), "it was there already");
    assert!(started.created && started.overlay, "{started:?}");
    assert_eq!(named(&started.name), std::slice::from_ref(&started.id), "it keeps the name that it was made with");
    assert!(sandbox.dirty().len() <= 1, "only what the command has made is touched");
    assert_eq!(sandbox.sh("cat made; env | grep -c FOLDSPACE || true"), "x\n0\n");
    warm.wait(WAIT_LIMIT).unwrap();
    assert_eq!(warm.ready(), 1);
    // Nobody gets what somebody had.
    let other = Sandbox::filled(&options, &[]);
    assert_eq!(other.sh("ls -A; ls -A /tmp"), "");
    assert_ne!(other.started()[0].id, started.id);
    assert_eq!(sandbox.sh("cat a/one"), "one");
    sandbox.close();
    assert_eq!(named(&started.name), Vec::<String>::new());
    assert_eq!(sandbox.sh("cat made"), "x\n", "the next one has the files");
}

#[test]
fn warm_container_serves_a_child() {
    let Some(options) = options(402) else { return };
    let warm = keep(&options, 2);
    let parent = Sandbox::filled(&options, &[("a/one", "one")]);
    parent.sh("echo x > /tmp/parent; echo parent > p");
    parent.rest();
    let child = parent.fork();
    assert_eq!(child.sh("cat a/one p; ls -A /tmp; echo child > p"), "oneparent\n");
    assert_eq!(parent.sh("cat p; ls /tmp"), "parent\nparent\n");
    assert_ne!(parent.started()[0].id, child.started()[0].id);
    drop(warm);
    assert_eq!(child.sh("cat p"), "child\n", "what was taken is the session's");
    child.close();
    assert_eq!(child.sh("cat p"), "child\n");
}

#[test]
fn warm_container_of_other_options_is_not_taken() {
    let Some(options) = options(403) else { return };
    let warm = keep(&options, 1);
    let before = spares(std::process::id());
    let other = PodmanOptions { pids: 404, ..options.clone() };
    let sandbox = Sandbox::filled(&other, &[]);
    sandbox.sh("true");
    assert!(!before.contains(&sandbox.started()[0].id));
    assert_eq!(warm.ready(), 1);
    let plain = PodmanOptions { overlay: foldspace::backends::OverlayUse::Never, ..options };
    let sandbox = Sandbox::filled(&plain, &[]);
    sandbox.sh("true");
    assert!(!before.contains(&sandbox.started()[0].id));
}

#[test]
fn warm_containers_removed_on_drop() {
    let Some(options) = options(405) else { return };
    let before = spares(std::process::id());
    let warm = keep(&options, 2);
    let ours: Vec<String> = spares(std::process::id()).into_iter().filter(|id| !before.contains(id)).collect();
    assert!(ours.len() >= 2);
    drop(warm);
    let left = spares(std::process::id());
    // Other tests keep some, too.
    assert!(ours.iter().filter(|id| !left.contains(id)).count() >= 2, "{ours:?} {left:?}");
    let sandbox = Sandbox::filled(&options, &[("a", "a")]);
    assert_eq!(sandbox.sh("cat a"), "a");
}

#[test]
fn warm_container_that_ended_is_not_used() {
    let Some(options) = options(406) else { return };
    let before = spares(std::process::id());
    let warm = keep(&options, 1);
    for id in spares(std::process::id()).into_iter().filter(|id| !before.contains(id)) {
        // Those of other tests that were made meanwhile are told apart by their limit.
        if limit(&id) == Some(406) {
            engine_cli(&["kill", &id]).unwrap();
            eventually("it has ended", || !runs(&id));
        }
    }
    let sandbox = Sandbox::filled(&options, &[("a", "a")]);
    assert_eq!(sandbox.sh("cat a"), "a");
    drop(warm);
}

fn limit(id: &str) -> Option<i64> {
    field(id, "{{.HostConfig.PidsLimit}}")?.parse().ok()
}

fn runs(id: &str) -> bool {
    field(id, "{{.State.Running}}").is_some_and(|running| running == "true")
}

#[test]
fn warm_container_idle_is_replaced() {
    let Some(options) = options(407) else { return };
    let options = PodmanOptions { idle_seconds: 1, ..options };
    let warm = keep(&options, 1);
    let sandbox = Sandbox::filled(&options, &[("a", "a")]);
    sandbox.sh("cat a");
    let first = sandbox.started()[0].id.clone();
    let stopped = || sandbox.news().into_iter().find(|news| matches!(news, MachineNews::Stopped(_)));
    let mut news = None;
    eventually("it is idle", || {
        news = stopped();
        news.is_some()
    });
    assert!(matches!(&news, Some(MachineNews::Stopped(event)) if event.reason == "idle"), "{news:?}");
    assert!(!runs(&first));
    drop(warm);
    assert_eq!(sandbox.sh("cat a"), "a");
    let second = sandbox.started()[0].clone();
    assert!(second.created && second.id != first);
}

#[test]
fn warm_container_of_a_killed_process_writes_nothing_any_more() {
    let Some(options) = options(409) else { return };
    for next in ["a command", "a command in a warm one", "a fork"] {
        let warm = keep(&options, 1);
        let mut parent = Sandbox::filled(&options, &[("a", "a")]);
        parent.sh("true");
        let first = parent.started()[0].name.clone();
        warm.wait(WAIT_LIMIT).unwrap();
        let warm = (next == "a command in a warm one").then_some(warm);
        let lost = parent.lose(&options);
        if next == "a fork" {
            parent.rest();
            drop(parent.fork());
        } else {
            assert_eq!(parent.sh("cat a"), "a");
        }
        assert_eq!(named(&first), Vec::<String>::new(), "{next}");
        drop((lost, warm));
    }
}

/// Keeps a warm container until the process is killed.
pub(crate) fn keep_until_killed() {
    let _warm = keep(&options(408).unwrap(), 1);
    loop {
        std::thread::park();
    }
}

#[test]
fn warm_containers_of_killed_process_are_removed() {
    let Some(_) = options(408) else { return };
    let place = tempfile::tempdir().unwrap();
    drop(Sessions::open(place.path().join("data"), Registry::standard()).unwrap());
    let mut command = process("keep_warm", "");
    command
        .env("FOLDSPACE_CACHE", place.path().join("cache"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut child = Running(command.spawn().unwrap());
    let process = child.0.id();
    eventually("it keeps one", || !spares(process).is_empty());
    let spare = || std::fs::read_dir(place.path().join("cache/warm")).unwrap().count();
    assert_eq!(spare(), 1);
    let gc = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_foldspace"));
        command.arg("gc").env("FOLDSPACE_DATA", place.path().join("data"));
        let output = command.env("FOLDSPACE_CACHE", place.path().join("cache")).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    gc();
    assert_eq!((spares(process).len(), spare()), (1, 1), "it belongs to a process that lives");
    child.0.kill().unwrap();
    child.0.wait().unwrap();
    gc();
    assert_eq!((spares(process), spare()), (Vec::new(), 0));
}
