//! Output that nobody takes, and ways of being told to end.

use std::io::Read;
use std::process::{Command, Stdio};

use insta::assert_snapshot;

use crate::rig::{Program, Running, eventually_stuck, told};

impl Program {
    fn with_work() -> Self {
        let program = Self::new();
        let script = program.file("work.jsonl", "");
        program.printed(&["run", &script, "--backend", "host", "--session", "work"]);
        program
    }
}

#[test]
fn exec_output_is_complete_for_slow_reader() {
    let program = Program::with_work();
    let count = "i=0; while [ $i -lt 30000 ]; do echo $i; i=$((i+1)); done";
    let mut exec = program.command(&["exec", "work", "--timeout", "120", "--sh", "--", count]);
    let mut exec = exec.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    eventually_stuck("-lt 30000");
    let mut printed = String::new();
    exec.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
    let output = exec.wait_with_output().unwrap();
    assert_eq!(told(&output), "\n[exit 0]");
    let expected: String = (0..30000).map(|n| format!("{n}\n")).collect();
    assert!(printed == expected, "{} of {} bytes were shown", printed.len(), expected.len());
}

#[test]
fn exec_output_to_full_device_fails() {
    let program = Program::with_work();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = program.command(&["exec", "work", "--", "echo", "hello"]).stdout(full).output().unwrap();
    assert_snapshot!(told(&output), @"
    error: failed to write the command's output: No space left on device (os error 28)
    hint: the command has run and is recorded; `foldspace show` has the recorded output
    [exit 6]
    ");
    assert_eq!(program.json_lines(&["log", "work", "--calls"])[0]["status"], "ok");
    let mut exec = program.command(&["exec", "work", "--sh", "--", "yes | head -n 100000"]);
    let mut exec = exec.stdout(Stdio::piped()).spawn().unwrap();
    drop(exec.stdout.take());
    assert!(exec.wait().unwrap().success(), "that nobody reads is no error");
}

#[test]
fn exec_with_closed_stderr_runs_on() {
    let program = Program::with_work();
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let closed = || {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        Stdio::from(writer)
    };
    for verbose in ["-v", "-vv"] {
        for stream in [Stdio::from(full()), closed()] {
            let mut exec = program.command(&[verbose, "exec", "work", "--", "echo", "hello"]);
            let ended = exec.stdout(Stdio::piped()).stderr(stream).spawn().unwrap().wait_with_output().unwrap();
            assert_eq!((ended.status.code(), ended.stdout.as_slice()), (Some(0), &b"hello\n"[..]), "{verbose}");
        }
    }
    // What panics leaves an index that has to be made again, which is said.
    assert_eq!(told(&program.output(&["verify"])).matches("index").count(), 0);
    // A failure is told by its exit code where nothing else can be.
    let missing = program.command(&["-v", "log", "none"]).stderr(closed()).output().unwrap();
    assert_eq!(missing.status.code(), Some(3));
}

#[test]
fn exec_interrupted_ends_with_blocked_reader() {
    let program = Program::with_work();
    let mut exec = program.spawn(&["exec", "work", "--", "yes"]);
    let mut first = [0; 1];
    exec.0.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    signal(exec.0.id(), "-INT");
    assert_eq!(exec.0.wait().unwrap().code(), Some(130));
    assert_eq!(program.json_lines(&["log", "work", "--calls"])[0]["status"], "interrupted");
}

fn signal(id: u32, name: &str) {
    assert!(Command::new("kill").args([name, &id.to_string()]).status().unwrap().success());
}

#[test]
fn exec_terminated_is_like_interrupted() {
    for name in ["-TERM", "-HUP"] {
        let program = Program::with_work();
        let mut exec = program.spawn(&["exec", "work", "--sh", "--", "echo begun; sleep 100"]);
        let mut begun = [0; 6];
        exec.0.stdout.as_mut().unwrap().read_exact(&mut begun).unwrap();
        signal(exec.0.id(), name);
        assert_eq!(exec.0.wait().unwrap().code(), Some(130), "{name}");
        assert_eq!(program.json_lines(&["log", "work", "--calls"])[0]["status"], "interrupted", "{name}");
    }
}

#[test]
fn exec_signalled_twice_ends_and_removes_container() {
    let Some(options) = crate::engine::options() else { return };
    let program = Program::new();
    let url = options.connection.unwrap();
    let around = |mut command: Command| {
        command.env("FOLDSPACE_CACHE", program.path("cache"));
        command
    };
    let script = program.file("box.jsonl", "");
    let mut run = around(program.command(&[
        "run",
        &script,
        "--backend",
        crate::engine::kind().name(),
        "--image",
        &options.image,
    ]));
    assert!(run.args(["--engine", &url]).output().unwrap().status.success());
    let name = format!("foldspace-{}", program.json(&["sessions"])[0]["session"].as_str().unwrap());
    let stubborn = "trap '' TERM; echo begun; while :; do sleep 0.1; done";
    let mut exec = around(program.command(&["exec", "box", "--sh", "--", stubborn]));
    let mut exec = Running(exec.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let mut begun = [0; 6];
    exec.0.stdout.as_mut().unwrap().read_exact(&mut begun).unwrap();
    assert_eq!(crate::rig::named(&name).len(), 1);
    signal(exec.0.id(), "-TERM");
    signal(exec.0.id(), "-INT");
    assert_eq!(exec.0.wait().unwrap().code(), Some(130));
    assert_eq!(crate::rig::named(&name), Vec::<String>::new());
    let calls = program.json_lines(&["log", "box", "--calls"]);
    assert_eq!(calls[0]["status"], "interrupted");
    assert!(around(program.command(&["remove", "box", "--yes"])).output().unwrap().status.success());
}

#[test]
fn exec_killed_leaves_its_decision() {
    let program = Program::with_work();
    let mut exec = program.spawn(&["exec", "work", "--sh", "--", "echo begun; sleep 100"]);
    let mut begun = [0; 6];
    exec.0.stdout.as_mut().unwrap().read_exact(&mut begun).unwrap();
    signal(exec.0.id(), "-KILL");
    exec.0.wait().unwrap();
    let kinds: Vec<_> = program.json_lines(&["log", "work"]).iter().map(|event| event["kind"].clone()).collect();
    assert_eq!(kinds, ["SessionStarted", "CallStarted", "CommandDecided"]);
}

#[test]
fn exec_under_nohup_ignores_hangup() {
    let program = Program::with_work();
    let mut command = Command::new("nohup");
    command.arg(env!("CARGO_BIN_EXE_foldspace")).args(["exec", "work", "--sh", "--", "echo begun; sleep 1; echo done"]);
    command.env("FOLDSPACE_IN_PROCESS", "1");
    command.env("FOLDSPACE_DATA", program.data()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut exec = command.spawn().unwrap();
    let (mut begun, mut rest) = ([0; 6], String::new());
    exec.stdout.as_mut().unwrap().read_exact(&mut begun).unwrap();
    signal(exec.id(), "-HUP");
    exec.stdout.take().unwrap().read_to_string(&mut rest).unwrap();
    assert_eq!((exec.wait().unwrap().code(), rest.as_str()), (Some(0), "done\n"));
}
