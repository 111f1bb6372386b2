//! Clients of the owner in another sandbox than it is in: no way leads them out.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::rig::{Program, eventually, report_skip, told};

/// Programs that begin another one with less than they have.
const LESS: [&[&str]; 3] =
    [&["unshare", "--net"], &["setpriv", "--no-new-privs"], &["unshare", "--net", "setpriv", "--no-new-privs"]];
/// Operations that are not for strangers. Those that are new belong to them until they are named in
/// `src/hub/operations/strangers.rs`.
const CLOSED: [&str; 12] = [
    "apply",
    "attach_directory",
    "detach_directory",
    "list_attached",
    "list_mounts",
    "mount_session",
    "move_session",
    "open_page",
    "remove_policy",
    "report_hook",
    "set_policy",
    "unmount",
];

/// All groups of tools.
const ALL: &str = "files,shell,python,sessions";

/// A program with a session on the host, with two files, and a directory in which strangers want to write.
fn world() -> Program {
    let program = Program::new().through_owner();
    let write = |path: &str| json!({ "tool": "write_file", "params": { "file_path": path, "content": "x" } });
    let script = program.file("box.jsonl", format!("{}\n{}\n", write("a"), write("b")));
    program.printed(&["run", &script, "--backend", "host"]);
    program.printed(&["exec", "box", "--", "true"]);
    fs::create_dir(program.path("marks")).unwrap();
    program
}

fn marks(program: &Program) -> Vec<String> {
    let marks = fs::read_dir(program.path("marks")).unwrap();
    marks.map(|mark| mark.unwrap().file_name().into_string().unwrap()).collect()
}

/// Runs a program with less than this process has.
fn within(less: &[&str], inner: &Command, input: &str) -> String {
    let mut command = Command::new(less[0]);
    command.args(&less[1..]).arg(inner.get_program()).args(inner.get_args()).env_clear();
    command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    if let Some(directory) = inner.get_current_dir() {
        command.current_dir(directory);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // It may end without reading.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    told(&child.wait_with_output().unwrap())
}

/// Sends requests as a stranger. Returns the status and the text of each answer.
fn asked(program: &Program, less: &[&str], requests: &[(&str, String, Value)]) -> Vec<(u64, String)> {
    let mut python = Command::new("python3");
    python.arg("-c").arg(include_str!("strangers.py")).arg(program.data().join("http.sock"));
    python.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    let answers = within(less, &python, &serde_json::to_string(requests).unwrap());
    let answers = answers.strip_suffix("\n[exit 0]").unwrap_or_else(|| panic!("{answers}"));
    serde_json::from_str(answers).unwrap()
}

fn is_refused((status, text): &(u64, String)) -> bool {
    *status == 409 && text.contains("differs")
}

#[test]
fn stranger_reaches_only_operations_named_harmless() {
    if !rustix::process::geteuid().is_root() {
        return report_skip("a namespace takes root");
    }
    let program = world();
    let api: Value = serde_json::from_str(include_str!("../../../docs/openapi.json")).unwrap();
    let (mut names, mut requests) = (Vec::new(), Vec::new());
    for (path, methods) in api["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap().iter().filter(|(method, _)| *method != "parameters") {
            let name = operation["operationId"].as_str().unwrap();
            // It ends the server, for whoever asks.
            if name == "stop_server" {
                continue;
            }
            // No such session: what is let through changes nothing.
            let path = path.replace("{session}", "none").replace("{path}", "a").replace("{stream}", "stdout");
            let path = ["{call}", "{process}", "{seq}"].iter().fold(path, |path, name| path.replace(name, "1"));
            let body = if method == "get" { Value::Null } else { json!({}) };
            names.push(name);
            requests.push((method.to_uppercase(), path, body));
        }
    }
    let requests: Vec<_> =
        requests.iter().map(|(method, path, body)| (&**method, path.clone(), body.clone())).collect();
    for less in LESS {
        let answers = asked(&program, less, &requests);
        let mut refused: Vec<&str> =
            names.iter().zip(&answers).filter(|(_, answer)| is_refused(answer)).map(|(name, _)| *name).collect();
        refused.sort_unstable();
        assert_eq!(refused, CLOSED, "{less:?}");
    }
}

