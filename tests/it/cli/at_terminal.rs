//! Commands that are given a terminal, or input that comes while they run.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::terminal::Terminal;
use crate::rig::{Program, eventually};

const CTRL_C: &str = "\u{3}";
const CTRL_D: &str = "\u{4}";

impl Program {
    fn with_files_on_host(self, files: &[(&str, &str)]) -> Self {
        let call = |(path, text): &(&str, &str)| {
            let params = json!({ "file_path": path, "content": text });
            json!({ "tool": "write_file", "params": params }).to_string()
        };
        let script = files.iter().map(call).collect::<Vec<_>>().join("\n");
        self.printed(&["run", &self.file("work.jsonl", script), "--backend", "host", "--session", "work"]);
        self
    }

    fn at_terminal(&self, command: &[&str]) -> Terminal {
        Terminal::of(self.command(&[&["exec", "work", "-t", "--"], command].concat()))
    }

    fn events(&self, kind: &str) -> Vec<Value> {
        let events = self.json_lines(&["log", "work"]).into_iter();
        events.filter(|event| event["kind"] == kind).map(|event| event["event"].clone()).collect()
    }

    /// The parts of the last recording, without their times.
    fn recording(&self) -> Vec<(String, String)> {
        let last = self.events("TerminalRecorded").pop().unwrap();
        let digest = last["cast"].as_str().unwrap().to_owned();
        let sessions = foldspace::Sessions::open(self.data(), foldspace::Registry::standard()).unwrap();
        let session = sessions.session(sessions.find("work").unwrap().id).unwrap();
        let cast = session.content(&digest.parse().unwrap()).unwrap();
        let cast = String::from_utf8(cast.to_vec()).unwrap();
        let parts = cast.lines().skip(1).map(|line| serde_json::from_str::<(f64, String, String)>(line).unwrap());
        parts.map(|(_, kind, text)| (kind, text)).collect()
    }
}

