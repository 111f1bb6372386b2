//! Commands that do not end well: what they did is recorded all the same.

use std::time::Duration;

use foldspace::ToolCall;
use foldspace::event::{CallFinished, CallStatus, CommandResult, EvalResult};
use serde_json::json;

use crate::rig::{BEFORE_COMMANDS, Kind, Rig, eventually, everywhere, kind};

everywhere!(
    command_failed_records_its_changes,
    command_timed_out_records_its_changes,
    command_cancelled_records_its_changes,
    call_dropped_records_its_changes,
    python_failed_or_timed_out_records_its_changes,
    call_over_its_time_records_its_changes,
);

fn command_failed_records_its_changes(rig: Rig) {
    let step = rig.sh("echo x > written; exit 3");
    assert_eq!((step.exit_code(), step.paths().0), (3, vec!["written".to_owned()]));
    let step = rig.sh("echo y > other; kill -9 $$");
    assert_eq!((step.exit_code(), step.paths().0), (137, vec!["other".to_owned()]));
    assert_eq!(step.of::<CommandResult>()[0].signal, Some(9));
    assert_eq!(rig.sh("no-such-program").exit_code(), 127);
    rig.verify();
}

fn command_timed_out_records_its_changes(rig: Rig) {
    let params = json!({ "command": "echo before > f; sleep 60; echo after > f", "timeout_seconds": 1 });
    let step = rig.call("shell_execute", params);
    assert_eq!((step.exit_code(), step.paths().0), (124, vec!["f".to_owned()]));
    assert!(step.of::<CommandResult>()[0].timed_out);
    assert_eq!(rig.ok("cat f").stdout(), "before");
    rig.verify();
}

const SLOW: &str = "echo before > f; rm -f old; sleep 60; echo after > f";

fn slow() -> ToolCall {
    ToolCall::new("shell_execute", json!({ "command": SLOW, "timeout_seconds": 100 }))
}

/// Waits until the slow command has done the first part.
fn until_begun(rig: &Rig) {
    let root = tokio::task::block_in_place(|| rig.root());
    let begun = || root.join("f").exists() && !root.join("old").exists();
    tokio::task::block_in_place(|| eventually("the command has begun", begun));
}

#[test]
fn command_whose_runner_is_killed_has_a_result() {
    let Some(rig) = Rig::new(Kind::Host) else { return };
    let step = rig.sh("echo printed; echo x > f; sleep 0.5; kill -9 $PPID; sleep 60");
    assert!(step.outcome.is_ok(), "{}", step.outcome.text);
    let result = &step.of::<CommandResult>()[0];
    assert_eq!((result.signal, result.timed_out, result.lost, step.exit_code()), (Some(9), false, true, 137));
    assert!(step.outcome.text.contains("ended while it ran; the next command starts another"), "{}", step.outcome.text);
    assert_eq!((step.stdout(), step.paths().0), ("printed", vec!["f".to_owned()]));
    assert_eq!(rig.ok("cat f").stdout(), "x");
    rig.verify();
}

fn command_cancelled_records_its_changes(rig: Rig) {
    rig.ok("touch old");
    let call = slow();
    let cancel = call.cancel.clone();
    let outcome = rig.runtime.block_on(async {
        let tool_runner = rig.tool_runner().clone();
        let called = tokio::spawn(async move { tool_runner.call(call).await });
        until_begun(&rig);
        cancel.cancel();
        called.await.unwrap().unwrap()
    });
    assert_eq!(outcome.status, CallStatus::Interrupted);
    let step = rig.recorded(outcome, "a cancelled command");
    assert_eq!(step.paths(), (vec!["f".to_owned()], vec!["old".to_owned()]));
    let results = step.of::<CommandResult>();
    assert!(results.len() == 1 && results[0].cancelled && !results[0].timed_out, "{results:?}");
    rig.check("a cancelled command");
    assert_eq!(rig.ok("cat f").drift, []);
    rig.verify();
}

fn call_dropped_records_its_changes(rig: Rig) {
    rig.ok("touch old");
    let before = rig.session().head().unwrap();
    let finished = rig.runtime.block_on(async {
        let tool_runner = rig.tool_runner().clone();
        let called = tokio::spawn(async move { tool_runner.call(slow()).await });
        until_begun(&rig);
        called.abort();
        assert!(called.await.unwrap_err().is_cancelled());
        until_finished(&rig, before)
    });
    let events = rig.session().events(before + 1, 100).unwrap();
    let of_outcome = events.iter().skip(1).filter(|event| !BEFORE_COMMANDS.contains(&kind(event)));
    let of_command: Vec<_> = of_outcome.map(|event| (event.call, event.time)).collect();
    assert!(of_command.iter().all(|one| *one == (Some(before + 1), of_command[0].1)), "{events:?}");
    let kinds: Vec<_> = events.iter().map(kind).collect();
    for wanted in ["CommandResult", "WriteFile", "DeleteEntry"] {
        assert!(kinds.contains(&wanted), "{wanted} is not among {kinds:?}");
    }
    assert_eq!(finished.status, CallStatus::Interrupted);
    rig.check("a dropped call");
    assert_eq!(rig.ok("cat f").stdout(), "before");
    rig.verify();
}

fn until_finished(rig: &Rig, from: u64) -> CallFinished {
    let mut found = None;
    let mut is_there = || {
        let events = rig.session().events(from + 1, 100).unwrap();
        found = events.iter().find_map(|event| event.typed::<CallFinished>());
        found.is_some()
    };
    tokio::task::block_in_place(|| eventually("the call has finished", &mut is_there));
    found.unwrap().unwrap().event
}

fn python_failed_or_timed_out_records_its_changes(rig: Rig) {
    let evaluate = |code: &str| rig.call("evaluate_python", json!({ "code": code }));
    let step = evaluate("open('a', 'w').write('1')\nprint('done')");
    assert_eq!((step.stdout(), step.paths().0), ("done", vec!["a".to_owned()]));
    let step = evaluate("open('b', 'w').write('2')\nraise ValueError('no')");
    assert_eq!((step.exit_code(), step.paths().0), (1, vec!["b".to_owned()]));
    let step =
        evaluate("import os, time\nopen('c', 'w').write('3')\nos.rename('a', 'd')\nprint('so far')\ntime.sleep(60)");
    assert_eq!((step.exit_code(), step.stdout()), (124, "so far"));
    assert_eq!(step.paths(), (vec!["c".to_owned(), "d".to_owned()], vec!["a".to_owned()]));
    let results = step.of::<EvalResult>();
    assert!(results.len() == 1 && results[0].timed_out, "{results:?}");
    rig.verify();
}

fn call_over_its_time_records_its_changes(rig: Rig) {
    rig.ok("true");
    let call = ToolCall { limit: Some(Duration::from_secs(2)), ..slow() };
    let outcome = rig.runtime.block_on(rig.tool_runner().call(call)).unwrap();
    assert_eq!(outcome.status, CallStatus::Error);
    let step = rig.recorded(outcome, "a call over its limit");
    assert_eq!(step.paths().0, ["f"]);
    assert_eq!(step.of::<CommandResult>().len(), 1);
    rig.check("a call over its limit");
    assert_eq!(rig.ok("cat f").drift, []);
    rig.verify();
}
