//! Texts for a person about calls, files and histories: short, and nothing of it missing.

use insta::assert_snapshot;
use serde_json::json;

use crate::rig::Program;

/// A world in which these calls were made on this machine's disk, in session `work`.
fn with_calls(calls: &[serde_json::Value]) -> Program {
    let program = Program::new();
    let lines: Vec<String> = calls.iter().map(ToString::to_string).collect();
    let script = program.file("work.jsonl", lines.join("\n"));
    let ran = program.run(&["run", &script, "--backend", "host", "--session", "work", "--yes", "--keep-going"]);
    assert!(ran.contains("session work"), "{ran}");
    program
}

fn command(command: impl Into<serde_json::Value>) -> serde_json::Value {
    json!({ "tool": "shell_execute", "params": { "command": command.into() } })
}

#[test]
fn log_shortens_command_over_256_bytes() {
    let long = "x".repeat(300);
    let program = with_calls(&[
        command(format!("cat > f.py <<'EOF'\nprint(1)\n# {long}\nEOF")),
        command(json!(["echo", long])),
        json!({ "tool": "grep", "params": { "pattern": format!("needle|{long}"), "path": "/" } }),
        json!({ "tool": "evaluate_python", "params": { "code": format!("print(2)\n# {long}") } }),
    ]);
    for arguments in [&["log", "work", "--calls"][..], &["log", "work"], &["rerun", "work", "--yes"]] {
        let told = program.run(arguments);
        let words: String = told.split_whitespace().collect::<Vec<_>>().join(" ");
        for begin in [
            "shell_execute cat > f.py <<'EOF'...",
            "shell_execute echo xxxx",
            "grep 'needle|xxx",
            "evaluate_python print(2)...",
        ] {
            assert!(words.contains(begin), "{arguments:?}: no {begin:?} in {told}");
        }
        assert!(told.lines().all(|line| line.len() < 250), "{told}");
    }
    let found = program.run(&["bisect", "work", "--slice", "VirtualFileSystem./f.py exists"]);
    assert!(found.contains("cat > f.py <<'EOF'..."), "{found}");
}

#[test]
fn log_calls_names_what_each_call_changed() {
    let program = with_calls(&[
        json!({ "tool": "write_file", "params": { "file_path": "a.txt", "content": "1" } }),
        command("mkdir src && for i in 1 2 3 4; do echo $i > src/$i; done && echo 2 > a.txt"),
        command("rm src/1 && echo new > src/2 && echo come > gone && rm gone"),
        command("true"),
    ]);
    let told = program.run(&["log", "work", "--calls"]);
    let line =
        |part: &str| told.lines().find(|line| line.contains(part)).unwrap_or_else(|| panic!("{told}")).to_owned();
    assert!(line("write_file").ends_with("a.txt  +1"), "{told}");
    assert!(line("mkdir src").ends_with("  +4 ~1 a.txt, src/1, src/2, ..."), "{told}");
    assert!(line("rm src/1").ends_with("  ~1 -1 src/1, src/2"), "{told}");
    assert!(line("true").ends_with("  true"), "{told}");
}

