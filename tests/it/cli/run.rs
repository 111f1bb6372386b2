//! `run`: scripts, and what becomes of their calls.

use insta::assert_snapshot;

use crate::rig::{Program, STORY, told};

#[test]
fn run_counts_commands_that_exit_with_an_error() {
    let program = Program::new();
    let call = |command: &str| format!("{{\"tool\": \"shell_execute\", \"params\": {{\"command\": \"{command}\"}}}}\n");
    let script = program.file("codes.jsonl", [call("true"), call("exit 3"), call("true")].concat());
    let told = program.run(&["run", &script, "--backend", "host", "--yes"]);
    assert!(told.contains("  calls    3: 2 ok, 1 exited non-zero\n") && told.ends_with("[exit 0]"), "{told}");
    let summary = program.json_lines(&["run", &script, "--backend", "host", "--yes"]).pop().unwrap();
    assert_eq!((&summary["ok"], &summary["exited_nonzero"]), (&2.into(), &1.into()), "{summary}");
}

#[test]
fn run_prints_each_call() {
    let program = Program::new();
    let script = program.file("story.jsonl", STORY);
    assert_snapshot!(program.run(&["run", &script]), @"
        2  ok         write_file  a.txt  ( [duration])
        5  ok         write_file  /src/main.rs  ( [duration])
        8  ok         edit_file   a.txt  ( [duration])
       11  error      read_file   missing.txt  ( [duration])  as expected
       13  ok         rm          a.txt  ( [duration])

    session story ([id])
      calls    5: 4 ok, 1 failed as expected
      events   15
      files    1 in 1 directory, 13 B
      time [duration]

    look further:
      foldspace log story --calls
      foldspace diff story 1..
      foldspace ls story -R --at 1
    [exit 0]
    ");
}

#[test]
fn run_shows_output_when_asked() {
    let program = Program::new();
    let call = r#"{"tool": "shell_execute", "params": {"command": "echo out; printf 'er\\033r' >&2"}}"#;
    let run = ["run", &program.file("call.jsonl", call), "--backend", "host", "--yes", "--show-output"];
    let told = program.printed(&run);
    assert!(told.contains("\n       out\n       er") && !told.contains('\u{1b}'), "{told}");
    assert!(!program.printed(&run[..5]).contains("       out"));
}

#[test]
fn run_again_gets_a_number_or_continues_named_session() {
    let program = Program::with_story();
    let script = program.file("story.jsonl", r#"{"tool": "ls"}"#);
    assert!(program.run(&["run", &script]).contains("session story-2"));
    assert!(program.run(&["run", &script]).contains("session story-3"));
    let on = program.run(&["run", &script, "--session", "story"]);
    assert!(on.contains("session story (") && on.contains("events   17"), "{on}");
    assert!(program.run(&["run", &script, "--session", "fresh"]).contains("session fresh ("));
    assert_snapshot!(program.run(&["run", &script, "--session", "no spaces"]), @r#"
    error: session name "no spaces" must have 1 to 80 letters, digits, dots, underscores or hyphens, and begin with a letter or digit
    [exit 2]
    "#);
}

#[test]
fn run_stops_at_unexpected_failure() {
    let program = Program::new();
    let script = program.file(
        "wrong.jsonl",
        concat!(
            "{\"tool\": \"rm\", \"params\": {\"path\": \"nothing\"}}\n",
            "\n",
            "{\"tool\": \"ls\", \"expect\": \"error\"}\n",
            "{\"tool\": \"read_file\", \"params\": {\"file_path\": \"x\"}}\n",
            "{\"tool\": \"ls\", \"params\": {\"path\": \"y\"}}\n",
            "{\"tool\": \"ls\"}\n",
        ),
    );
    assert_snapshot!(program.run(&["run", &script]), @"
        2  error      rm          nothing  ( [duration])
           /nothing does not exist
           line 1 of [dir]/wrong.jsonl

    session wrong ([id])
      calls    5: 0 ok, 1 went wrong, 4 not made; stopped at line 1
      events   3
      files    0 in 0 directories, 0 B
      time [duration]

    `foldspace run [dir]/wrong.jsonl --session wrong --from-line 2` continues

    look further:
      foldspace log wrong --calls
      foldspace diff wrong 1..
      foldspace ls wrong -R --at 1
    [exit 1]
    ");
    assert_snapshot!(program.run(&["run", &script, "--keep-going"]), @r#"
        2  error      rm          nothing  ( [duration])
           /nothing does not exist
           line 1 of [dir]/wrong.jsonl
        4  ok         ls            ( [duration])
           it was expected to fail
           line 3 of [dir]/wrong.jsonl
        6  error      read_file   x  ( [duration])
           /x does not exist
           line 4 of [dir]/wrong.jsonl
        8  error      ls          y  ( [duration])
           /y does not exist
           line 5 of [dir]/wrong.jsonl
       10  ok         ls            ( [duration])

    session wrong-2 ([id])
      calls    5: 1 ok, 4 went wrong
      events   11
      files    0 in 0 directories, 0 B
      time [duration]

    look further:
      foldspace log wrong-2 --calls
      foldspace diff wrong-2 1..
      foldspace ls wrong-2 -R --at 1
    [exit 1]
    "#);
}

#[test]
fn run_checks_script_first() {
    let program = Program::new();
    let run = |contents: &[u8]| program.run(&["run", &program.file("bad.jsonl", contents)]);
    assert_snapshot!(run(b"{\"tool\": \"ls\"}\n\n{\"tool\": \"ls\", \"parms\": {}}\n"), @r#"
    error: line 3 of [dir]/bad.jsonl: unknown field `parms`, expected one of `tool`, `params`, `agent`, `expect` (column 22)
    hint: a line is one JSON object: {"tool": ..., "params": {...}}; nothing was run
    [exit 2]
    "#);
    assert_snapshot!(run(b"{\n"), @r#"
    error: line 1 of [dir]/bad.jsonl: EOF while parsing an object (column 1)
    hint: a line is one JSON object: {"tool": ..., "params": {...}}; nothing was run
    [exit 2]
    "#);
    assert_snapshot!(run(b"# \xff\n"), @r#"
    error: line 1 of [dir]/bad.jsonl: not UTF-8: byte 3 is invalid
    hint: a line is one JSON object: {"tool": ..., "params": {...}}; nothing was run
    [exit 2]
    "#);
    assert_snapshot!(run(b"{\"tool\": \"ls\", \"params\": [1]}"), @r#"
    error: line 1 of [dir]/bad.jsonl: `params` must be an object
    hint: a line is one JSON object: {"tool": ..., "params": {...}}; nothing was run
    [exit 2]
    "#);
    assert_snapshot!(run(&[b"{\"tool\": \"".as_slice(), &vec![b'x'; 65 << 20]].concat()), @r#"
    error: line 1 of [dir]/bad.jsonl: longer than 64.0 MiB
    hint: a line is one JSON object: {"tool": ..., "params": {...}}; nothing was run
    [exit 2]
    "#);
    assert_snapshot!(program.run(&["run", "nothing.jsonl"]), @"
    error: no such file: nothing.jsonl
    [exit 3]
    ");
    assert_snapshot!(program.run(&["run", "."]), @"
    error: . is a directory, not a file
    [exit 3]
    ");
    assert!(!program.data().exists(), "a bad script makes no store");
}

#[test]
fn run_reads_script_from_stdin() {
    let program = Program::new();
    let script = "\u{feff}{\"tool\": \"write_file\", \"params\": {\"file_path\": \"a\", \"content\": \"x\"}}\r\n";
    let ran = program.fed(&["run", "-"], script.as_bytes());
    assert!(ran.contains("session run (") && ran.ends_with("[exit 0]"), "{ran}");
    assert_eq!(program.printed(&["cat", "run", "a"]), "x");
    assert_snapshot!(program.fed(&["run", "-"], b"{\"tool\"}"), @r#"
    error: line 1 of standard input: expected `:` (column 8)
    hint: a line is one JSON object: {"tool": ..., "params": {...}}; nothing was run
    [exit 2]
    "#);
}

#[test]
fn run_agent_comes_from_script_or_option() {
    let program = Program::new();
    let script = program.file("who.jsonl", "{\"tool\": \"ls\"}\n{\"tool\": \"ls\", \"agent\": \"other\"}\n");
    program.printed(&["run", &script, "--agent", "main"]);
    let agents: Vec<_> = program.json_lines(&["log", "who", "--calls"]).iter().map(|c| c["agent"].clone()).collect();
    assert_eq!(agents, ["main", "other"]);
    let name = "n".repeat(201);
    assert!(program.run(&["run", &script, "--agent", &name]).ends_with("[exit 2]"));
    let script = program.file("long.jsonl", format!("{{\"tool\": \"ls\", \"agent\": \"{name}\"}}"));
    let refused = program.run(&["run", &script]);
    assert!(refused.contains("`agent` has more than 200 bytes") && refused.ends_with("[exit 2]"), "{refused}");
}

#[test]
fn run_mount_is_copied_once_from_allowed_root() {
    let program = Program::new();
    program.file("tree/keep.txt", "kept");
    program.file("tree/target/big.bin", [0; 100]);
    program.file("other/x.txt", "x");
    let script = program.file("m.jsonl", "");
    assert_snapshot!(program.run(&["run", &script, "--mount", "tree:in/side", "--mount-exclude", "target"]), @"
    copied [dir]/tree to /in/side: 1 file, 4 B

    session m ([id])
      calls    0: 0 ok
      events   3
      files    1 in 2 directories, 4 B
      time [duration]

    look further:
      foldspace log m --calls
      foldspace diff m 3..
      foldspace ls m -R --at 3
    [exit 0]
    ");
    assert_eq!(program.printed(&["ls", "m", "-R"]), "in/\nin/side/\nin/side/keep.txt\n");
    assert_snapshot!(program.run(&["run", &script, "--session", "m", "--mount", "other"]), @"

    session m ([id])
      calls    0: 0 ok
      events   3
      files    1 in 2 directories, 4 B
      time [duration]

    look further:
      foldspace log m --calls
      foldspace diff m 3..
      foldspace ls m -R --at 3
    note: session m continues after 3 events
    note: the workspace is not empty; the mounts were not copied
    [exit 0]
    ");
}

#[test]
fn run_mount_that_is_refused_leaves_no_session() {
    let program = Program::new();
    program.file("tree/keep.txt", "kept");
    program.file("tree/target/big.bin", [0; 100]);
    program.file("other/x.txt", "x");
    let script = program.file("m.jsonl", "");
    let mount = |more: &[&str]| program.run(&[&["run", &script, "--session", "new", "--mount"], more].concat());
    assert_snapshot!(mount(&["tree", "--mount-max-bytes", "10"]), @"
    error: [dir]/tree holds at least 104 bytes, max_bytes is 10; raise it or leave files out with exclude_glob
    [exit 2]
    ");
    assert_snapshot!(mount(&["tree", "--allow-root", "other"]), @"
    error: [dir]/tree is outside of the directories that may be mounted: [dir]/other
    hint: --allow-root or FOLDSPACE_MOUNT_ROOTS allows a directory
    [exit 2]
    ");
    assert_snapshot!(mount(&["nowhere"]), @"
    error: [dir]/nowhere does not exist and can't be mounted
    [exit 3]
    ");
    assert_snapshot!(mount(&["story:../up"]), @r#"
    error: mount "story:../up": path "../up": `.` and `..` are not allowed; give the path from the workspace root; write DIRECTORY or DIRECTORY:PATH
    [exit 2]
    "#);
    assert_snapshot!(mount(&["tree", "--mount-include", "["]), @r#"
    error: glob "[" of the mount [dir]/tree: unclosed character class; missing ']'
    [exit 2]
    "#);
    assert!(!program.printed(&["sessions"]).contains("new"), "a session whose mounts failed is not kept");
}

#[test]
fn run_mount_leaves_out_data_directories_and_needs_an_empty_workspace() {
    let program = Program::with_story();
    program.file("tree/a.txt", "a");
    let mount = |more: &[&str]| program.run(&[&["new", "copy"], more].concat());
    assert!(mount(&["--mount", "."]).ends_with("[exit 0]"));
    let files = program.printed(&["ls", "copy", "-R"]);
    assert!(files.contains("tree/a.txt") && !files.contains("journal"), "{files}");
    assert_snapshot!(program.run(&["new", "other", "--mount", "data/journal"]), @"
    error: can't mount [dir]/data/journal: a data directory is there; mount another directory
    [exit 2]
    ");
    program.file("mine/b.txt", "b");
    for begin in [&["new", "other"][..], &["run", "story.jsonl", "--session", "other"]] {
        let told = program.run(&[begin, &["--backend", "host", "--dir", "mine", "--mount", "tree"]].concat());
        let why = "the workspace has files, so the mounts can't be copied";
        assert!(told.contains(why) && told.ends_with("[exit 2]"), "{told}");
    }
    assert_eq!(program.json(&["sessions"]).as_array().unwrap().len(), 2, "nothing is left of them");
}

#[test]
fn run_stopped_names_the_command_that_continues() {
    let program = Program::new();
    let script = "{\"tool\": \"rm\", \"params\": {\"path\": \"nothing\"}}\n\n{\"tool\": \"ls\"}\n";
    let told = program.run(&["run", &program.file("my calls.jsonl", script), "--session", "s"]);
    let typed = told.lines().find_map(|line| line.strip_suffix("` continues")).unwrap().trim_start_matches('`');
    let typed = format!("{typed} 2>&1").replacen(env!("CARGO_BIN_EXE_foldspace"), "\"$0\"", 1);
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &typed, env!("CARGO_BIN_EXE_foldspace")]).env("FOLDSPACE_DATA", program.data());
    let ran = String::from_utf8(shell.env("FOLDSPACE_IN_PROCESS", "1").output().unwrap().stdout).unwrap();
    assert!(ran.contains("session s continues after 3 events") && ran.contains("1: 1 ok"), "{told}\n{ran}");
}

#[test]
fn run_checks_the_commands_of_the_script_first() {
    let program = Program::new();
    let calls = "{\"tool\": \"ls\"}\n{\"tool\": \"shell_execute\", \"params\": {\"command\": \"make\"}}";
    let script = program.file("s.jsonl", calls);
    assert_snapshot!(program.run(&["run", &script]), @"
    error: line 2 of [dir]/s.jsonl: shell_execute needs a shell, and the memory workspace has none
    hint: --backend host or --backend container runs commands; nothing was run
    [exit 2]
    ");
    assert!(program.run(&["run", &script, "--backend", "host"]).contains("s.jsonl: nothing allows make"));
    let session = ["run", &script, "--session", "s", "--backend"];
    assert!(program.run(&[&session[..], &["memory"]].concat()).ends_with("[exit 2]"));
    assert_eq!(program.json(&["sessions"]), serde_json::json!([]));
    assert!(program.run(&[&session[..], &["host", "--allow", "make"]].concat()).contains("shell_execute  make"));
}

#[test]
fn run_mount_roots_come_from_environment() {
    let program = Program::new();
    program.file("tree/a.txt", "a");
    program.file("fence/b/b.txt", "b");
    let script = program.file("m.jsonl", "");
    let fenced = |arguments: &[&str]| {
        let mut command = program.command(&[&["run", &script], arguments].concat());
        told(&command.env("FOLDSPACE_MOUNT_ROOTS", program.path("fence")).output().unwrap())
    };
    assert_snapshot!(fenced(&["--mount", "tree"]), @"
    error: [dir]/tree is outside of the directories that may be mounted: [dir]/fence
    hint: --allow-root or FOLDSPACE_MOUNT_ROOTS allows a directory
    [exit 2]
    ");
    assert!(fenced(&["--mount", "fence/b"]).ends_with("[exit 0]"));
    assert_snapshot!(fenced(&["--mount", "tree", "--allow-root", "tree"]), @"
    error: --allow-root can't be combined with FOLDSPACE_MOUNT_ROOTS
    hint: leave out --allow-root, or unset FOLDSPACE_MOUNT_ROOTS
    [exit 2]
    ");
}

#[test]
fn run_json_prints_calls_then_summary() {
    let program = Program::new();
    let lines = program.json_lines(&["run", &program.file("story.jsonl", STORY)]);
    assert_eq!(lines.len(), 6);
    assert!(lines[..5].iter().all(|line| line["type"] == "call" && line["as_expected"] == true));
    assert_eq!(lines[3]["status"], "error");
    assert_eq!(lines[3]["line"], 8);
    let sum = &lines[5];
    assert_eq!((&sum["type"], &sum["calls"], &sum["ok"]), (&"summary".into(), &5.into(), &4.into()));
    assert_eq!((&sum["before"], &sum["head"], &sum["files"]), (&1.into(), &15.into(), &1.into()));
}

#[test]
fn run_buffered_loses_nothing_finished() {
    let program = Program::new();
    program.printed(&["run", &program.file("story.jsonl", STORY), "--no-wait", "--timeout", "2.5"]);
    assert_eq!(program.printed(&["ls", "story", "-R"]), "src/\nsrc/main.rs\n");
    for wrong in ["0", "-1", "x", "1e400"] {
        assert!(program.run(&["run", "x", "--timeout", wrong]).ends_with("[exit 2]"), "{wrong}");
    }
}

#[test]
fn run_without_writable_data_fails() {
    let program = Program::new();
    let (script, file) = (program.file("s.jsonl", STORY), program.file("a-file", ""));
    assert_snapshot!(program.run(&["--data", &file, "run", &script]), @"
    error: [dir]/a-file is not a directory
    hint: --data or FOLDSPACE_DATA names the directory of the store
    [exit 2]
    ");
    assert!(program.run(&["--data", "/proc/none", "run", &script]).ends_with("[exit 6]"));
}