#[test]
fn exec_tty_needs_a_terminal() {
    let program = Program::new().with_files_on_host(&[]);
    insta::assert_snapshot!(program.run(&["exec", "work", "-t", "--", "true"]), @"
    error: --tty needs a terminal as standard input
    hint: leave out --tty; --stdin forwards piped input
    [exit 2]
    ");
    insta::assert_snapshot!(program.run(&["show", "work", "1", "--play"]), @"
    error: no recording: the command had no terminal
    hint: `foldspace exec -t` runs a command in one
    [exit 1]
    ");
    let told = program.run(&["show", "work", "1", "--speed", "2"]);
    assert!(told.contains("--play") && told.ends_with("[exit 2]"), "{told}");
}

#[test]
fn exec_tty_types_into_python_and_records_no_input() {
    let program = Program::new().with_files_on_host(&[]);
    let script = "import getpass; print('sum', 2 + int(getpass.getpass('se' + 'cret: ')))";
    let mut python = program.at_terminal(&["python3", "-q"]);
    python.wait_for(">>> ", 1);
    assert!(python.is_raw());
    python.type_in(&format!("{script}\n"));
    python.wait_for("secret: ", 1);
    python.type_in("7314655\n");
    python.wait_for("sum 7314657", 1);
    // Before its prompt, Python may lose the key while it changes the terminal's mode.
    python.wait_for(">>> ", 2);
    python.type_in(CTRL_D);
    eventually("the terminal is as it was", || !python.is_raw());
    assert_eq!(python.end(), 0);
    // What was not shown is nowhere in the data.
    let found = Command::new("grep").args(["-raqF", "7314655"]).arg(program.data()).status().unwrap();
    assert_eq!(found.code(), Some(1));
    let recorded = program.events("TerminalRecorded").pop().unwrap();
    assert_eq!((&recorded["rows"], &recorded["columns"]), (&json!(24), &json!(100)));
    let text: String = program.recording().into_iter().map(|(_, text)| text).collect();
    assert!(text.contains("sum 7314657"), "{text}");
    let mut calls = program.json_lines(&["log", "work"]).into_iter().filter(|event| event["kind"] == "CallStarted");
    let call = calls.next_back().unwrap()["seq"].to_string();
    let played = program.printed(&["show", "work", &call, "--play", "--speed", "1000"]);
    assert!(played.contains("sum 7314657"), "{played}");
    assert!(program.run(&["verify"]).ends_with("[exit 0]"));
}

#[test]
fn undo_shows_what_would_change_before_it_asks() {
    let program = Program::new().with_files_on_host(&[("a.txt", "one\n")]);
    let mut undo = Terminal::of(program.command(&["undo", "work"]));
    undo.wait_for("[y/N]", 1);
    let shown = undo.shown();
    assert!(shown.contains("undoes #") && shown.contains("a.txt"), "the list comes first: {shown}");
    undo.type_in("n\n");
    assert_eq!(undo.end(), 2);
}

#[test]
fn exec_tty_rebases_with_an_editor() {
    let program = Program::new().with_files_on_host(&[]);
    let editor =
        program.file("editor", "printf 'which line? '; read line </dev/tty; sed -i \"${line}s/^pick/drop/\" \"$1\"\n");
    let begin = "git init -q; git config user.name N; git config user.email e@x; \
                 for n in one two three; do echo $n > $n; git add $n; git commit -qm $n; done";
    program.printed(&["exec", "work", "--sh", "--", begin]);
    let editing = format!("GIT_SEQUENCE_EDITOR=sh {editor}");
    let rebase = ["exec", "work", "-t", "-e", &editing, "--", "git", "rebase", "-i", "--root"];
    let mut rebase = Terminal::of(program.command(&rebase));
    rebase.wait_for("which line? ", 1);
    rebase.type_in("2\n");
    rebase.wait_for("Successfully rebased", 1);
    assert_eq!(rebase.end(), 0);
    assert_eq!(program.printed(&["exec", "work", "--", "git", "log", "--format=%s"]), "three\none\n");
}

#[test]
fn exec_tty_pages_through_less_and_shows_top() {
    let long: String = (1..=500).map(|n| format!("line {n}.\n")).collect();
    let program = Program::new().with_files_on_host(&[("long.txt", &long)]);
    let mut less = program.at_terminal(&["less", "long.txt"]);
    let shown = less.wait_for("line 20.", 1);
    assert!(!shown.contains("line 100."), "{shown}");
    less.type_in("G");
    less.wait_for("line 500.", 1);
    less.type_in("q");
    assert_eq!(less.end(), 0);
    let mut top = program.at_terminal(&["top", "-d", "0.2"]);
    top.wait_for("load average", 2);
    top.type_in("q");
    assert_eq!(top.end(), 0);
}

#[test]
fn exec_tty_passes_on_a_new_size_and_an_interrupt() {
    let program = Program::new().with_files_on_host(&[]);
    let mut shell =
        program.at_terminal(&["sh", "-c", "trap 'stty size' WINCH; stty size; while :; do sleep 0.05; done"]);
    shell.wait_for("24 100", 1);
    shell.resize(40, 132);
    shell.wait_for("40 132", 1);
    shell.type_in(CTRL_C);
    assert_eq!(shell.end(), 130);
    assert!(program.recording().contains(&("r".to_owned(), "132x40".to_owned())));
    let result = program.events("CommandResult").pop().unwrap();
    assert_eq!((&result["signal"], &result["cancelled"]), (&json!(2), &json!(false)), "{result}");
}

#[test]
fn exec_tty_hung_up_ends_its_command() {
    // The program is killed in the second round; its owner lives.
    for (signal, program) in [("-HUP", Program::new()), ("-KILL", Program::new().through_owner())] {
        let program = program.with_files_on_host(&[]);
        let shell = program.at_terminal(&["sh", "-ic", "trap '' TERM; echo $$ is there; sleep 1000"]);
        let shown = shell.wait_for(" is there", 1);
        let process = shown.split_once(" is there").unwrap().0.trim().rsplit('\n').next().unwrap().to_owned();
        shell.signal(signal);
        eventually("the command is gone", || !std::path::Path::new(&format!("/proc/{process}")).exists());
        eventually("its end is recorded", || program.events("CommandResult").len() == 1);
        if signal == "-HUP" {
            eventually("the terminal is as it was", || !shell.is_raw());
        }
        drop(shell);
        let (result, call) = (program.events("CommandResult").remove(0), program.events("CallFinished").pop().unwrap());
        assert_eq!((&result["cancelled"], &call["status"]), (&json!(true), &json!("interrupted")), "{result} {call}");
    }
}

#[test]
fn exec_stdin_streams_lines_as_they_come() {
    let program = Program::new().with_files_on_host(&[]);
    let mut command =
        program.command(&["exec", "work", "-i", "--", "sh", "-c", "while read line; do echo got $line; done; exit 5"]);
    let mut running = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut input, mut output) = (running.stdin.take().unwrap(), BufReader::new(running.stdout.take().unwrap()));
    for word in ["one", "two"] {
        writeln!(input, "{word}").unwrap();
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, format!("got {word}\n"));
    }
    drop(input);
    assert_eq!(running.wait().unwrap().code(), Some(5));
    // More than is held anywhere, and no text.
    let much: Vec<u8> = (0..=255).cycle().take(3 << 20).collect();
    assert_eq!(program.fed(&["exec", "work", "-i", "--", "sh", "-c", "wc -c; exit 3"], &much), "3145728\n[exit 3]");
}

