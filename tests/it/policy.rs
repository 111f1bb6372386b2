//! The command policy over its fixture, through the public interface.

use std::collections::BTreeSet;

use foldspace::{CommandLine, CommandPolicy, Decision};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    command: String,
    decision: String,
    why: String,
    #[serde(default)]
    allow: Vec<String>,
}

fn cases() -> Vec<Case> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/commands/commands.jsonl");
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn name_of(decision: &Decision) -> &'static str {
    match decision {
        Decision::Allow { .. } => "allow",
        Decision::Deny { .. } => "deny",
        Decision::Ask { .. } => "ask",
    }
}

#[test]
fn every_command_of_the_fixture_is_decided_as_it_says() {
    let mut wrong = Vec::new();
    for Case { command, decision, why, allow } in cases() {
        let policy = CommandPolicy { allow, ..CommandPolicy::default() };
        let actual = policy.check(&CommandLine::Shell(command.clone()), &BTreeSet::new());
        if name_of(&actual) != decision {
            wrong.push(format!("{command:?} ({why}): {actual:?} instead of {decision}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_confirmation_and_no_entry_lifts_a_denial() {
    for Case { command, .. } in cases().into_iter().filter(|case| case.decision == "deny") {
        let programs = ["rm", "sh", "bash", "sudo", "curl", "dd", "chmod", command.as_str()];
        let allow: Vec<String> = programs.iter().map(|&program| program.to_owned()).collect();
        let session = allow.iter().cloned().collect();
        let policy = CommandPolicy { allow, auto_confirm: true, ..CommandPolicy::default() };
        let actual = policy.check(&CommandLine::Shell(command.clone()), &session);
        assert_eq!(name_of(&actual), "deny", "{command:?}");
    }
}
