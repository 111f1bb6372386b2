//! Commands at a terminal, and input while they run.

use std::sync::Mutex;

use super::*;
use crate::backends::{CommandInput, WindowSize};

const WINDOW: WindowSize = WindowSize { rows: 30, columns: 100 };

/// A command with its input and output held by the test.
struct Driven<'a> {
    input: &'a CommandInput,
    cancel: &'a Cancel,
    shown: &'a Mutex<String>,
}

impl Driven<'_> {
    /// Waits until a text is shown after the text found before.
    fn wait_for(&self, text: &str) {
        eventually(&format!("{text:?} is shown"), || {
            let mut shown = self.shown.lock().unwrap();
            let found = shown.find(text).map(|at| at + text.len());
            found.map(|end| shown.drain(..end)).is_some()
        });
    }

    fn send(&self, bytes: &[u8]) -> bool {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(self.input.send(bytes))
    }
}

/// Runs a command, with or without a terminal, while `drive` operates it.
fn driven(runner: &Runner, argv: &[&str], terminal: Option<WindowSize>, drive: impl FnOnce(&Driven<'_>)) -> Ran {
    let (input, cancel, shown) = (CommandInput::new().unwrap(), Cancel::new().unwrap(), Mutex::new(String::new()));
    let mut spec = RunSpec { terminal, input: Some(input.clone()), ..spec(argv) };
    spec.env.extend([("TERM".into(), "xterm".into()), ("PS1".into(), "ready> ".into())]);
    spec.grace = Duration::from_secs(2);
    std::thread::scope(|scope| {
        let running = scope.spawn(|| {
            let mut stdout = Vec::new();
            let mut output = |_, bytes: &[u8]| {
                stdout.extend_from_slice(bytes);
                shown.lock().unwrap().push_str(&String::from_utf8_lossy(bytes));
            };
            let ended = runner.run(&spec, &mut output, &cancel).unwrap();
            input.close();
            Ran { stdout: String::from_utf8_lossy(&stdout).into_owned(), stderr: String::new(), ended }
        });
        drive(&Driven { input: &input, cancel: &cancel, shown: &shown });
        running.join().unwrap()
    })
}

fn at_terminal(argv: &[&str], drive: impl FnOnce(&Driven<'_>)) -> Ran {
    driven(&World::new().runner, argv, Some(WINDOW), drive)
}

#[test]
fn terminal_controls_a_session_of_its_own() {
    let script = "test -t 0 && test -t 1 && test -t 2 && stty size </dev/tty && ps -o tpgid=,pgid= -p $$";
    let ran = at_terminal(&["sh", "-c", script], |_| ());
    let (size, groups) = ran.stdout.split_once("\r\n").unwrap();
    let groups: Vec<&str> = groups.split_whitespace().collect();
    assert_eq!((size, ran.ended.exit_code), ("30 100", Some(0)), "{ran:?}");
    assert!(groups.len() == 2 && groups[0] == groups[1], "{ran:?}");
}

#[test]
fn terminal_without_input_is_at_its_end() {
    let world = World::new();
    // Typed text and the output of `cat` are equal, so their order does not matter.
    for (typed, shown) in [("one\n", "one\r\none\r\n"), ("within", "withinwithin"), ("", "")] {
        let spec = RunSpec { terminal: Some(WINDOW), stdin: typed.into(), ..spec(&["cat"]) };
        let ran = run(&world.runner, &spec).unwrap();
        assert_eq!((ran.stdout.as_str(), ran.ended.exit_code), (shown, Some(0)), "{ran:?}");
    }
}

#[test]
fn terminal_types_into_an_interpreter() {
    let ran = at_terminal(&["python3", "-q"], |python| {
        python.wait_for(">>> ");
        assert!(python.send(b"6 * 7\n"));
        python.wait_for("42");
        python.wait_for(">>> ");
        python.input.end();
    });
    assert_eq!(ran.ended.exit_code, Some(0), "{ran:?}");
}

#[test]
fn terminal_tells_of_a_new_size() {
    let script = "trap 'stty size' WINCH; echo ready; while read line; do :; done; echo over";
    let ran = at_terminal(&["bash", "-c", script], |shell| {
        shell.wait_for("ready");
        shell.input.resize(WindowSize { rows: 50, columns: 132 });
        // The trap runs after the read has ended.
        shell.send(b"\n");
        shell.wait_for("50 132");
        shell.input.end();
    });
    assert_eq!(ran.ended.exit_code, Some(0), "{ran:?}");
}

#[test]
fn terminal_interrupts_its_foreground() {
    // `cat`, because a shell could take the signal between fork and exec of a program.
    let ran = at_terminal(&["cat"], |cat| {
        cat.send(b"ready\n");
        cat.wait_for("ready\r\nready");
        cat.send(&[3]);
    });
    assert_eq!((ran.ended.signal, ran.ended.sent), (Some(2), None), "{ran:?}");
}

#[test]
fn terminal_hung_up_ends_a_shell_that_ignores_requests() {
    let ran = at_terminal(&["sh", "-i"], |shell| {
        shell.wait_for("ready> ");
        shell.cancel.cancel();
    });
    assert!(ran.ended.cancelled && ran.ended.sent == Some(15) && ran.ended.duration_us < 1_500_000, "{ran:?}");
}

#[test]
fn streamed_input_reaches_a_pipe_whole() {
    let text = "0123456789abcde\n".repeat(1 << 16);
    let ran = driven(&World::new().runner, &["cat"], None, |cat| {
        assert!(cat.send(text.as_bytes()));
        cat.input.end();
    });
    assert!(ran.stdout == text && ran.ended.exit_code == Some(0));
}

#[test]
fn streamed_input_waits_for_a_program_that_does_not_read() {
    let much = b"x\n".repeat(1 << 19);
    for terminal in [None, Some(WINDOW)] {
        let ran = driven(&World::new().runner, &["sh", "-c", "echo ready; sleep 0.3"], terminal, |idle| {
            idle.wait_for("ready");
            assert!(!idle.send(&much), "it ends before it has read that");
        });
        assert_eq!(ran.ended.exit_code, Some(0), "{ran:?}");
    }
    // If the program closes its input, any amount is accepted.
    let ran = driven(&World::new().runner, &["sh", "-c", "exec <&-; echo ready; sleep 0.5; echo over"], None, |deaf| {
        deaf.wait_for("ready");
        assert!(deaf.send(&much));
    });
    assert_eq!(ran.stdout, "ready\nover\n");
}
