//! Denied commands, and yes by the environment.

use crate::rig::{Program, told};

fn program() -> Program {
    let program = Program::new();
    program.printed(&["run", &program.file("work.jsonl", ""), "--backend", "host", "--session", "work"]);
    program
}

fn script(program: &Program, command: &str) -> String {
    let call = serde_json::json!({ "tool": "shell_execute", "params": { "command": command } });
    program.file("call.jsonl", call.to_string())
}

#[test]
fn denied_words_win_over_yes() {
    let program = program();
    let run = |command: &str, more: &[&str]| {
        let script = script(&program, command);
        program.run(&[&["run", &script, "--session", "work", "--yes"], more].concat())
    };
    let deny = ["--deny", "git  push", "--deny", "make"];
    for command in ["git push", "cd . && git push origin main", "env make -j2", "/usr/bin/make", "eval 'git push'"] {
        let told = run(command, &deny);
        assert!(told.contains("the command is not allowed") && told.ends_with("[exit 1]"), "{command}: {told}");
    }
    for command in ["git pushed --version; true", "echo git push", "echo make"] {
        assert!(run(command, &deny).ends_with("[exit 0]"), "{command}");
    }
    assert!(run("make --version; true", &["--deny", "git push", "--allow", "make"]).ends_with("[exit 0]"));
    let typed = program.run(&["exec", "work", "--deny", "git push", "--", "git", "push"]);
    assert_eq!(typed, "error: the command is not allowed: the policy denies commands like this: git push\n[exit 1]");
    let refused = program.run(&["exec", "work", "--deny", " ", "--", "true"]);
    assert!(refused.contains("deny names no program") && refused.ends_with("[exit 2]"), "{refused}");
}

#[test]
fn auto_confirm_by_the_environment_is_yes() {
    let program = program();
    let script = script(&program, "uname");
    let run = |said: &str| {
        let mut command = program.command(&["run", &script, "--session", "work"]);
        told(&command.env("FOLDSPACE_AUTO_CONFIRM", said).output().unwrap())
    };
    for said in ["", "0"] {
        assert!(run(said).contains("nothing allows uname"), "{said}");
    }
    assert!(run("1").ends_with("[exit 0]"));
    let refused = run("maybe");
    assert!(refused.contains("FOLDSPACE_AUTO_CONFIRM is \"maybe\"") && refused.ends_with("[exit 2]"), "{refused}");
}

#[test]
fn new_session_has_a_policy_from_a_file() {
    let program = Program::new();
    let policy = program.file("policy.json", r#"{"tools": ["read_file", "write_file"], "write": ["src/"]}"#);
    let section = program.file("section.md", "You have {tools}.");
    program.printed(&["new", "demo", "--policy", &policy, "--section-text", &section]);
    let shown = program.json(&["policy", "demo"]);
    assert_eq!(shown["policy"]["write"], serde_json::json!(["src/"]));
    assert_eq!(shown["policy"]["section_text"], "You have {tools}.");
    for (name, text, message) in [
        ("other", r#"{"toools": []}"#, "the policy is invalid: unknown field `toools`"),
        ("list", "[1]", "the policy is invalid: invalid type"),
        ("tool", r#"{"tools": ["reed_file"]}"#, "reed_file"),
    ] {
        let wrong = program.file("wrong.json", text);
        let refused = program.run(&["new", name, "--policy", &wrong]);
        assert!(refused.contains(message) && !refused.ends_with("[exit 0]"), "{refused}");
    }
    assert_eq!(program.json(&["sessions"]).as_array().unwrap().len(), 1);
}
