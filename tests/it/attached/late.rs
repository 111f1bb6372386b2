//! Reports that the owner records late or does not take as they are, and files that are reached by other ways.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use foldspace::event::CallStatus;
use foldspace::hub::ReportId;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::Repository;
use super::hooking::{bash_call, kept, runs};
use crate::rig::{self, eventually};

/// An owner that is stopped until this is dropped.
struct Stopped(Pid);

impl Stopped {
    fn of(repository: &Repository) -> Self {
        let owner = Pid::from_raw(i32::try_from(repository.program.owners()[0]).unwrap()).unwrap();
        rig::stop(owner);
        Self(owner)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        rig::resume(self.0);
    }
}

/// Checks that two calls are recorded once, and that the second one alone removed a file.
fn check_second_call(repository: &Repository) {
    let ended: Vec<String> = runs(repository).ended.iter().map(|ended| ended.observed.id.clone()).collect();
    assert_eq!((ended, repository.events("CallObserved").len()), (vec!["t1".to_owned(), "t2".to_owned()], 2));
    assert_eq!(kept(repository), Vec::<String>::new());
    let undone = repository.program.run(&["undo", "repo", "--yes"]);
    assert!(undone.contains("back     a.txt") && undone.ends_with("[exit 0]"), "{undone}");
}

#[test]
fn report_to_a_stopped_owner_arrives_once() {
    let repository = Repository::with(&[("a.txt", "one\n")]);
    repository.command("t1", |repository| repository.write("b.txt", "two\n"));
    let stopped = Stopped::of(&repository);
    repository.command("t2", |repository| repository.remove("a.txt"));
    assert_eq!(kept(&repository).len(), 2);
    drop(stopped);
    repository.program.printed(&["log", "repo", "--calls"]);
    check_second_call(&repository);
}

#[test]
fn report_to_an_owner_that_is_killed_arrives_once() {
    let repository = Repository::with(&[("a.txt", "one\n")]);
    repository.command("t1", |repository| repository.write("b.txt", "two\n"));
    let stopped = Stopped::of(&repository);
    repository.command("t2", |repository| repository.remove("a.txt"));
    kill_process(stopped.0, Signal::KILL).unwrap();
    eventually("the owner is gone", || repository.program.owners().is_empty());
    repository.program.printed(&["log", "repo", "--calls"]);
    check_second_call(&repository);
}

