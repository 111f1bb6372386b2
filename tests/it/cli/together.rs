//! Several processes on one store: as if each had it for itself.

use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::json;

use crate::rig::{self, Program, Running, eventually, report_skip, told};

fn script(program: &Program, name: &str, calls: usize) -> String {
    let call = |n| json!({ "tool": "write_file", "params": { "file_path": format!("{name}-{n}"), "content": "x" } });
    let lines: Vec<String> = (0..calls).map(|n| call(n).to_string()).collect();
    program.file(&format!("{name}.jsonl"), lines.join("\n"))
}

/// A process that has a session, and the store unless another one has it, until it is killed when this is dropped.
fn sleeper(program: &Program, name: &str) -> Running {
    program.printed(&["run", &program.file(&format!("{name}.jsonl"), ""), "--session", name, "--backend", "host"]);
    let mut child = program.spawn(&["exec", name, "--timeout", "120", "--", "sh", "-c", "echo begun; sleep 100"]);
    let mut begun = [0; 6];
    child.0.stdout.as_mut().unwrap().read_exact(&mut begun).unwrap();
    child
}

/// A process that runs a command in a session until that file is there.
fn until(program: &Program, name: &str, file: &str) -> (Running, std::path::PathBuf) {
    let file = program.data().join(file);
    let command = format!("echo begun; while [ ! -e {} ]; do sleep 0.02; done; echo ended", file.display());
    (program.spawn(&["exec", name, "--timeout", "120", "--", "sh", "-c", &command]), file)
}

fn line(child: &mut Running) -> String {
    let mut line = Vec::new();
    let printed = child.0.stdout.as_mut().unwrap();
    while line.last() != Some(&b'\n') {
        let mut byte = [0];
        printed.read_exact(&mut byte).unwrap();
        line.push(byte[0]);
    }
    String::from_utf8(line).unwrap()
}

/// A world with a session, and a process that works in it through the owner until the file is there.
fn had() -> (Program, Running, std::path::PathBuf) {
    let program = Program::new().through_owner();
    program.printed(&["run", &program.file("box.jsonl", ""), "--session", "box", "--backend", "host"]);
    let (mut first, ends) = until(&program, "box", "first");
    assert_eq!(line(&mut first), "begun\n");
    (program, first, ends)
}

#[test]
fn processes_work_in_a_session_in_turn() {
    let (program, mut first, first_ends) = had();
    let (mut second, second_ends) = until(&program, "box", "second");
    eventually("the second call waits for the first", || program.json_lines(&["log", "box", "--calls"]).len() == 2);
    // Rules of a person who types are not those of others.
    let asked = json!({ "tool": "shell_execute", "params": { "command": "strace true" }, "expect": "error" });
    let mut third = program.spawn(&["run", &program.file("asked.jsonl", asked.to_string()), "--session", "box"]);
    eventually("the third, too", || program.json_lines(&["log", "box", "--calls"]).len() == 3);
    std::fs::write(first_ends, "").unwrap();
    assert_eq!(line(&mut first), "ended\n");
    assert_eq!(line(&mut second), "begun\n");
    assert!(first.0.wait().unwrap().success(), "it has nothing to do with the calls of others");
    let mut later = program.spawn(&["exec", "box", "--", "echo", "later"]);
    std::fs::write(second_ends, "").unwrap();
    assert_eq!(line(&mut second), "ended\n");
    assert_eq!(line(&mut later), "later\n");
    assert!(third.0.wait().unwrap().success());
    for mut child in [second, later] {
        let mut rest = String::new();
        child.0.stdout.take().unwrap().read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "", "each shows what its own command prints");
        assert!(child.0.wait().unwrap().success());
    }
    let calls = program.json_lines(&["log", "box", "--calls"]);
    let told: Vec<_> = calls.iter().map(|call| call["status"].as_str().unwrap()).collect();
    assert_eq!(told, ["ok", "ok", "error", "ok"]);
    assert!(calls[2]["message"].as_str().unwrap().contains("strace"), "{}", calls[2]);
    assert_eq!(program.owners().len(), 1);
}

