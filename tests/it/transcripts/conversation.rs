//! Messages of imported runs, and claims of success after failed commands.

use std::ops::ControlFlow;

use foldspace::view::{Conversation, RunMessage, claim_in};
use foldspace::{Seq, Session};
use serde_json::{Value, json};

use super::{CLAUDE, Place, fixture};
use crate::rig::Program;

fn messages(session: &Session, from: Seq) -> Vec<RunMessage> {
    let mut found = Vec::new();
    Conversation::visit(session, (from, Seq::MAX), false, &mut |messages| {
        found.extend(messages);
        ControlFlow::Continue(())
    })
    .unwrap();
    found
}

fn texts(found: &[RunMessage]) -> Vec<String> {
    found.iter().map(|message| format!("{}: {}", message.role.word(), message.text.lines().next().unwrap())).collect()
}

/// Transcripts with the beginnings of some of their messages, in order.
const FORMATS: [(&str, &[&str]); 15] = [
    (
        CLAUDE,
        &["user: RUN-MAIN please", "assistant: I write a file.", "assistant: Three at once.", "assistant: All done."],
    ),
    ("codex.jsonl", &["user: RUN-MAIN please", "assistant: I write a file.", "assistant: All done."]),
    ("copilot.jsonl", &["user: RUN-MAIN please", "system: (left out)", "assistant: I write a file."]),
    ("gemini.jsonl", &["user: RUN-MAIN please", "assistant: I write a file.", "assistant: All done."]),
    ("opencode.json", &["user: \"RUN-MAIN please\"", "assistant: I write a file.", "assistant: All done."]),
    (
        "cursor/3f0d6c1e-52a7-4b7e-9c51-0d3c1f2a6b90/3f0d6c1e-52a7-4b7e-9c51-0d3c1f2a6b90.jsonl",
        &[
            "user: Mend the sum.",
            "assistant: I look first.",
            "assistant: [REDACTED]",
            "user: Add a note.",
            "assistant: Done.",
        ],
    ),
    (
        "cline/1795852699735_con11.messages.json",
        &["user: RUN-MAIN please", "assistant: I write a file.", "assistant: All done."],
    ),
    ("goose.json", &["user: Mend the sum.", "assistant: I run the tests.", "assistant: Done."]),
    ("aider.chat.history.md", &["user: RUN-MAIN please", "assistant: I mend the sum and add a file."]),
    ("openhands", &["user: Mend the greeting.", "assistant: I look."]),
    (
        "mini-swe-agent-2.traj.json",
        &[
            "system: You are a helpful assistant",
            "user: Please solve this issue: RUN-MAIN please",
            "assistant: I write.",
        ],
    ),
    (
        "swe-agent.traj",
        &[
            "assistant: I look around.",
            "assistant: I think.",
            "assistant: Done.",
            "system: SETTING: you work in a shell.",
            "user: Mend the greeting.",
        ],
    ),
    ("inspect.json", &["assistant: I look.", "user: Mend the greeting."]),
    (
        "inspect-messages.json",
        &["system: Use bash.", "user: Mend the sum.", "assistant: I look.", "assistant: And again."],
    ),
    ("atif.json", &["user: Mend the greeting.", "assistant: I look, and ask for help.", "assistant: I mend it."]),
];

#[test]
fn each_format_has_its_messages() {
    for (name, expected) in FORMATS {
        let place = Place::new();
        let (_, session) = place.fixture(name);
        let found = texts(&messages(&session, 1));
        let mut rest = found.iter();
        for text in expected {
            assert!(rest.any(|found| found.starts_with(text)), "{name}: no {text:?} at its place in {found:#?}");
        }
        assert!(found.iter().all(|text| !text.contains("{\"")), "{name}: {found:#?}");
    }
}

#[test]
fn messages_have_model_tokens_and_long_texts() {
    let place = Place::new();
    let (_, gemini) = place.fixture("gemini.jsonl");
    let found = messages(&gemini, 1);
    let answer = &found[1];
    let usage = (answer.usage.model.as_deref(), answer.usage.input_tokens, answer.usage.output_tokens);
    assert_eq!((usage, found[0].usage.input_tokens), ((Some("gemini-2.5-flash"), Some(10), Some(5)), None));

    let (_, session) = claude(&place, &[said("assistant", &"long ".repeat(1000))]);
    let message = &messages(&session, 1)[0];
    assert_eq!((message.text.len(), message.cut), (2000, true));
    let event = session.event(message.seq).unwrap();
    let whole = &foldspace::view::messages(&session, &event.view(), true)[0];
    assert_eq!((whole.text.len(), whole.cut), (4999, false));
}