#[test]
fn stranger_gets_no_command_and_no_directory_of_the_host() {
    if !rustix::process::geteuid().is_root() {
        return report_skip("a namespace takes root");
    }
    let program = world();
    let mark = |name: &str| program.path("marks").join(name).to_string_lossy().into_owned();
    let touch = |name: &str| format!("touch {}", mark(name));
    // A person's own process, which runs what it is sent.
    let shell = json!({ "command": "sh", "input": true, "auto_confirm": true });
    let begun = asked(&program, &["env"], &[("POST", "/v1/sessions/box/processes".to_owned(), shell)]);
    assert_eq!(begun[0].0, 201, "{begun:?}");
    let process = serde_json::from_str::<Value>(&begun[0].1).unwrap()["process"].clone();
    let command =
        |name: &str| json!({ "tool": "shell_execute", "params": { "command": touch(name) }, "auto_confirm": true });
    let post = |path: &str, body: Value| ("POST", format!("/v1/sessions/box/{path}"), body);
    let requests = [
        post("calls", command("call")),
        post("processes", json!({ "command": touch("process"), "auto_confirm": true })),
        post("bisect", json!({ "command": ["sh", "-c", touch("bisect")], "allow": ["sh"], "auto_confirm": true })),
        // For whatever another client asks.
        post("calls/1/answer", json!({ "answer": "once" })),
        post("rerun", json!({ "auto_confirm": true })),
        post(&format!("processes/{process}/input"), json!({ "text": touch("input") + "\n" })),
        post(&format!("processes/{process}/signal"), json!({ "signal": "KILL" })),
        ("POST", "/v1/ui".to_owned(), json!({})),
        post("mounts", json!({ "mounts": [{ "host_path": mark("") }], "allow_roots": [mark("")] })),
        post("apply", json!({ "to": mark(""), "allow_roots": [mark("")] })),
        ("POST", "/v1/sessions".to_owned(), {
            let options = json!({ "directory": mark("") });
            json!({ "backend": "host", "options": options, "allow_roots": [mark("")] })
        }),
    ];
    let import = program.file("import.jsonl", "{}");
    for less in LESS {
        let answers = asked(&program, less, &requests);
        for (request, answer) in requests.iter().zip(&answers) {
            assert!(answer.1.contains("differs"), "{less:?} {request:?}: {answer:?}");
        }
        let words = |words: &[&str]| within(less, &program.command(words), "");
        let run = program.file(
            "more.jsonl",
            json!({ "tool": "write_file", "params": { "file_path": "mark", "content": "x" } }).to_string(),
        );
        for line in [
            &["run", &run, "--session", "out", "--backend", "host", "--dir", &mark("")][..],
            &["shell", "box", "--", "touch", &mark("shell")],
            &["import", &import],
        ] {
            let refused = words(line);
            assert!(!refused.ends_with("[exit 0]"), "{less:?} {line:?}: {refused}");
        }
    }
    assert_eq!(marks(&program), Vec::<String>::new());
    let own = post(&format!("processes/{process}/input"), json!({ "text": touch("own") + "\n" }));
    let sent = asked(&program, &["env"], &[own]);
    assert_eq!(sent[0].0, 204, "{sent:?}");
    eventually("its own client still commands the process", || marks(&program) == ["own"]);
}