/// The same program where it has a number of its own, and sees none of the others'.
fn contained(program: &Program, arguments: &[&str]) -> Command {
    let inner = program.command(arguments);
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child", "--mount-proc"]).arg(inner.get_program()).args(inner.get_args());
    command.env_clear().envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.current_dir(inner.get_current_dir().unwrap()).stdin(Stdio::null()).stdout(Stdio::piped());
    command.stderr(Stdio::piped());
    command
}

#[test]
fn processes_with_equal_pids_share_a_store() {
    if !rustix::process::geteuid().is_root() {
        return report_skip("another user takes root");
    }
    let program = Program::new();
    program.printed(&["run", &program.file("box.jsonl", ""), "--session", "box", "--backend", "host"]);
    let ends = program.data().join("first");
    let until = format!("echo begun; while [ ! -e {} ]; do sleep 0.02; done; echo ended", ends.display());
    let first = contained(&program, &["exec", "box", "--timeout", "120", "--", "sh", "-c", &until]).spawn();
    let mut first = Running(first.unwrap());
    assert_eq!(line(&mut first), "begun\n");
    let seen = contained(&program, &["sessions"]).output().unwrap();
    assert!(seen.status.success() && String::from_utf8_lossy(&seen.stdout).contains("box"), "{seen:?}");
    let second = told(&contained(&program, &["exec", "box", "--", "echo", "second"]).output().unwrap());
    assert!(second.contains("is in use by process") && second.ends_with("[exit 4]"), "{second}");
    std::fs::write(ends, "").unwrap();
    assert_eq!(line(&mut first), "ended\n");
    assert!(first.0.wait().unwrap().success());
}

#[test]
fn call_through_owner_keeps_files_by_its_own_limits() {
    let (program, mut first, ends) = had();
    let write = ["exec", "box", "--keep-file-bytes", "999", "--", "sh", "-c", "printf %1000d 7 > f"];
    let mut second = program.spawn(&write);
    eventually("it waits for the first", || program.json_lines(&["log", "box", "--calls"]).len() == 2);
    std::fs::write(ends, "").unwrap();
    assert!(second.0.wait().unwrap().success() && first.0.wait().unwrap().success());
    let shown = program.run(&["cat", "box", "f"]);
    assert!(shown.contains("were not stored"), "{shown}");
}

#[test]
fn commands_work_beside_each_other() {
    let program = Program::with_story().through_owner();
    let holder = sleeper(&program, "held");
    assert!(program.data().join("store.sock").exists());
    let more = script(&program, "more", 3);
    assert!(program.printed(&["run", &more]).contains("3 ok"));
    assert!(program.printed(&["run", &more, "--session", "story"]).contains("3 ok"));
    assert_eq!(program.printed(&["ls", "story"]), "more-0\nmore-1\nmore-2\nsrc/\n");
    program.printed(&["clone", "story", "--name", "child"]);
    let child = script(&program, "child", 1);
    program.printed(&["run", &child, "--session", "child"]);
    assert!(program.printed(&["merge", "child"]).contains("merged 1 entry into story"));
    assert!(program.printed(&["rewind", "story", "--to", "4"]).contains("is back at 4"));
    program.printed(&["export", "child", "child.fold"]);
    program.printed(&["remove", "child", "--yes"]);
    assert!(program.printed(&["import", "child.fold"]).contains("child"));
    for refused in [&["gc"][..], &["fsck", "--repair"]] {
        let refused = program.run(refused);
        assert!(refused.contains("1 call in flight") && refused.ends_with("[exit 4]"), "{refused}");
    }
    assert!(program.printed(&["verify"]).contains("all is as the events say"));
    assert!(program.printed(&["log", "held", "--calls"]).contains("running"));
    let names: serde_json::Value = serde_json::from_str(&program.printed(&["sessions", "--json"])).unwrap();
    assert_eq!(names.as_array().unwrap().len(), 4);
    drop(holder);
    eventually("its call is taken back", || program.printed(&["log", "held", "--calls"]).contains("interrupted"));
    assert!(program.printed(&["exec", "held", "--", "echo", "again"]).contains("again"));
    let calls = program.json_lines(&["log", "held", "--calls"]);
    assert_eq!(calls[0]["status"], "interrupted");
    assert!(calls[0]["finished"].is_u64());
    program.printed(&["gc"]);
    assert_eq!(program.owners(), Vec::<u32>::new(), "nobody used it any more");
    assert!(program.printed(&["fsck"]).contains("no damage"));
}