/// Sends a message to the owner as a hook does, and returns the answer.
fn sent(repository: &Repository, message: &Value) -> String {
    let mut owner = UnixStream::connect(repository.program.data().join("http.sock")).unwrap();
    let (message, head) = (message.to_string(), "POST /v1/hooks HTTP/1.1\r\nhost: foldspace\r\nconnection: close");
    let length = message.len();
    write!(owner, "{head}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{message}").unwrap();
    let mut answer = String::new();
    owner.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn report_that_is_both_sent_and_kept_is_recorded_once() {
    let repository = Repository::with(&[("a.txt", "one\n")]);
    let message = |at: ReportId| {
        let payload = json!({ "session_id": "s1", "hook_event_name": "UserPromptSubmit", "prompt": "do it" });
        json!({ "id": at, "agent": "claude", "directory": repository.root(), "payload": payload })
    };
    let keep = |id: ReportId| {
        foldspace::hub::keep_report(&repository.program.data(), id, message(id).to_string().as_bytes()).unwrap();
    };
    let first = ReportId::of_now();
    let answer = sent(&repository, &message(first));
    assert!(answer.ends_with(r#"{"outcome":"recorded"}"#), "{answer}");
    // Its hook gave up just before.
    keep(first);
    assert_eq!(repository.events("RunPrompted").len(), 1);
    assert_eq!(kept(&repository), Vec::<String>::new());
    let second = ReportId::of_now();
    keep(second);
    sent(&repository, &message(second));
    assert_eq!((repository.events("RunPrompted").len(), kept(&repository).len()), (2, 0));
}

#[test]
fn kept_call_of_an_agent_that_has_ended_keeps_its_own_end() {
    let repository = Repository::with(&[("a.txt", "one\n")]);
    let namespace = fs::read_link("/proc/self/ns/pid").unwrap();
    // The test's own id, but another time of its start.
    let process = format!("{} 1 {}", std::process::id(), namespace.display());
    for event in ["SessionStart", "PreToolUse", "PostToolUse"] {
        if event == "PostToolUse" {
            repository.remove("a.txt");
        }
        let mut payload = bash_call("t1");
        payload["session_id"] = json!("s1");
        payload["hook_event_name"] = json!(event);
        let id = ReportId::of_now();
        let message = json!({ "id": id, "agent": "claude", "directory": repository.root(), "process": process,
            "payload": payload });
        foldspace::hub::keep_report(&repository.program.data(), id, message.to_string().as_bytes()).unwrap();
    }
    let undone = repository.program.run(&["undo", "repo", "--yes"]);
    assert!(undone.contains("back     a.txt") && undone.ends_with("[exit 0]"), "{undone}");
    assert_eq!(runs(&repository).ended[0].status, CallStatus::Ok);
}

#[test]
fn report_larger_than_a_request_arrives_without_the_rest_of_its_strings() {
    let repository = Repository::with(&[("a.txt", "one\n")]);
    let (large, path) = ("x".repeat(5 << 20), repository.root().join("a.txt"));
    let call =
        json!({ "tool_name": "Write", "tool_use_id": "t1", "tool_input": { "file_path": path, "content": large } });
    repository.claude("PreToolUse", call.clone());
    repository.write("a.txt", &large);
    let mut done = call;
    done["tool_response"] = json!({ "filePath": path, "originalFile": large });
    repository.claude("PostToolUse", done);
    assert_eq!((runs(&repository).open.len(), runs(&repository).ended.len()), (0, 1));
    repository.write("mine.txt", "the person's\n");
    repository.claude("Stop", json!({}));
    assert!(repository.program.run(&["undo", "repo", "--yes"]).ends_with("[exit 0]"));
    assert_eq!((repository.read("a.txt"), repository.has("mine.txt")), ("one\n".to_owned(), true));
}

#[test]
fn report_from_outside_is_that_of_the_project() {
    let repository = Repository::with(&[("a.txt", "one\n")]);
    let elsewhere = repository.program.path("elsewhere");
    fs::create_dir_all(&elsewhere).unwrap();
    for (agent, variable, events) in [
        ("claude", "CLAUDE_PROJECT_DIR", ["PreToolUse", "PostToolUse"]),
        ("copilot", "CLAUDE_PROJECT_DIR", ["PreToolUse", "PostToolUse"]),
        ("gemini", "GEMINI_PROJECT_DIR", ["BeforeTool", "AfterTool"]),
    ] {
        for (event, directory) in events.into_iter().zip([repository.root(), elsewhere.clone()]) {
            let mut payload = bash_call(agent);
            payload["session_id"] = json!(agent);
            payload["cwd"] = json!(directory);
            payload["hook_event_name"] = json!(event);
            let mut hook = repository.program.command(&["hook", agent]);
            hook.env(variable, repository.root()).stdin(Stdio::piped()).stdout(Stdio::null());
            let mut hook = hook.spawn().unwrap();
            hook.stdin.take().unwrap().write_all(payload.to_string().as_bytes()).unwrap();
            assert!(hook.wait().unwrap().success());
        }
    }
    assert_eq!((runs(&repository).open.len(), runs(&repository).ended.len()), (0, 3));
}

#[test]
fn edit_through_links_is_undone() {
    let repository = Repository::with(&[("a.txt", "one\n"), ("src/x.c", "x\n")]);
    symlink("src", repository.root().join("s2")).unwrap();
    symlink("a.txt", repository.root().join("l.txt")).unwrap();
    let link = repository.program.path("link");
    symlink(repository.root(), &link).unwrap();
    repository.program.printed(&["log", "repo"]);
    for (number, (given, changed)) in [
        (repository.root().join("s2/x.c"), "src/x.c"),
        (repository.root().join("s2/../l.txt"), "a.txt"),
        (link.join("src/x.c"), "src/x.c"),
        ("s2/new.c".into(), "src/new.c"),
    ]
    .into_iter()
    .enumerate()
    {
        let mut call = json!({ "session_id": "s1", "cwd": link, "tool_name": "Write", "tool_use_id": number.to_string(),
            "tool_input": { "file_path": given, "content": "changed\n" } });
        for event in ["PreToolUse", "PostToolUse"] {
            call["hook_event_name"] = json!(event);
            repository.hook(&["claude"], &call);
            repository.write(changed, "changed\n");
        }
        let written = repository.events("WriteFile").pop().unwrap();
        let call = runs(&repository).ended[number].call;
        assert_eq!((&written["event"]["path"], &written["call"]), (&json!(changed), &json!(call)), "{given:?}");
        repository.program.printed(&["undo", "repo", "--yes"]);
    }
    assert_eq!((repository.read("a.txt"), repository.read("src/x.c")), ("one\n".to_owned(), "x\n".to_owned()));
    assert!(repository.has("l.txt") && !repository.has("src/new.c"));
}

#[test]
fn undo_of_a_directory_that_a_link_has_replaced_is_refused() {
    let repository = Repository::with(&[("a.txt", "one\n")]);
    repository.command("t1", |repository| repository.write("a.txt", "two\n"));
    repository.program.file("other/a.txt", "two\n");
    let aside = repository.program.path("aside");
    fs::rename(repository.root(), &aside).unwrap();
    symlink("other", repository.root()).unwrap();
    let undo = || repository.program.run(&["undo", "repo", "--yes"]);
    let refusal = "is a link to other now, not the directory that was attached";
    let refused = undo();
    assert!(refused.contains(refusal), "{refused}");
    repository.program.printed(&["stop"]);
    let refused = undo();
    assert!(refused.contains(refusal), "by another owner: {refused}");
    assert_eq!(repository.read("a.txt"), "two\n", "the other project's");
    fs::remove_file(repository.root()).unwrap();
    fs::rename(aside, repository.root()).unwrap();
    undo();
    assert_eq!(repository.read("a.txt"), "one\n", "put back");
}
