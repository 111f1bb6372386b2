//! Sessions begin with `new`, `exec --new` or a script, which is checked first.

use insta::assert_snapshot;

use crate::rig::Program;

fn sessions(program: &Program) -> usize {
    program.json(&["sessions"]).as_array().unwrap().len()
}

#[test]
fn new_creates_a_session_and_says_what_is_next() {
    let program = Program::new();
    program.file("app/a.txt", "a\n");
    assert_snapshot!(program.run(&["new", "demo", "--dir", "app"]), @"
    session demo ([id]) in [dir]/app; commands run as you, without a sandbox; 1 file

    next:
      foldspace exec demo -- ls
      foldspace log demo --calls
      foldspace ui demo
    [exit 0]
    ");
    assert_eq!(program.printed(&["exec", "demo", "--", "ls"]), "a.txt\n");
    assert_snapshot!(program.run(&["new", "demo"]), @r#"
    error: a session called "demo" exists already
    hint: use that session, or choose another name
    [exit 2]
    "#);
}

#[test]
fn new_without_a_name_takes_that_of_the_directory() {
    let program = Program::new();
    program.file("my app/a.txt", "a\n");
    for name in ["my-app", "my-app-2"] {
        assert_eq!(program.json(&["new", "--dir", "my app"])["name"], name);
    }
    let shown = program.run(&["new", "empty"]);
    assert!(shown.contains("the workspace is empty: --dir . works in this directory"), "{shown}");
    assert!(shown.contains("session empty (") && shown.contains("in a new directory"), "{shown}");
    let copied = program.run(&["new", "copy", "--mount", "my app"]);
    assert!(copied.contains("1 file\n") && !copied.contains("note:"), "{copied}");
}

#[test]
fn session_that_cannot_begin_is_not_left_behind() {
    let program = Program::new();
    program.printed(&["new", "first"]);
    let script = program.file("s.jsonl", r#"{"tool": "ls"}"#);
    for backend in ["podman", "docker", "container"] {
        for arguments in [&["new", "other"][..], &["run", &script, "--session", "other"]] {
            let shown = program.run(&[arguments, &["--backend", backend]].concat());
            assert!(shown.contains("does not respond") && shown.ends_with("[exit 6]"), "{shown}");
            assert_eq!(sessions(&program), 1, "{shown}");
        }
    }
    for arguments in [&["new", "a b"][..], &["new", "x", "--dir", "nothing"], &["new", "x", "--image", "y"]] {
        assert!(!program.output(arguments).status.success(), "{arguments:?}");
        assert_eq!(sessions(&program), 1);
    }
}

#[test]
fn missing_session_is_offered_and_created_on_request() {
    let program = Program::new();
    assert_snapshot!(program.run(&["exec", "demo", "--", "ls"]), @"
    error: no store found in [dir]/data
    hint: `foldspace new demo` or --new creates it
    [exit 3]
    ");
    let made = program.run(&["exec", "--new", "demo", "--", "echo", "hi"]);
    assert!(made.contains("session demo is new: in a new directory") && made.contains("hi\n"), "{made}");
    let again = program.run(&["exec", "--new", "demo", "--", "echo", "hi"]);
    assert!(!again.contains("is new"), "{again}");
    for command in [&["exec", "dmeo", "--", "ls"][..], &["shell", "dmeo"]] {
        let shown = program.run(command);
        assert!(shown.contains("hint: `foldspace new dmeo` or --new creates it; did you mean demo?"), "{shown}");
    }
    let shown = program.run(&["exec", "--new", "--dir", ".", "demo", "--", "ls"]);
    assert!(shown.contains("session demo exists already") && shown.ends_with("[exit 2]"), "{shown}");
    assert_eq!(sessions(&program), 1);
}

#[test]
fn script_is_checked_before_a_session_begins() {
    let program = Program::new();
    program.printed(&["new", "first"]);
    let right = r#"{"tool": "ls"}"#;
    let run = |second: &str| {
        let script = program.file("s.jsonl", format!("{right}\n{second}"));
        let shown = program.run(&["run", &script]);
        assert_eq!(sessions(&program), 1, "{shown}");
        shown
    };
    assert_snapshot!(run(r#"{"tool": "wrte_file", "params": {"file_path": "a"}}"#), @r#"
    error: line 2 of [dir]/s.jsonl: tool "wrte_file" not found
    hint: did you mean write_file? `foldspace tools` lists all; nothing was run
    [exit 2]
    "#);
    assert_snapshot!(run(r#"{"tool": "write_file", "params": {"path": "a", "content": ""}}"#), @"
    error: line 2 of [dir]/s.jsonl: invalid parameters for write_file: unknown field `path`, expected one of `file_path`, `content`, `mode`
    hint: did you mean file_path? `foldspace tools write_file` shows the parameters; nothing was run
    [exit 2]
    ");
    assert_snapshot!(run(r#"{"tool": "write_file"}"#), @"
    error: line 2 of [dir]/s.jsonl: invalid parameters for write_file: missing field `file_path`
    hint: `foldspace tools write_file` shows the parameters; nothing was run
    [exit 2]
    ");
    // A call that must fail may be wrong.
    let script = program.file("s.jsonl", r#"{"tool": "write_file", "expect": "error"}"#);
    program.printed(&["run", &script]);
}

#[test]
fn run_continues_from_a_line() {
    let program = Program::new();
    let call = |name: &str| {
        format!("{{\"tool\": \"write_file\", \"params\": {{\"file_path\": \"{name}\", \"content\": \"\"}}}}\n")
    };
    let script = program.file("s.jsonl", ["a", "b", "c"].map(call).concat());
    program.printed(&["run", &script, "--session", "s", "--from-line", "2"]);
    let names: Vec<String> = program.printed(&["ls", "s"]).lines().map(str::to_owned).collect();
    assert_eq!(names, ["b", "c"]);
    let shown = program.run(&["run", &script, "--from-line", "4"]);
    assert!(shown.contains("has no call from line 4 on") && shown.ends_with("[exit 2]"), "{shown}");
}
