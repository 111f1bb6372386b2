//! Runs of other programs that are made again: `import --re-run`, `rerun --base`.

use std::fs;

use serde_json::{Value, json};

use crate::rig::{Program, told};

const DIRECTORY: &str = "/their/shop";

/// The lines of a call in a transcript of Claude Code, and of its result.
fn call(number: usize, tool: &str, input: Value, result: Value, is_error: bool) -> String {
    let line = |kind: &str, content: Value, result: Value| {
        let time = format!("2026-11-23T00:{:02}:{:02}.000Z", number, if kind == "user" { 30 } else { 0 });
        json!({ "sessionId": "5e55", "cwd": DIRECTORY, "timestamp": time, "type": kind, "uuid": time, "parentUuid": null,
            "isSidechain": false, "version": "2.1.197",
            "message": { "role": kind, "content": [content] }, "toolUseResult": result })
    };
    let id = format!("call-{number}");
    let shown = result.as_str().unwrap_or("ok").to_owned();
    let begun = line("assistant", json!({ "type": "tool_use", "id": id, "name": tool, "input": input }), Value::Null);
    let ended = json!({ "type": "tool_result", "tool_use_id": id, "content": shown, "is_error": is_error });
    format!("{begun}\n{}\n", line("user", ended, result))
}

fn bash(number: usize, command: &str, stdout: &str) -> String {
    let result = json!({ "stdout": stdout, "stderr": "", "interrupted": false });
    call(number, "Bash", json!({ "command": command }), result, false)
}

/// A run that edits a file, works in it by commands, and does what has no counterpart here.
fn transcript() -> String {
    let at = |name: &str| format!("{DIRECTORY}/{name}");
    let edits = json!([{ "old_string": "b", "new_string": "c" }, { "old_string": "return", "new_string": "yield" }]);
    let long = format!("cd {DIRECTORY}/sub\ncat a.txt # {}\nread line; echo \"<$line>\"", "x".repeat(5000));
    [
        bash(1, &format!("cd {DIRECTORY} && mkdir sub && cat calc.py && pwd"), "return a - b\n/their/shop"),
        call(2, "Read", json!({ "file_path": at("calc.py") }), json!({}), false),
        call(
            3,
            "Edit",
            json!({ "file_path": at("calc.py"), "old_string": "a - b", "new_string": "a + b" }),
            json!({ "filePath": at("calc.py"), "originalFile": "return a - b\n" }),
            false,
        ),
        call(
            4,
            "MultiEdit",
            json!({ "file_path": at("calc.py"), "edits": edits }),
            json!({ "filePath": at("calc.py"), "originalFile": "return a + b\n" }),
            false,
        ),
        call(5, "Write", json!({ "file_path": at("sub/a.txt"), "content": "one\n" }), json!({}), false),
        call(6, "Bash", json!({ "command": "echo oops; exit 3" }), json!("Exit code 3\noops"), true),
        bash(7, &long, "one\n<>"),
        call(8, "Bash", json!({ "command": "rm calc.py" }), json!("Permission to use Bash was refused"), true),
        call(9, "mcp__shop__order", json!({ "what": "tea" }), json!("done"), false),
        bash(10, "cat calc.py; ls missing", "yield a + c"),
        call(11, "Bash", json!({ "command": "sleep 60", "run_in_background": true }), json!({ "stdout": "" }), false),
    ]
    .concat()
}

fn program() -> (Program, String) {
    let program = Program::new();
    fs::create_dir(program.path("base")).unwrap();
    program.file("base/calc.py", "return a - b\n");
    let transcript = program.file("run.jsonl", transcript());
    (program, transcript)
}

fn verdicts(lines: &[Value]) -> Vec<(&str, &str)> {
    lines
        .iter()
        .map(|line| (line["tool"].as_str().unwrap_or("end"), line["verdict"].as_str().unwrap_or("end")))
        .collect()
}