#[test]
fn log_of_mount_is_one_line() {
    let program = Program::new();
    for number in 0..20 {
        program.file(&format!("m/{number}"), "x");
    }
    let script = program
        .file("s.jsonl", json!({ "tool": "write_file", "params": { "file_path": "new", "content": "" } }).to_string());
    let mount = program.path("m").to_string_lossy().into_owned();
    program.printed(&["run", &script, "--mount", &mount, "--session", "work"]);
    assert_snapshot!(program.printed(&["log", "work"]), @"
      1  [time]  SessionStarted  -      -         work on memory
      2  [time]  MountHydrated   -      -         [dir]/m at /: 20 files, 20 B
    ...  20 entries at 3 to 22; --path '**' shows each
     23  [time]  CallStarted     #23    -         write_file new
     24  [time]  WriteFile       #23    -         create /new  0 B
     25  [time]  CallFinished    #23    -         ok in [duration]
    ");
    assert_eq!(program.printed(&["log", "work", "--path", "**"]).lines().count(), 21);
    assert_eq!(program.json_lines(&["log", "work"]).len(), 25, "a program gets every event");
    assert_eq!(program.printed(&["log", "work", "--limit", "4"]).lines().count(), 4);
}

#[test]
fn grep_accepts_both_line_ends() {
    let program = Program::new();
    let call = json!({ "tool": "write_file", "params": { "file_path": "dos.txt", "content": "x\r\n\r\ny\r\n" } });
    program.printed(&["run", &program.file("s.jsonl", call.to_string()), "--session", "work"]);
    for history in [&[][..], &["--all-history"]] {
        let found = |pattern: &str| program.run(&[&["grep", "work", pattern, "dos.txt"], history].concat());
        assert!(found("x$").starts_with("dos.txt:1:x"), "{}", found("x$"));
        assert!(found("^$").starts_with("dos.txt:2:"), "{}", found("^$"));
        assert!(found("^X$").ends_with("[exit 1]"));
        assert!(program.run(&[&["grep", "-i", "work", "^X$", "dos.txt"], history].concat()).starts_with("dos.txt:1:x"));
    }
}

#[test]
fn glob_without_slash_matches_at_any_depth() {
    let program = Program::new();
    for name in ["m/.env", "m/sub/.env", "m/a.py", "m/sub/b.py", "m/sub/c.md"] {
        program.file(name, "needle\n");
    }
    let mount = program.path("m").to_string_lossy().into_owned();
    let script = program.file("s.jsonl", json!({ "tool": "ls", "params": { "path": "." } }).to_string());
    program.printed(&["run", &script, "--mount", &mount, "--mount-exclude", ".env", "--session", "without"]);
    assert_eq!(program.printed(&["ls", "without", "-R"]), "a.py\nsub/\nsub/b.py\nsub/c.md\n");
    program.printed(&["run", &script, "--mount", &mount, "--mount-include", "*.md", "--session", "only"]);
    assert_eq!(program.printed(&["ls", "only", "-R"]), "sub/\nsub/c.md\n");
    let grep = |glob: &str| program.printed(&["grep", "without", "needle", "-l", "-g", glob]);
    assert_eq!(
        (grep("*.py"), grep("/*.py"), grep("sub/*")),
        ("a.py\nsub/b.py\n".into(), "a.py\n".into(), "sub/b.py\nsub/c.md\n".into())
    );
    assert_eq!(program.json_lines(&["log", "without", "--path", "b.py"]).len(), 1);
}

#[test]
fn rerun_ignores_times_of_a_listing() {
    // A day of its own in each run.
    let listing = "touch -d @$(date +%s%N | tail -c 9) f && ls -l";
    let byte_code = "mkdir __pycache__ && echo x > __pycache__/a.cpython-312.pyc";
    let program = with_calls(&[command(byte_code), command(listing)]);
    let told = program.run(&["rerun", "work", "--yes"]);
    assert!(told.contains("none diverged; files the same"), "{told}");
    // The same without byte code: `__pycache__` goes unnoticed.
    let script = program.file("other.jsonl", command("true").to_string());
    let told = program.run(&["what-if", "work", "--replace", "2", "--script", &script, "--yes"]);
    assert!(!told.contains("__pycache__/\n") && told.contains("files the same"), "{told}");
}

#[test]
fn whatif_shows_each_difference_once() {
    let program = with_calls(&[command("echo one > a.txt"), command("cat a.txt > b.txt"), command("true")]);
    let script = program.file("other.jsonl", command("echo two > a.txt").to_string());
    let told = program.run(&["what-if", "work", "--replace", "2", "--script", &script, "--yes"]);
    assert_eq!(told.matches("+++ b/b.txt").count(), 1, "{told}");
    assert!(told.contains("shown above with their calls: b.txt"), "{told}");
    assert_eq!(told.matches("+++ b/a.txt").count(), 1, "{told}");
}

#[test]
fn path_below_workspace_root_is_accepted() {
    let program = Program::new();
    program.file("mine/a.txt", "one\n");
    let mine = program.path("mine").canonicalize().unwrap().to_string_lossy().into_owned();
    let call = |tool: &str, params| json!({ "tool": tool, "params": params }).to_string();
    let script = [
        call("read_file", json!({ "file_path": format!("{mine}/a.txt") })),
        call("write_file", json!({ "file_path": format!("{mine}/d/new.txt"), "content": "" })),
        call("ls", json!({ "path": mine })),
        call("shell_execute", json!({ "command": "pwd", "cwd": format!("{mine}/d") })),
        call("write_file", json!({ "file_path": "./dot.txt", "content": "" })),
    ];
    let script = program.file("s.jsonl", script.join("\n"));
    program.printed(&["run", &script, "--backend", "host", "--dir", &mine, "--session", "own", "--yes"]);
    assert_eq!(program.printed(&["ls", "own", "-R"]), "a.txt\nd/\nd/new.txt\ndot.txt\n");
}

#[test]
fn mount_keeps_file_times() {
    let program = Program::new();
    program.file("m/Makefile", "out: in\n\techo built\n");
    let made = std::fs::File::create(program.path("m/in")).unwrap();
    let then = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_millis(1_500_000_000_123);
    made.set_modified(then).unwrap();
    let script = program.file("s.jsonl", command("true").to_string());
    let mount = program.path("m").to_string_lossy().into_owned();
    program.printed(&["run", &script, "--backend", "host", "--mount", &mount, "--session", "work", "--yes"]);
    assert_eq!(program.run(&["exec", "work", "--", "stat", "-c", "%Y", "in"]), "1500000000\n[exit 0]");
}
