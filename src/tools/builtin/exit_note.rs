//! Notes on exit codes that are no failure, or that say little.

use crate::backends::ShellResult;
use crate::tools::policy::last_program;

/// Explains an exit code to a model. `None` for one that needs no explanation.
pub(super) fn exit_note(result: &ShellResult) -> Option<String> {
    if result.timed_out || result.cancelled || result.lost {
        return None;
    }
    let why = match result.exit_code {
        1 => of_program(&last_program(&result.command)?, result.stderr.bytes == 0)?,
        124 if last_program(&result.command)? == "timeout" => "`timeout` ended the command",
        126 => "the program can't be executed: it is a directory, or lacks the permission or a format that runs here",
        127 => "a program was not found",
        137 => "SIGKILL ended it, often because memory ran out",
        _ => return None,
    };
    Some(format!("exit code {}: {why}", result.exit_code))
}

fn of_program(program: &str, is_silent: bool) -> Option<&'static str> {
    match program {
        "grep" | "egrep" | "fgrep" | "zgrep" | "rg" if is_silent => Some("no line matched, which is no error"),
        "diff" | "cmp" if is_silent => Some("the files differ, which is no error"),
        "test" | "[" if is_silent => Some("the condition is false, which is no error"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::backends::Output;
    use crate::engine::event::CommandLine;
    use crate::engine::path::EntryPath;

    fn note(command: CommandLine, exit_code: i32, stderr: &str) -> String {
        let result = ShellResult {
            exit_code,
            stdout: Output::default(),
            stderr: Output::whole(stderr.to_owned()),
            command,
            cwd: EntryPath::root(),
            duration: Duration::ZERO,
            timed_out: false,
            cancelled: false,
            signal: None,
            lost: false,
            terminal: None,
        };
        assert_eq!(exit_note(&ShellResult { timed_out: true, ..result.clone() }), None);
        exit_note(&result).unwrap_or_default()
    }

    #[test]
    fn exit_note_explains_what_is_no_failure() {
        for (text, code, words) in [
            ("grep x a", 1, "no line matched"),
            ("cd d && cat a | /usr/bin/rg -n x", 1, "no line matched"),
            ("diff a b", 1, "the files differ"),
            ("[ -f a ]", 1, "the condition is false"),
            ("timeout 1 sleep 5", 124, "`timeout` ended"),
            ("./a", 126, "can't be executed"),
            ("nope", 127, "not found"),
            ("./big", 137, "memory"),
        ] {
            let note = note(CommandLine::Shell(text.to_owned()), code, "");
            assert!(note.starts_with(&format!("exit code {code}: ")) && note.contains(words), "{text}: {note}");
        }
        let args = CommandLine::Args(vec!["/bin/grep".to_owned(), "x".to_owned()]);
        assert!(note(args, 1, "").contains("no line matched"));
        let script = |interpreter: &str| CommandLine::Script {
            interpreter: interpreter.into(),
            script: "ls\ngrep x a\n".into(),
        };
        assert!(note(script("/bin/bash -e"), 1, "").contains("no line matched"));
        assert_eq!(note(script("python3"), 1, ""), "");
    }

    #[test]
    fn exit_note_is_absent_for_failures() {
        for (text, code, stderr) in [
            ("grep x a", 0, ""),
            ("grep x a", 2, ""),
            ("grep '[' a", 1, "error"),
            ("grep x a; make", 1, ""),
            ("grep x a && false", 1, ""),
            ("for f in *; do grep x $f; done", 1, ""),
            ("make", 124, ""),
            ("$x", 1, ""),
        ] {
            assert_eq!(note(CommandLine::Shell(text.to_owned()), code, stderr), "", "{text} {code}");
        }
    }
}
