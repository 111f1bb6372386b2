//! Paths as the agent sees them.

use serde_json::{Value, json};

use crate::rig::Program;

/// Makes calls, and returns their outcomes.
fn calls(program: &Program, backend: &str, calls: &[(&str, Value)]) -> Vec<Value> {
    let lines = calls.iter().map(|(tool, params)| json!({ "tool": tool, "params": params }).to_string());
    let script = program.file("calls.jsonl", lines.collect::<Vec<_>>().join("\n"));
    let name = format!("on-{backend}");
    let run = ["run", &script, "--session", &name, "--backend", backend, "--yes", "--keep-going", "--json"];
    let output = program.output(&run);
    let lines = String::from_utf8(output.stdout).unwrap();
    lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|line: &Value| line["tool"] != Value::Null)
        .collect()
}

#[test]
fn workspace_is_the_root_on_every_backend() {
    let program = Program::new();
    for backend in ["memory", "host"] {
        let write = |path: &str| ("write_file", json!({ "file_path": path, "content": path }));
        let told = calls(
            &program,
            backend,
            &[
                write("/workspace/a.txt"),
                write("/workspace/workspace/b.txt"),
                write("workspace/c.txt"),
                ("read_file", json!({ "file_path": "/workspace/a.txt" })),
                ("edit_file", json!({ "file_path": "/workspace/a.txt", "old_string": "a.txt", "new_string": "b.txt" })),
                ("ls", json!({ "path": "/workspace" })),
                ("rm", json!({ "path": "/workspace" })),
                write("/tmp/out"),
                ("read_file", json!({ "file_path": "/tmp/out" })),
            ],
        );
        let status: Vec<_> = told.iter().map(|call| call["status"].as_str().unwrap()).collect();
        let (ok, error) = ("ok", "error");
        assert_eq!(status, [ok, ok, ok, ok, ok, ok, error, error, error], "{backend}: {told:?}");
        assert!(told[8].to_string().contains("only commands reach /tmp"), "{told:?}");
        let name = format!("on-{backend}");
        let listed = program.printed(&["ls", &name, "-R"]);
        for path in ["a.txt", "workspace/b.txt", "workspace/c.txt"] {
            assert!(listed.contains(path), "{backend}: {listed}");
        }
    }
}

#[test]
fn command_begins_below_workspace_or_tmp() {
    let program = Program::new();
    let there = |cwd: &str| ("shell_execute", json!({ "command": "basename \"$PWD\"", "cwd": cwd }));
    let told = calls(
        &program,
        "host",
        &[
            ("write_file", json!({ "file_path": "sub/f", "content": "x" })),
            there("/workspace"),
            there("/workspace/sub"),
            there("/tmp"),
            ("shell_execute", json!({ "command": ["basename", "a b/c d"], "cwd": "/tmp" })),
            there("/tmp/there/is/none"),
            there("/tmp/../etc"),
            there("/etc"),
        ],
    );
    let printed = |at: usize| told[at]["result"]["stdout"].as_str().unwrap_or_default().trim().to_owned();
    assert_eq!([2, 3, 4].map(printed), ["sub", "tmp", "c d"], "{told:?}");
    assert_eq!((&told[1]["status"], &told[3]["result"]["cwd"]), (&json!("ok"), &json!("/tmp")));
    assert_ne!(told[5]["result"]["exit_code"], 0, "{told:?}");
    assert_eq!((&told[6]["status"], &told[7]["status"]), (&json!("error"), &json!("error")), "{told:?}");
}
