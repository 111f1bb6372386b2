//! What a child may do is kept, whatever it tries and however often its process ends.

use foldspace::event::{CallStatus, ChildLimits, CommandResult, Isolation};
use foldspace::{Event, ForkOptions, Session, ToolOutcome};
use serde_json::json;

use super::files;
use crate::rig::{Family, texts};

fn refused(outcome: &ToolOutcome, session: &Session, words: &str) {
    assert_eq!(outcome.status, CallStatus::Error, "{}", outcome.text);
    assert!(outcome.text.contains(words), "{}", outcome.text);
    assert_eq!(session.head().unwrap(), outcome.finished, "it is recorded like any refused call");
}

#[test]
fn call_limit_counts_over_restarts() {
    let family = Family::on_host();
    let parent = family.founder();
    (0..5).for_each(|_| drop(family.does(&parent, "ls", json!({}))));
    let child = family.child(&parent, "worker", ChildLimits { calls: Some(3), ..ChildLimits::default() });
    family.does(&child, "ls", json!({}));
    family.does(&child.as_agent("other"), "ls", json!({}));
    let session = child.session().clone();
    drop(child);
    let child = family.open(&session);
    family.does(&child, "ls", json!({}));
    refused(&family.call(&child, "ls", json!({})), &session, "used up its 3 calls");
    refused(&family.call(&family.open(&session), "ls", json!({})), &session, "used up its 3 calls");
    family.does(&parent, "ls", json!({}));
}

