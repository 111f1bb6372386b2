//! What happens to containers behind our back, and when nobody uses them.

use foldspace::backends::PodmanOptions;
use foldspace::event::{CommandResult, ContainerStarted, ContainerStopped};
use foldspace::tools::WorkspaceError;
use foldspace::{Recorded, ToolCall, ToolRunner, Tools};
use serde_json::json;

use crate::rig::{Kind, Rig, Step, engine_cli, eventually, has_begun, named, process_of};

const REMOVE: [&str; 2] = ["rm", "--force"];
const STOP: [&str; 3] = ["stop", "--time", "0"];
const PAUSE: [&str; 1] = ["pause"];

fn act(rig: &Rig, how: &[&str]) {
    engine_cli(&[how, &[&rig.name()]].concat()).unwrap();
}

/// Waits until the container does not run.
pub(super) fn until_stopped(rig: &Rig) {
    eventually("the container has stopped", || process_of(&rig.name()).is_none());
}

/// The next call finds the same files, in a container that runs.
fn goes_on(rig: &Rig, what: &str) {
    let step = rig.ok("cat f && echo more >> f");
    assert_eq!((step.stdout(), step.drift.len()), ("kept", 0), "{what}");
    let started = step.of::<ContainerStarted>();
    assert_eq!(started.len(), 1, "{what}");
    let stopped: Vec<_> = step.of::<ContainerStopped>().into_iter().map(|event| event.reason).collect();
    assert_eq!(stopped, ["vanished"], "{what}");
    assert_eq!(named(&rig.name()), [started[0].id.clone()], "{what}");
    rig.verify();
}

fn begun(kind: Kind) -> Option<Rig> {
    let rig = Rig::new(kind)?;
    rig.ok("echo kept > f");
    Some(rig)
}

#[test]
fn container_removed_is_created_again() {
    for kind in [Kind::Overlay, Kind::Plain] {
        let Some(rig) = begun(kind) else { return };
        act(&rig, &REMOVE);
        goes_on(&rig, "removed");
    }
}

#[test]
fn container_stopped_is_created_again() {
    for kind in [Kind::Overlay, Kind::Plain] {
        let Some(rig) = begun(kind) else { return };
        act(&rig, &STOP);
        goes_on(&rig, "stopped");
    }
}

#[test]
fn container_with_killed_init_is_created_again() {
    let Some(rig) = begun(Kind::Overlay) else { return };
    let process = i32::try_from(process_of(&rig.name()).unwrap()).unwrap();
    let process = rustix::process::Pid::from_raw(process).unwrap();
    rustix::process::kill_process(process, rustix::process::Signal::KILL).unwrap();
    until_stopped(&rig);
    goes_on(&rig, "killed");
}

#[test]
fn container_paused_is_created_again() {
    for kind in [Kind::Overlay, Kind::Plain] {
        let Some(rig) = begun(kind) else { return };
        act(&rig, &PAUSE);
        goes_on(&rig, "paused");
    }
}

/// Does something to the container while a command runs in it.
fn meanwhile(rig: &Rig, seconds: u64, how: &[&str]) -> Step {
    let params = json!({ "command": "echo printed; echo begun > g; sleep 60", "timeout_seconds": seconds });
    let (tool_runner, root) = (rig.tool_runner().clone(), rig.root());
    let called = rig.runtime.spawn(async move { tool_runner.call(ToolCall::new("shell_execute", params)).await });
    eventually("the command has begun", || has_begun(&root.join("g")));
    act(rig, how);
    let outcome = rig.runtime.block_on(called).unwrap().unwrap();
    rig.recorded(outcome, "a command whose container was changed")
}

/// That command was ended, which is its result, and the next one finds everything in a new container.
fn ended_alone(rig: &Rig, step: &Step, what: &str) {
    assert!(step.outcome.is_ok(), "{what}: {}", step.outcome.text);
    let (result, is_late) = (&step.of::<CommandResult>()[0], what == "paused");
    assert_eq!((result.signal, result.timed_out, result.lost), (Some(9), is_late, true), "{what}");
    assert_eq!(step.exit_code(), if is_late { 124 } else { 137 }, "{what}");
    let words = if is_late { "the container no longer answered" } else { "the container ended while it ran" };
    assert!(step.outcome.text.contains(words), "{what}: {}", step.outcome.text);
    assert!(step.stdout().contains("printed"), "{what}: what it had printed is there: {}", step.outcome.text);
    assert_eq!(step.paths().0, ["g"], "{what}: what it had done is recorded");
    let step = rig.ok("cat f g");
    assert_eq!((step.stdout(), step.of::<ContainerStarted>().len()), ("kept\nbegun", 1), "{what}");
    assert_eq!(named(&rig.name()).len(), 1, "{what}");
    rig.verify();
}

