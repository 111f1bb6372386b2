//! What the program says where a person is not quite right, and where little is said.

use crate::rig::Program;

#[test]
fn mistyped_names_are_guessed() {
    let program = Program::with_story();
    for (mistyped, meant) in [
        (&["log", "stroy"][..], "did you mean story?"),
        (&["exec", "stroy", "--", "ls"], "did you mean story?"),
        (&["cat", "story", "src/mian.rs"], "did you mean src/main.rs?"),
        (&["state", "story", "Usge"], "did you mean Usage?"),
        (&["log", "story", "--kind", "WriteFiles"], "did you mean WriteFile?"),
        (&["blame", "story", "src/mian.rs"], "did you mean src/main.rs?"),
        (&["history", "story", "src/mian.rs"], "did you mean src/main.rs?"),
        (&["diff", "story", "..", "srcs"], "did you mean src?"),
        (&["tools", "read-file"], "did you mean read_file?"),
    ] {
        let told = program.run(mistyped);
        assert!(told.contains(meant) && told.ends_with("[exit 3]"), "{mistyped:?}: {told}");
    }
    for (mistyped, meant) in [
        (&["lgo", "story"][..], "'log'"),
        (&["help", "lgo"], "'log'"),
        (&["log", "story", "--limt", "3"], "'--limit'"),
        (&["run", "x.jsonl", "--backend", "hots"], "'host'"),
        (&["mcp", "--tools", "file"], "did you mean files?"),
        (&["fork", "story", "--tool", "grpe"], "did you mean grep?"),
        (&["replay", "story", "--until", "fail"], "did you mean failed?"),
        (&["replay", "story", "--show", "outputt"], "did you mean output?"),
        (&["bisect", "story", "--slice", "Usgae exists"], "did you mean Usage?"),
    ] {
        let told = program.run(mistyped);
        assert!(told.contains(meant) && told.ends_with("[exit 2]"), "{mistyped:?}: {told}");
    }
    for mistyped in [&["remov"][..], &["undo", "--forc"], &["blame", "story", "--lines"]] {
        let told = program.run(mistyped);
        assert!(told.ends_with("[exit 2]") && !told.contains("similar"), "{mistyped:?}: {told}");
        assert!(!told.contains("--force") && !told.contains("--in-process"), "{mistyped:?}: {told}");
    }
    let told = program.run(&["run", "x.jsonl", "--backend", "vm"]);
    assert!(told.contains("docker, mock") && !told.contains("similar"), "{told}");
    assert!(program.printed(&["log", "story", "--kind", "writefile"]).contains("WriteFile"));
    assert_eq!(program.printed(&["log", "story", "--kind", "ChildStarted"]), "", "it is a kind, and there is none");
}

#[test]
fn program_without_command_shows_latest_sessions() {
    let empty = Program::new().run(&[]);
    assert!(empty.contains("Begin:") && empty.contains("no sessions yet") && empty.ends_with("[exit 0]"), "{empty}");
    let program = Program::with_story();
    let script = program.file("more.jsonl", "");
    (0..6).for_each(|_| drop(program.printed(&["run", &script])));
    let shown = program.run(&[]);
    let latest: Vec<&str> = shown.lines().filter(|line| line.starts_with("more")).collect();
    assert_eq!(latest.len(), 5, "{shown}");
    assert!(latest[0].starts_with("more-6") && !shown.contains("\nstory"), "{shown}");
}

