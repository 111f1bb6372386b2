//! `podman_shell`: the session's container as one tool.

use foldspace::Recorded;
use foldspace::event::{ContainerStarted, ContainerStopped};
use serde_json::{Value, json};

use crate::rig::{Kind, Rig, Step, named, process_of};

/// Makes a call of it, which must do well.
fn does(rig: &Rig, params: Value) -> Step {
    let step = rig.recorded(rig.bare("podman_shell", params.clone()), &params.to_string());
    assert!(step.outcome.is_ok(), "{params}: {}", step.outcome.text);
    step
}

/// What starting and stopping give.
fn silence(rig: &Rig, action: &str) -> Value {
    json!({
        "action": action, "container_name": rig.name(), "stdout": null, "stderr": null, "exit_code": null,
        "timed_out": false, "log": [],
    })
}

fn stopped(rig: &Rig) -> Vec<String> {
    let events = rig.session().events(1, 1000).unwrap();
    events.iter().filter_map(Recorded::typed::<ContainerStopped>).map(|event| event.unwrap().event.reason).collect()
}

fn a_container_s_life(rig: &Rig) {
    // One that is not there can be stopped.
    assert_eq!(does(rig, json!({ "action": "stop" })).outcome.result, silence(rig, "stop"));
    assert_eq!((named(&rig.name()).len(), stopped(rig).len()), (0, 0));
    let step = does(rig, json!({ "action": "start" }));
    let mut result = step.outcome.result.clone();
    let log = result["log"].take();
    assert!(log[0].as_str().unwrap().starts_with(&format!("made and started {} from ", rig.name())), "{log}");
    result["log"] = json!([]);
    assert_eq!(result, silence(rig, "start"));
    let started = step.of::<ContainerStarted>();
    assert!(started.len() == 1 && started[0].created, "{started:?}");
    assert_eq!(named(&rig.name()), [started[0].id.clone()]);
    assert!(process_of(&rig.name()).is_some(), "it runs");
    // One that runs is not started again.
    let step = does(rig, json!({ "action": "start" }));
    assert_eq!((&step.outcome.result, step.of::<ContainerStarted>()), (&silence(rig, "start"), vec![]));
    let step = does(rig, json!({ "action": "exec", "command": "echo out; echo err >&2; echo kept > f; exit 3" }));
    let expected = json!({
        "action": "exec", "container_name": rig.name(), "stdout": "out\n", "stderr": "err\n", "exit_code": 3,
        "timed_out": false, "log": [],
    });
    assert_eq!((&step.outcome.result, step.paths().0), (&expected, vec!["f".to_owned()]));
    rig.check("exec");
    let step = does(rig, json!({ "action": "exec", "command": "echo begun; sleep 60", "timeout_seconds": 1 }));
    assert_eq!((&step.outcome.result["exit_code"], step.stdout()), (&json!(124), "begun"));
    assert_eq!(step.outcome.result["timed_out"], true);
    for _ in 0..2 {
        assert_eq!(does(rig, json!({ "action": "stop" })).outcome.result, silence(rig, "stop"));
        assert_eq!(named(&rig.name()), Vec::<String>::new());
    }
    // The files stay, whoever uses the session next.
    let step = rig.ok("cat f");
    assert_eq!((step.stdout(), step.drift.len(), stopped(rig)), ("kept", 0, vec!["asked".to_owned()]));
    let again = step.of::<ContainerStarted>();
    assert!(again.len() == 1 && again[0].created && again[0].id != started[0].id, "{again:?}");
    does(rig, json!({ "action": "stop" }));
    let step = does(rig, json!({ "action": "exec", "command": "cat f" }));
    assert_eq!((step.stdout(), step.of::<ContainerStarted>().len()), ("kept", 1));
    rig.check("exec after stop");
    rig.verify();
}

#[test]
fn podman_shell_on_overlay_starts_runs_and_stops() {
    if let Some(rig) = Rig::new(Kind::Overlay) {
        a_container_s_life(&rig);
    }
}

#[test]
fn podman_shell_on_plain_directory_starts_runs_and_stops() {
    if let Some(rig) = Rig::new(Kind::Plain) {
        a_container_s_life(&rig);
    }
}

#[test]
fn podman_shell_refuses_what_it_cannot_do() {
    let Some(rig) = Rig::new(Kind::Plain) else { return };
    for (params, words) in [
        (json!({ "action": "exec" }), "needs a command"),
        (json!({ "action": "start", "command": "ls" }), "only exec"),
        (json!({ "action": "stop", "command": "ls" }), "only exec"),
        (json!({ "action": "restart" }), "restart"),
        (json!({ "action": "exec", "command": "rm -rf /" }), "not allowed"),
    ] {
        let outcome = rig.bare("podman_shell", params.clone());
        assert!(!outcome.is_ok() && outcome.text.contains(words), "{params}: {}", outcome.text);
    }
    assert_eq!(named(&rig.name()).len(), 0, "nothing of it needed a container");
    let rig = Rig::new(Kind::Host).unwrap();
    let outcome = rig.bare("podman_shell", json!({ "action": "start" }));
    assert!(!outcome.is_ok() && outcome.text.contains("the host workspace has none"), "{}", outcome.text);
}