#[test]
fn container_removed_under_command_ends_only_it() {
    for kind in [Kind::Overlay, Kind::Plain] {
        let Some(rig) = begun(kind) else { return };
        let step = meanwhile(&rig, 100, &REMOVE);
        ended_alone(&rig, &step, "removed");
    }
}

#[test]
fn container_stopped_under_command_ends_only_it() {
    for kind in [Kind::Overlay, Kind::Plain] {
        let Some(rig) = begun(kind) else { return };
        let step = meanwhile(&rig, 100, &STOP);
        ended_alone(&rig, &step, "stopped");
    }
}

/// Nobody in it answers any more, so that only the clock outside ends the command.
#[test]
fn container_paused_on_overlay_ends_only_its_command() {
    paused_under_a_command(Kind::Overlay);
}

#[test]
fn container_paused_on_plain_directory_ends_only_its_command() {
    paused_under_a_command(Kind::Plain);
}

fn paused_under_a_command(kind: Kind) {
    let Some(rig) = begun(kind) else { return };
    let step = meanwhile(&rig, 2, &PAUSE);
    ended_alone(&rig, &step, "paused");
}

#[test]
fn container_idle_is_stopped_and_started_again() {
    for kind in [Kind::Overlay, Kind::Plain] {
        let overlay = if kind == Kind::Plain {
            foldspace::backends::OverlayUse::Never
        } else {
            foldspace::backends::OverlayUse::Auto
        };
        let Some(rig) = Rig::container(|options| PodmanOptions { idle_seconds: 1, overlay, ..options }) else { return };
        let made = rig.unchecked("echo kept > f; echo gone > /tmp/f").of::<ContainerStarted>();
        until_stopped(&rig);
        assert_eq!(named(&rig.name()), [made[0].id.clone()], "it is stopped, not removed");
        eventually("the stop is recorded without a call", || {
            let events: Vec<Recorded> = rig.session().events(1, 1000).unwrap();
            let stopped = events.iter().filter_map(|event| event.typed::<ContainerStopped>()?.ok());
            stopped.map(|stopped| stopped.event.reason).eq(["idle".to_owned()])
        });
        let step = rig.unchecked("cat f");
        let started = step.of::<ContainerStarted>();
        assert_eq!((started.len(), started[0].created, &started[0].id), (1, false, &made[0].id));
        assert_eq!((step.of::<ContainerStopped>().len(), step.drift.len()), (0, 0), "the stop was recorded before");
        // A file tool needs no container.
        until_stopped(&rig);
        let read = rig.bare("read_file", serde_json::json!({ "file_path": "f" }));
        assert!(read.is_ok(), "{}", read.text);
        assert!(process_of(&rig.name()).is_none());
        // One that takes longer than that is not idle.
        rig.unchecked("sleep 3 && cat f");
        rig.verify();
    }
}

#[test]
fn container_leaves_nothing_after_its_session() {
    let Some(mut rig) = begun(Kind::Overlay) else { return };
    let name = rig.name();
    assert_eq!(named(&name).len(), 1);
    rig.close();
    assert_eq!(named(&name), Vec::<String>::new());
    rig.reopen();
    rig.ok("cat f");
    assert_eq!(named(&name).len(), 1);
    let workspace = std::sync::Arc::downgrade(rig.tool_runner().workspace());
    rig.abandon();
    assert!(workspace.upgrade().is_none());
    assert_eq!(named(&name), Vec::<String>::new());
}

#[test]
fn container_is_one_per_session() {
    let Some(rig) = begun(Kind::Overlay) else { return };
    let again = ToolRunner::new(rig.session().clone(), Tools::standard(), rig.tool_runner().workspace().clone());
    assert!(matches!(again, Err(WorkspaceError::SecondContainer(_))), "{again:?}");
    let refused = again.unwrap_err().to_string();
    assert!(refused.contains("container"), "{refused}");
    rig.ok("cat f");
    let events: Vec<Recorded> = rig.session().events(1, 1000).unwrap();
    assert_eq!(events.iter().filter(|event| crate::rig::kind(event) == "ContainerStarted").count(), 1);
}
