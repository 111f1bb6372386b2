//! The program with containers: `exec`, `doctor`, `gc`, and what ends it.

use std::path::Path;
use std::process::ExitStatus;

use foldspace::backends::EngineKind;
use foldspace::event::ContainerStarted;
use foldspace::{Registry, Sessions};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::rig::{Program, Running, eventually, has_begun, named, process_of, report_skip, told};

impl Program {
    /// A world with the engine of the tests, and a session `work` in a container, in which one file is.
    pub(crate) fn with_container() -> Option<Self> {
        let options = crate::engine::options()?;
        let mut program = Self::new();
        let cache = program.path("cache").to_string_lossy().into_owned();
        let engine = options.connection.unwrap_or_default();
        program.engine = vec![
            (crate::engine::url_variable(), engine),
            ("FOLDSPACE_IMAGE", options.image),
            ("FOLDSPACE_CACHE", cache),
        ];
        let write = r#"{"tool": "write_file", "params": {"file_path": "a.txt", "content": "one\n"}}"#;
        let script = program.file("work.jsonl", write);
        let ran = program.run(&["run", &script, "--backend", crate::engine::kind().name(), "--session", "work"]);
        assert!(ran.ends_with("[exit 0]"), "{ran}");
        Some(program)
    }

    /// The name of the session's container.
    fn container(&self) -> String {
        let sessions = self.json(&["sessions"]);
        let sessions = sessions.as_array().cloned().unwrap_or_else(|| panic!("a list: {sessions}"));
        assert_eq!(sessions.len(), 1);
        format!("foldspace-{}", sessions[0]["session"].as_str().unwrap())
    }

    /// Runs a command that takes long, and waits until it is on its way.
    fn slow(&self) -> (Running, String) {
        let name = self.container();
        let running = self.spawn(&["exec", "work", "--timeout", "100", "--sh", "--", "echo begun > g; sleep 90"]);
        let begun = |process: i64| has_begun(Path::new(&format!("/proc/{process}/root/workspace/g")));
        eventually("the command has begun", || process_of(&name).is_some_and(begun));
        (running, name)
    }
}

#[test]
fn exec_in_container_leaves_no_container() {
    let Some(program) = Program::with_container() else { return };
    let told = program.run(&["exec", "work", "--sh", "--", "cat a.txt; id -u; pwd; echo two >> a.txt; exit 7"]);
    assert_eq!(told, "one\n65534\n/workspace\n[exit 7]");
    assert_eq!(program.printed(&["cat", "work", "a.txt"]), "one\ntwo\n");
    assert_eq!(named(&program.container()), Vec::<String>::new());
    // Another process goes on where that one ended.
    assert_eq!(program.run(&["exec", "work", "--", "cat", "a.txt"]), "one\ntwo\n[exit 0]");
    assert_eq!(program.run(&["exec", "work", "--", "no-such-program"]), "no-such-program: not found\n[exit 127]");
    assert_eq!(named(&program.container()), Vec::<String>::new());
    assert!(program.run(&["verify"]).ends_with("[exit 0]"));
}

#[test]
fn rerun_and_bisect_name_a_container_that_differs() {
    let Some(program) = Program::with_container() else { return };
    assert!(program.run(&["exec", "work", "--", "touch", "b"]).ends_with("[exit 0]"));
    let started = &program.json_lines(&["log", "work", "--kind", "ContainerStarted"])[0]["event"];
    let started: ContainerStarted = serde_json::from_value(started.clone()).unwrap();
    let digits = started.image_digest.strip_prefix("sha256:").unwrap();
    assert!(digits.len() == 64 && digits.chars().all(|c| c.is_ascii_hexdigit()), "{started:?}");
    assert!(!started.kernel.is_empty(), "{started:?}");
    let rerun = |program: &Program| program.run(&["rerun", "work", "--yes"]);
    let same = rerun(&program);
    assert!(!same.contains("differs:") && same.ends_with("[exit 0]"), "{same}");
    // Before, the name of the image led to another one.
    let (image_digest, kernel) = (format!("sha256:{}", "0".repeat(64)), "1.2.3".to_owned());
    let before = ContainerStarted { image_digest: image_digest.clone(), kernel, ..started.clone() };
    let sessions = Sessions::open(program.data(), Registry::standard()).unwrap();
    let session = sessions.session(sessions.find("work").unwrap().id).unwrap();
    let mut commit = session.commit();
    commit.push(&before).unwrap();
    session.record(commit).unwrap();
    drop((session, sessions));
    let line = format!("the image differs: {image_digest} recorded, {} now", started.image_digest);
    let told = rerun(&program);
    assert!(told.contains(&line) && told.contains("the kernel differs: 1.2.3 recorded, "), "{told}");
    assert!(told.ends_with("[exit 0]"), "it is not a difference of the calls: {told}");
    let summary = program.json_lines(&["rerun", "work", "--yes"]).pop().unwrap();
    assert_eq!(
        summary["environment"][0],
        json!({ "differs": "image", "was": image_digest, "is": started.image_digest })
    );
    let found = program.json(&["bisect", "work", "--sh", "--", "test ! -e b"]);
    assert_eq!(found["environment"][0]["differs"], "image", "{found}");
}

