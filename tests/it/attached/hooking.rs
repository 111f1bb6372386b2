//! Hooks in places and at times for which they were not made.

use std::fs;

use foldspace::reducers::AgentRuns;
use serde_json::json;

use super::Repository;

fn runs(repository: &Repository) -> AgentRuns {
    repository.session().state().unwrap().slice::<AgentRuns>().cloned().unwrap_or_default()
}

#[test]
fn hook_with_nonsense_ends_well_and_records_it() {
    let repository = Repository::with(&[("a.txt", "one\n")]);
    for payload in [&b""[..], b"{", b"null", b"[1]", b"\xff\xfe", b"{\"cwd\":7}"] {
        for agent in ["claude", "codex", "copilot", "opencode", "nobody"] {
            assert_eq!(repository.program.fed(&["hook", agent], payload), "\n[exit 0]", "{agent} {payload:?}");
        }
    }
    assert_eq!(repository.program.fed(&["hook"], b"{}"), "\n[exit 0]");
    repository.claude("Fancy", json!({ "new": "field" }));
    assert_eq!(repository.events("TranscriptRecord").len(), 1, "an event that is not known is kept");
}

#[test]
fn hook_elsewhere_does_nothing() {
    let repository = Repository::with(&[("a.txt", "one\n")]);
    let other = repository.program.path("other");
    fs::create_dir_all(&other).unwrap();
    let payload = json!({ "session_id": "s", "cwd": other, "hook_event_name": "SessionStart" });
    repository.hook(&["claude"], &payload);
    assert!(runs(&repository).runs.is_empty());
    // A program that was never used leaves nothing behind.
    let fresh = crate::rig::Program::new();
    assert_eq!(fresh.fed(&["hook", "claude"], payload.to_string().as_bytes()), "\n[exit 0]");
    assert!(!fresh.data().exists());
}

#[test]
fn hook_without_owner_starts_one() {
    let repository = Repository::with(&[("a.txt", "one\n")]);
    repository.program.printed(&["stop"]);
    repository.write("a.txt", "while nobody looked\n");
    repository.command("t1", |repository| repository.write("b.txt", "new\n"));
    assert_eq!(repository.events("DriftFound").len(), 2, "the baseline, and what changed meanwhile");
    assert_eq!(runs(&repository).ended.len(), 1);
    repository.check("after the restart");
}

#[test]
fn owner_that_ends_within_a_call_does_not_end_the_call() {
    let repository = Repository::with(&[("a.txt", "one\n")]);
    let call = json!({ "tool_name": "Bash", "tool_input": { "command": "make" }, "tool_use_id": "t1" });
    repository.claude("PreToolUse", call.clone());
    repository.program.printed(&["stop"]);
    repository.write("made.txt", "by the call\n");
    repository.claude("PostToolUse", call);
    let runs = runs(&repository);
    assert_eq!((runs.open.len(), runs.ended.len()), (0, 1));
    let written = repository.events("WriteFile").pop().unwrap();
    assert_eq!((&written["event"]["path"], &written["call"]), (&json!("made.txt"), &json!(runs.ended[0].call)));
}

#[test]
fn reports_that_were_kept_are_taken_in_late() {
    let repository = Repository::with(&[("a.txt", "one\n")]);
    let spool = repository.program.data().join("attached/spool");
    fs::create_dir_all(&spool).unwrap();
    let payload = json!({ "session_id": "s1", "hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_use_id": "t0",
        "tool_input": { "command": "true" } });
    let message = json!({ "agent": "claude", "directory": repository.root(), "payload": payload });
    fs::write(spool.join("1.json"), message.to_string()).unwrap();
    fs::write(spool.join("2.json"), "no message").unwrap();
    repository.claude("Stop", json!({}));
    assert_eq!(repository.events("ReportLate").len(), 1);
    assert_eq!(runs(&repository).ended.len(), 1, "the call that was kept, closed by the stop");
    assert_eq!(fs::read_dir(&spool).unwrap().count(), 0);
}

