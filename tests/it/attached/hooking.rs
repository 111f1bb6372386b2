//! Hooks in places and at times for which they were not made.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use foldspace::event::CallStatus;
use foldspace::reducers::AgentRuns;
use serde_json::{Value, json};

use super::Repository;
use crate::rig::eventually;

pub(super) fn runs(repository: &Repository) -> AgentRuns {
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
    assert_eq!(kept(&repository), ["2.unfit"], "what no owner can read is put aside");
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
fn changes_while_a_background_task_runs_stay_with_the_person() {
    let repository = Repository::with(&[("a.txt", "one\n")]);
    let call = json!({ "tool_name": "Bash", "tool_use_id": "t1",
        "tool_input": { "command": "npm start", "run_in_background": true } });
    repository.claude("PreToolUse", call.clone());
    let mut done = call;
    done["tool_response"] = json!({ "stdout": "", "backgroundTaskId": "b1" });
    repository.claude("PostToolUse", done);
    repository.write("mine.txt", "the person's\n");
    repository.claude("Stop", json!({ "background_tasks": [{ "id": "b1" }] }));
    let call = runs(&repository).ended[0].call;
    let drift = repository.events("DriftFound").pop().unwrap();
    assert_eq!((&drift["event"]["perhaps"], runs(&repository).tasks.len()), (&json!([call]), 1));
    repository.command("t2", |repository| repository.write("a.txt", "by the call\n"));
    assert!(repository.events("ChangesShared").is_empty(), "the call shares it with no task");
    assert!(repository.program.run(&["undo", "repo", "--yes"]).ends_with("[exit 0]"));
    assert_eq!((repository.read("a.txt"), repository.has("mine.txt")), ("one\n".to_owned(), true));
    repository.claude("Stop", json!({ "background_tasks": [] }));
    assert!(runs(&repository).tasks.is_empty());
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

/// Lists the reports that wait in the spool.
pub(super) fn kept(repository: &Repository) -> Vec<String> {
    let spool = fs::read_dir(repository.program.data().join("attached/spool")).into_iter().flatten();
    let mut names: Vec<String> = spool.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Puts reports of Claude's session `s1` into the spool, as its hooks keep them.
fn keep(repository: &Repository, reports: &[Value]) {
    let spool = repository.program.data().join("attached/spool");
    fs::create_dir_all(&spool).unwrap();
    for (number, payload) in reports.iter().enumerate() {
        let mut payload = payload.clone();
        payload["session_id"] = json!("s1");
        payload["cwd"] = json!(repository.root());
        let message = json!({ "agent": "claude", "directory": repository.root(), "payload": payload });
        fs::write(spool.join(format!("{number:03}.json")), message.to_string()).unwrap();
    }
}

fn bash(event: &str, id: &str) -> Value {
    let mut call = bash_call(id);
    call["hook_event_name"] = json!(event);
    call
}

pub(super) fn bash_call(id: &str) -> Value {
    json!({ "tool_name": "Bash", "tool_use_id": id, "tool_input": { "command": id } })
}

#[test]
fn many_kept_reports_all_arrive_though_their_hook_hangs_up() {
    let files: Vec<(String, String)> = (0..3000).map(|n| (format!("d{}/f{n}", n % 50), format!("{n}\n"))).collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let repository = Repository::with(&files);
    repository.program.printed(&["stop"]);
    let ids: Vec<String> = (0..20).map(|n| format!("t{n}")).collect();
    let reports: Vec<Value> = ids.iter().flat_map(|id| [bash("PreToolUse", id), bash("PostToolUse", id)]).collect();
    for (path, _) in &files {
        repository.write(path, "changed\n");
    }
    keep(&repository, &reports);
    // It is gone before anything can be recorded.
    let mut hook = repository.program.command(&["hook", "claude"]);
    hook.current_dir(repository.root()).stdin(Stdio::piped());
    let mut hook = hook.spawn().unwrap();
    let stop = json!({ "session_id": "s1", "cwd": repository.root(), "hook_event_name": "Stop" });
    hook.stdin.take().unwrap().write_all(stop.to_string().as_bytes()).unwrap();
    eventually("the owner has begun", || repository.program.data().join("http.sock").exists());
    hook.kill().unwrap();
    hook.wait().unwrap();
    repository.program.printed(&["log", "repo", "--limit", "1"]);
    eventually("all calls are recorded", || runs(&repository).ended.len() == 20);
    assert_eq!(kept(&repository).len(), 0);
    let ended: Vec<String> = runs(&repository).ended.iter().map(|ended| ended.observed.id.clone()).collect();
    assert_eq!(ended, ids, "in their order");
    let shared = repository.events("ChangesShared");
    assert_eq!(shared[0]["event"]["calls"].as_array().unwrap().len(), 20, "what changed meanwhile is of one of them");
}

#[test]
fn kept_reports_of_a_detached_directory_are_dropped() {
    let repository = Repository::with(&[("a.txt", "one\n")]);
    keep(&repository, &[bash("PreToolUse", "t0")]);
    assert!(repository.program.run(&["detach", repository.root().to_str().unwrap()]).ends_with("[exit 0]"));
    assert_eq!(kept(&repository), Vec::<String>::new());
    // A hook that ran at the same time may leave one.
    keep(&repository, &[bash("PreToolUse", "t1")]);
    repository.program.run(&["stop"]);
    repository.program.printed(&["log", "repo"]);
    let owner = std::os::unix::net::UnixStream::connect(repository.program.data().join("http.sock"));
    assert!(owner.is_err(), "no owner is started for it");
}

#[test]
fn kept_reports_are_recorded_once_though_their_files_stay() {
    let repository = Repository::with(&[("a.txt", "one\n")]);
    let reports = [bash("PreToolUse", "t0"), bash("PostToolUse", "t0")];
    for _ in 0..2 {
        // As after a crash between the record and the removal.
        keep(&repository, &reports);
        repository.claude("Fancy", json!({}));
    }
    assert_eq!((repository.events("CallObserved").len(), runs(&repository).ended.len()), (1, 1));
    assert!(kept(&repository).is_empty());
}

#[test]
fn undo_takes_back_what_calls_of_kept_reports_changed() {
    let repository = Repository::with(&[("a.txt", "one\n")]);
    repository.write("a.txt", "by the agent\n");
    keep(&repository, &[bash("PreToolUse", "t0"), bash("PostToolUse", "t0")]);
    assert!(repository.program.run(&["undo", "repo", "--yes"]).ends_with("[exit 0]"));
    assert_eq!(repository.read("a.txt"), "one\n");
    let log = repository.program.printed(&["log", "repo", "--calls"]);
    assert!(log.contains("Bash") && log.contains("a.txt"), "{log}");
}

#[test]
fn changes_after_the_end_of_a_kept_call_stay_with_the_person() {
    let repository = Repository::with(&[("a.txt", "one\n")]);
    repository.program.printed(&["stop"]);
    keep(&repository, &[bash("PreToolUse", "t0"), bash("PostToolUse", "t0")]);
    let ended = repository.program.data().join("attached/spool/001.json");
    let past = std::time::SystemTime::now() - std::time::Duration::from_secs(60);
    fs::File::options().write(true).open(ended).unwrap().set_modified(past).unwrap();
    let began = repository.program.data().join("attached/spool/000.json");
    fs::File::options().write(true).open(began).unwrap().set_modified(past).unwrap();
    repository.write("mine.txt", "the person's\n");
    let undone = repository.program.run(&["undo", "repo", "--yes"]);
    assert!(repository.has("mine.txt"), "{undone}");
    let drift = repository.events("DriftFound").pop().unwrap();
    assert_eq!(drift["event"]["perhaps"], json!([runs(&repository).ended[0].call]));
}

#[test]
fn undo_says_that_reports_are_not_recorded() {
    let repository = Repository::with(&[("a.txt", "one\n")]);
    repository.program.printed(&["stop"]);
    keep(&repository, &[bash("PreToolUse", "t0"), bash("PostToolUse", "t0")]);
    fs::rename(repository.root(), repository.program.path("elsewhere")).unwrap();
    repository.program.file("repo", "in the way");
    let refused = repository.program.run(&["undo", "repo", "--yes"]);
    assert!(refused.contains("2 hook reports not recorded yet"), "{refused}");
    fs::remove_file(repository.root()).unwrap();
    fs::rename(repository.program.path("elsewhere"), repository.root()).unwrap();
    repository.program.run(&["undo", "repo", "--dry-run"]);
    assert_eq!((runs(&repository).ended.len(), kept(&repository).len()), (1, 0));
}

#[test]
fn call_of_a_killed_agent_is_over() {
    let repository = Repository::with(&[("a.txt", "one\n"), ("b.txt", "two\n")]);
    // `env` stands for the agent: it is no shell, and a process of its own.
    let script = |event: &str, rest: &Value| {
        let mut payload = json!({ "session_id": "s1", "cwd": repository.root(), "hook_event_name": event });
        payload.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        let path = repository.program.file(&format!("{event}.json"), payload.to_string());
        format!(
            "subprocess.run([{:?}, 'hook', 'claude', '--data', {:?}], stdin=open({path:?}))",
            env!("CARGO_BIN_EXE_foldspace"),
            repository.program.data()
        )
    };
    let agent = [
        "import subprocess, time".to_owned(),
        script("SessionStart", &json!({})),
        script("PreToolUse", &bash_call("t1")),
        "print('begun', flush=True); time.sleep(600)".to_owned(),
    ]
    .join("; ");
    let mut agent = std::process::Command::new("python3").args(["-c", &agent]).stdout(Stdio::piped()).spawn().unwrap();
    let mut begun = [0; 6];
    std::io::Read::read_exact(&mut agent.stdout.take().unwrap(), &mut begun).unwrap();
    repository.write("half.txt", "by the call\n");
    assert_eq!(runs(&repository).open.len(), 1);
    agent.kill().unwrap();
    agent.wait().unwrap();
    repository.write("mine.txt", "the person's\n");
    repository.write("b.txt", "two\nthree\n");
    repository.program.run(&["undo", "repo", "--yes"]);
    assert!(repository.has("mine.txt") && repository.read("b.txt") == "two\nthree\n");
    assert_eq!((runs(&repository).open.len(), runs(&repository).ended.len()), (0, 1));
    let call = |event: &str, id: &str| {
        let mut payload = bash(event, id);
        payload["session_id"] = json!("s2");
        payload["cwd"] = json!(repository.root());
        repository.hook(&["claude"], &payload);
    };
    call("PreToolUse", "t2");
    repository.write("next.txt", "by the next agent\n");
    call("PostToolUse", "t2");
    assert!(repository.program.run(&["undo", "repo", "--yes"]).ends_with("[exit 0]"));
    assert!(!repository.has("next.txt"), "nobody shares it");
}

#[test]
fn call_that_codex_refused_itself_shares_no_changes() {
    let repository = Repository::with(&[("a.txt", "one\n")]);
    let refusal = "exec_command failed: Rejected(\"rm -f style commands are not permitted\")";
    let line = |id: &str, output: &str| {
        let payload = json!({ "type": "function_call_output", "call_id": id, "output": output });
        format!("{}\n", json!({ "type": "response_item", "payload": payload }))
    };
    let rollout = line("r0", "Chunk ID: 1\nProcess exited with code 0\n") + &line("r1", refusal);
    let rollout = repository.program.file("rollout.jsonl", &rollout);
    let call = |event: &str, id: &str| {
        let mut payload = bash(event, id);
        payload["session_id"] = json!("c1");
        payload["cwd"] = json!(repository.root());
        payload["transcript_path"] = json!(rollout);
        repository.hook(&["codex"], &payload);
    };
    call("PreToolUse", "r1");
    call("PreToolUse", "k0");
    repository.write("one.txt", "1\n");
    call("PostToolUse", "k0");
    assert!(repository.events("ChangesShared").is_empty());
    let refused = &runs(&repository).ended[0];
    assert_eq!((&*refused.observed.id, refused.status), ("r1", CallStatus::Error));
    assert!(repository.program.run(&["undo", "repo", "--yes"]).ends_with("[exit 0]"));
    assert!(!repository.has("one.txt"));
}

#[test]
fn formatter_after_an_edit_is_undone_with_it() {
    let repository = Repository::with(&[("w.js", "one\n")]);
    let edit = json!({ "tool_name": "Write", "tool_use_id": "t1",
        "tool_input": { "file_path": repository.root().join("w.js"), "content": "two\n" } });
    repository.claude("PreToolUse", edit.clone());
    repository.write("w.js", "two\n");
    repository.claude("PostToolUse", edit);
    repository.write("w.js", "two;\n");
    repository.claude("Stop", json!({}));
    let call = runs(&repository).ended[0].call;
    assert_eq!(repository.events("WriteFile").pop().unwrap()["call"], json!(call));
    assert!(repository.program.run(&["undo", "repo", "--yes"]).ends_with("[exit 0]"));
    assert_eq!(repository.read("w.js"), "one\n");
}
