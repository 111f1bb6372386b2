//! How a command stands in the history, and how file tools and commands see each other.

use foldspace::event::{CallFinished, CommandDecided, CommandResult, WorkspaceTouched};
use serde_json::json;

use crate::rig::{BEFORE_COMMANDS, Kind, Rig, everywhere, kind};

everywhere!(
    command_is_recorded_with_its_changes,
    tools_and_commands_see_each_others_changes,
    concurrent_calls_take_turns,
    changes_in_one_tick_are_seen
);

fn command_is_recorded_with_its_changes(rig: Rig) {
    rig.ok("true");
    let step = rig.ok("echo x > f && echo printed");
    let kinds: Vec<_> = step.events.iter().map(kind).collect();
    let mut expected = vec!["CommandDecided", "CommandResult", "WriteFile", "CallFinished"];
    if rig.kind() != Kind::Host {
        expected.insert(1, "WorkspaceTouched");
        assert_eq!(step.of::<WorkspaceTouched>().len(), 1);
    }
    assert_eq!(kinds, expected);
    let result = &step.of::<CommandResult>()[0];
    assert_eq!(&rig.session().content(&result.stdout.content).unwrap()[..], b"printed\n");
    assert_eq!((step.of::<CommandDecided>().len(), step.of::<CallFinished>().len()), (1, 1));
    for command in ["true", "ls", "touch f", "cat f > /dev/null", "echo x > f"] {
        assert_eq!(rig.ok(command).writes_and_deletes(), (0, 0), "{command}");
    }
    rig.verify();
}

fn tools_and_commands_see_each_others_changes(rig: Rig) {
    let tool = |tool: &str, params| {
        let step = rig.call(tool, params);
        assert!(step.outcome.is_ok(), "{tool}: {}", step.outcome.text);
        assert_eq!(step.drift, [], "{tool}");
        step
    };
    rig.ok("true");
    tool("write_file", json!({ "file_path": "src/a.txt", "content": "one\n" }));
    assert_eq!(rig.ok("cat src/a.txt && echo two >> src/a.txt").stdout(), "one");
    let read = tool("read_file", json!({ "file_path": "src/a.txt" }));
    assert!(read.outcome.text.contains("two"), "{}", read.outcome.text);
    tool("edit_file", json!({ "file_path": "src/a.txt", "old_string": "one", "new_string": "1" }));
    assert_eq!(rig.ok("cat src/a.txt && mv src dst").stdout(), "1\ntwo");
    tool("rm", json!({ "path": "dst/a.txt" }));
    assert_eq!(rig.ok("ls -A dst").stdout(), "");
    tool("write_file", json!({ "file_path": "run.sh", "content": "#!/bin/sh\necho ran > out\n" }));
    rig.ok("chmod +x run.sh && ./run.sh");
    tool("edit_file", json!({ "file_path": "run.sh", "old_string": "ran", "new_string": "again" }));
    assert_eq!(rig.ok("./run.sh && cat out").stdout(), "again", "an edited file may still be executed");
    let found = tool("grep", json!({ "pattern": "ag.in" }));
    assert!(found.outcome.text.contains("out"), "{}", found.outcome.text);
    rig.verify();
}

fn concurrent_calls_take_turns(rig: Rig) {
    rig.ok("echo 0 > count");
    let add = "n=$(cat count); sleep 0.02; echo $((n + 1)) > count; echo $n > at-$n";
    let outcomes = rig.runtime.block_on(async {
        let calls = (0..8).map(|n| {
            let tool_runner = rig.tool_runner().as_agent(format!("agent-{n}"));
            let call = foldspace::ToolCall::new("shell_execute", json!({ "command": add }));
            tokio::spawn(async move { tool_runner.call(call).await.unwrap() })
        });
        let calls: Vec<_> = calls.collect();
        let mut outcomes = Vec::new();
        for call in calls {
            outcomes.push(call.await.unwrap());
        }
        outcomes
    });
    assert_eq!(rig.printed("cat count"), "8");
    for outcome in outcomes {
        assert_eq!(outcome.result["exit_code"], 0, "{}", outcome.text);
        let events = rig.session().events(outcome.call, 200).unwrap();
        let of_call = events.iter().skip(1).filter(|event| event.call == Some(outcome.call));
        let of_call: Vec<_> = of_call.filter(|event| !BEFORE_COMMANDS.contains(&kind(event))).collect();
        let (first, last) = (of_call[0], of_call[of_call.len() - 1]);
        assert_eq!(last.seq - first.seq + 1, of_call.len() as u64, "others stand between: {of_call:?}");
        assert!(of_call.iter().all(|event| event.time == first.time && event.agent == first.agent));
        let written = of_call.iter().filter(|event| kind(event) == "WriteFile").count();
        assert_eq!(written, 2, "the count, and a file of its own");
    }
    rig.check("calls at once");
    rig.verify();
}

/// Changes that follow each other faster than a file's times move.
fn changes_in_one_tick_are_seen(rig: Rig) {
    rig.ok("echo a > f");
    for n in 0..40 {
        let step = rig.ok(&format!("echo {} > f", if n % 2 == 0 { "b" } else { "a" }));
        assert_eq!((step.writes_and_deletes(), step.drift.len()), ((1, 0), 0), "round {n}");
    }
    rig.verify();
}