#[test]
fn changes_of_two_open_calls_name_both() {
    let repository = Repository::with(&[("a.txt", "one\n")]);
    let call = |session: &str, id: &str, event: &str| {
        let payload = json!({ "session_id": session, "cwd": repository.root(), "hook_event_name": event, "tool_use_id": id,
            "tool_name": "Bash", "tool_input": { "command": id } });
        repository.hook(&["codex"], &payload);
    };
    call("one", "c1", "PreToolUse");
    call("two", "c2", "PreToolUse");
    repository.write("both.txt", "by whom\n");
    call("one", "c1", "PostToolUse");
    repository.write("second.txt", "by the second\n");
    call("two", "c2", "PostToolUse");
    let shared = repository.events("ChangesShared");
    let calls: Vec<_> = runs(&repository).ended.iter().map(|ended| ended.call).collect();
    assert_eq!((shared.len(), &shared[0]["event"]["calls"]), (1, &json!([calls[0], calls[1]])));
    // The second call changed a file alone, so it may have changed the shared one, too.
    let told = repository.program.run(&["undo", "repo", "--yes", "--call", &calls[0].to_string()]);
    assert!(told.contains("both.txt  other calls may have changed it") && told.ends_with("[exit 1]"), "{told}");
    assert!(repository.has("both.txt") && repository.has("second.txt"), "what is in doubt stays");
    assert!(repository.program.run(&["undo", "repo", "--yes", "--to", "1"]).ends_with("[exit 0]"));
    assert!(!repository.has("both.txt") && !repository.has("second.txt"));
}

#[test]
fn background_task_may_change_files_after_its_call() {
    let repository = Repository::with(&[("a.txt", "one\n")]);
    let call = json!({ "tool_name": "Bash", "tool_use_id": "t1",
        "tool_input": { "command": "npm start", "run_in_background": true } });
    repository.claude("PreToolUse", call.clone());
    let mut done = call;
    done["tool_response"] = json!({ "stdout": "", "backgroundTaskId": "b1" });
    repository.claude("PostToolUse", done);
    repository.write("later.txt", "by the task\n");
    repository.claude("Stop", json!({ "background_tasks": [{ "id": "b1" }] }));
    let call = runs(&repository).ended[0].call;
    assert_eq!(repository.events("WriteFile").pop().unwrap()["call"], json!(call));
    assert_eq!(runs(&repository).tasks.len(), 1);
    repository.claude("Stop", json!({ "background_tasks": [] }));
    assert!(runs(&repository).tasks.is_empty());
    repository.write("mine.txt", "the user's\n");
    repository.claude("SessionEnd", json!({ "reason": "exit" }));
    assert_eq!(repository.events("WriteFile").pop().unwrap()["call"], json!(null));
}

#[test]
fn worktree_of_an_attached_repository_is_a_fork() {
    let repository = Repository::with(&[("a.txt", "one\n"), (".gitignore", "trees/\n")]);
    repository.git(&["worktree", "add", "-q", "trees/w", "-b", "side"]);
    let tree = repository.root().join("trees/w");
    let report = |event: &str| {
        let payload = json!({ "session_id": "s1", "agent_id": "a1", "cwd": tree, "hook_event_name": event,
            "tool_name": "Bash", "tool_use_id": "t1", "tool_input": { "command": "make" } });
        repository.hook(&["claude"], &payload);
    };
    report("PreToolUse");
    fs::write(tree.join("a.txt"), "two\n").unwrap();
    report("PostToolUse");
    let tree = repository.program.printed(&["tree"]);
    assert!(tree.contains("fork"), "{tree}");
    assert!(runs(&repository).runs.is_empty(), "its parent has no part in it");
    repository.check("the main worktree is as it was");
    assert_eq!(repository.program.json(&["sessions"]).as_array().unwrap().len(), 2);
}