#[test]
fn owners_killed_lose_nothing_that_was_told() {
    const CALLS: usize = 150;
    let program = Program::new().through_owner();
    let scripts: Vec<String> = (0..3).map(|n| script(&program, &format!("worker{n}"), CALLS)).collect();
    program.printed(&["run", &program.file("first.jsonl", "")]);
    std::thread::scope(|scope| {
        let program = &program;
        let work = |script| move || program.run(&["--json", "run", script, "--keep-going"]);
        let workers: Vec<_> = scripts.iter().map(|script| scope.spawn(work(script))).collect();
        while !workers.iter().all(|worker| worker.is_finished()) {
            // The pause only decides what the workers have done by then.
            std::thread::sleep(Duration::from_millis(100));
            for owner in program.owners() {
                drop(Command::new("kill").args(["-9", &owner.to_string()]).status());
            }
        }
    });
    for n in 0..3 {
        let name = format!("worker{n}");
        if !program.run(&["sessions"]).contains(&name) {
            continue;
        }
        let calls = program.json_lines(&["log", &name, "--calls"]);
        let written = calls.iter().filter(|call| call["status"] == "ok").count();
        assert!(calls.iter().all(|call| call["status"] == "ok" || call["status"] == "interrupted"), "{calls:?}");
        assert_eq!(program.printed(&["ls", &name]).lines().count(), written);
    }
    assert!(program.printed(&["verify"]).contains("all is as the events say"));
}

#[test]
fn session_name_is_unique_across_processes() {
    let program = Program::new().through_owner();
    let empty = program.file("same.jsonl", "");
    let ran: Vec<String> = std::thread::scope(|scope| {
        let runs: Vec<_> = (0..6).map(|_| scope.spawn(|| program.run(&["run", &empty]))).collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    });
    let names: serde_json::Value = serde_json::from_str(&program.printed(&["sessions", "--json"])).unwrap();
    let mut names: Vec<&str> = names.as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    names.dedup();
    let begun = ran.iter().filter(|told| told.ends_with("[exit 0]")).count();
    assert_eq!(names.len(), begun, "{ran:?}");
}