#[test]
fn run_says_when_its_session_goes_on() {
    let program = Program::with_story();
    let script = program.file("more.jsonl", r#"{"tool": "ls"}"#);
    assert!(!program.run(&["run", &script, "--session", "new"]).contains("continues"));
    assert!(program.run(&["run", &script, "--session", "new"]).contains("note: session new continues after 3 events"));
}

#[test]
fn run_expected_has_backend_of_its_session() {
    let program = Program::new();
    let call = r#"{"tool": "shell_execute", "params": {"command": "echo hello"}}"#;
    let script = program.file("shell.jsonl", call);
    program.printed(&["run", &script, "--backend", "host", "--yes", "--session", "right"]);
    let again = program.run(&["run", &script, "--expect", "right", "--yes"]);
    assert!(again.ends_with("[exit 0]"), "{again}");
    let backends: Vec<String> =
        program.json(&["sessions"]).as_array().unwrap().iter().map(|row| row["backend"].to_string()).collect();
    assert_eq!(backends, ["\"host\"", "\"host\""]);
}

#[test]
fn exec_in_memory_is_refused_and_records_nothing() {
    let program = Program::with_story();
    let events = program.json_lines(&["log", "story"]).len();
    let refused = program.run(&["exec", "story", "--", "ls"]);
    assert!(refused.contains("has no shell") && refused.ends_with("[exit 2]"), "{refused}");
    assert_eq!(program.json_lines(&["log", "story"]).len(), events);
}

#[test]
fn diff_without_beginning_leaves_out_mounts() {
    let program = Program::new();
    program.file("tree/old.txt", "old\n");
    let call = r#"{"tool": "write_file", "params": {"file_path": "new.txt", "content": "new\n"}}"#;
    program.printed(&["run", &program.file("s.jsonl", call), "--mount", "tree"]);
    assert_eq!(program.printed(&["diff", "s", "..", "--name-only"]), "new.txt\n");
    assert_eq!(program.printed(&["diff", "s", "0..", "--name-only"]), "new.txt\nold.txt\n");
    let memory = program.file("empty.jsonl", "");
    program.printed(&["run", &memory]);
    assert_eq!(program.printed(&["diff", "empty", ".."]), "");
}

#[test]
fn session_left_out_is_the_only_one_or_that_of_the_directory() {
    let (program, script) = Program::with_own_directory("a.txt", "one\n");
    assert_eq!(program.run(&["ls", "-R"]), "a.txt\nnote: session own\n[exit 0]");
    assert!(program.run(&["exec", "--", "cat", "a.txt"]).starts_with("one\n"));
    assert!(program.run(&["diff", ".."]).ends_with("[exit 0]"));
    assert!(program.run(&["remove", "--yes"]).ends_with("[exit 2]"), "that wants a name");
    assert!(program.run(&["run", &script, "--session", "other"]).contains("1 went wrong"));
    let refused = program.run(&["log"]);
    assert!(refused.contains("the latest are other, own") && refused.ends_with("[exit 2]"), "{refused}");
    let mut within = program.command(&["log", "--calls"]);
    let within = crate::rig::told(&within.current_dir(program.path("mine")).output().unwrap());
    assert!(within.contains("read_file") && within.contains("session own"), "{within}");
    assert!(program.run(&["cat"]).ends_with("[exit 2]"), "more is missing than a session");
    let refused = program.run(&["export", "own"]);
    assert!(refused.contains("<FILE>") && refused.ends_with("[exit 2]"), "it is no name of a file: {refused}");
}

#[test]
fn habits_from_other_programs_work_or_name_the_command() {
    let program = Program::with_story();
    assert_eq!(program.printed(&["diff", "story"]), program.printed(&["diff", "story", ".."]));
    assert_eq!(program.printed(&["diff", "--stat"]), program.printed(&["diff", "story", "..", "--stat"]));
    assert_eq!(program.printed(&["log", "story", "-n", "2"]).lines().count(), 2);
    for (given, wanted) in [
        (&["diff", "story", "8"][..], "`foldspace show story 8`"),
        (&["diff", "story", "src"], "`foldspace diff story .. src`"),
        (&["show", "story"], "`foldspace log story --calls`"),
        (&["rewind", "story"], "--to <POSITION>"),
    ] {
        let told = program.run(given);
        assert!(told.contains(wanted) && told.ends_with("[exit 2]"), "{given:?}: {told}");
    }
}

#[test]
fn commands_of_other_programs_are_answered() {
    let program = Program::with_story();
    let before = program.printed(&["log", "story"]);
    for (given, wanted) in [
        (&["resume"][..], "`foldspace exec NAME make`"),
        (&["continue", "story"], "--from-line N` continues a script"),
        (&["kill", "story"], "`foldspace cancel NAME`"),
        (&["cd", "src"], "`foldspace shell NAME`"),
        (&["cp", "a", "b"], "`foldspace exec NAME COMMAND`"),
        (&["mv", "a", "b"], "`foldspace exec NAME COMMAND`"),
        (&["mkdir", "a"], "`foldspace exec NAME COMMAND`"),
        (&["help", "inspect"], "`foldspace show NAME N`"),
        (&["checkout", "story"], "`foldspace rewind NAME --to N`"),
        (&["branch"], "`foldspace fork NAME`"),
        (&["revert", "src/main.rs"], "--at <POSITION>"),
    ] {
        let told = program.run(given);
        assert!(told.contains(wanted) && told.ends_with("[exit 2]"), "{given:?}: {told}");
        assert!(!told.contains("similar"), "{given:?}: {told}");
    }
    for path in ["rm", "delete"] {
        let told = program.run(&[path, "src/main.rs", "--yes"]);
        assert!(told.contains("no session is called \"src/main.rs\"") && told.ends_with("[exit 3]"), "{told}");
    }
    assert!(program.run(&["start", "second", "--backend", "memory"]).contains("session second"));
    assert!(program.run(&["version"]).starts_with("foldspace "));
    assert!(program.run(&["stop"]).ends_with("[exit 0]"));
    assert_eq!(program.printed(&["log", "story"]), before);
}

#[test]
fn log_of_a_path_shows_its_changes() {
    let program = Program::with_story();
    let all = program.printed(&["log", "story", "a.txt"]);
    let lines: Vec<&str> = all.lines().collect();
    assert!(lines.len() > 1 && lines[0].contains("created"), "{all}");
    let last = program.printed(&["log", "story", "a.txt", "-n", "1"]);
    assert!(last.split_whitespace().eq(lines[lines.len() - 1].split_whitespace()), "{last}");
    let reversed = program.printed(&["log", "story", "a.txt", "--reverse"]);
    assert!(reversed.lines().eq(lines.iter().rev().copied()), "{reversed}");
    for wrong in [&["log", "story", "a.txt", "--calls"][..], &["log", "story", "--patch"], &["ls", "-l", "--stat"]] {
        assert!(program.run(wrong).ends_with("[exit 2]"), "{wrong:?}");
    }
}

#[test]
fn exec_needs_no_dashes_before_the_command() {
    let (program, _) = Program::with_own_directory("a.txt", "one\n");
    assert!(program.run(&["exec", "own", "cat", "-v", "a.txt"]).starts_with("one\n"));
    assert!(program.run(&["exec", "--timeout", "9", "own", "echo", "-s", "x", "--json"]).starts_with("-s x --json\n"));
    assert!(program.run(&["exec", "-s", "own", "echo", "-s"]).starts_with("-s\n"));
    assert!(program.run(&["exec", "own", "--", "echo", "--", "x"]).starts_with("-- x\n"));
    assert!(program.run(&["exec", "nobody", "--", "ls"]).contains("no session is called \"nobody\", and"));
    assert!(program.run(&["exec", "own", "--tiemout", "9", "echo"]).contains("'--timeout'"));
    let found = program.run(&["bisect", "own", "grep", "-q", "one", "a.txt"]);
    assert!(found.contains("no file changed between"), "{found}");
    for (first, hint) in [("echo", "`foldspace sessions` lists them"), ("onw", "did you mean own?")] {
        let told = program.run(&["exec", first, "hi"]);
        assert!(told.contains("takes the session first") && told.contains(hint), "{told}");
        assert!(told.ends_with("[exit 3]"), "{told}");
    }
    let within = |arguments: &[&str]| {
        let mut command = program.command(arguments);
        crate::rig::told(&command.current_dir(program.path("mine")).output().unwrap())
    };
    assert!(within(&["exec", "cat", "a.txt"]).starts_with("one\n"));
    assert!(within(&["exec", "--", "cat", "a.txt"]).starts_with("one\n"));
    let refused = within(&["exec", "onw", "hi"]);
    assert!(refused.contains("did you mean own?") && refused.contains("`exec -- onw`"), "{refused}");
}

#[test]
fn next_step_is_named_where_a_command_line_is_nearly_right() {
    let program = Program::with_story();
    for (given, hint) in [
        (&["rewind", "story", "20"][..], "`foldspace rewind story --to 20`"),
        (&["undo", "story", "4"], "`foldspace undo story --call 4`"),
        (&["attach", "claude"], "--agent claude"),
        (&["redo", "story"], "undo NAME --redo"),
        (&["exec", "--new", "fresh"], "`foldspace exec --new fresh make` runs a command"),
        (&["exec", "--new", "fresh", "--backend", "host"], "options of `exec` come before the session"),
    ] {
        let told = program.run(given);
        assert!(told.contains(hint) && told.ends_with("[exit 2]"), "{given:?}: {told}");
    }
    for given in [&["log", "story", "-p"][..], &["fork", "story", "second"], &["rerun", "story", "--call", "1"]] {
        let told = program.run(given);
        assert!(!told.contains("tip:") && told.ends_with("[exit 2]"), "{given:?}: {told}");
    }
    assert!(program.run(&["exec", "make", "test"]).contains("`foldspace new NAME --dir .`"));
    assert!(program.printed(&["cat", "story", "/workspace/src/main.rs"]).contains("fn main"));
    assert!(!program.printed(&["sessions"]).contains("fresh"));
}