#[test]
fn backend_container_is_the_engine_that_works() {
    // The other one is looked for where there is none.
    let Some(program) = Program::with_container() else { return };
    let script = program.file("script.jsonl", r#"{"tool": "shell_execute", "params": {"command": "true"}}"#);
    let told = program.run(&["run", &script, "--backend", "container", "--session", "any", "--yes"]);
    assert!(told.ends_with("[exit 0]"), "{told}");
    let started = &program.json_lines(&["log", "any"])[0];
    assert_eq!(started["event"]["backend"], crate::engine::kind().name(), "{started}");
}

#[test]
fn docker_is_found_by_its_current_context() {
    if crate::engine::kind() == EngineKind::Podman {
        return report_skip("contexts are Docker's");
    }
    let Some(program) = Program::with_container() else { return };
    let meta = json!({ "Name": "work", "Endpoints": { "docker": { "Host": crate::engine::url() } } });
    program.file("home/.docker/config.json", r#"{"currentContext": "work"}"#);
    program.file("home/.docker/contexts/meta/0123/meta.json", meta.to_string());
    let doctor = program.command(&["--json", "doctor"]).env_remove("DOCKER_HOST").output().unwrap();
    let told = told(&doctor);
    assert!(told.contains("Docker ") && told.contains("from the current context (work)"), "{told}");
    assert!(told.ends_with("[exit 0]"), "{told}");
}

#[test]
fn doctor_tries_a_container_and_leaves_nothing() {
    let Some(program) = Program::with_container() else { return };
    let sessions = std::fs::read_dir(program.path("cache")).unwrap().count();
    let findings = program.json(&["doctor"]);
    let state = |what: &str| {
        let finding = findings.as_array().unwrap().iter().find(|finding| finding["what"] == what);
        finding.unwrap_or_else(|| panic!("nothing is said of {what}: {findings}"))["state"].clone()
    };
    for what in ["host commands", "engine", "image", "container", "limits", "runner"] {
        assert_eq!(state(what), "ok", "{what}: {findings}");
    }
    assert_eq!(state("overlay") == "ok", state("workspace") == "ok", "{findings}");
    assert_eq!(std::fs::read_dir(program.path("cache")).unwrap().count(), sessions, "it removed what it made");
    // One that can't be started leaves nothing either.
    let output = program.output(&["--json", "doctor", "--image", "localhost/there-is-none:1"]);
    let told = told(&output);
    assert!(told.contains("the engine has no localhost/there-is-none:1") && told.ends_with("[exit 1]"), "{told}");
    assert_eq!(std::fs::read_dir(program.path("cache")).unwrap().count(), sessions);
}

#[test]
fn gc_removes_container_of_killed_process() {
    let Some(program) = Program::with_container() else { return };
    let (running, name) = program.slow();
    // A process that lives keeps it.
    let told = program.run(&["gc", "--dry-run"]);
    assert!(!told.contains(&name), "{told}");
    drop(running);
    assert_eq!(named(&name).len(), 1);
    let told = program.run(&["gc", "--dry-run"]);
    let shown = format!("would remove container {name} (running), whose process has ended");
    assert!(told.contains(&shown) || named(&name).is_empty(), "{told}");
    let told = program.run(&["gc"]);
    assert!(told.ends_with("[exit 0]"), "{told}");
    assert_eq!(named(&name), Vec::<String>::new());
    for kind in ["CommandDecided", "ContainerStarted"] {
        let recorded = program.json_lines(&["log", "work", "--kind", kind]);
        assert_eq!(recorded.len(), 1, "{kind} is recorded before the command ends: {recorded:?}");
    }
    // What the killed process had begun is known, and the session goes on.
    assert_eq!(program.run(&["exec", "work", "--", "cat", "a.txt", "g"]), "one\nbegun\n[exit 0]");
    assert!(program.run(&["verify"]).ends_with("[exit 0]"));
}

fn signalled(running: &mut Running, signal: Signal) -> ExitStatus {
    kill_process(Pid::from_child(&running.0), signal).unwrap();
    let mut status = None;
    eventually("the program ends", || {
        status = running.0.try_wait().unwrap();
        status.is_some()
    });
    status.unwrap()
}

/// What a signal ended is recorded with what it had done, and nothing of it is left.
fn assert_recorded_and_gone(program: &Program, name: &str) {
    assert_eq!(named(name), Vec::<String>::new(), "the container went with the program");
    let log = program.printed(&["log", "work", "--no-pager"]);
    assert!(log.contains("create /g") && log.contains("interrupted"), "{log}");
    assert_eq!(program.run(&["exec", "work", "--", "cat", "a.txt", "g"]), "one\nbegun\n[exit 0]");
    assert!(program.run(&["verify"]).ends_with("[exit 0]"));
}

#[test]
fn exec_interrupted_removes_its_container() {
    let Some(program) = Program::with_container() else { return };
    let (mut running, name) = program.slow();
    assert_eq!(signalled(&mut running, Signal::INT).code(), Some(130));
    assert_recorded_and_gone(&program, &name);
}

#[test]
fn exec_terminated_removes_its_container() {
    let Some(program) = Program::with_container() else { return };
    let (mut running, name) = program.slow();
    signalled(&mut running, Signal::TERM);
    assert_recorded_and_gone(&program, &name);
}
