//! `dispatch` and `compare`: a batch of children, and where they part.

use insta::assert_snapshot;

use crate::rig::Program;

fn program() -> Program {
    let program = Program::new();
    let script =
        program.file("script.jsonl", r#"{"tool": "write_file", "params": {"file_path": "a.txt", "content": "1\n"}}"#);
    let ran = program.run(&["run", &script, "--backend", "host", "--session", "lead"]);
    assert!(ran.ends_with("[exit 0]"), "{ran}");
    program
}

const BATCH: &str = r#"[
{"name": "try-1", "calls": [{"tool": "write_file", "params": {"file_path": "x.txt", "content": "x"}},
  {"tool": "shell_execute", "params": {"command": "cat x.txt"}}],
  "annotations": [{"name": "reward", "score": 1}]},
{"name": "try-2", "calls": [{"tool": "write_file", "params": {"file_path": "x.txt", "content": "x"}},
  {"tool": "shell_execute", "params": {"command": "exit 3"}}, {"tool": "ls"}],
  "annotations": [{"name": "reward", "score": 0, "note": "slow"}]},
{"name": "try-3", "calls": [{"tool": "ls"}]},
{"name": "try-3", "calls": []}
]"#;

#[test]
fn dispatch_and_compare_show_children_as_tree() {
    let program = program();
    let batch = program.file("batch.json", BATCH);
    // The progress of children that work at the same time has no fixed order.
    let done = program.output(&["dispatch", "lead", "--file", &batch, "--merge", "--yes"]);
    assert_eq!(done.status.code(), Some(1));
    assert_snapshot!(String::from_utf8_lossy(&done.stdout), @r#"
    child  status       calls  changed
    try-1  done             2  x.txt    merge: merged
    try-2  failed           2  x.txt    call 2 (shell_execute) failed: exit 3
    try-3  done             1           merge: nothing
    -      not started      0           a session called "try-3" exists already
    "#);
    let progress = String::from_utf8_lossy(&done.stderr);
    assert!(progress.contains("try-2: call 2, shell_execute failed"), "{progress}");
    assert_snapshot!(program.run(&["compare", "lead", "try-*"]), @r#"
    write_file a.txt: 4 runs, reward 0.5 (0 to 1) in 2 runs
    ├─ ends here: lead, 1 call, last ok
    ├─ write_file x.txt: 2 runs, reward 0.5 (0 to 1)
    │  ├─ shell_execute cat x.txt: try-1, 3 calls, last ok, reward 1
    │  └─ shell_execute exit 3: try-2, 3 calls, 1 failed, last exit 3, reward 0 "slow"
    └─ ls: try-3, 2 calls, last ok
    [exit 0]
    "#);
    let object = format!(r#"{{"children": {}, "parallel": 1}}"#, r#"[{"name": "try-4"}]"#);
    let fed = program.fed(&["dispatch", "lead", "--file", "-", "--json"], object.as_bytes());
    assert!(fed.contains(r#""status": "done""#), "{fed}");
    let all = program.json(&["compare", "--all"]);
    assert_eq!((&all["runs"], &all["branches"][0]["ended"][0]["name"]), (&5.into(), &"lead".into()), "{all}");
}

#[test]
fn dispatch_and_compare_refuse_wrong_input() {
    let program = program();
    for (text, why) in [("[", "is not JSON"), ("7", "a batch is a list of children"), ("[]", "0 children")] {
        let file = program.file("wrong.json", text);
        let refused = program.run(&["dispatch", "lead", "--file", &file]);
        assert!(refused.contains(why) && refused.ends_with("[exit 2]"), "{refused}");
    }
    let missing = program.run(&["dispatch", "lead", "--file", "none.json"]);
    assert!(missing.contains("no such file: none.json"), "{missing}");
    assert_snapshot!(program.run(&["compare", "lead"]), @"
    error: a comparison needs at least two sessions
    [exit 2]
    ");
    assert_snapshot!(program.run(&["compare", "lead", "laed"]), @r#"
    error: no session is called "laed", and no id begins with that
    hint: did you mean lead? `foldspace sessions` lists them
    [exit 3]
    "#);
    assert_snapshot!(program.run(&["compare", "x*"]), @r#"
    error: no session has a name like "x*"
    [exit 3]
    "#);
    assert!(program.run(&["compare"]).ends_with("[exit 2]"));
}
