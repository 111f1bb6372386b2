//! Commands through the program: `run`, `exec`, `shell`, `materialise`, `doctor`.

use foldspace::backends::EngineKind;
use insta::assert_snapshot;

use crate::rig::{Program, told};

impl Program {
    /// A program with a session `work` on the host backend, in which one file is.
    fn with_host() -> Self {
        let program = Self::new();
        let script = program
            .file("work.jsonl", r#"{"tool": "write_file", "params": {"file_path": "a.txt", "content": "one\n"}}"#);
        let ran = program.run(&["run", &script, "--backend", "host", "--session", "work"]);
        assert!(ran.ends_with("[exit 0]"), "{ran}");
        program
    }
}

#[test]
fn exec_changes_are_in_the_log() {
    let program = Program::with_host();
    let command = "mkdir d; mv a.txt d/b.txt; echo two >> d/b.txt; ln -s b.txt d/l; chmod +x d/b.txt; echo done";
    assert_snapshot!(program.run(&["exec", "work", "--sh", "--", command]), @"
    done
    [exit 0]
    ");
    assert_snapshot!(program.run(&["log", "work", "--no-pager"]), @"
       1  [time]  SessionStarted  -      -         work on host
       2  [time]  CallStarted     #2     -         write_file a.txt
       3  [time]  WriteFile       #2     -         create /a.txt  4 B
       4  [time]  CallFinished    #2     -         ok in [duration]
       5  [time]  CallStarted     #5     -         shell_execute mkdir d; mv a.txt d/b.txt; echo two >> d/b.txt; ln -s b.txt ...
       6  [time]  CommandDecided  #5     -         allow by auto-confirm  mkdir d; mv a.txt d/b.txt; echo two >> d/b.txt; ln -s b.txt d/l; chmod +x d/b.txt; echo done
       7  [time]  CommandResult   #5     -         exit 0 in [duration], 5 B  mkdir d; mv a.txt d/b.txt; echo two >> d/b.txt; ln -s b.txt d/l; chmod +x d/b.txt; echo done
       8  [time]  DeleteEntry     #5     -         /a.txt
       9  [time]  WriteFile       #5     -         create /d/b.txt  8 B, executable
      10  [time]  WriteFile       #5     -         create /d/l -> b.txt
      11  [time]  CallFinished    #5     -         ok in [duration]
    [exit 0]
    ");
    assert_snapshot!(program.run(&["cat", "work", "d/b.txt"]), @"
    one
    two
    [exit 0]
    ");
}

#[test]
fn log_marks_failed_commands() {
    let program = Program::new();
    let script = program.file(
        "w.jsonl",
        r#"
        {"tool": "shell_execute", "params": {"command": "true"}}
        {"tool": "shell_execute", "params": {"command": "exit 2"}}
        {"tool": "shell_execute", "params": {"command": "sleep 60", "timeout_seconds": 1}}
        {"tool": "read_file", "params": {"file_path": "none"}, "expect": "error"}"#,
    );
    assert_snapshot!(program.printed(&["run", &script, "--backend", "host", "--yes"]).split("\n\n").next().unwrap(), @"
     2  ok         shell_execute  true  ( [duration])
     6  exit 2     shell_execute  exit 2  ( [duration])
    10  timed out  shell_execute  sleep 60  ( [duration])
    14  error      read_file   none  ( [duration])  as expected
    ");
    assert_snapshot!(program.run(&["log", "w", "--calls"]), @"
       2  [time]  ok [duration]  -         shell_execute  true
       6  [time]  exit 2 [duration]  -         shell_execute  exit 2
      10  [time]  timed out [duration]  -         shell_execute  sleep 60
      14  [time]  error [duration]  -         read_file   none  /none does not exist
    [exit 0]
    ");
    let told: Vec<_> = program.json_lines(&["log", "w", "--calls"]);
    let told: Vec<_> = told.iter().map(|call| ["status", "exit_code", "timed_out"].map(|name| &call[name])).collect();
    assert_eq!(
        serde_json::json!(told).to_string(),
        r#"[["ok",0,false],["ok",2,false],["ok",124,true],["error",null,null]]"#
    );
    assert_snapshot!(program.run(&["state", "w", "ToolCalls"]), @"
    4 calls
     2  [time]  ok [duration]  -  shell_execute
     6  [time]  exit 2 [duration]  -  shell_execute
    10  [time]  timed out [duration]  -  shell_execute
    14  [time]  error [duration]  -  read_file      /none does not exist
    [exit 0]
    ");
    let shown = program.printed(&["show", "w", "6"]);
    assert!(shown.contains("status  exit 2 in"), "{shown}");
}

#[test]
fn exec_exit_code_is_the_commands() {
    let program = Program::with_host();
    assert_snapshot!(program.run(&["exec", "work", "--", "sh", "-c", "echo out; echo err >&2; exit 7"]), @"
    out
    err
    [exit 7]
    ");
    assert_snapshot!(program.run(&["exec", "work", "--", "no-such-program"]), @"
    no-such-program: not found
    [exit 127]
    ");
    assert_snapshot!(program.run(&["exec", "work", "--timeout", "1", "--", "sh", "-c", "echo begun; sleep 60"]), @"
    begun
    note: the command exceeded --timeout and was ended
    [exit 124]
    ");
    assert_snapshot!(program.fed(&["exec", "work", "-i", "--", "tr", "a-z", "A-Z"], b"loud\n"), @"
    LOUD
    [exit 0]
    ");
    assert_snapshot!(program.run(&["exec", "work", "-e", "NAME=v w", "--cwd", "/", "--sh", "--", "echo $NAME"]), @"
    v w
    [exit 0]
    ");
}

#[test]
fn exec_wrong_arguments_are_refused() {
    let program = Program::with_host();
    assert_snapshot!(program.run(&["exec", "work", "--", "rm", "-rf", "/"]), @"
    error: the command is not allowed: it would remove everything below /, a system directory, the home directory or a directory above the workspace: rm -rf /
    [exit 1]
    ");
    assert_snapshot!(program.run(&["exec", "work", "--cwd", "none", "--", "ls"]), @"
    error: the command can't be run: a command can't start in /none: there is no such directory
    [exit 1]
    ");
    assert_snapshot!(program.run(&["exec", "work", "--cwd", "../..", "--", "ls"]), @r#"
    error: path "../..": `.` and `..` are not allowed; give the path from the workspace root
    [exit 1]
    "#);
    assert_snapshot!(program.run(&["exec", "nobody", "--", "ls"]), @r#"
    error: no session is called "nobody", and no id begins with that
    hint: `foldspace new nobody` or --new creates it; `foldspace sessions` lists them
    [exit 3]
    "#);
    assert_snapshot!(program.run(&["exec", "work"]), @"
    error: the following required arguments were not provided:
      <CMD>...

    Usage: foldspace exec <SESSION> <CMD>...

    For more information, try '--help'.
    [exit 2]
    ");
    assert_snapshot!(program.run(&["exec", "work", "-e", "x", "--", "ls"]), @"
    error: invalid value 'x' for '--env <NAME=VALUE>': expected NAME=VALUE

    For more information, try '--help'.
    [exit 2]
    ");
}

#[test]
fn exec_on_memory_is_refused() {
    let program = Program::with_story();
    assert_snapshot!(program.run(&["exec", "story", "--", "ls"]), @"
    error: the memory workspace of story has no shell
    hint: `foldspace new` creates a session that runs commands, on this machine or with --backend container
    [exit 2]
    ");
    assert_snapshot!(program.run(&["shell", "story"]), @"
    error: the memory workspace of story has no shell
    hint: `foldspace new` creates a session that runs commands, on this machine or with --backend container
    [exit 2]
    ");
}

#[test]
fn run_asks_about_script_commands() {
    let program = Program::new();
    let script = program.file("ask.jsonl", r#"{"tool": "shell_execute", "params": {"command": "touch x && make"}}"#);
    assert_snapshot!(program.run(&["run", &script, "--backend", "host"]), @"
    error: line 1 of [dir]/ask.jsonl: nothing allows make or touch, and no approver is available; allow the program (--allow PROGRAM), or answer every question with yes (--yes)
    hint: nothing was run
    [exit 2]
    ");
    let allowed = program.run(&["run", &script, "--backend", "host", "--allow", "touch", "--allow", "make"]);
    assert!(!allowed.contains("error"), "{allowed}");
    let log = program.run(&["log", "ask", "--no-pager"]);
    assert!(log.contains("allow by policy  touch x && make"), "{log}");
}

#[test]
fn shell_records_every_line() {
    let program = Program::with_host();
    let typed = b"mkdir sub\ncd sub\npwd | sed 's:.*/files::'\necho hi > here.txt\ncd nowhere\ncd ..\nls\nfalse\n";
    assert_snapshot!(program.fed(&["shell", "work"], typed), @"
    /sub
    a.txt
    sub
    /bin/sh: 1: cd: can't cd to nowhere
    [exit 1]
    ");
    assert_snapshot!(program.run(&["ls", "work", "-R"]), @"
    a.txt
    sub/
    sub/here.txt
    [exit 0]
    ");
    let calls = program.json_lines(&["log", "work", "--calls"]);
    assert_eq!(calls.len(), 9);
    assert!(calls[1..].iter().all(|call| call["agent"] == "person" && call["tool"] == "shell_execute"));
}

#[test]
fn shell_keeps_its_directory() {
    let program = Program::with_host();
    let made =
        r#"mkdir 'x\x41' xA sub "$(printf 'n\nm')"; touch xA/wrong 'x\x41/right' sub/below; cd n* && touch inner"#;
    program.printed(&["exec", "work", "--sh", "--", made]);
    let typed = |text: &[u8]| program.fed(&["shell", "work"], text);
    assert_snapshot!(typed(b"cd 'x\\x41'\nls\n"), @"
    right
    [exit 0]
    ");
    assert_snapshot!(typed(b"cd sub # a note\nls\n"), @"
    below
    [exit 0]
    ");
    assert_snapshot!(typed(b"cd n*\nls\n"), @"
    inner
    [exit 0]
    ");
    assert_snapshot!(typed(b"echo \xff\nls sub\n"), @"
    below
    note: the line is not UTF-8 and was not run
    [exit 0]
    ");
    assert_snapshot!(typed(b"cd /\ncd sub; true\nls sub\n"), @r"
    below
    note: / is outside of the workspace; the prompt stays where it is
    [exit 0]
    ");
}

#[test]
fn materialise_writes_files_of_any_moment() {
    let program = Program::with_story();
    let target = program.path("out").to_string_lossy().into_owned();
    assert_snapshot!(program.run(&["materialise", "story", &target, "--at", "9"]), @"
    wrote 3 entries, 28 B, as of position 10, to [dir]/out
    [exit 0]
    ");
    assert_eq!(std::fs::read(program.path("out/a.txt")).unwrap(), b"one\nzwei\nthree\n");
    assert_eq!(std::fs::read(program.path("out/src/main.rs")).unwrap(), b"fn main() {}\n");
    assert_snapshot!(program.run(&["materialise", "story", &target]), @"
    error: [dir]/out is not empty; use an empty or new directory
    [exit 2]
    ");
}

#[test]
fn materialise_tar_is_the_same_in_a_file_and_a_pipe() {
    let program = Program::with_story();
    let file = program.path("out.tar").to_string_lossy().into_owned();
    assert_snapshot!(program.run(&["materialise", "story", "--at", "9", "--tar", &file]), @"
    wrote an archive as of position 10 to [dir]/out.tar
    [exit 0]
    ");
    let archive = std::fs::read(&file).unwrap();
    let piped = program.command(&["materialise", "story", "--at", "9", "--tar", "-"]).output().unwrap();
    assert_eq!((piped.status.code(), piped.stdout == archive), (Some(0), true));
    let mut archive = tar::Archive::new(&archive[..]);
    let paths = archive.entries().unwrap().map(|entry| entry.unwrap().path_bytes().into_owned());
    assert_eq!(paths.collect::<Vec<_>>(), [&b"a.txt"[..], b"src", b"src/main.rs"]);
    let both = program.run(&["materialise", "story", &file, "--tar", "-"]);
    assert!(both.contains("cannot be used with") && both.ends_with("[exit 2]"), "{both}");
    assert_snapshot!(program.run(&["materialise", "story", "--tar", "/nowhere/x.tar"]), @"
    error: can't write /nowhere/x.tar: No such file or directory (os error 2)
    [exit 6]
    ");
}

#[test]
fn run_in_own_directory_keeps_its_files() {
    let (program, script) = Program::with_own_directory("kept.txt", "kept\n");
    std::fs::write(program.path("mine/kept.txt"), "changed behind its back\n").unwrap();
    let ran = program.run(&["run", &script, "--session", "own"]);
    assert!(ran.ends_with("[exit 0]"), "{ran}");
    let log = program.run(&["log", "own", "--no-pager"]);
    assert_eq!(log.matches("DriftFound").count(), 2, "{log}");
    assert_snapshot!(program.run(&["cat", "own", "kept.txt"]), @"
    changed behind its back
    [exit 0]
    ");
    assert_snapshot!(program.run(&["run", &script, "--session", "own", "--backend", "memory"]), @"
    error: session own began with another workspace, on host
    hint: leave out --backend and its options to continue it, or start another session
    [exit 2]
    ");
    assert_snapshot!(program.run(&["run", &script, "--backend", "host", "--dir", "/nowhere/at/all"]), @"
    error: --dir: /nowhere/at/all is not a directory
    [exit 3]
    ");
    assert_snapshot!(program.run(&["run", &script, "--backend", "memory", "--dir", &program.path("mine").to_string_lossy()]), @"
    error: --dir requires --backend host or container
    [exit 2]
    ");
}

#[test]
fn mock_answers_from_its_list() {
    let program = Program::new();
    let answers = program.file("answers.json", r#"[{"command": "make*", "stdout": "built\n", "exit_code": 0}]"#);
    let script = program.file("mock.jsonl", r#"{"tool": "shell_execute", "params": {"command": "make all"}}"#);
    let ran = program.run(&["run", &script, "--backend", "mock", "--answers", &answers, "--yes", "--session", "m"]);
    assert!(ran.ends_with("[exit 0]"), "{ran}");
    assert_snapshot!(program.run(&["exec", "m", "--", "make", "x"]), @"
    built
    [exit 0]
    ");
    assert_snapshot!(program.run(&["exec", "m", "--", "other"]), @"
    mock: no answer for other
    [exit 127]
    ");
}

#[test]
fn doctor_reports_what_works() {
    let program = Program::new();
    let findings = program.output(&["doctor", "--json", "--engine", "unix:///nowhere/podman.sock"]);
    assert_eq!(findings.status.code(), Some(1));
    let findings: serde_json::Value = serde_json::from_slice(&findings.stdout).unwrap();
    let of = |what: &str| findings.as_array().unwrap().iter().find(|finding| finding["what"] == what).unwrap().clone();
    assert_eq!(of("host commands")["state"], "ok");
    assert_eq!(of("engine")["state"], "missing");
    assert!(of("engine")["found"].as_str().unwrap().contains("does not respond"));
}

#[test]
fn podman_options_are_recorded_with_the_session() {
    if crate::engine::kind() != EngineKind::Podman {
        return;
    }
    let Some(program) = Program::with_container() else { return };
    let script = program.file("w.jsonl", r#"{"tool": "write_file", "params": {"file_path": "a", "content": "a"}}"#);
    let options = [
        "--memory",
        "64",
        "--tmp",
        "16",
        "--idle-seconds",
        "0",
        "--overlay",
        "never",
        "--pids",
        "9",
        "--writable-root",
        "--also-at",
        "/app",
    ];
    let mut ran = program.command(&["run", &script, "--session", "s", "--backend", "podman"]);
    let ran = ran.args(options).env("FOLDSPACE_CACHE", program.path("cache")).output().unwrap();
    assert!(ran.status.success(), "{}", told(&ran));
    let recorded = program.json(&["show", "s", "1"])["event"]["event"]["options"].clone();
    for (name, value) in [
        ("memory_bytes", serde_json::json!(64 << 20)),
        ("tmp_bytes", serde_json::json!(16 << 20)),
        ("idle_seconds", serde_json::json!(0)),
        ("overlay", serde_json::json!("never")),
        ("pids", serde_json::json!(9)),
        ("writable_root", serde_json::json!(true)),
        ("also_at", serde_json::json!("/app")),
    ] {
        assert_eq!(recorded[name], value, "{name} in {recorded}");
    }
}

#[test]
fn podman_options_that_are_wrong_are_refused() {
    let program = Program::new();
    let script = program.file("w.jsonl", r#"{"tool": "ls", "params": {}}"#);
    let refused = |options: &[&str]| program.run(&[&["run", script.as_str()], options].concat());
    assert_snapshot!(refused(&["--backend", "podman", "--overlay", "always"]), @"
    error: invalid value 'always' for '--overlay <WHEN>'
      [possible values: auto, never]

    For more information, try '--help'.
    [exit 2]
    ");
    assert_snapshot!(refused(&["--backend", "podman", "--tmp", "0"]), @"
    error: invalid value '0' for '--tmp <MIB>': 0 is not in 1..=1073741824

    For more information, try '--help'.
    [exit 2]
    ");
    assert_snapshot!(refused(&["--backend", "podman", "--memory", "18446744073709551615"]), @"
    error: invalid value '18446744073709551615' for '--memory <MIB>': 18446744073709551615 is not in 16..=1073741824

    For more information, try '--help'.
    [exit 2]
    ");
    assert_snapshot!(refused(&["--backend", "podman", "--idle-seconds", "soon"]), @"
    error: invalid value 'soon' for '--idle-seconds <SECS>': expected whole seconds, or 0 for never

    For more information, try '--help'.
    [exit 2]
    ");
    assert_snapshot!(refused(&["--backend", "host", "--tmp", "16"]), @"
    error: --tmp requires --backend container
    [exit 2]
    ");
    assert_snapshot!(refused(&["--overlay", "never"]), @"
    error: --overlay requires --backend container
    [exit 2]
    ");
}

#[test]
fn failed_command_takes_its_changes_back() {
    let (program, _) = Program::with_own_directory("a", "one\n");
    let place = program.path("mine");
    program.printed(&["exec", "own", "--sh", "mkdir d; echo x > d/b; chmod 600 d/b"]);
    let script = "echo two > a; rm -r d; echo new > c; ln -s a l; exit 3";
    let told = program.run(&["exec", "--undo-on-failure", "own", "--sh", script]);
    assert!(told.contains("undid its changes of 5 entries") && told.ends_with("[exit 3]"), "{told}");
    let text = |name: &str| std::fs::read_to_string(place.join(name)).ok();
    assert_eq!([text("a"), text("d/b"), text("c"), text("l")], [Some("one\n".into()), Some("x\n".into()), None, None]);
    let last = program.json_lines(&["log", "own", "--calls"]).pop().unwrap();
    assert_eq!((&last["exit_code"], last["paths"].as_array().unwrap().len()), (&3.into(), 0), "{last}");
    // Nothing is found as drift afterwards, and a success keeps its changes.
    program.printed(&["exec", "--undo-on-failure", "own", "--sh", "echo two > a"]);
    let kinds: Vec<String> =
        program.json_lines(&["log", "own"]).iter().map(|event| event["kind"].as_str().unwrap().to_owned()).collect();
    assert!(
        !kinds.contains(&"DriftFound".to_owned()) || kinds.iter().filter(|kind| *kind == "DriftFound").count() == 1
    );
    assert_eq!(text("a"), Some("two\n".into()));
    let slow = program.run(&["exec", "--undo-on-failure", "--timeout", "1", "own", "--sh", "echo late > a; sleep 9"]);
    assert!(slow.contains("undid its change"), "{slow}");
    assert_eq!(text("a"), Some("two\n".into()));
}