/// Makes a call through a server's socket, so that the server has the session's workspace.
fn call_through_server(program: &Program, session: &str, body: &serde_json::Value) -> String {
    let mut stream = UnixStream::connect(program.data().join("http.sock")).unwrap();
    let body = body.to_string();
    let length = body.len();
    let head = format!("POST /v1/sessions/{session}/calls HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
    let rest = format!("content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}");
    stream.write_all(format!("{head}{rest}").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn commands_act_through_server() {
    let program = Program::new().through_owner();
    let server = program.spawn(&["serve"]);
    eventually("the server listens", || UnixStream::connect(program.data().join("http.sock")).is_ok());
    program.printed(&["run", &program.file("box.jsonl", ""), "--session", "box", "--backend", "host"]);
    assert_eq!(program.owners(), Vec::<u32>::new(), "it is the owner");
    let write = json!({ "tool": "write_file", "params": { "file_path": "a.txt", "content": "of the server\n" } });
    assert!(call_through_server(&program, "box", &write).contains("\"status\":\"ok\""));
    assert_eq!(program.printed(&["exec", "box", "--agent", "person", "--", "cat", "a.txt"]), "of the server\n");
    let failed = program.output(&["exec", "box", "--sh", "--", "echo out; echo err >&2; exit 7"]);
    assert_eq!(failed.status.code(), Some(7));
    assert_eq!((failed.stdout.as_slice(), failed.stderr.as_slice()), (&b"out\n"[..], &b"err\n"[..]));
    let calls = program.json_lines(&["log", "box", "--calls"]);
    assert_eq!(calls[1]["agent"], "person");
    let ran = program.run(&["run", &script(&program, "more", 2), "--session", "box", "--agent", "scripted"]);
    assert!(ran.contains("2 ok") && ran.ends_with("[exit 0]"), "{ran}");
    program.printed(&["clone", "box", "--name", "child"]);
    let child = program.file("child.jsonl", json!({ "tool": "rm", "params": { "path": "more-0" } }).to_string());
    program.printed(&["run", &child, "--session", "child"]);
    let merged = program.printed(&["merge", "child"]);
    assert!(merged.contains("removed  more-0") && merged.contains("merged 1 entry into box"), "{merged}");
    assert!(program.printed(&["remove", "child", "--yes"]).contains("removed child"));
    assert_eq!(program.printed(&["exec", "box", "--", "ls"]), "a.txt\nmore-1\n");
    let head = program.json(&["state", "box"])["seq"].as_u64().unwrap();
    let to = format!("-{}", head - 4);
    let rewound = program.printed(&["rewind", "box", "--to", &to]);
    assert!(rewound.contains("gone     more-1") && rewound.contains("session box is back at 4"), "{rewound}");
    assert_eq!(program.printed(&["exec", "box", "--", "ls"]), "a.txt\n");
    let made = program.json_lines(&["log", "box", "--calls"]).len();
    let slow = program.spawn(&["exec", "box", "--", "sleep", "60"]);
    eventually("the call has begun", || program.json_lines(&["log", "box", "--calls"]).len() > made);
    drop(server);
    let ended = { slow }.0.wait().unwrap();
    assert_eq!(ended.code(), Some(1), "the process that ran the call is gone");
    assert!(program.printed(&["exec", "box", "--", "cat", "a.txt"]).contains("of the server"));
    assert_eq!(program.owners().len(), 1, "the command started another");
    let calls = program.json_lines(&["log", "box", "--calls"]);
    assert_eq!(calls[made]["status"], "interrupted");
}

#[test]
fn owner_that_is_stopped_keeps_nobody_from_looking() {
    let program = Program::with_story().through_owner();
    program.printed(&["run", &program.file("box.jsonl", ""), "--session", "box", "--backend", "host"]);
    let owner = rustix::process::Pid::from_raw(program.owners()[0].try_into().unwrap()).unwrap();
    rig::stop(owner);
    let seen = program.run(&["ls", "story"]);
    rig::resume(owner);
    assert!(seen.contains("src/"), "{seen}");
    assert!(program.printed(&["exec", "box", "--", "echo", "again"]).contains("again"));
}

#[test]
fn store_of_another_user_is_refused() {
    if !rustix::process::geteuid().is_root() {
        return report_skip("another user takes root");
    }
    let (other, program) = (65_534, Program::new());
    let place = tempfile::tempdir().unwrap();
    std::fs::set_permissions(place.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let copy = place.path().join("foldspace");
    // Not by this process: what another test starts meanwhile would have the copy open for writing.
    assert!(Command::new("cp").arg(env!("CARGO_BIN_EXE_foldspace")).arg(&copy).status().unwrap().success());
    let data = place.path().join("data");
    std::fs::create_dir(&data).unwrap();
    chown(&data, Some(other), Some(other)).unwrap();
    let mut served = Command::new(&copy);
    served.env_clear().env("HOME", &data).arg("--data").arg(&data).arg("serve").uid(other).gid(other);
    let mut served = Running(served.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap());
    assert!(line(&mut served).starts_with("serving on "));
    let data = data.display().to_string();
    for asked in [&["serve"][..], &["run", &program.file("none.jsonl", "")]] {
        let refused = program.run(&[&["--data", &data], asked].concat());
        assert!(refused.contains("is in use by process") && refused.ends_with("[exit 4]"), "{asked:?}: {refused}");
    }
    let refused = program.through_owner().run(&["--data", &data, "run", "none.jsonl"]);
    assert!(refused.contains(&format!("user {other}")) && refused.ends_with("[exit 6]"), "{refused}");
}
