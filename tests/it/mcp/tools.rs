//! The workspace's tools.

use serde_json::{Value, json};

use super::write;
use crate::rig::Program;

fn names(client: &mut super::McpClient) -> Vec<String> {
    let tools = client.ask("tools/list", json!({}));
    let tools = tools["result"]["tools"].as_array().unwrap();
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn tool_groups_select_tools() {
    let program = Program::with_files();
    let mut client = program.on_host(&[]);
    let usual = "edit_file env evaluate_python execute_script glob grep ls process_list process_read process_signal \
                 process_start process_write read_file rm shell_execute which write_file";
    assert_eq!(names(&mut client).join(" "), usual);
    client.leave();
    let mut client = program.client(&["--tools", "shell,podman_shell", "--backend", "podman"]);
    let some = "env execute_script podman_shell process_list process_read process_signal process_start process_write \
                shell_execute which";
    assert_eq!(names(&mut client).join(" "), some);
    let answer = client.ask("tools/call", json!({ "name": "ls", "arguments": {} }));
    assert_eq!(answer["error"]["code"], -32602);
    assert_eq!(answer["error"]["message"], format!("tool ls not found; available: {}", some.replace(' ', ", ")));
    client.leave();
    let mut client = program.client(&["--tools", "all", "--backend", "podman"]);
    assert_eq!(names(&mut client).len(), 30);
    let refused = program.output(&["mcp", "--tools", "files,nothing"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("tool group \"nothing\" not found"));
}

#[test]
fn tools_have_the_servers_rules_for_commands() {
    let program = Program::with_files();
    let mut client = program.on_host(&["--yes", "--deny", "git push", "--max-timeout", "60"]);
    let refused = client.failed("shell_execute", json!({ "command": "git push origin" }));
    assert!(refused.contains("the policy denies commands like this"), "{refused}");
    let refused = client.failed("shell_execute", json!({ "command": "true", "timeout_seconds": 61 }));
    assert!(refused.contains("it must be from 1 to 60"), "{refused}");
    client.leave();
}

#[test]
fn tools_without_shell_are_not_listed() {
    let program = Program::with_files();
    let mut client = program.client(&["--tools", "files,shell,python,podman_shell"]);
    let all = ["edit_file", "evaluate_python", "glob", "grep", "ls", "read_file", "rm", "write_file"];
    assert_eq!(names(&mut client), all, "Python runs in process");
    let refused = client.failed("shell_execute", json!({ "command": "ls" }));
    assert!(refused.contains("the memory workspace has none"), "called all the same it says why: {refused}");
    client.leave();
    let mut client = program.on_host(&["--tools", "shell,podman_shell"]);
    let some =
        "env execute_script process_list process_read process_signal process_start process_write shell_execute which";
    assert_eq!(names(&mut client).join(" "), some);
    client.leave();
    let mut client = program.client(&["--session", "test-client", "--tools", "shell"]);
    assert!(names(&mut client).is_empty(), "its session began in memory");
}

/// `readOnlyHint`, `destructiveHint`, `idempotentHint` and `openWorldHint` of each tool.
fn hints(client: &mut super::McpClient) -> Vec<(String, [bool; 4])> {
    let tools = client.ask("tools/list", json!({}));
    let hints = tools["result"]["tools"].as_array().unwrap().iter().map(|tool| {
        let hint = |name: &str| tool["annotations"][name].as_bool().unwrap();
        let all = ["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"].map(hint);
        (tool["name"].as_str().unwrap().to_owned(), all)
    });
    hints.collect()
}

#[test]
fn tool_annotations_match_effects() {
    let (program, another) = (Program::with_files(), Program::with_files());
    let mut closed = program.client(&["--tools", "files,shell,sessions", "--backend", "podman"]);
    let mut open = another.on_host(&["--tools", "files,shell"]);
    let (closed, open) = (hints(&mut closed), hints(&mut open));
    let of = |hints: &[(String, [bool; 4])], name: &str| hints.iter().find(|(tool, _)| tool == name).unwrap().1;
    assert_eq!(of(&closed, "process_read"), [true, false, true, false]);
    assert_eq!(of(&closed, "process_signal"), [false, true, false, false]);
    for name in ["ls", "read_file", "glob", "grep", "session_log", "session_state", "session_diff", "sql"] {
        assert_eq!(of(&closed, name), [true, false, true, false], "{name}");
    }
    for name in ["write_file", "edit_file", "execute_script"] {
        assert_eq!(of(&closed, name), [false, true, false, false], "{name}");
    }
    assert_eq!(of(&closed, "which"), [false, false, true, false]);
    assert_eq!(of(&closed, "rm"), [false, true, true, false]);
    assert_eq!(of(&closed, "shell_execute"), [false, true, false, false]);
    assert_eq!(of(&open, "shell_execute"), [false, true, false, true], "it reaches this machine");
    assert_eq!(of(&open, "rm"), [false, true, true, false], "it never leaves the workspace");
    assert_eq!(of(&closed, "session_clone"), [false, false, false, false]);
    assert_eq!(of(&closed, "session_merge"), [false, true, false, false]);
}

#[test]
fn child_runs_commands_where_parent_does() {
    let program = Program::with_files();
    let mut client = program.on_host(&["--session", "main"]);
    client.done("ls", json!({}));
    client.leave();
    for isolation in ["shared", "fork", "full"] {
        let mut client = program.start(&["--session", "main", "--isolation", isolation]);
        let info = json!({ "name": "x", "version": "1" });
        let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info });
        let told = client.ask("initialize", hello)["result"]["instructions"].clone();
        assert!(told.as_str().unwrap().contains("Commands run on this machine"), "{isolation}: {told}");
        let hints = hints(&mut client);
        assert!(hints.iter().find(|(tool, _)| tool == "shell_execute").unwrap().1[3], "{isolation}");
    }
}

