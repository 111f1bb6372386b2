//! Beside other processes: following, locks, Ctrl-C, readers that go away.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::Duration;

use foldspace::{CallLink, CallStarted, LocalStore, LocalStoreOptions, NewSession, Registry, Sessions};
use insta::assert_snapshot;

use super::{STORY, World};

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

fn wait_for(what: impl Fn() -> bool) {
    for _ in 0..500 {
        if what() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("waited in vain");
}

#[test]
fn a_live_run_can_be_followed_and_looked_at() {
    let world = World::new();
    let script = world.file("busy.jsonl", long_script(600));
    let mut run = world.spawn(&["run", &script]);
    wait_for(|| world.run(&["sessions"]).contains("busy"));
    let mut follow = world.spawn(&["--json", "log", "busy", "--follow"]);
    let mut lines = BufReader::new(follow.0.stdout.take().unwrap()).lines();
    for seq in 1..=1801 {
        let line: serde_json::Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(line["seq"], seq);
        if seq == 100 {
            assert!(world.printed(&["ls", "busy", "d1"]).contains("f1"));
        }
    }
    let mut printed = String::new();
    run.0.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
    assert!(run.0.wait().unwrap().success() && printed.contains("600 ok"), "{printed}");
}

#[test]
fn followed_calls_are_shown_as_they_end() {
    let world = World::with_story();
    let mut follow = world.spawn(&["log", "story", "--follow", "--calls", "--limit", "1"]);
    let mut lines = BufReader::new(follow.0.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("rm "));
    let more = world.file("more.jsonl", "{\"tool\": \"ls\", \"params\": {\"path\": \"/src\"}}\n");
    world.printed(&["run", &more, "--session", "story"]);
    let line = lines.next().unwrap().unwrap();
    assert!(line.trim_start().starts_with("16 ") && line.contains("ls ") && line.ends_with("/src"), "{line}");
}

#[test]
fn a_process_that_has_a_store_for_itself_is_waited_for_and_named() {
    let world = World::with_story();
    let held = LocalStore::open(world.data(), LocalStoreOptions::default()).unwrap();
    let script = world.file("story.jsonl", STORY);
    assert_snapshot!(world.run(&["run", &script]), @"
    error: the store [dir]/data is in use by [process]
    hint: wait for it to end, or use another --data directory
    [exit 4]
    ");
    for refused in [&["gc"][..], &["fsck"], &["remove", "story", "--yes"], &["import", &script]] {
        assert!(world.run(refused).ends_with("[exit 4]"), "{refused:?}");
    }
    assert_eq!(world.printed(&["ls", "story"]), "src/\n");
    assert!(world.printed(&["verify"]).contains("all is as the events say"));
    drop(held);
    assert!(world.run(&["run", &script]).ends_with("[exit 0]"));
}

#[test]
fn a_call_that_nobody_runs_is_interrupted() {
    let world = World::with_story();
    let sessions = Sessions::open(world.data(), Registry::standard()).unwrap();
    let session = sessions.create(NewSession::named("cut-off")).unwrap();
    let mut commit = session.commit().of_call(CallLink::Opens);
    commit.push(&CallStarted { tool: "slow".to_owned(), params: serde_json::json!({ "path": "x" }) }).unwrap();
    session.record(commit).unwrap();
    let lease = session.lease().unwrap();
    assert_snapshot!(world.run(&["log", "cut-off", "--calls"]), @"
       2  [time]  running                -         slow        x
    [exit 0]
    ");
    drop((session, lease));
    sessions.close();
    assert_snapshot!(world.run(&["log", "cut-off", "--calls"]), @"
       2  [time]  interrupted            -         slow        x
    [exit 0]
    ");
    assert_snapshot!(world.run(&["show", "cut-off", "2"]), @"
    call 2  slow
      status  interrupted
      time    [time]

    parameters
      path  x

    events
         2  CallStarted     slow x
    [exit 0]
    ");
    assert!(world.run(&["state", "cut-off", "ToolCalls"]).contains("interrupted"));
    let script = world.file("on.jsonl", "");
    world.printed(&["run", &script, "--session", "cut-off"]);
    assert_eq!(world.json_lines(&["log", "cut-off", "--calls"])[0]["finished"], 3);
}

#[test]
fn a_run_can_be_stopped() {
    let world = World::new();
    let script = world.file("busy.jsonl", long_script(20_000));
    let mut run = world.spawn(&["run", &script]);
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
    assert!(world.printed(&["verify"]).contains("all is as the events say"));
    let calls = world.json_lines(&["log", "busy", "--calls"]);
    assert!(calls.len() < 20_000);
    assert!(calls.iter().rev().skip(1).all(|call| call["status"] == "ok"));
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let world = World::new();
    let script = world.file("busy.jsonl", long_script(300));
    let mut run = world.spawn(&["run", &script]);
    drop(run.0.stdout.take());
    assert!(run.0.wait().unwrap().success());
    assert_eq!(world.json_lines(&["log", "busy", "--calls"]).len(), 300, "the calls are made all the same");
    let mut log = world.command(&["log", "busy"]);
    let mut log = log.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    drop(log.stdout.take());
    let output = log.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", super::told(&output));
}

#[test]
fn output_that_can_not_be_written_is_an_error() {
    let world = World::with_story();
    let Ok(full) = std::fs::OpenOptions::new().write(true).open("/dev/full") else { return };
    let output = world.command(&["log", "story"]).stdout(full).output().unwrap();
    assert_snapshot!(super::told(&output), @"
    error: can't write the output: No space left on device (os error 28)
    [exit 6]
    ");
}
