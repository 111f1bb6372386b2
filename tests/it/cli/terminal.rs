//! At a terminal: questions, their answers, and the prompt.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use crate::rig::{Program, eventually};

/// A program at a terminal of its own; it ends with this.
pub(super) struct Terminal {
    child: Child,
    keys: File,
    shown: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    pub(super) fn of(mut command: Command) -> Self {
        let keys = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&keys).unwrap();
        unlockpt(&keys).unwrap();
        tcsetwinsize(&keys, Winsize { ws_row: 24, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let path = ptsname(&keys, Vec::new()).unwrap().into_string().unwrap();
        let side = || Stdio::from(File::options().read(true).write(true).open(&path).unwrap());
        command.env("TERM", "xterm").stdin(side()).stdout(side()).stderr(side());
        let child = command.spawn().unwrap();
        // Its ends of the terminal go with it.
        drop(command);
        let keys = File::from(keys);
        let (mut screen, shown) = (keys.try_clone().unwrap(), Arc::new(Mutex::new(Vec::new())));
        let seen = Arc::clone(&shown);
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(read @ 1..) = screen.read(&mut buffer) {
                seen.lock().unwrap().extend_from_slice(&buffer[..read]);
            }
        });
        Self { child, keys, shown }
    }

    pub(super) fn shown(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().unwrap()).into_owned()
    }

    /// Waits until something was shown that often.
    pub(super) fn wait_for(&self, text: &str, times: usize) -> String {
        eventually(&format!("{text:?} is shown {times} times"), || self.shown().matches(text).count() >= times);
        self.shown()
    }

    pub(super) fn type_in(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Gives it another size, and tells the program, whose controlling terminal it is not.
    pub(super) fn resize(&self, rows: u16, columns: u16) {
        tcsetwinsize(&self.keys, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        self.signal("-WINCH");
    }

    /// True if keys reach the program one by one, without echo.
    pub(super) fn is_raw(&self) -> bool {
        !self.modes().intersects(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)
    }

    pub(super) fn modes(&self) -> LocalModes {
        tcgetattr(&self.keys).unwrap().local_modes
    }

    pub(super) fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
    }

    pub(super) fn end(mut self) -> i32 {
        self.wait()
    }

    pub(super) fn wait(&mut self) -> i32 {
        self.child.wait().unwrap().code().unwrap()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

const QUESTION: &str = "[y/n/a/A] ";
const ASKED: &str = r#"{"tool": "shell_execute", "params": {"command": "make all"}}"#;

impl Program {
    /// A run of that many calls, each of which is asked about, on a mock that takes a while.
    fn asked(&self, calls: usize, more: &[&str]) -> Terminal {
        let answers = self.file("answers.json", r#"[{"command": "make*", "stdout": "built\n", "millis": 300}]"#);
        let script = self.file("asked.jsonl", format!("{ASKED}\n").repeat(calls));
        let arguments = ["run", &script, "--backend", "mock", "--answers", &answers, "--keep-going"];
        Terminal::of(self.command(&[&arguments, more].concat()))
    }

    /// What was decided about the commands of the session `asked`, and why.
    fn decisions(&self) -> Vec<String> {
        let events = self.json_lines(&["log", "asked"]);
        let decided = events.iter().filter(|event| event["kind"] == "CommandDecided");
        decided.map(|event| told(&event["event"])).collect()
    }
}

fn told(decided: &serde_json::Value) -> String {
    let text = |name: &str| decided[name].as_str().unwrap_or_default();
    format!("{}: {}", text("decision"), text("reason"))
}

#[test]
fn question_yes_allows_once_no_denies() {
    let program = Program::new();
    let mut run = program.asked(2, &[]);
    let shown = run.wait_for(QUESTION, 1);
    assert!(shown.contains("the agent wants to run, in session asked:\r\n  make all\r\nallow it?"), "{shown}");
    run.type_in("y\n");
    run.wait_for(QUESTION, 2);
    run.type_in("no\n");
    assert_eq!(run.end(), 1);
    assert_eq!(program.decisions(), ["allow: ", "deny: the person said no"]);
}

#[test]
fn question_answered_for_session_is_not_repeated() {
    for (answer, reason) in [("a\n", "allow: for the session"), ("A\n", "allow: everything for the session")] {
        let program = Program::new();
        let mut run = program.asked(3, &[]);
        run.wait_for(QUESTION, 1);
        run.type_in(answer);
        assert_eq!(run.end(), 0);
        assert_eq!(program.decisions(), [reason, "allow: ", "allow: "]);
    }
}

#[test]
fn question_repeats_wrong_answer_a_few_times() {
    let program = Program::new();
    let mut run = program.asked(2, &[]);
    run.wait_for(QUESTION, 1);
    run.type_in("what?\n");
    run.wait_for(QUESTION, 2);
    run.type_in("yes\n");
    for (asked, nonsense) in [(3, "\n"), (4, "yy\n"), (5, "\u{e4}\n")] {
        run.wait_for(QUESTION, asked);
        run.type_in(nonsense);
    }
    assert_eq!(run.end(), 1);
    assert_eq!(program.decisions(), ["allow: ", "deny: the person gave no clear answer"]);
}

#[test]
fn question_end_of_input_denies() {
    let program = Program::new();
    let mut run = program.asked(1, &[]);
    run.wait_for(QUESTION, 1);
    run.type_in("\u{4}");
    assert_eq!(run.end(), 1);
    assert_eq!(program.decisions(), ["deny: the person did not answer: the input has ended"]);
}

#[test]
fn question_ignores_earlier_input() {
    let program = Program::new();
    let mut run = program.asked(2, &["--timeout", "8"]);
    run.wait_for(QUESTION, 1);
    // The first question is given up before its answer is whole.
    run.type_in("y");
    run.wait_for(QUESTION, 2);
    run.type_in("n\n");
    assert_eq!(run.end(), 1);
    assert_eq!(program.decisions(), ["deny: the person said no"]);
}

#[test]
fn progress_bar_hides_for_question() {
    let program = Program::new();
    let mut run = program.asked(2, &[]);
    run.wait_for(QUESTION, 1);
    // The time is the subject: the bar would move eight times a second.
    std::thread::sleep(Duration::from_millis(500));
    let shown = run.shown();
    assert!(shown.ends_with(QUESTION), "something was drawn over the question: {shown:?}");
    run.type_in("a\n");
    let shown = run.wait_for("1/2", 1);
    assert!(shown.split(QUESTION).nth(1).unwrap().contains("1/2"), "{shown:?}");
    assert_eq!(run.end(), 0);
}

#[test]
fn question_interrupted_ends_the_run() {
    let program = Program::new();
    let run = program.asked(2, &[]);
    run.wait_for(QUESTION, 1);
    run.signal("-INT");
    assert_eq!(run.end(), 130);
    let calls = program.json_lines(&["log", "asked", "--calls"]);
    assert_eq!((calls.len(), calls[0]["status"].as_str()), (1, Some("interrupted")));
    assert!(program.run(&["gc"]).ends_with("[exit 0]"), "the store is free");
}