#[test]
fn tool_schemas_are_objects() {
    let program = Program::with_files();
    let mut client = program.client(&["--tools", "all"]);
    let tools = client.ask("tools/list", json!({}));
    for tool in tools["result"]["tools"].as_array().unwrap() {
        assert_eq!(tool["inputSchema"]["type"], "object", "{tool}");
        assert_eq!(tool["outputSchema"]["type"], "object", "{tool}");
        assert_eq!(tool["inputSchema"]["additionalProperties"], false, "{tool}");
        for (name, param) in tool["inputSchema"]["properties"].as_object().unwrap() {
            let is_told = param["description"].is_string() || param["$ref"].is_string() || param["anyOf"].is_array();
            assert!(is_told, "{}: {name}: {param}", tool["name"]);
        }
    }
}

#[test]
fn tools_can_all_be_called() {
    let program = Program::with_files();
    let mut client = program.on_host(&["--allow", "python3", "--allow", "cat"]);
    assert_eq!(client.done("write_file", write("src/a.txt", "one\ntwo\n"))["version"], 1);
    assert_eq!(client.done("read_file", json!({ "file_path": "src/a.txt" }))["content"], "one\ntwo\n");
    let edit = json!({ "file_path": "src/a.txt", "old_string": "two", "new_string": "zwei" });
    assert_eq!(client.done("edit_file", edit)["replacements"], 1);
    assert_eq!(client.done("ls", json!({ "path": "src" }))["entries"][0]["name"], "a.txt");
    assert_eq!(client.done("glob", json!({ "pattern": "**/*.txt" }))["matches"], json!(["/src/a.txt"]));
    assert_eq!(client.done("grep", json!({ "pattern": "zwei" }))["matches"][0]["line_number"], 2);
    assert_eq!(client.done("shell_execute", json!({ "command": "cat src/a.txt" }))["stdout"], "one\nzwei\n");
    assert_eq!(client.done("evaluate_python", json!({ "code": "print(6 * 7)" }))["stdout"], "42\n");
    client.done("rm", json!({ "path": "src" }));
    assert!(!program.files().join("src").exists());
    let calls = world_calls(&program, client);
    assert!(calls.iter().all(|call| call["agent"] == "Test Client" && call["status"] == "ok"), "{calls:?}");
    assert_eq!(calls.len(), 9);
}

fn world_calls(program: &Program, client: super::McpClient) -> Vec<Value> {
    client.leave();
    program.json_lines(&["log", "test-client", "--calls"])
}

#[test]
fn tool_errors_say_what_to_do() {
    let program = Program::with_files();
    let mut client = program.client(&[]);
    assert_eq!(client.failed("read_file", json!({ "file_path": "nope" })), "/nope does not exist");
    let wrong = client.failed("read_file", json!({ "path": "nope" }));
    assert!(wrong.starts_with("invalid parameters for read_file: unknown field `path`"), "{wrong}");
    assert!(client.failed("read_file", json!({ "file_path": "../x" })).contains("are not allowed"));
    let nothing = client.failed("shell_execute", json!({ "command": "echo" }));
    assert!(nothing.contains("memory"), "{nothing}");
    let answer = client.ask("tools/call", json!({ "name": "rm -rf", "arguments": {} }));
    assert_eq!(answer["error"]["code"], -32602);
    for params in [json!({}), json!({ "name": 5 }), json!({ "name": "ls", "arguments": "x" }), json!([])] {
        assert_eq!(client.ask("tools/call", params)["error"]["code"], -32602);
    }
}

#[test]
fn client_called_like_its_kit_is_named_after_its_directory() {
    let program = Program::with_files();
    std::fs::create_dir(program.path("My Project")).unwrap();
    let mut client = program.start_in(&program.path("My Project"), &[]);
    let info = json!({ "name": "mcp", "version": "0.1.0" });
    client.ask("initialize", json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info }));
    client.notify("notifications/initialized", json!({}));
    client.done("write_file", write("a.txt", "one\n"));
    client.leave();
    assert_eq!(program.sessions(), ["my-project"]);
    assert!(program.json_lines(&["log", "my-project", "--calls"])[0].to_string().contains("My Project"), "the agent");
}