/// The number and the time of a line.
fn line(kind: &str, content: Value) -> Value {
    json!({
        "parentUuid": null, "isSidechain": false, "type": kind, "uuid": "u", "sessionId": "c1a1", "cwd": "/w",
        "timestamp": "2026-11-23T00:04:05.078Z", "version": "2", "message": { "role": kind, "content": content },
    })
}

fn said(kind: &str, text: &str) -> Value {
    line(kind, json!([{ "type": "text", "text": text }]))
}

/// The lines of a command with its exit code.
fn ran(id: &str, command: &str, code: i64) -> [Value; 2] {
    let use_ = json!([{ "type": "tool_use", "id": id, "name": "Bash", "input": { "command": command } }]);
    let shown = if code == 0 { "fine".to_owned() } else { format!("Exit code {code}\noops") };
    let result = json!([{ "type": "tool_result", "tool_use_id": id, "content": shown, "is_error": code != 0 }]);
    [line("assistant", use_), line("user", result)]
}

fn claude(place: &Place, lines: &[Value]) -> (String, Session) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("c1a1.jsonl");
    std::fs::write(&path, lines.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    let imported = place.import(&[&path]);
    (imported[0].name.clone(), place.sessions.session(imported[0].session).unwrap())
}

/// A run with true and false claims.
fn claiming() -> Vec<Value> {
    let mut lines = vec![said("user", "Mend it.")];
    lines.extend(ran("t1", "make test", 1));
    lines.push(said("assistant", "Not all tests pass."));
    lines.push(said("assistant", "I see the cause. All tests pass now."));
    lines.extend(ran("t2", "make test", 0));
    lines.push(said("assistant", "All tests pass."));
    lines.extend(ran("t3", "grep TODO src", 1));
    lines.push(said("assistant", "Done."));
    lines.extend(ran("t4", "make lint", 2));
    lines.push(said("user", "Never mind."));
    lines.push(said("assistant", "Done."));
    lines
}

#[test]
fn claim_after_a_failed_command_names_its_evidence() {
    let place = Place::new();
    let (_, session) = claude(&place, &claiming());
    let found = messages(&session, 1);
    let claims: Vec<_> = found.iter().filter_map(|message| Some((message.seq, message.claim.as_ref()?))).collect();
    let [(seq, claim)] = claims[..] else { panic!("{claims:#?}") };
    let facts = (&*claim.sentence, &*claim.command, &*claim.ended, claim.exit_code);
    assert_eq!(facts, ("All tests pass now.", "make test", "exit 1", Some(1)));
    assert_eq!(session.event(claim.call).unwrap().event.kind.as_ref(), "CallStarted");
    // A page that begins later knows the commands before it.
    assert_eq!(messages(&session, seq)[0].claim.as_ref(), Some(claim));

    let (_, goose) = place.fixture("goose.json");
    let found = messages(&goose, 1);
    assert_eq!(found.last().unwrap().claim.as_ref().unwrap().ended, "exit 1", "{found:#?}");
}

