//! Beside other processes: following, locks, Ctrl-C, readers that go away.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use foldspace::event::CallStarted;
use foldspace::store::{CallLink, LocalStoreOptions};
use foldspace::{LocalStore, NewSession, Registry, Sessions};
use insta::assert_snapshot;

use crate::rig::{Program, STORY, eventually, told};

/// A script that takes a while.
fn long_script(calls: usize) -> String {
    let call = |n| {
        format!(
            "{{\"tool\": \"write_file\", \"params\": {{\"file_path\": \"d{}/f{n}\", \"content\": \"{n}\"}}}}\n",
            n % 9
        )
    };
    (0..calls).map(call).collect()
}

#[test]
fn live_run_can_be_followed_and_read() {
    let program = Program::new();
    let script = program.file("busy.jsonl", long_script(600));
    let mut run = program.spawn(&["run", &script]);
    eventually("the run has begun", || program.run(&["sessions"]).contains("busy"));
    let mut follow = program.spawn(&["--json", "log", "busy", "--follow"]);
    let mut lines = BufReader::new(follow.0.stdout.take().unwrap()).lines();
    for seq in 1..=1801 {
        let line: serde_json::Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(line["seq"], seq);
        if seq == 100 {
            assert!(program.printed(&["ls", "busy", "d1"]).contains("f1"));
        }
    }
    let mut printed = String::new();
    run.0.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
    assert!(run.0.wait().unwrap().success() && printed.contains("600 ok"), "{printed}");
}

#[test]
fn log_follow_shows_calls_as_they_end() {
    let program = Program::with_story();
    let mut follow = program.spawn(&["log", "story", "--follow", "--calls", "--limit", "1"]);
    let mut lines = BufReader::new(follow.0.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("rm "));
    let more = program.file("more.jsonl", "{\"tool\": \"ls\", \"params\": {\"path\": \"/src\"}}\n");
    program.printed(&["run", &more, "--session", "story"]);
    let line = lines.next().unwrap().unwrap();
    assert!(line.trim_start().starts_with("16 ") && line.contains("ls ") && line.ends_with("/src"), "{line}");
}