#[test]
fn shell_execute_with_tty_has_a_terminal_and_no_more_input() {
    let program = Program::new().with_files_on_host(&[]);
    let call = json!({ "tool": "shell_execute", "params": {
        "command": "test -t 0 && test -t 1 && test -t 2 && stty size; echo $TERM; cat", "tty": true, "stdin": "typed\n",
    } });
    let script = program.file("tty.jsonl", call.to_string());
    program.printed(&["run", &script, "--yes", "--session", "work"]);
    let result = program.events("CallFinished").pop().unwrap()["result"].clone();
    // The typed text is shown when it arrives, before or after what the command says first.
    let mut lines: Vec<&str> = result["stdout"].as_str().unwrap().split_terminator("\r\n").collect();
    lines.sort_unstable();
    assert_eq!(lines, ["24 80", "typed", "typed", "xterm-256color"], "{result}");
}

#[test]
fn shell_gives_terminals_to_lines_that_need_one() {
    let program = Program::new().with_files_on_host(&[("a.txt", "one\ntwo\n")]);
    let mut shell = Terminal::of(program.command(&["shell", "work"]));
    shell.wait_for("$ ", 1);
    shell.type_in("test -t 1 || echo no''ne\n");
    shell.wait_for("none\r\n", 1);
    shell.wait_for("$ ", 2);
    shell.type_in("less a.txt\n");
    shell.wait_for("(END)", 1);
    shell.type_in("q");
    shell.wait_for("$ ", 3);
    shell.type_in("cat a.txt | wc -l\n");
    shell.wait_for("2\r\n", 1);
    shell.type_in(CTRL_D);
    assert_eq!(shell.end(), 0);
    assert_eq!(program.events("TerminalRecorded").len(), 1);
    let mut shell = Terminal::of(program.command(&["shell", "work", "-t"]));
    shell.wait_for("$ ", 1);
    shell.type_in("cd /; pwd\n");
    shell.wait_for("$ ", 2);
    shell.type_in("read word; echo \"<$word>\"; exit 3\n");
    shell.wait_for("exit 3\u{1b}[?2004l\r\n", 1);
    eventually("the keys are the command's", || shell.is_raw());
    shell.type_in("typed\n");
    shell.wait_for("<typed>", 1);
    shell.wait_for("$ ", 3);
    shell.type_in("exit\n");
    assert_eq!(shell.end(), 3);
}

#[test]
fn exec_tty_in_container_has_a_terminal() {
    let Some(program) = Program::with_container() else { return };
    let mut shell = program.at_terminal(&["sh", "-i"]);
    shell.wait_for("$ ", 1);
    shell.type_in("stty size; tty\n");
    shell.wait_for("24 100\r\n", 1);
    shell.wait_for("/dev/pts/", 1);
    shell.resize(50, 90);
    // Once it has spoken it is in the foreground.
    shell.type_in("sh -c 'echo begun; exec sleep 1000'\n");
    shell.wait_for("begun\r\n", 1);
    shell.type_in(CTRL_C);
    shell.wait_for("^C", 1);
    shell.type_in("stty size; echo kept > b.txt; exit 4\n");
    shell.wait_for("50 90\r\n", 1);
    assert_eq!(shell.end(), 4);
    assert_eq!(program.printed(&["cat", "work", "b.txt"]), "kept\n");
    assert_eq!(program.fed(&["exec", "work", "-i", "--", "wc", "-l"], b"1\n2\n"), "2\n[exit 0]");
}
