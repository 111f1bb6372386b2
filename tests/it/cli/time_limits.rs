//! Time limits of commands.

use crate::rig::{Program, told};

impl Program {
    fn with_host_session() -> Self {
        let program = Self::new();
        program.printed(&["run", &program.file("work.jsonl", ""), "--backend", "host", "--session", "work"]);
        program
    }

    /// Runs a script of one command under a setting of the environment.
    fn told_under(&self, variable: (&str, &str), arguments: &[&str]) -> String {
        told(&self.command(arguments).env(variable.0, variable.1).output().unwrap())
    }
}

const MOST: &str = "FOLDSPACE_MAX_TIMEOUT";

#[test]
fn typed_commands_have_no_time_limit_and_calls_have_one() {
    let program = Program::with_host_session();
    let call = r#"{"tool": "shell_execute", "params": {"command": "echo begun; sleep 3; echo over"}}"#;
    let script = program.file("call.jsonl", call);
    let run = ["run", &script, "--session", "work", "--yes", "--json"];
    let called = program.told_under((MOST, "1"), &run);
    assert!(called.contains(r#""timed_out":true"#) && !called.contains("over\\n\","), "{called}");
    let typed = program.told_under((MOST, "1"), &["exec", "work", "--sh", "--", "sleep 2; echo over"]);
    assert_eq!(typed, "over\n[exit 0]");
    let mut shell = program.command(&["shell", "work"]);
    shell.env(MOST, "1").stdin(std::fs::File::open(program.file("lines", "sleep 2; echo over\n")).unwrap());
    assert_eq!(told(&shell.output().unwrap()), "over\n[exit 0]");
}

#[test]
fn shell_timeout_ends_a_line_and_says_so() {
    let program = Program::with_host_session();
    let lines = b"echo one; sleep 60; echo two\necho next\n";
    let typed = program.fed(&["shell", "work", "--timeout", "1"], lines);
    assert_eq!(typed, "one\nnext\nthe command exceeded --timeout and was ended\n[exit 0]");
    let refused = program.fed(&["shell", "work", "--timeout", "0"], lines);
    assert!(
        refused.contains("expected a number of seconds from 1 to 86400") && refused.ends_with("[exit 2]"),
        "{refused}"
    );
}

#[test]
fn max_timeout_bounds_what_a_call_may_ask_for() {
    let program = Program::with_host_session();
    let call = |seconds: &str| {
        let params = format!(r#"{{"command": "echo ran", "timeout_seconds": {seconds}}}"#);
        program.file("call.jsonl", format!(r#"{{"tool": "shell_execute", "params": {params}}}"#))
    };
    let run = |seconds: &str, more: &[&str]| {
        let script = call(seconds);
        program.run(&[&["run", &script, "--session", "work", "--yes"], more].concat())
    };
    assert!(run("601", &[]).contains("timeout_seconds is 601; it must be from 1 to 600"));
    assert!(run("0.5", &[]).contains("timeout_seconds is 0.5; it must be from 1 to 600"));
    assert!(run("601", &["--max-timeout", "7200"]).ends_with("[exit 0]"));
    assert!(run("61", &["--max-timeout", "60"]).contains("timeout_seconds is 61; it must be from 1 to 60"));
    let script = call("601");
    let ran = program.told_under((MOST, "7200"), &["run", &script, "--session", "work", "--yes"]);
    assert!(ran.ends_with("[exit 0]"), "{ran}");
    for wrong in ["0", "86401", "-1", "nan", "1e300", "many"] {
        let option = format!("--max-timeout={wrong}");
        let refused = run("1", &[&option]);
        assert!(refused.contains("from 1 to 86400") && refused.ends_with("[exit 2]"), "{refused}");
        let refused = program.told_under((MOST, wrong), &["run", &script, "--session", "work", "--yes"]);
        assert!(refused.contains(&format!("{MOST} is \"{wrong}\"")) && refused.ends_with("[exit 2]"), "{refused}");
    }
    let refused = program.run(&["exec", "work", "--timeout", "86401", "--", "true"]);
    assert!(refused.contains("from 1 to 86400") && refused.ends_with("[exit 2]"), "{refused}");
    assert!(program.run(&["exec", "work", "--timeout", "3600", "--", "true"]).ends_with("[exit 0]"));
}
