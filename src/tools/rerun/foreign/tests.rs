use serde_json::{Value, json};

use super::*;

fn run() -> ForeignRun {
    let mut run = ForeignRun { format: "codex".to_owned(), ..ForeignRun::default() };
    run.note(&Map::from_iter([("cwd".to_owned(), json!("/home/ada/shop"))]));
    run
}

fn own(tool: &str, params: Value) -> Result<Vec<OwnCall>, String> {
    let read = |path: &EntryPath| (path.rooted() == "/a.txt").then(|| "one\ntwo\n".to_owned());
    run().own_calls((tool, &params), None, &read, Duration::from_secs(600))
}

fn command(tool: &str, params: Value) -> Value {
    let calls = own(tool, params).unwrap();
    let [OwnCall { tool: "shell_execute", params }] = &calls[..] else { panic!("{calls:?}") };
    params.clone()
}

#[test]
fn foreign_commands_become_shell_calls() {
    for (tool, params) in [
        ("Bash", json!({ "command": "ls a", "description": "x" })),
        ("run_shell_command", json!({ "command": "ls a", "dir_path": "." })),
        ("exec_command", json!({ "cmd": "ls a", "workdir": "/home/ada/shop" })),
        ("shell", json!({ "command": ["bash", "-c", "ls a"] })),
        ("bash_command", json!({ "keystrokes": "ls a\n" })),
        ("local_shell", json!({ "command": ["bash", "-c", "ls a"], "working_directory": "/home/ada/shop/" })),
    ] {
        let made = command(tool, params);
        let words: Vec<&str> = made["command"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        assert_eq!((&words[..2], words[2].trim_end()), (&["bash", "-c"][..], "ls a"), "{tool}");
        assert!(made["cwd"].is_null() || made["cwd"] == "/", "{made}");
        assert_eq!(made["timeout_seconds"], 600.0);
    }
    let into = command("Bash", json!({ "command": "cd '/home/ada/shop/sub' && make" }));
    assert_eq!((&into["cwd"], &into["command"][2]), (&json!("/sub"), &json!("cd . && make")));
    let beside = command("shell", json!({ "command": ["bash", "-lc", "cd /home/ada/shopping; ls"] }));
    assert_eq!((&beside["cwd"], &beside["command"][2]), (&json!("/"), &json!("cd /home/ada/shopping; ls")));
    let long = command("Bash", json!({ "command": "x".repeat(5000) }));
    assert_eq!((&long["command"], long["stdin"].as_str().unwrap().len()), (&json!(["bash"]), 5017));
}

#[test]
fn foreign_edits_become_calls_of_file_tools() {
    let names = |tool, params| -> Vec<(&str, Value)> {
        own(tool, params).unwrap().into_iter().map(|call| (call.tool, call.params)).collect()
    };
    let write = json!({ "file_path": "/b", "content": "x", "mode": "overwrite" });
    assert_eq!(
        names("Write", json!({ "file_path": "/home/ada/shop/b", "content": "x" })),
        [("write_file", write.clone())]
    );
    assert_eq!(
        names("file_editor", json!({ "command": "create", "path": "b", "file_text": "x" })),
        [("write_file", write)]
    );
    let inserted =
        names("str_replace_editor", json!({ "command": "insert", "path": "a.txt", "insert_line": 1, "new_str": "x" }));
    assert_eq!(inserted[0].1["content"], "one\nx\ntwo\n");
    let edit = json!({ "file_path": "a.txt", "old_string": "one", "new_string": "1", "expected_replacements": 2 });
    assert_eq!(names("replace", edit)[0].1["replace_all"], true);
    let patch = "*** Begin Patch\n*** Update File: a.txt\n*** Move to: c.txt\n@@\n-one\n+1\n*** End Patch";
    for params in [json!({ "input": patch }), json!({ "command": ["apply_patch", patch] })] {
        let tool = if params["input"].is_string() { "apply_patch" } else { "shell" };
        let made = names(tool, params);
        assert_eq!((made[0].0, &made[0].1["content"]), ("write_file", &json!("1\ntwo\n")));
        assert_eq!(made[1], ("rm", json!({ "path": "/a.txt" })));
    }
    let misfit = names(
        "exec_command",
        json!({ "cmd": format!("apply_patch <<'EOF'\n{}\nEOF\n", patch.replace("-one", "-none")) }),
    );
    assert_eq!((misfit.len(), misfit[0].0), (1, "edit_file"), "which fails, and says why");
    let pieces = names("Write", json!({ "file_path": "b", "content": "ä".repeat(TEXT_MAX + 1) }));
    assert_eq!((pieces.len(), &pieces[1].1["mode"]), (2, &json!("append")));
}

#[test]
fn foreign_calls_that_are_not_made_have_a_reason() {
    for (tool, params) in [
        ("Read", json!({})),
        ("Agent", json!({})),
        ("Bash", json!({})),
        ("Bash", json!(null)),
        ("Bash", json!({ "command": " " })),
        ("Bash", json!({ "command": "x", "run_in_background": true })),
        ("bash_command", json!({ "keystrokes": "q" })),
        ("Write", json!({ "file_path": "/etc/passwd", "content": "x" })),
        ("Write", json!({ "file_path": "../x", "content": "x" })),
        ("Write", json!({ "file_path": "/home/ada/shop", "content": "x" })),
        ("apply_patch", json!({ "input": "*** Begin Patch" })),
        ("file_editor", json!({ "command": "undo_edit", "path": "a" })),
        ("NotebookEdit", json!({ "file_path": "a", "new_source": "x" })),
    ] {
        assert!(own(tool, params.clone()).is_err(), "{tool} {params}");
    }
}
