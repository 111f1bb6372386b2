//! The prompt of `shell` on a terminal: lines that are edited and recalled, and the keys that end something.

use std::os::unix::fs::PermissionsExt;

use rustix::termios::LocalModes;

use super::terminal::Terminal;
use crate::rig::Program;

const CTRL_D: &str = "\u{4}";
const UP: &str = "\u{1b}[A";
/// Output of the editor after each line.
const TAKEN: &str = "\u{1b}[?2004l\r\n";

impl Program {
    fn with_prompt() -> (Self, Terminal) {
        let program = Self::new();
        program.printed(&["run", &program.file("work.jsonl", ""), "--backend", "host", "--session", "work"]);
        let shell = program.prompt();
        (program, shell)
    }

    fn prompt(&self) -> Terminal {
        let shell = Terminal::of(self.command(&["shell", "work"]));
        shell.wait_for("$ ", 1);
        shell
    }

    fn commands(&self) -> Vec<String> {
        let events = self.json_lines(&["log", "work", "--kind", "CallStarted"]);
        events.iter().map(|event| event["event"]["params"]["command"].as_str().unwrap().to_owned()).collect()
    }
}

#[test]
fn shell_recalls_and_edits_lines() {
    let (program, mut shell) = Program::with_prompt();
    shell.type_in("echo o''ne\r");
    shell.wait_for("one\r\n", 1);
    // Up, to the beginning of the line, and back over the whole.
    shell.type_in(&format!("{UP} tw''o\u{1}\u{b}\u{19}\r"));
    shell.wait_for("one two\r\n", 1);
    // Backspace takes a character, however many bytes it has.
    shell.type_in("echo h''äß日本\u{7f}x\r");
    shell.wait_for("häß日x\r\n", 1);
    shell.type_in("\u{12}tw'\r");
    shell.wait_for("one two\r\n", 2);
    // A pasted text is one line, and what is typed early is kept.
    shell.type_in("\u{1b}[200~echo p''1\necho p''2\u{1b}[201~\recho ear''ly\r");
    shell.wait_for("p1\r\np2\r\n", 1);
    shell.wait_for("early\r\n", 1);
    shell.type_in(CTRL_D);
    assert_eq!(shell.end(), 0);
    let history = program.data().join("shell-history");
    assert_eq!(history.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let history = std::fs::read_to_string(history).unwrap();
    assert!(history.ends_with("\necho o''ne tw''o\necho p''1\\necho p''2\necho ear''ly\n"), "{history}");
    let mut again = program.prompt();
    again.type_in(&format!("{UP}\r"));
    again.wait_for("early\r\n", 1);
    again.type_in("exit\r");
    assert_eq!(again.end(), 0);
    assert_eq!(program.commands().last().unwrap(), "echo ear''ly");
}

#[test]
fn shell_prompt_keeps_output_without_newline_and_has_help() {
    let (program, mut shell) = Program::with_prompt();
    shell.type_in("printf un''ended\r");
    let shown = shell.wait_for("unended", 1);
    assert!(!shown.contains("unended\r\u{1b}[K"), "{shown:?}");
    shell.wait_for("$ ", 2);
    shell.type_in("help\r");
    shell.wait_for("Ctrl-R", 1);
    shell.type_in(CTRL_D);
    assert_eq!(shell.end(), 0);
    assert_eq!(program.commands(), ["printf un''ended"]);
}

#[test]
fn shell_survives_one_interrupt_not_two() {
    let (program, mut shell) = Program::with_prompt();
    for (number, keys) in [(1, "echo never\u{3}"), (2, "\u{3}")] {
        shell.type_in(keys);
        shell.wait_for(TAKEN, number);
        shell.wait_for("$ ", number + 1);
    }
    shell.signal("-INT");
    // The time is the subject: a signal at the prompt shows nothing.
    std::thread::sleep(std::time::Duration::from_millis(200));
    shell.type_in("echo al''ive\r");
    shell.wait_for("alive\r\n", 1);
    shell.type_in("trap '' TERM; echo be''gun; while :; do sleep 0.05; done\r");
    shell.wait_for("begun\r\n", 1);
    shell.signal("-INT");
    shell.wait_for("interrupted", 1);
    shell.type_in("trap '' TERM; echo ag''ain; while :; do sleep 0.05; done\r");
    shell.wait_for("again\r\n", 1);
    shell.signal("-INT");
    // The time is the subject: signals of one kind that come at once are one.
    std::thread::sleep(std::time::Duration::from_millis(200));
    shell.signal("-INT");
    shell.ends_restored(130);
    assert_eq!(program.commands()[0], "echo al''ive");
}

#[test]
fn shell_takes_early_end_of_input_and_restores_terminal() {
    let (program, mut shell) = Program::with_prompt();
    shell.type_in("echo be''gun; sleep 0.3; exit 3\r");
    shell.wait_for("begun\r\n", 1);
    shell.type_in(CTRL_D);
    shell.ends_restored(3);
    let shell = program.prompt();
    assert!(shell.is_raw());
    shell.signal("-TERM");
    shell.ends_restored(130);
}

impl Terminal {
    /// Waits for the end of the program, which leaves the terminal as it was.
    fn ends_restored(mut self, code: i32) {
        assert_eq!(self.wait(), code);
        assert!(self.modes().contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG));
        self.wait_for("\u{1b}[?2004l", 1);
        let shown = self.shown();
        assert!(shown.rfind("[?2004l") > shown.rfind("[?2004h"), "pasted text is marked: {shown:?}");
    }
}
