//! Commands from one byte to what Linux takes of an argument, and beyond.

use serde_json::json;

use crate::rig::Program;

/// Bytes that Linux takes in one argument.
const MOST: usize = 131_071;

fn with_session() -> Program {
    let program = Program::new();
    program.printed(&["run", &program.file("work.jsonl", ""), "--backend", "host", "--session", "work"]);
    program
}

/// A script of one call that runs a command.
fn script(program: &Program, tool: &str, parameter: &str, command: &str) -> String {
    program.file("call.jsonl", json!({ "tool": tool, "params": { parameter: command } }).to_string())
}

fn refuses_at_once(program: &Program, backend: &str) {
    for length in [1, 700, 870, 1_000, 4_096, 16 << 10, 64 << 10] {
        let begun = "echo $(frobnicate) ";
        let command = match length {
            1 => "x".to_owned(),
            _ => format!("{begun}{}", "a".repeat(length - begun.len())),
        };
        let script = script(program, "shell_execute", "command", &command);
        let ran = program.run(&["run", &script, "--backend", backend, "--command-chars", "131072"]);
        assert!(ran.contains("nothing was run") && ran.ends_with("[exit 2]"), "{length}: {ran}");
        let shown: String = command.chars().take(100).collect();
        assert!(ran.contains(&format!("nothing allows {shown}")), "{length}: {ran}");
        assert!(ran.contains("or answer every question with yes (--yes)"), "{length}: {ran}");
    }
}

#[test]
fn run_command_of_any_length_is_refused_at_once() {
    refuses_at_once(&Program::new(), "host");
    refuses_at_once(&Program::new(), "mock");
}

#[test]
fn run_command_of_any_length_is_refused_at_once_through_an_owner() {
    refuses_at_once(&Program::new().through_owner(), "host");
}

#[test]
fn run_takes_longer_texts_of_files_if_it_is_set() {
    let program = with_session();
    let write = |chars: usize, most: &[&str]| {
        let params = json!({ "file_path": "f", "content": "é".repeat(chars), "mode": "overwrite" });
        let script = program.file("call.jsonl", json!({ "tool": "write_file", "params": params }).to_string());
        program.run(&[&["run", &script, "--session", "work", "--yes"], most].concat())
    };
    assert!(write(48_001, &[]).contains("content has 48001 characters; at most 48000 are allowed"));
    assert!(write(48_001, &["--text-chars", "48001"]).ends_with("[exit 0]"));
    assert!(write(5_000_000, &["--text-chars", "33554432"]).ends_with("[exit 0]"));
    assert!(write(48_001, &["--text-chars", "48000"]).contains("at most 48000 are allowed"));
    assert!(write(1, &["--text-chars", "33554433"]).ends_with("[exit 2]"));
    let again = program.run(&["rerun", "work"]);
    assert!(again.contains("none diverged"), "{again}");
}

#[test]
fn run_long_command_names_tools_for_it() {
    let program = with_session();
    let command = format!("echo {}", "a".repeat(5_620));
    let run = |tool: &str, parameter: &str, more: &[&str]| {
        let script = script(&program, tool, parameter, &command);
        program.run(&[&["run", &script, "--session", "work", "--yes"], more].concat())
    };
    let refused = run("shell_execute", "command", &[]);
    assert!(refused.contains("it has 5625 characters; at most 4096 are allowed"), "{refused}");
    assert!(refused.contains("use execute_script, or write long texts with write_file"), "{refused}");
    assert!(run("execute_script", "script", &[]).ends_with("[exit 0]"));
    assert!(run("shell_execute", "command", &["--command-chars", "5625"]).ends_with("[exit 0]"));
    assert!(run("shell_execute", "command", &["--command-chars", "5624"]).contains("at most 5624 are allowed"));
    for wrong in ["0", "131073", "many"] {
        let refused = run("shell_execute", "command", &["--command-chars", wrong]);
        assert!(refused.contains("--command-chars") && refused.ends_with("[exit 2]"), "{refused}");
    }
    // The length of a call that is made again was allowed once.
    let script = script(&program, "shell_execute", "command", &command);
    program.printed(&["run", &script, "--session", "again", "--backend", "host", "--command-chars", "5625"]);
    let again = program.run(&["rerun", "again"]);
    assert!(again.ends_with("[exit 0]"), "{again}");
}

#[test]
fn exec_takes_what_linux_takes() {
    let program = with_session();
    let long = "y".repeat(MOST - "echo ".len());
    let printed = program.printed(&["exec", "work", "--sh", "--", &format!("echo {long}")]);
    assert_eq!(printed, format!("{long}\n"));
    let printed = program.printed(&["exec", "work", "--", "echo", &"y".repeat(MOST)]);
    assert_eq!(printed.len(), MOST + 1);
    // Words and arguments are joined by one space.
    let refused = program.run(&["exec", "work", "--sh", "--", "echo", &long]);
    assert!(refused.is_empty() || refused.starts_with('y'), "{}", &refused[..100]);
    let refused = program.run(&["exec", "work", "--sh", "--", "echo ", &long]);
    assert!(refused.contains("the command has 131072 bytes; Linux takes at most 131071."), "{}", &refused[..100]);
    let mut many = vec!["exec", "work", "--", "echo"];
    many.resize(20_000, "a");
    assert_eq!(program.printed(&many).len(), 2 * (20_000 - 4));
}
