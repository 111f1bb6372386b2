//! The command policy over its fixture, through the public interface.

use std::collections::{BTreeMap, BTreeSet};

use foldspace::EntryPath;
use foldspace::backends::ShellCommand;
use foldspace::event::CommandLine;
use foldspace::tools::{CommandPolicy, Decision};
use serde::Deserialize;
use serde::de::DeserializeOwned;

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
    /// Decision of the policy that still followed variables and functions, where that was something else.
    was: Option<String>,
    /// The same where questions are answered with yes.
    confirmed: Option<String>,
    confirmed_was: Option<String>,
}

/// A text that was tried against the policy.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tried {
    command: String,
    #[serde(rename = "class")]
    _class: String,
    decision: String,
    was: String,
    /// With [`LISTED`] in the list.
    listed: String,
    listed_was: String,
    /// Decision where questions are answered with yes.
    confirmed: String,
    confirmed_was: String,
}

const LISTED: &str = "ls cat grep git rm dd chmod chown curl wget jq tee python3 find xargs cargo sed make wc head sort \
    tar sh bash echo cp mv env sudo parallel mkdir truncate shred perl npm docker mktemp ssh-agent test ruby mkfs.ext4 \
    which trap source . command";

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

fn lines<T: DeserializeOwned>(name: &str) -> Vec<T> {
    let path = format!("{}/fixtures/commands/{name}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn cases() -> Vec<Case> {
    lines("commands.jsonl")
}

fn name_of(decision: &Decision) -> &'static str {
    match decision {
        Decision::Allow { .. } => "allow",
        Decision::Deny { .. } => "deny",
        Decision::Ask { .. } => "ask",
    }
}

#[test]
fn policy_decides_fixture_as_noted() {
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
fn policy_denial_is_lifted_by_nothing() {
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

#[test]
fn policy_decides_tried_texts_as_noted() {
    let mut wrong = Vec::new();
    for Tried { command, decision, listed, confirmed, .. } in lines("tried.jsonl") {
        let all: Vec<String> = LISTED.split_whitespace().map(str::to_owned).collect();
        for (allow, auto_confirm, expected) in
            [(Vec::new(), false, &decision), (all, false, &listed), (Vec::new(), true, &confirmed)]
        {
            let policy = CommandPolicy { allow, auto_confirm, ..CommandPolicy::default() };
            let actual = policy.check(&ShellCommand::shell(&command), &BTreeSet::new());
            if name_of(&actual) != expected {
                wrong.push(format!("{command:?}: {actual:?} instead of {expected}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn policy_allows_nothing_once_denied_or_asked() {
    let of_cases = cases().into_iter().map(|case| {
        let was = case.was.clone().unwrap_or(case.decision.clone());
        (case.command.to_string(), was, case.decision)
    });
    let of_tried = lines::<Tried>("tried.jsonl").into_iter().flat_map(|tried| {
        [(tried.command.clone(), tried.was, tried.decision), (tried.command, tried.listed_was, tried.listed)]
    });
    for (command, was, decision) in of_cases.chain(of_tried) {
        assert!(was == "allow" || decision != "allow", "{command}: {was} has become {decision}");
    }
}

#[test]
fn policy_yes_answers_once_denied_text_only_without_danger() {
    let policy = CommandPolicy { auto_confirm: true, ..CommandPolicy::default() };
    let mut runs = Vec::new();
    for case in cases() {
        let actual = policy.check(&case.run_with(), &BTreeSet::new());
        let usual = if case.decision == "deny" { "deny" } else { "allow" };
        assert_eq!(name_of(&actual), case.confirmed.as_deref().unwrap_or(usual), "{:?}", case.command);
        let was = case.confirmed_was.unwrap_or_else(|| case.confirmed.unwrap_or(usual.to_owned()));
        runs.extend((was == "deny" && name_of(&actual) == "allow").then(|| case.command.to_string()));
    }
    let tried = lines::<Tried>("tried.jsonl").into_iter();
    runs.extend(tried.filter(|t| t.confirmed_was == "deny" && t.confirmed == "allow").map(|t| t.command));
    // What is nested deeply was denied for that, and harms nothing.
    runs.retain(|command| !command.contains("((((") && !command.starts_with("echo $($("));
    let expected = [
        r"rm -rf $'\x2f'",
        "sudo mkfs.vfat x.img",
        "mke2fs x",
        "a(){ b|b& }; b(){ a; }; a",
        "rm -rf ${x:+a}/",
        r"rm -rf $(printf '\057')",
        "a='f'; f(){ $a|$a& }; f",
        "dd if=/dev/zero of=test.img bs=1M count=1",
        "truncate -s 10M disk.img && mkfs.ext4 -q disk.img",
        "mkfs.ext4 --version",
        r#"git() { command git "$@" & wait; }; git status"#,
        "dd if=/dev/zero count=1",
        "dd if=/dev/zero of=test.img count=1",
        "dd of=test.img count=4 < /dev/zero",
    ];
    assert_eq!(runs, expected);
}
