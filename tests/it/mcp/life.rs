//! When sessions begin and end, and how they are called.

use std::collections::BTreeSet;

use serde_json::json;

use super::write;
use crate::rig::Program;

#[test]
fn client_without_calls_creates_no_session() {
    let program = Program::with_files();
    let mut client = program.client(&[]);
    for list in ["tools/list", "resources/list", "resources/templates/list", "prompts/list", "ping"] {
        assert!(client.ask(list, json!({})).get("result").is_some(), "{list}");
    }
    client.leave();
    assert!(program.sessions().is_empty());
}

#[test]
fn client_session_is_named_after_it() {
    let program = Program::with_files();
    for _ in 0..2 {
        let mut client = program.client(&[]);
        client.done("write_file", write("a.txt", "one"));
        client.leave();
    }
    assert_eq!(program.sessions(), ["test-client", "test-client-2"]);
}

#[test]
fn named_session_is_continued() {
    let program = Program::with_files();
    let mut client = program.on_host(&["--session", "nightly", "--agent", "first"]);
    client.done("write_file", write("a.txt", "one"));
    client.leave();
    assert_eq!(std::fs::read_to_string(program.files().join("a.txt")).unwrap(), "one");
    let mut client = program.client(&["--session", "nightly", "--agent", "second"]);
    assert_eq!(client.done("read_file", json!({ "file_path": "a.txt" }))["content"], "one");
    client.leave();
    let agents: Vec<_> =
        program.json_lines(&["log", "nightly", "--calls"]).iter().map(|call| call["agent"].clone()).collect();
    assert_eq!(agents, ["first", "second"]);
    let mut other = program.client(&["--session", "nightly", "--backend", "memory"]);
    assert!(other.failed("ls", json!({})).contains("session nightly began with another workspace, on host"));
}

#[test]
fn client_can_work_in_a_child() {
    let program = Program::with_files();
    let mut client = program.client(&["--session", "main"]);
    client.done("write_file", write("a.txt", "one"));
    client.leave();
    let mut fork = program.client(&["--session", "main", "--isolation", "fork"]);
    assert_eq!(fork.done("read_file", json!({ "file_path": "a.txt" }))["content"], "one");
    fork.done("write_file", write("b.txt", "two"));
    fork.leave();
    let mut full = program.client(&["--session", "main", "--isolation", "full"]);
    assert_eq!(full.done("ls", json!({}))["entries"], json!([]));
    full.leave();
    assert_eq!(program.sessions(), ["main", "main-1", "main-2"]);
    let files = String::from_utf8(program.output(&["ls", "main"]).stdout).unwrap();
    assert!(files.contains("a.txt") && !files.contains("b.txt"), "{files}");
    let mut nothing = program.client(&["--session", "other", "--isolation", "fork"]);
    assert!(nothing.failed("ls", json!({})).contains("no session is called \"other\""));
}

#[test]
fn mounts_are_copied_and_announced() {
    let program = Program::with_files();
    std::fs::write(program.files().join("readme.md"), "hello").unwrap();
    let mut client = program.client(&["--mount", "files:/project"]);
    let prompt = client.ask("prompts/get", json!({ "name": "workspace" }));
    let text = prompt["result"]["messages"][0]["content"]["text"].as_str().unwrap().to_owned();
    assert!(text.contains("readme.md") && text.contains("read_file"), "{text}");
    assert_eq!(client.done("read_file", json!({ "file_path": "project/readme.md" }))["content"], "hello");
    assert_eq!(client.ask("prompts/get", json!({ "name": "nope" }))["error"]["code"], -32602);
}