#[test]
fn call_limit_counts_concurrent_calls() {
    let family = Family::on_host();
    let child = family.child(&family.founder(), "worker", ChildLimits { calls: Some(4), ..ChildLimits::default() });
    let outcomes = family.runtime.block_on(async {
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
fn tool_limit_hides_other_tools() {
    let family = Family::on_host();
    let limits = ChildLimits { tools: Some(["ls".to_owned(), "no_such".to_owned()].into()), ..ChildLimits::default() };
    let child = family.child(&family.founder(), "worker", limits);
    assert_eq!(child.tools().names().collect::<Vec<_>>(), ["ls"]);
    family.does(&child, "ls", json!({}));
    let outcome = family.call(&child, "write_file", json!({ "file_path": "a", "content": "" }));
    refused(&outcome, child.session(), "may not use write_file; it may use ls");
    let limits = ChildLimits { tools: Some([].into()), ..ChildLimits::default() };
    let idle = family.child(&child, "idle", limits);
    refused(&family.call(&idle, "ls", json!({})), idle.session(), "no tools");
}

#[test]
fn denied_commands_of_child_stay_denied() {
    let family = Family::on_host();
    let limits = ChildLimits { deny: ["sort  -r".to_owned(), "uniq".to_owned()].into(), ..ChildLimits::default() };
    let parent = family.founder();
    let child = family.child(&parent, "worker", limits);
    let run = |tool_runner, command: &str| family.call(tool_runner, "shell_execute", json!({ "command": command }));
    for denied in ["sort -r", "echo a | /usr/bin/sort -r -n", "sh -c 'uniq'", "env uniq"] {
        refused(&run(&child, denied), child.session(), "denies");
        assert!(run(&parent, denied).is_ok(), "{denied}");
    }
    assert!(run(&child, "sort -n /dev/null").is_ok());
}

#[test]
fn time_limit_ends_command_and_session() {
    let family = Family::on_host();
    let parent = family.founder();
    let child = family.child(&parent, "worker", ChildLimits { wall_millis: Some(5000), ..ChildLimits::default() });
    let command = json!({ "command": "echo begun > begun; sleep 1000", "timeout_seconds": 100 });
    let outcome = family.call(&child, "shell_execute", command);
    refused(&outcome, child.session(), "used up its 5000 ms");
    // What it did before is known, and that it was ended.
    assert_eq!(family.texts_on_host(child.session()), texts([("begun", "begun\n")]));
    let events = child.session().events(outcome.call, 100).unwrap();
    let ended = events.iter().find(|event| *event.event.kind == *CommandResult::KIND).unwrap();
    assert!(ended.typed::<CommandResult>().unwrap().unwrap().event.cancelled);
    let again = family.open(child.session());
    refused(&family.call(&again, "ls", json!({})), child.session(), "used up its 5000 ms");
}

#[test]
fn byte_limit_checks_tools_before_and_commands_after() {
    let family = Family::on_host();
    let parent = family.founder();
    family.create(&parent, "large.txt", "more than the child may write");
    let child = family.child(&parent, "worker", ChildLimits { bytes_written: Some(10), ..ChildLimits::default() });
    family.create(&child, "a", "123456");
    let outcome = family.call(&child, "write_file", json!({ "file_path": "b", "content": "12345" }));
    refused(&outcome, child.session(), "may write 4 more bytes of its 10, and this would be 5");
    assert_eq!(files(child.session()).get(&super::path("b")), None);
    assert!(!family.files_of(child.session()).join("b").exists());
    // What a command writes is known when it has.
    family.does(&child, "shell_execute", json!({ "command": "echo 123456789 > c" }));
    let command = json!({ "command": "echo again > d" });
    refused(&family.call(&child, "shell_execute", command), child.session(), "used up its 10 bytes");
    assert!(!family.files_of(child.session()).join("d").exists());
    family.remove(&child, "a");
    family.does(&child, "read_file", json!({ "file_path": "c" }));
}

#[test]
fn shared_child_has_its_own_limits() {
    let family = Family::on_host();
    let parent = family.founder();
    let limits = ChildLimits { calls: Some(2), bytes_written: Some(5), ..ChildLimits::default() };
    let shared = ForkOptions { limits, agent: "worker".to_owned(), ..ForkOptions::new(Isolation::Shared) };
    let child = family.start(&parent, shared.clone());
    family.create(&parent, "a", "the parent may write what it likes");
    family.create(&child, "b", "12345");
    assert_eq!(family.texts_on_host(parent.session()).len(), 2);
    refused(
        &family.call(&child, "write_file", json!({ "file_path": "c", "content": "1" })),
        parent.session(),
        "0 more",
    );
    refused(&family.call(&child, "ls", json!({})), parent.session(), "used up its 2 calls");
    family.does(&parent, "ls", json!({}));
    family.does(&family.start(&parent, shared), "ls", json!({}));
}

#[test]
fn agent_limits_follow_the_agent_name() {
    let family = Family::on_host();
    let parent = family.founder();
    let tools = Some(["ls".to_owned(), "write_file".to_owned(), "shell_execute".to_owned()].into());
    let deny = ["uniq".to_owned()].into();
    let limits = ChildLimits { calls: Some(4), bytes_written: Some(5), tools, deny, ..ChildLimits::default() };
    let shared = ForkOptions { limits, agent: "worker".to_owned(), ..ForkOptions::new(Isolation::Shared) };
    let begun = parent.as_agent("worker");
    drop(family.start(&parent, shared));
    // In a tool_runner that is older than the child, in one that is opened for it, and in one that becomes its.
    let session = parent.session().clone();
    family.create(&begun, "a", "1234");
    let opened = family.open(&session.as_agent("worker"));
    assert_eq!(opened.tools().names().collect::<Vec<_>>(), ["ls", "shell_execute", "write_file"]);
    refused(&family.call(&opened, "write_file", json!({ "file_path": "b", "content": "12" })), &session, "1 more");
    let run = family.call(&opened.as_agent("worker"), "shell_execute", json!({ "command": "uniq" }));
    refused(&run, &session, "denies");
    refused(&family.call(&opened, "rm", json!({ "path": "a" })), &session, "may not use rm");
    let last = family.open(&session).as_agent("worker");
    refused(&family.call(&last, "ls", json!({})), &session, "agent worker has used up its 4 calls");
    // Nor does a rewind give anything back.
    family.runtime.block_on(parent.rewind(1, foldspace::tools::RewindOptions::default())).unwrap();
    refused(&family.call(&last, "ls", json!({})), &session, "used up its 4 calls");
    family.does(&parent, "ls", json!({}));
    let state = session.state().unwrap();
    assert_eq!(state.slice::<foldspace::reducers::Children>().unwrap().iter().count(), 1, "it is still there");
}

#[test]
fn shared_child_needs_a_unique_name() {
    let family = Family::on_host();
    let parent = family.founder();
    let limits = ChildLimits { calls: Some(1), ..ChildLimits::default() };
    let shared = ForkOptions { limits, agent: "worker".to_owned(), ..ForkOptions::new(Isolation::Shared) };
    let child = family.start(&parent, shared.clone());
    family.does(&child.as_agent("other"), "ls", json!({}));
    refused(&family.call(&child.as_agent("other"), "ls", json!({})), parent.session(), "used up its 1 call");
    let nameless = ForkOptions { agent: String::new(), ..shared };
    let error = family.runtime.block_on(family.forker().start(&parent, nameless)).unwrap_err();
    assert!(error.to_string().contains("needs an agent's name"), "{error}");
}

#[test]
fn delegation_does_not_widen_limits() {
    let family = Family::on_host();
    let limits = ChildLimits { calls: Some(4), bytes_written: Some(10), ..ChildLimits::default() };
    let middle = family.child(&family.founder(), "middle", limits);
    family.create(&middle, "a", "123456");
    // A fork begins with the rest.
    let low = family.child(&middle, "low", ChildLimits { calls: Some(9), ..ChildLimits::default() });
    assert_eq!((low.session().limits().calls, low.session().limits().bytes_written), (Some(3), Some(4)));
    // What shares the session uses the session's budget, and that of who began it.
    let named = |agent: &str, calls| {
        let limits = ChildLimits { calls: Some(calls), ..ChildLimits::default() };
        ForkOptions { limits, agent: agent.to_owned(), ..ForkOptions::new(Isolation::Shared) }
    };
    let first = family.start(&middle, named("first", 2));
    let second = family.start(&first, named("second", 9));
    let large = json!({ "file_path": "b", "content": "12345" });
    refused(&family.call(&second, "write_file", large), middle.session(), "this session may write 4 more bytes");
    family.does(&second, "ls", json!({}));
    refused(&family.call(&second, "ls", json!({})), middle.session(), "used up its 2 calls");
    refused(&family.call(&middle, "ls", json!({})), middle.session(), "this session has used up its 4 calls");
}

#[test]
fn child_limits_stay_within_parent() {
    let family = Family::on_host();
    let named = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect());
    let limits = ChildLimits { calls: Some(5), depth: Some(1), tools: named(&["ls", "rm"]), ..ChildLimits::default() };
    let child = family.child(&family.founder(), "child", limits);
    let limits =
        ChildLimits { calls: Some(9), depth: Some(9), tools: named(&["ls", "glob"]), ..ChildLimits::default() };
    let low = family.child(&child, "low", limits);
    let expected = ChildLimits { calls: Some(5), depth: Some(0), tools: named(&["ls"]), ..ChildLimits::default() };
    assert_eq!(*low.session().limits(), expected);
    let refused = family.runtime.block_on(family.forker().start(&low, ForkOptions::new(Isolation::Fork)));
    assert!(refused.is_err());
}
