//! The command policy over its fixture, through the public interface.

use std::collections::{BTreeMap, BTreeSet};

use foldspace::{CommandLine, CommandPolicy, Decision, EntryPath, ShellCommand};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    command: CommandLine,
    decision: String,
    why: String,
    #[serde(default)]
    allow: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    stdin: String,
    #[serde(default)]
    cwd: String,
}

impl Case {
    fn run_with(&self) -> ShellCommand {
        ShellCommand {
            env: self.env.clone(),
            stdin: self.stdin.clone().into(),
            cwd: EntryPath::lookup(&self.cwd).unwrap(),
            ..ShellCommand::new(self.command.clone())
        }
    }
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
    for case in cases() {
        let policy = CommandPolicy { allow: case.allow.clone(), ..CommandPolicy::default() };
        let actual = policy.check(&case.run_with(), &BTreeSet::new());
        let Case { command, decision, why, .. } = case;
        if name_of(&actual) != decision {
            wrong.push(format!("{command:?} ({why}): {actual:?} instead of {decision}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_confirmation_and_no_entry_lifts_a_denial() {
    for case in cases().into_iter().filter(|case| case.decision == "deny") {
        let command = case.command.to_string();
        let programs = ["rm", "sh", "bash", "sudo", "curl", "dd", "chmod", command.as_str()];
        let allow: Vec<String> = programs.iter().map(|&program| program.to_owned()).collect();
        let session = allow.iter().cloned().collect();
        let policy = CommandPolicy { allow, auto_confirm: true, ..CommandPolicy::default() };
        let actual = policy.check(&case.run_with(), &session);
        assert_eq!(name_of(&actual), "deny", "{command:?}");
    }
}