#[test]
fn exclusive_store_owner_is_awaited_and_named() {
    let program = Program::with_story();
    let held = LocalStore::open(program.data(), LocalStoreOptions::default()).unwrap();
    let script = program.file("story.jsonl", STORY);
    assert_snapshot!(program.run(&["run", &script]), @"
    error: the store [dir]/data is in use by [process]
    hint: wait for it to end (`foldspace stop` ends an owner), or use another --data directory
    [exit 4]
    ");
    for refused in [&["gc"][..], &["fsck", "--repair"], &["remove", "story", "--yes"], &["import", &script]] {
        assert!(program.run(refused).ends_with("[exit 4]"), "{refused:?}");
    }
    assert_eq!(program.printed(&["ls", "story"]), "src/\n");
    assert!(program.printed(&["verify"]).contains("all is as the events say"));
    drop(held);
    assert!(program.run(&["run", &script]).ends_with("[exit 0]"));
}

#[test]
fn call_of_dead_process_is_interrupted() {
    let program = Program::with_story();
    let sessions = Sessions::open(program.data(), Registry::standard()).unwrap();
    let session = sessions.create(NewSession::named("cut-off")).unwrap();
    let mut commit = session.commit().of_call(CallLink::Opens);
    commit.push(&CallStarted { tool: "slow".to_owned(), params: serde_json::json!({ "path": "x" }) }).unwrap();
    session.record(commit).unwrap();
    assert_snapshot!(program.run(&["log", "cut-off", "--calls"]), @"
       2  [time]  running                -         slow        x
    [exit 0]
    ");
    drop(session);
    sessions.close();
    assert_snapshot!(program.run(&["log", "cut-off", "--calls"]), @"
       2  [time]  interrupted            -         slow        x
    [exit 0]
    ");
    assert_snapshot!(program.run(&["show", "cut-off", "2"]), @"
    call 2  slow
      status  interrupted
      time    [time]

    parameters
      path  x

    events
         2  CallStarted     slow x
    [exit 0]
    ");
    assert!(program.run(&["state", "cut-off", "ToolCalls"]).contains("interrupted"));
    let script = program.file("on.jsonl", "");
    program.printed(&["run", &script, "--session", "cut-off"]);
    assert_eq!(program.json_lines(&["log", "cut-off", "--calls"])[0]["finished"], 3);
}

#[test]
fn run_interrupted_stops_after_its_call() {
    let program = Program::new();
    let script = program.file("busy.jsonl", long_script(20_000));
    let mut run = program.spawn(&["run", &script]);
    let mut first = [0; 1];
    run.0.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    // Somebody has to read, or the run would wait for that.
    let mut rest = run.0.stdout.take().unwrap();
    let reader = std::thread::spawn(move || rest.read_to_end(&mut Vec::new()));
    let id = run.0.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let status = run.0.wait().unwrap();
    reader.join().unwrap().unwrap();
    assert!(status.code() == Some(130) || status.signal() == Some(2), "{status:?}");
    assert!(program.printed(&["verify"]).contains("all is as the events say"));
    let calls = program.json_lines(&["log", "busy", "--calls"]);
    assert!(calls.len() < 20_000);
    assert!(calls.iter().rev().skip(1).all(|call| call["status"] == "ok"));
}

#[test]
fn closed_pipe_is_no_error() {
    let program = Program::new();
    let script = program.file("busy.jsonl", long_script(300));
    let mut run = program.spawn(&["run", &script]);
    drop(run.0.stdout.take());
    assert!(run.0.wait().unwrap().success());
    assert_eq!(program.json_lines(&["log", "busy", "--calls"]).len(), 300, "the calls are made all the same");
    let mut log = program.command(&["log", "busy"]);
    let mut log = log.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    drop(log.stdout.take());
    let output = log.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", told(&output));
}

#[test]
fn unwritable_output_is_an_error() {
    let program = Program::with_story();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = program.command(&["log", "story"]).stdout(full).output().unwrap();
    assert_snapshot!(told(&output), @"
    error: can't write the output: No space left on device (os error 28)
    [exit 6]
    ");
}

#[test]
fn live_files_of_a_running_command_are_shown() {
    let program = Program::new().through_owner();
    let script =
        program.file("box.jsonl", r#"{"tool": "write_file", "params": {"file_path": "a", "content": "one\n"}}"#);
    program.printed(&["run", &script, "--backend", "host", "--session", "box"]);
    let command = "echo two >> a; mkdir d; echo x > 'd/n e%w'; echo 1 > ready; while [ ! -e go ]; do sleep 0.02; done";
    let mut running = program.spawn(&["exec", "box", "--sh", "--", command]);
    eventually("it has begun", || program.run(&["ls", "box", "ready", "--live"]).starts_with("ready\n"));
    let head = program.json_lines(&["log", "box"]).len() as u64;
    assert_eq!(program.printed(&["ls", "box"]), "a\n");
    assert_eq!(program.printed(&["ls", "box", "-R", "--live"]), "a\nd/\nd/n e%w\nready\n");
    assert_eq!(program.printed(&["cat", "box", "d/n e%w", "--live"]), "x\n");
    let shown = program.run(&["cat", "box", "a", "--live"]);
    let note = format!("note: read from the disk after event {head}; changes may not be recorded yet");
    assert_eq!(shown, format!("one\ntwo\n{note}\n[exit 0]"));
    let stat = program.json(&["ls", "box", "--stat", "a", "--live"]);
    assert_eq!(
        (&stat["size"], &stat["live_at"], &stat["written_by"]),
        (&8.into(), &head.into(), &serde_json::Value::Null)
    );
    let patch = program.printed(&["diff", "box", "--live"]);
    assert!(patch.contains("\n one\n+two\n") && patch.contains("+++ b/d/n e%w\n"), "{patch}");
    assert!(program.run(&["cat", "box", "none", "--live"]).ends_with("[exit 3]"));
    assert!(program.run(&["ls", "box", "--live", "--at", "1"]).ends_with("[exit 2]"));
    assert_eq!(program.json_lines(&["log", "box"]).len() as u64, head, "reading records nothing");
    // The only workspace is this session's.
    let workspace = std::fs::read_dir(program.data().join("workspaces")).unwrap().next().unwrap().unwrap();
    std::fs::write(workspace.path().join("files/go"), "").unwrap();
    assert!(running.0.wait().unwrap().success());
    assert_eq!(program.printed(&["ls", "box"]), "a\nd/\ngo\nready\n");
    program.run(&["stop"]);
    assert!(program.run(&["ls", "box", "--live"]).contains("note: no process has the workspace open"));
}
