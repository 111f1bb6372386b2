//! Effects outside of the workspace.

use serde_json::{Value, json};

use crate::rig::Program;

/// A program with the session `work`, in which `git` is a script that prints its arguments and ends with `$CODE`.
fn program() -> Program {
    let program = Program::new().through_owner();
    program.run(&["new", "work", "--backend", "host"]);
    let script = "mkdir bin && printf '#!/bin/sh\\necho $*; exit ${CODE:-0}\\n' > bin/git && chmod +x bin/git";
    program.printed(&["exec", "work", "--sh", script]);
    program
}

fn git(program: &Program, more: &[&str], command: &str) -> String {
    let command = command.replace("git ", "bin/git ");
    program.run(&[&["exec", "work"], more, &["--sh", &command]].concat())
}

fn effects(program: &Program, session: &str) -> Vec<Value> {
    let state = program.json(&["state", session, "Effects"]);
    let entries = state["entries"].as_array().or_else(|| state["state"]["entries"].as_array()).unwrap().clone();
    entries.iter().map(|one| json!([one["what"], one["target"], one["outcome"]])).collect()
}

#[test]
fn effects_of_commands_are_recorded_with_their_outcome() {
    let program = program();
    git(&program, &[], "git push origin main");
    git(&program, &["-e", "CODE=1"], "git push origin other");
    git(&program, &[], "git push origin piped | cat");
    git(&program, &["--timeout", "1"], "sleep 30 && git push origin late");
    git(&program, &[], "git status");
    let found = [("main", "done"), ("other", "failed"), ("piped", "unknown"), ("late", "unknown")];
    let found = found.map(|(branch, outcome)| json!(["git push", format!("origin {branch}"), outcome]));
    assert_eq!(effects(&program, "work"), found);
    let again = git(&program, &[], "git push origin late");
    assert!(again.contains("may have done this already, its outcome is unknown: git push origin late"), "{again}");
    let log = program.printed(&["log", "work", "--kind", "ExternalEffect"]);
    assert!(log.contains("git push origin main: unknown") && log.contains("git push origin main: done"), "{log}");
}

#[test]
fn rewind_undo_and_fork_name_what_they_do_not_take_back() {
    let program = program();
    let head = program.json_lines(&["log", "work"]).last().unwrap()["seq"].to_string();
    git(&program, &[], "echo 1 > a.txt && git push origin main");
    let line = "git push origin main (done, call ";
    let forked = program.run(&["fork", "work", "--at", &head, "--name", "before"]);
    assert!(forked.contains(line), "{forked}");
    assert!(!program.run(&["fork", "work", "--name", "after"]).contains(line));
    let planned = program.run(&["undo", "work", "--dry-run"]);
    assert!(planned.contains(line), "{planned}");
    let rewound = program.run(&["rewind", "work", "--to", &head]);
    assert!(rewound.contains(&format!("stays    {line}")), "{rewound}");
    assert!(rewound.contains("not taken back: 1 effect outside of the workspace"), "{rewound}");
    assert_eq!(effects(&program, "work").len(), 1, "a rewind keeps them");
    assert_eq!(effects(&program, "before"), Vec::<Value>::new());
}

#[test]
fn rerun_makes_an_effect_again_only_if_allowed() {
    let program = program();
    git(&program, &[], "git push origin main");
    let call = program.json_lines(&["log", "work", "--kind", "ExternalEffect"])[0]["call"].to_string();
    let refused = program.run(&["rerun", "work", "--yes"]);
    assert!(
        refused.contains("1 effect outside of the workspace would take place again:\ngit push origin main"),
        "{refused}"
    );
    assert!(refused.contains("hint: --repeat-effects allows that"), "{refused}");
    assert!(refused.ends_with("[exit 1]"), "{refused}");
    let made = program.run(&["rerun", "work", "--yes", "--repeat-effects"]);
    assert!(made.ends_with("[exit 0]"), "{made}");
    let script = program.file("calls.jsonl", r#"{"tool": "ls"}"#);
    let without = program.run(&["what-if", "work", "--script", &script, "--replace", &call, "--yes"]);
    assert!(!without.contains("take place again"), "{without}");
    let with = program.run(&["what-if", "work", "--script", &script, "--before", &call, "--yes"]);
    assert!(with.contains("take place again"), "{with}");
    git(&program, &["-e", "CODE=1"], "git push origin failed");
    assert!(program.run(&["rerun", "work", "--yes"]).contains("git push origin failed (failed, call "));
}