#[test]
fn prompt_names_the_tools_that_are_offered() {
    let program = Program::with_files();
    let backends: [&[&str]; 3] = [&[], &["--backend", "host"], &["--backend", "mock"]];
    for (number, backend) in backends.iter().enumerate() {
        for (at, groups) in
            ["files,shell,python", "files", "python", "all", "podman_shell", "sessions"].iter().enumerate()
        {
            let name = format!("s{number}-{at}");
            let options = [&["--session", &name, "--tools", groups], *backend].concat();
            let mut client = program.client(&options);
            let prompt = client.ask("prompts/get", json!({ "name": "workspace" }));
            let text = prompt["result"]["messages"][0]["content"]["text"].as_str().unwrap().to_owned();
            let line = text.lines().find_map(|line| line.strip_prefix("Tools: ")).unwrap_or_default();
            let named: BTreeSet<&str> =
                line.split('.').next().unwrap().split(", ").filter(|name| !name.is_empty()).collect();
            let listed = client.ask("tools/list", json!({}));
            let listed =
                listed["result"]["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap());
            // Tools of the workspace alone.
            let is_other = |name: &str| name.starts_with("session_") || ["dispatch_subagents", "sql"].contains(&name);
            let listed: BTreeSet<&str> = listed.filter(|name| !is_other(name)).collect();
            assert_eq!(named, listed, "{options:?}: {text}");
            let about_python = text.contains("Python code is");
            assert_eq!(about_python, listed.contains("evaluate_python"), "{options:?}: {text}");
            let about_time = text.contains("timeout_seconds");
            assert_eq!(about_time, listed.contains("shell_execute"), "{options:?}: {text}");
        }
    }
}

#[test]
fn requests_before_end_of_input_are_answered() {
    let program = Program::with_files();
    let mut client = program.client(&[]);
    let ids: Vec<u64> = (0..50)
        .map(|number| {
            let arguments = write(&format!("{number}.txt"), "x");
            client.request("tools/call", json!({ "name": "write_file", "arguments": arguments }))
        })
        .collect();
    client.input = None;
    for id in ids {
        assert_eq!(client.answer(id)["result"]["isError"], false);
    }
    assert!(client.child.0.wait().unwrap().success());
}

#[test]
fn process_outlives_the_client_that_started_it() {
    let program = Program::with_files().through_owner();
    let mut client = program.on_host(&["--session", "main", "--yes"]);
    let script = "echo ready; read line; echo \"got $line\"";
    let started = client.done("process_start", json!({ "command": script, "input": true }));
    let process = started["process"].as_u64().unwrap();
    let left = json!({ "command": "sleep 1; echo late", "background_after_seconds": 0.1 });
    let left = client.done("shell_execute", left)["process"].as_u64().unwrap();
    client.leave();
    let mut client = program.on_host(&["--session", "main", "--yes"]);
    let read = client.done("process_read", json!({ "process": process, "wait_seconds": 60 }));
    assert_eq!((&read["stdout"], &read["process"]["running"]), (&json!("ready\n"), &json!(true)), "{read}");
    client.done("process_write", json!({ "process": process, "text": "again\n" }));
    let end = json!({ "process": process, "from": 6, "wait_seconds": 60, "until_end": true });
    let end = client.done("process_read", end);
    assert_eq!((&end["stdout"], &end["process"]["exit_code"]), (&json!("got again\n"), &json!(0)), "{end}");
    let late = client.done("process_read", json!({ "process": left, "wait_seconds": 60, "until_end": true }));
    assert_eq!(late["stdout"], "late\n", "{late}");
    client.leave();
    let log = program.printed(&["log", "main"]);
    assert!(log.contains("process_start") && log.contains("end_process"), "{log}");
}

#[test]
fn process_that_is_not_allowed_is_not_started() {
    let program = Program::with_files();
    let mut client = program.on_host(&[]);
    let refused = client.failed("process_start", json!({ "command": "sh", "input": true }));
    assert!(refused.contains("approv") || refused.contains("ask"), "{refused}");
    assert_eq!(client.done("process_list", json!({}))["processes"], json!([]));
    client.leave();
}

#[test]
fn policy_binds_the_sessions_that_a_client_begins() {
    let program = Program::with_files();
    let policy = program.file("policy.json", r#"{"write": ["src/"], "section_text": "{tools}!"}"#);
    let mut client = program.client(&["--policy", &policy]);
    client.done("write_file", write("src/a.txt", "one"));
    assert!(client.failed("write_file", write("b.txt", "two")).contains("src/"));
    client.leave();
    let section = program.json(&["policy", "test-client"])["policy"]["section_text"].clone();
    assert_eq!(section, "{tools}!");
}