#[test]
fn stranger_has_no_directory_that_the_server_allows() {
    if !rustix::process::geteuid().is_root() {
        return report_skip("a namespace takes root");
    }
    let program = world();
    program.printed(&["stop"]);
    let root = program.path("marks").to_string_lossy().into_owned();
    let _served = program.spawn(&["serve", "--allow-root", &root]);
    let socket = program.data().join("http.sock");
    eventually("it serves", || std::os::unix::net::UnixStream::connect(&socket).is_ok());
    let new = |name: &str| json!({ "name": name, "backend": "host", "options": { "directory": root } });
    let requests = [("POST", "/v1/sessions".to_owned(), new("theirs"))];
    for less in LESS {
        let (status, text) = asked(&program, less, &requests).remove(0);
        assert!((400..500).contains(&status), "{less:?}: {status} {text}");
    }
    let own = asked(&program, &["env"], &[("POST", "/v1/sessions".to_owned(), new("own"))]);
    assert_eq!(own[0].0, 201, "{own:?}");
}

#[test]
fn stranger_records_nothing_in_the_store() {
    if !rustix::process::geteuid().is_root() {
        return report_skip("a namespace takes root");
    }
    let program = world();
    let exported = program.path("exported").to_string_lossy().into_owned();
    program.printed(&["export", "box", "-o", &exported]);
    program.printed(&["run", &program.file("other.jsonl", ""), "--session", "other"]);
    program.printed(&["remove", "--yes", "box"]);
    for less in LESS {
        let refused = within(less, &program.command(&["import", &exported]), "");
        assert!(refused.contains("can only read") && !refused.ends_with("[exit 0]"), "{less:?}: {refused}");
        let read = within(less, &program.command(&["sessions"]), "");
        assert!(read.contains("other") && read.ends_with("[exit 0]"), "{less:?}: {read}");
    }
    assert_eq!(program.json(&["sessions"]).as_array().unwrap().len(), 1);
}

#[test]
fn mcp_client_in_another_sandbox_gets_no_command_by_any_tool() {
    if !rustix::process::geteuid().is_root() {
        return report_skip("a namespace takes root");
    }
    let program = world();
    let mark = |name: &str| program.path("marks").join(name).to_string_lossy().into_owned();
    let message = |id: u32, method: &str, params: Value| {
        json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string() + "\n"
    };
    let about =
        json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    let begin = message(1, "initialize", about)
        + &json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string()
        + "\n";
    let ask = |less: &[&str], options: &[&str], messages: &str| {
        within(less, &program.command(&[&["mcp"], options].concat()), &(begin.clone() + messages))
    };
    let listed = ask(&["env"], &["--session", "box", "--tools", ALL], &message(2, "tools/list", json!({})));
    let listed =
        listed.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).find(|line| line["id"] == 2);
    let listed = listed.unwrap()["result"]["tools"].clone();
    let tools: Vec<&str> = listed.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert!(tools.len() > 15 && tools.contains(&"session_bisect"), "{tools:?}");
    let touch = |tool: &str| format!("touch {}", mark(tool));
    let calls: String = (10..)
        .zip(&tools)
        .map(|(id, tool)| {
            // What no tool knows is refused; so each gets only what it may take.
            let known =
                &listed.as_array().unwrap().iter().find(|known| known["name"] == **tool).unwrap()["inputSchema"];
            let given = [
                ("command", json!(touch(tool))),
                ("script", json!(touch(tool))),
                ("code", json!(format!("open('{}', 'w')", mark(tool)))),
                ("file_path", json!(mark(tool))),
                ("content", json!("x")),
            ];
            let given = given.into_iter().filter(|(name, _)| known["properties"].get(name).is_some());
            let arguments: serde_json::Map<String, Value> =
                given.map(|(name, value)| (name.to_owned(), value)).collect();
            message(id, "tools/call", json!({ "name": tool, "arguments": arguments }))
        })
        .collect();
    for less in LESS {
        let answers = ask(less, &["--session", "box", "--tools", ALL, "--yes"], &calls);
        assert!(answers.contains("differs"), "{less:?}: {answers}");
        assert_eq!(marks(&program), Vec::<String>::new(), "{less:?}: {answers}");
        let refused = ask(less, &["--session", "new", "--backend", "host", "--dir", &mark("")], "");
        assert!(refused.contains("differs"), "{less:?}: {refused}");
    }
}