#[test]
fn run_made_again_has_every_file_at_every_call() {
    let (program, transcript) = program();
    let output =
        program.output(&["--json", "import", &transcript, "--re-run", "--base", "base", "--backend", "host", "--yes"]);
    let lines: Vec<Value> =
        String::from_utf8(output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(output.status.code(), Some(1), "something differs");
    assert_eq!(
        verdicts(&lines),
        [
            ("Bash", "same"),
            ("Read", "skipped"),
            ("Edit", "same"),
            ("MultiEdit", "same"),
            ("Write", "same"),
            ("Bash", "same"),
            ("Bash", "same"),
            ("Bash", "skipped"),
            ("mcp__shop__order", "skipped"),
            ("Bash", "diverged"),
            ("Bash", "skipped"),
            ("end", "end")
        ],
        "{lines:#?}"
    );
    let differing: Vec<&str> =
        lines[9]["divergences"].as_array().unwrap().iter().map(|one| one["at"].as_str().unwrap()).collect();
    assert_eq!(differing, ["/output", "/exit_code"]);
    assert_eq!(lines[9]["divergences"][1]["was"], 0, "that of a success is known to be 0");
    assert_eq!((&lines[11]["same"], &lines[11]["files"]), (&json!(false), &Value::Null));

    assert_eq!(fs::read_to_string(program.path("base/calc.py")).unwrap(), "return a - b\n", "the base stays as it is");
    assert!(!program.path("base/sub").exists());
    let again = "claude-5e55-again";
    assert_eq!(program.printed(&["cat", again, "calc.py"]), "yield a + c\n");
    let edited = lines[2]["rerun"].as_u64().unwrap();
    let before = program.printed(&["cat", again, "calc.py", "--at", &(edited - 1).to_string()]);
    assert_eq!(before, "return a - b\n", "files of the base are there from the beginning");
    let found = program.run(&["bisect", again, "--", "grep", "-q", "a - b", "calc.py"]);
    assert!(found.contains("edit_file /calc.py"), "{found}");
    let log = program.printed(&["log", again]);
    let imported = program.json(&["sessions"])[0]["session"].as_str().unwrap().to_owned();
    assert!(log.contains(&format!("recorded.session {imported}")), "{log}");
}

#[test]
fn base_may_be_a_commit_and_is_told_by_what_there_is() {
    let (program, transcript) = program();
    let git = |arguments: &[&str]| {
        let mut git = std::process::Command::new("git");
        let named = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "init.defaultBranch=main"];
        let output = git.args(named).args(arguments).current_dir(program.path("")).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    git(&["init", "-q"]);
    git(&["add", "base/calc.py"]);
    program.file(".gitattributes", "base export-ignore\n");
    git(&["add", ".gitattributes"]);
    git(&["commit", "-q", "-m", "first"]);
    git(&["branch", "base"]);
    program.file("base/calc.py", "changed\n");
    let status = git(&["status", "--short", "--untracked-files=no"]);
    let import = |more: &[&str]| program.run(&[&["import", &transcript, "--re-run"], more].concat());
    let ambiguous = import(&["--base", "base", "--backend", "host"]);
    assert!(ambiguous.contains("use --base ./base or --base commit:base"), "{ambiguous}");
    let made = import(&["--base", "commit:base", "--backend", "host", "--yes", "--keep", "kept"]);
    assert!(made.contains("kept as session kept"), "{made}");
    assert_eq!(program.printed(&["cat", "kept", "base/calc.py", "--at", "5"]), "return a - b\n");
    assert_eq!(git(&["status", "--short", "--untracked-files=no"]), status, "the repository stays as it is");

    // No program of the repository runs, and what this process was told about another one does not count.
    let marker = program.path("ran");
    let hook = program.file(".git/hooks/post-index-change", format!("#!/bin/sh\ntouch '{}'\n", marker.display()));
    fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    git(&["config", "core.fsmonitor", &hook]);
    git(&["status"]);
    fs::remove_file(&marker).expect("a git that was not told otherwise runs it");
    let mut again = program.command(&["import", &transcript, "--re-run", "--base", "commit:base", "--backend", "host"]);
    let again = told(&again.arg("--yes").env("GIT_DIR", "/nowhere").output().unwrap());
    assert!(again.contains("calls: ") && !marker.exists(), "{again}");
    git(&["config", "--unset", "core.fsmonitor"]);

    let refused = [
        (&["--base", "nothing", "--backend", "host"][..], "no such directory, and no such commit here: nothing"),
        (&["--base", "commit:nothing", "--backend", "host"], "no such commit in the git repository here"),
        (&["--base", "image:x", "--backend", "host"], "requires --backend container"),
        (&["--base", "HEAD"], "no backend given for the transcript's commands"),
        (&["--backend", "host"], "--base"),
        (&["--base", "HEAD", "--backend", "host", "--keep", "kept", "--yes"], "a session called"),
    ];
    for (arguments, reason) in refused {
        let told = import(arguments);
        assert!(told.contains(reason) && !told.ends_with("[exit 0]"), "{arguments:?}: {told}");
    }
    let own = program.file("own.jsonl", r#"{"tool": "ls", "params": {}}"#);
    program.printed(&["run", &own]);
    let told = program.run(&["rerun", "own", "--base", "HEAD"]);
    assert!(told.contains("--base and --was-in are for"), "{told}");
}

#[test]
fn command_of_a_transcript_is_decided_as_any_other() {
    let (program, transcript) = program();
    let made = program.run(&["import", &transcript, "--re-run", "--base", "base", "--backend", "host"]);
    assert!(made.contains("and no approver is available") && made.contains("nothing was run"), "{made}");
    let denied =
        program.run(&["rerun", "claude-5e55", "--base", "base", "--backend", "host", "--yes", "--deny", "mkdir"]);
    assert!(denied.contains("mkdir"), "{denied}");
    assert!(denied.contains("; not made: 2 Bash, 1 Read, 1 mcp__shop__order"), "{denied}");
}

#[test]
fn run_in_container_finds_its_directory_and_that_of_the_image() {
    let Some(program) = Program::with_container() else { return };
    let lines = [
        json!({ "schema_version": "ATIF-v1.8", "trajectory_id": "t1", "agent": { "name": "terminus-2", "version": "1" },
            "steps": [{ "step_id": 1, "source": "agent", "message": "", "tool_calls": [
                { "tool_call_id": "c1", "function_name": "bash_command", "arguments": { "keystrokes": "pwd; ls .profile; echo x > made\n" } },
                { "tool_call_id": "c2", "function_name": "bash_command", "arguments": { "keystrokes": "cat /etc/skel/made; exit 4\n" } },
                { "tool_call_id": "c3", "function_name": "bash_command", "arguments": { "keystrokes": "C-c" } },
            ], "observation": { "results": [
                { "source_call_id": "c1", "content": "/etc/skel\n.profile" },
                { "source_call_id": "c2", "content": "x", "extra": { "is_error": true } },
                { "source_call_id": "c3", "content": "" },
            ] } }] }),
    ];
    let transcript = program.file("trajectory.json", lines[0].to_string());
    let kind = crate::engine::kind().name();
    let image = format!("image:{}", crate::engine::options().unwrap().image);
    let made = program.run(&[
        "import",
        &transcript,
        "--re-run",
        "--base",
        &image,
        "--backend",
        kind,
        "--was-in",
        "/etc/skel",
        "--yes",
    ]);
    assert!(made.contains("3 calls: none diverged, 1 skipped; not made: 1 bash_command"), "{made}");
    assert!(program.printed(&["cat", "terminus-2-t1-again", ".profile"]).contains("profile"), "{made}");
    assert_eq!(program.printed(&["cat", "terminus-2-t1-again", "made"]), "x\n", "{made}");
    let nowhere = program.run(&["import", &transcript, "--re-run", "--base", &image, "--backend", kind]);
    assert!(nowhere.contains("add --was-in DIR"), "{nowhere}");
}
