//! What a child may do is kept, whatever it tries and however often its process ends.

use foldspace::{CallStatus, ChildLimits, CommandResult, Event, Session, ToolOutcome};
use serde_json::json;

use super::rig::{Rig, files};

fn refused(outcome: &ToolOutcome, session: &Session, words: &str) {
    assert_eq!(outcome.status, CallStatus::Error, "{}", outcome.text);
    assert!(outcome.text.contains(words), "{}", outcome.text);
    assert_eq!(session.head().unwrap(), outcome.finished, "it is recorded like any refused call");
}

#[test]
fn calls_are_counted_over_restarts() {
    let rig = Rig::new();
    let parent = rig.parent();
    (0..5).for_each(|_| drop(rig.does(&parent, "ls", json!({}))));
    let child = rig.child(&parent, "worker", ChildLimits { calls: Some(3), ..ChildLimits::default() });
    rig.does(&child, "ls", json!({}));
    rig.does(&child.as_agent("other"), "ls", json!({}));
    let session = child.session().clone();
    drop(child);
    let child = rig.dispatcher(&session);
    rig.does(&child, "ls", json!({}));
    refused(&rig.call(&child, "ls", json!({})), &session, "used up its 3 calls");
    refused(&rig.call(&rig.dispatcher(&session), "ls", json!({})), &session, "used up its 3 calls");
    rig.does(&parent, "ls", json!({}));
}

#[test]
fn calls_that_are_made_at_once_are_counted_too() {
    let rig = Rig::new();
    let child = rig.child(&rig.parent(), "worker", ChildLimits { calls: Some(4), ..ChildLimits::default() });
    let outcomes = rig.runtime.block_on(async {
        let calls = (0..16).map(|_| {
            let child = child.clone();
            tokio::spawn(async move { child.call(foldspace::ToolCall::new("ls", json!({}))).await.unwrap() })
        });
        let calls: Vec<_> = calls.collect();
        let mut outcomes = Vec::new();
        for call in calls {
            outcomes.push(call.await.unwrap());
        }
        outcomes
    });
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 4);
}

#[test]
fn only_the_tools_that_are_named_are_there() {
    let rig = Rig::new();
    let limits = ChildLimits { tools: Some(["ls".to_owned(), "no_such".to_owned()].into()), ..ChildLimits::default() };
    let child = rig.child(&rig.parent(), "worker", limits);
    assert_eq!(child.tools().names().collect::<Vec<_>>(), ["ls"]);
    rig.does(&child, "ls", json!({}));
    let outcome = rig.call(&child, "write_file", json!({ "file_path": "a", "content": "" }));
    refused(&outcome, child.session(), "may not use write_file; it may use ls");
    let limits = ChildLimits { tools: Some([].into()), ..ChildLimits::default() };
    let idle = rig.child(&child, "idle", limits);
    refused(&rig.call(&idle, "ls", json!({})), idle.session(), "no tools");
}

#[test]
fn what_is_denied_in_addition_stays_denied() {
    let rig = Rig::new();
    let limits = ChildLimits { deny: ["sort  -r".to_owned(), "uniq".to_owned()].into(), ..ChildLimits::default() };
    let parent = rig.parent();
    let child = rig.child(&parent, "worker", limits);
    let run = |dispatcher, command: &str| rig.call(dispatcher, "shell_execute", json!({ "command": command }));
    for denied in ["sort -r", "echo a | /usr/bin/sort -r -n", "sh -c 'uniq'", "env uniq"] {
        refused(&run(&child, denied), child.session(), "denies");
        assert!(run(&parent, denied).is_ok(), "{denied}");
    }
    assert!(run(&child, "sort -n /dev/null").is_ok());
}

#[test]
fn a_command_ends_with_the_time_and_no_other_begins() {
    let rig = Rig::new();
    let parent = rig.parent();
    let child = rig.child(&parent, "worker", ChildLimits { wall_millis: Some(5000), ..ChildLimits::default() });
    let command = json!({ "command": "echo begun > begun; sleep 1000", "timeout_seconds": 100 });
    let outcome = rig.call(&child, "shell_execute", command);
    refused(&outcome, child.session(), "used up its 5000 ms");
    // What it did before is known, and that it was ended.
    assert_eq!(rig.texts(child.session()), super::rig::texts(&[("begun", "begun\n")]));
    let events = child.session().events(outcome.call, 100).unwrap();
    let ended = events.iter().find(|event| *event.event.kind == *CommandResult::KIND).unwrap();
    assert!(ended.typed::<CommandResult>().unwrap().unwrap().event.cancelled);
    let again = rig.dispatcher(child.session());
    refused(&rig.call(&again, "ls", json!({})), child.session(), "used up its 5000 ms");
}

#[test]
fn bytes_are_counted_before_a_tool_writes_and_after_a_command_did() {
    let rig = Rig::new();
    let parent = rig.parent();
    rig.write(&parent, "large.txt", "more than the child may write");
    let child = rig.child(&parent, "worker", ChildLimits { bytes_written: Some(10), ..ChildLimits::default() });
    rig.write(&child, "a", "123456");
    let outcome = rig.call(&child, "write_file", json!({ "file_path": "b", "content": "12345" }));
    refused(&outcome, child.session(), "may write 4 more bytes of its 10, and this would be 5");
    assert_eq!(files(child.session()).get(&super::rig::path("b")), None);
    assert!(!rig.place(child.session()).join("b").exists());
    // What a command writes is known when it has.
    rig.does(&child, "shell_execute", json!({ "command": "echo 123456789 > c" }));
    let command = json!({ "command": "echo again > d" });
    refused(&rig.call(&child, "shell_execute", command), child.session(), "used up its 10 bytes");
    assert!(!rig.place(child.session()).join("d").exists());
    rig.remove(&child, "a");
    rig.does(&child, "read_file", json!({ "file_path": "c" }));
}
