//! Commands on the host without root, which may make files that they, and so the library, can't read.

use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::json;

const NOBODY: u32 = 65534;

/// Runs the program as nobody where the test is run by root, else as whoever runs it.
fn program(world: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(world.join("foldspace"));
    command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", world).current_dir(world);
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command.env("FOLDSPACE_IN_PROCESS", "1");
    command.env("FOLDSPACE_DATA", world.join("data")).args(arguments).output().unwrap()
}

#[test]
fn unprivileged_unreadable_files_are_recorded_without_content() {
    let world = tempfile::tempdir().unwrap();
    std::fs::set_permissions(world.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    // Not by this process: what another test starts meanwhile would have the copy open for writing.
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_foldspace")).arg(world.path().join("foldspace")).status();
    assert!(copied.unwrap().success());
    let commands = [
        "echo known > f && echo below > g",
        "chmod 000 f && echo new > h && chmod 000 h",
        "echo next > next",
        "chmod 000 .",
        "chmod 600 f && echo readable >> f && chmod 000 g",
        "cat f",
    ];
    let call = |command| json!({ "tool": "shell_execute", "params": { "command": command } });
    let calls = commands.map(|command| call(command).to_string());
    std::fs::write(world.path().join("story.jsonl"), calls.join("\n")).unwrap();
    let read = json!({ "tool": "read_file", "params": { "file_path": "h" } });
    std::fs::write(world.path().join("read.jsonl"), read.to_string()).unwrap();
    if rustix::process::geteuid().is_root() {
        chown(world.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let ran = program(world.path(), &["run", "--yes", "--backend", "host", "--session", "s", "story.jsonl"]);
    let told = String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{told}");
    assert!(told.contains("known") && told.contains("readable"), "{told}");
    let read = program(world.path(), &["run", "--session", "s", "read.jsonl"]);
    let told = String::from_utf8_lossy(&read.stdout).into_owned() + &String::from_utf8_lossy(&read.stderr);
    assert!(!read.status.success() && told.contains("h were not stored: the file could not be read"), "{told}");
    let listed = program(world.path(), &["--json", "ls", "s"]);
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    let incomplete = |name: &str| {
        let entry = listed.as_array().unwrap().iter().find(|entry| entry["path"] == name);
        entry.unwrap_or_else(|| panic!("{name} is not in {listed}"))["incomplete"] == true
    };
    assert_eq!(["f", "g", "h", "next"].map(incomplete), [false, true, true, false], "{listed}");
    assert!(program(world.path(), &["verify"]).status.success());
}
