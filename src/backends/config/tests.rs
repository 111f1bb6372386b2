use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use serde_json::json;

use super::*;

#[test]
fn workspace_spec_round_trips() {
    let odd = PathBuf::from(OsStr::from_bytes(b"/tmp/\xff"));
    let specs = [
        WorkspaceSpec::Memory,
        WorkspaceSpec::Host(HostOptions::default()),
        WorkspaceSpec::Host(HostOptions { directory: Some("/tmp/x".into()), ..Default::default() }),
        WorkspaceSpec::Host(HostOptions { directory: Some(odd), ..Default::default() }),
        WorkspaceSpec::Podman(PodmanOptions::default()),
        WorkspaceSpec::Podman(PodmanOptions { engine: EngineKind::Docker, pids: 7, ..PodmanOptions::default() }),
        WorkspaceSpec::Mock(MockOptions {
            answers: vec![MockRule { command: "make".into(), answer: MockAnswer::exiting(1, "no") }],
            ..MockOptions::default()
        }),
    ];
    for spec in specs {
        assert_eq!(WorkspaceSpec::parse(spec.backend_name(), &spec.options()), Ok(spec));
    }
    assert_eq!(
        WorkspaceSpec::Host(HostOptions { directory: Some("/a".into()), ..Default::default() }).options(),
        json!({ "directory": "/a" })
    );
}

#[test]
fn workspace_spec_of_fork_drops_given_directory() {
    let podman = WorkspaceSpec::Podman(PodmanOptions { pids: 7, connection: Some("u".into()), ..Default::default() });
    let rule = MockRule { command: "make".into(), answer: MockAnswer::exiting(1, "no") };
    let own = WorkspaceSpec::Host(HostOptions::default());
    for same in [
        WorkspaceSpec::Memory,
        podman,
        WorkspaceSpec::Mock(MockOptions { answers: vec![rule], ..Default::default() }),
        own.clone(),
    ] {
        assert_eq!(same.forked(), same);
    }
    assert_eq!(
        WorkspaceSpec::Host(HostOptions { directory: Some("/tmp/x".into()), ..Default::default() }).forked(),
        own
    );
}

#[test]
fn workspace_spec_zero_limits_are_refused() {
    let wrong = [("cpus", json!(0)), ("cpus", json!(-1.5)), ("cpus", json!(0.001)), ("memory_bytes", json!(0))];
    let wrong = wrong.into_iter().chain([("pids", json!(0)), ("tmp_bytes", json!(0)), ("cpus", json!(null))]);
    for (name, value) in wrong {
        let refused = WorkspaceSpec::parse("podman", &json!({ name: value })).unwrap_err();
        assert!(refused.reason.contains("its options"), "{name}: {refused}");
    }
    let direct = WorkspaceSpec::Podman(PodmanOptions { cpus: f64::NAN, ..PodmanOptions::default() });
    let opened = direct.open(SessionId::from_bytes([7; 16]), Path::new("/nowhere"));
    assert!(opened.err().unwrap().reason.contains("cpus"));
    assert!(WorkspaceSpec::parse("podman", &json!({ "cpus": 0.01, "pids": 1 })).is_ok());
}

#[test]
fn workspace_spec_places_and_root_that_can_not_be_are_refused() {
    let refused = |backend, options| WorkspaceSpec::parse(backend, &options).unwrap_err().reason;
    for place in ["app", "/", "", "/app/", "/a/../b", "/a/./b"] {
        let reason = refused("podman", json!({ "also_at": place }));
        assert!(reason.contains("give an absolute path"), "{place}: {reason}");
    }
    for place in ["/workspace", "/workspace/a", "/tmp/a", "/run", "/proc/1", "/dev", "/sys"] {
        let reason = refused("docker", json!({ "also_at": place }));
        assert!(reason.contains("the container's own"), "{place}: {reason}");
    }
    let reason = refused("podman", json!({ "also_at": "/app", "directory": "/srv/app" }));
    assert!(reason.contains("not for a directory"), "{reason}");
    let reason = refused("docker", json!({ "writable_root": true }));
    assert!(reason.contains("use podman"), "{reason}");
    let options = json!({ "also_at": "/app", "writable_root": true });
    assert_eq!(WorkspaceSpec::parse("podman", &options).unwrap().forked().options()["also_at"], "/app");
}

#[test]
fn backend_container_without_engine_is_refused() {
    let nowhere = json!({ "connection": "unix:///nowhere.sock" });
    let refused = WorkspaceSpec::asked_for("container", &nowhere).unwrap_err();
    for kind in EngineKind::ALL {
        assert!(refused.reason.contains(&format!("the {kind} engine at unix:///nowhere.sock")), "{refused}");
    }
    assert!(WorkspaceSpec::parse("container", &nowhere).is_err(), "only a concrete engine is recorded");
    assert_eq!(WorkspaceSpec::asked_for("docker", &nowhere).unwrap().backend_name(), "docker");
}

#[test]
fn workspace_spec_misspelt_field_is_refused() {
    let rule = |text: serde_json::Value| serde_json::from_value::<MockRule>(text);
    assert_eq!(rule(json!({ "command": "make", "exit_code": 1 })).unwrap().answer.exit_code, 1);
    let error = rule(json!({ "command": "make", "exitcode": 1 })).unwrap_err().to_string();
    assert!(error.contains("exitcode"), "{error}");
}