#[test]
fn program_lists_messages_and_claims() {
    let program = Program::with_story();
    program.printed(&["clone", "story", "--name", "branch"]);
    let log = program.printed(&["log", "story", "--kind", "ChildStarted"]);
    assert!(log.contains("branch, fork from "), "{log}");
    let path = program.path("c1a1.jsonl");
    std::fs::write(&path, claiming().iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    program.printed(&["import", path.to_str().unwrap(), fixture(CLAUDE).to_str().unwrap()]);
    let session = "claude-c1a1";
    let log = program.printed(&["log", "claude-e1621bd0-4826-43", "--kind", "TranscriptRecord"]);
    assert!(!log.contains("{\"") && log.contains("user: RUN-MAIN please"), "{log}");
    assert!(log.contains("queue-operation: enqueue RUN-MAIN please"), "{log}");
    let runs = program.printed(&["log", session, "--runs"]);
    assert!(runs.trim_end().ends_with("Never mind."), "the latest prompt: {runs}");
    let before = program.printed(&["log", session, "--runs", "--at", "5"]);
    assert!(before.trim_end().ends_with("Mend it."), "{before}");

    let messages = program.printed(&["log", session, "--messages"]);
    assert_eq!(messages.lines().count(), 7, "{messages}");
    assert!(messages.contains("assistant: I see the cause. All tests pass now.  after exit 1  #"), "{messages}");
    let last = program.printed(&["log", session, "--messages", "--limit", "1"]);
    assert!(last.contains("assistant: Done.") && last.lines().count() == 1, "{last}");
    let claims = program.printed(&["log", session, "--claims"]);
    assert!(claims.contains("\"All tests pass now.\"  after exit 1  #") && claims.lines().count() == 1, "{claims}");
    assert_eq!(program.printed(&["log", session, "--claims", "--run", "last"]), claims);
    let claim: Value = serde_json::from_str(&program.printed(&["log", session, "--claims", "--json"])).unwrap();
    assert_eq!((&claim["claim"]["exit_code"], &claim["role"]), (&json!(1), &json!("assistant")));
    let seq = claim["seq"].to_string();
    let shown = program.printed(&["show", session, &seq]);
    assert!(shown.contains("assistant\n    I see the cause. All tests pass now."), "{shown}");
    assert_eq!(program.output(&["log", session, "--claims", "--calls"]).status.code(), Some(2));
}

#[test]
fn log_follows_messages_and_claims() {
    use std::io::{BufRead, BufReader};
    let program = Program::new();
    let path = program.path("c1a1.jsonl");
    let write = |lines: &[Value]| {
        std::fs::write(&path, lines.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
        program.printed(&["import", path.to_str().unwrap()]);
    };
    let lines = claiming();
    let first = lines.iter().position(|line| line["type"] == "assistant").unwrap();
    write(&lines[..first]);
    let follow = |option| {
        let mut command = program.command(&["log", "claude-c1a1", option, "--follow"]);
        let mut following = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(following.stdout.take().unwrap()).lines().map(Result::unwrap);
        (following, lines)
    };
    let ((mut messages, mut told), (mut claims, mut claimed)) = (follow("--messages"), follow("--claims"));
    assert!(told.next().unwrap().ends_with("user: Mend it."));
    write(&lines);
    assert!(told.any(|line| line.ends_with("user: Never mind.")));
    let claim = claimed.next().unwrap();
    assert!(claim.contains("\"All tests pass now.\"  after exit 1"), "{claim}");
    for child in [&mut messages, &mut claims] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn log_of_imported_runs_has_no_json() {
    let program = Program::new();
    for (number, (name, _)) in FORMATS.iter().enumerate() {
        let session = format!("run-{number}");
        program.printed(&["import", fixture(name).to_str().unwrap(), "--name", &session]);
        let log = program.printed(&["log", &session]);
        assert!(!log.contains("{\"") && !log.contains("\":"), "{log}");
    }
}

#[test]
fn claims_of_success_are_found() {
    let claims = [
        ("All tests pass.", "All tests pass."),
        ("I looked into it. All 12 tests pass now with no failures.", "All 12 tests pass now with no failures."),
        ("Done.", "Done."),
        ("- **Fixed** the failing test", "Fixed** the failing test"),
        ("The build is green!", "The build is green!"),
        ("1. ✅ The import works", "The import works"),
        ("The test no longer fails; it's done.", "it's done."),
        ("```\n2 failed\n```\nEverything passes.", "Everything passes."),
        ("Installed `fail2ban` successfully.", "Installed `fail2ban` successfully."),
        ("Done: 5 passed, 0 failed", "Done: 5 passed, 0 failed"),
    ];
    for (text, sentence) in claims {
        assert_eq!(claim_in(text).as_deref(), Some(sentence), "{text}");
    }
}

#[test]
fn other_sentences_are_no_claims() {
    let others = [
        "Not all tests pass.",
        "Done. Two tests still fail.",
        "It still fails, so the fix is not done.",
        "Do all tests pass?",
        "If the tests pass, I commit.",
        "I will run the tests until everything passes.",
        "Let me check that it works.",
        "This explains how the parser works.",
        "The field has a fixed size.",
        "The bug needs to be fixed.",
        "Only 2 of 5 tests pass.",
        "I pass the path to the function.",
        "`done` ends the loop.",
        "> All tests pass.",
        "```\nall tests pass\n```",
        "5 passed, 2 failed",
        "The command failed. I fixed the path.",
        "The tests don’t pass.",
        "Make sure that it works.",
        "",
    ];
    for text in others {
        assert_eq!(claim_in(text), None, "{text}");
    }
}
