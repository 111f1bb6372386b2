//! Containers of processes that ended without a word.

use std::process::{Command, Stdio};

use foldspace::backends::{Leftover, remove_leftovers};
use serde_json::json;

use crate::rig::{Running, eventually, named, process_of};

fn leftovers(dry_run: bool) -> Vec<Leftover> {
    remove_leftovers(None, dry_run).unwrap().removed
}

#[test]
fn leftover_container_of_killed_process_is_removed() {
    let Some(options) = crate::engine::options() else { return };
    let data = tempfile::tempdir().unwrap();
    let story = data.path().join("story.jsonl");
    let call =
        json!({ "tool": "shell_execute", "params": { "command": "touch begun; sleep 100", "timeout_seconds": 100 } });
    std::fs::write(&story, format!("{call}\n")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_foldspace"));
    command.env("FOLDSPACE_DATA", data.path().join("data")).env("FOLDSPACE_CACHE", data.path().join("cache"));
    command.env("FOLDSPACE_IN_PROCESS", "1");
    command.args(["run", "--yes", "--backend", crate::engine::kind().name(), "--engine", &options.connection.unwrap()]);
    command.arg(&story);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = Running(command.spawn().unwrap());
    let name = begun(&data.path().join("cache"));
    let alive = leftovers(true);
    assert!(alive.iter().all(|one| one.name != name), "it belongs to a process that lives: {alive:?}");
    child.0.kill().unwrap();
    child.0.wait().unwrap();
    // Another run of the tests on this engine may remove it, too, and then there is none to be found.
    let was_there = !named(&name).is_empty();
    let found = leftovers(true).into_iter().find(|one| one.name == name);
    let found = match found {
        Some(found) => found,
        None => return assert_eq!((was_there, named(&name)), (true, Vec::<String>::new()), "it was not found"),
    };
    assert!(found.running && name == format!("foldspace-{}", found.session), "{found:?}");
    leftovers(false);
    assert_eq!(named(&name), Vec::<String>::new());
    assert!(leftovers(true).iter().all(|one| one.name != name));
}

/// The name of the container, once the command has begun.
fn begun(cache: &std::path::Path) -> String {
    let mut found = None;
    eventually("a container has begun", || {
        let sessions = std::fs::read_dir(cache).into_iter().flatten().map_while(Result::ok);
        let names = sessions.map(|session| format!("foldspace-{}", session.file_name().to_string_lossy()));
        let began = |name: &String| {
            let process = process_of(name);
            process
                .is_some_and(|process| std::path::Path::new(&format!("/proc/{process}/root/workspace/begun")).exists())
        };
        found = names.into_iter().find(began);
        found.is_some()
    });
    found.unwrap()
}
