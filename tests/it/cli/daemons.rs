//! The daemon that a command on the host needs.

use std::os::unix::fs::PermissionsExt;

use crate::rig::{Program, told};

/// A client as Docker's: it works while there is a file, as if a daemon made that.
const CLIENT: &str = "#!/bin/sh
[ -e \"$0.up\" ] || { echo 'Cannot connect to the Docker daemon.' >&2; exit 1; }
echo \"did $*\"
";

/// Gives a program with a host session, and the path of its client of a daemon.
fn with_client() -> (Program, String) {
    let program = Program::new();
    let client = program.file("docker", CLIENT);
    std::fs::set_permissions(&client, std::fs::Permissions::from_mode(0o755)).unwrap();
    program.printed(&["run", &program.file("work.jsonl", ""), "--backend", "host", "--session", "work"]);
    (program, client)
}

fn told_by(program: &Program, client: &str, more: &[&str]) -> String {
    let directory = std::path::Path::new(client).parent().unwrap().display();
    let path = format!("{directory}:/usr/local/bin:/usr/bin:/bin");
    let arguments = [&["exec", "work", "--sh"], more, &["--", "cd . && docker ps"]].concat();
    told(&program.command(&arguments).env("PATH", path).output().unwrap())
}

#[test]
fn docker_without_daemon_says_what_to_do() {
    let (program, client) = with_client();
    let told = told_by(&program, &client, &[]);
    assert!(told.contains("Cannot connect") && told.ends_with("[exit 1]"), "{told}");
    assert!(told.contains("does not answer; start it with `systemctl start docker`"), "{told}");
    let script = r#"{"tool": "shell_execute", "params": {"command": ["ls"]}}"#;
    let listed = program.printed(&["run", &program.file("ls.jsonl", script), "--session", "work", "--yes", "--json"]);
    assert!(!listed.contains("daemon"), "{listed}");
}

#[test]
fn docker_daemon_is_started_and_waited_for() {
    let (program, client) = with_client();
    let start = format!("sleep 1; touch {client}.up; sleep 2; touch {client}.later");
    let told = told_by(&program, &client, &["--start-docker", &start]);
    assert!(told.contains("did ps") && told.contains("was started by") && told.ends_with("[exit 0]"), "{told}");
    assert_eq!(told_by(&program, &client, &["--start-docker", &start]), "did ps\n[exit 0]");
    let decided = program.json_lines(&["log", "work"]).into_iter().filter(|event| event["kind"] == "CommandDecided");
    let shown: Vec<_> = decided.map(|event| event["event"]["command"].to_string()).collect();
    assert!(shown.len() == 3 && shown[1].contains("sleep 1; touch"), "{shown:?}");
    // It outlives the command that needed it.
    crate::rig::eventually("the start goes on", || std::path::Path::new(&format!("{client}.later")).exists());
}

#[test]
fn docker_daemon_that_does_not_start_is_reported() {
    let (program, client) = with_client();
    let failed = told_by(&program, &client, &["--start-docker", "exit 3"]);
    assert!(failed.contains("`exit 3` failed: exit status: 3") && failed.ends_with("[exit 1]"), "{failed}");
    let denied = told_by(&program, &client, &["--deny", "touch", "--start-docker", &format!("touch {client}.up")]);
    assert!(denied.contains("may not start it") && denied.ends_with("[exit 1]"), "{denied}");
}
