//! What a shell completes, in the shells themselves.

use std::process::{Command, Stdio};

use crate::rig::{Program, report_skip};

/// Returns the words that bash completes a command line with, which ends with what it completes; and what else it prints.
fn completed(program: &Program, line: &[&str]) -> Vec<String> {
    let index = line.len().to_string();
    let mut command = program.command(&["--", "foldspace"]);
    command.args(line).env("FOLDSPACE_COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", index).env("_CLAP_IFS", "\n");
    let output = command.output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{line:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// Runs a shell with the script that the program gives it; none without that shell.
fn in_shell(program: &Program, shell: &str, options: &[&str], script: &str) -> Option<String> {
    let found = Command::new(shell).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !found.is_ok_and(|status| status.success()) {
        report_skip(&format!("{shell} is not here"));
        return None;
    }
    let completions = program.printed(&["completions", shell]);
    let path = program.file(&format!("completions.{shell}"), completions);
    let mut command = Command::new(shell);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("TERM", "dumb");
    command.env("HOME", program.path("home")).env("FOLDSPACE_DATA", program.data()).env("SCRIPT", path);
    let output = command.args(options).args(["-c", script]).stdin(Stdio::null()).output().unwrap();
    assert!(output.stderr.is_empty(), "{shell}: {output:?}");
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn completion_knows_what_is_in_the_store() {
    let program = Program::with_story();
    program.printed(&["run", &program.file("stranger.jsonl", ""), "--session", "stranger"]);
    for (line, words) in [
        (&["log", "st"][..], &["stranger", "story"][..]),
        (&["log", "sto"], &["story"]),
        (&["exec", "sto"], &["story"]),
        (&["run", "x.jsonl", "--session", "sto"], &["story"]),
        (&["merge", "x", "--into", "sto"], &["story"]),
        (&["state", "story", "U"], &["Usage"]),
        (&["cat", "story", "s"], &["src/"]),
        (&["cat", "story", "src/"], &["src/main.rs"]),
        (&["cat", "story", "/src/m"], &["/src/main.rs"]),
        (&["cat", "story", "./src/m"], &["./src/main.rs"]),
        (&["log", "story", "--path", "s"], &["src/"]),
        (&["show", "story", ""], &["13", "11", "8", "5", "2"]),
        (&["cat", "story", "src/main.rs", "--before", "1"], &["13", "11"]),
        (&["ls", "story", "--at", "8"], &["8"]),
        (&["log", "story", "--kind", "Wr"], &["WriteFile"]),
        (&["tools", "read"], &["read_file"]),
        (&["fork", "story", "--tool", "gr"], &["grep"]),
        (&["run", "x.jsonl", "--backend", "ho"], &["host"]),
        (&["bise"], &["bisect"]),
        (&["help", "bise"], &["bisect"]),
    ] {
        let known: Vec<String> = completed(&program, line).into_iter().filter(|word| !word.starts_with('-')).collect();
        assert_eq!(known, words, "{line:?}");
    }
    assert!(completed(&program, &["log", "story", "--"]).iter().any(|word| word == "--json"), "help hides it");
    let data = program.data().to_string_lossy().into_owned();
    assert_eq!(completed(&Program::new(), &["--data", &data, "log", "sto"]), ["story"]);
}

#[test]
fn completion_says_nothing_of_errors_and_starts_nothing() {
    let program = Program::new().through_owner();
    assert!(completed(&program, &["log", "st"]).is_empty(), "there is no store");
    program.file("data/journal", "no directory");
    for line in
        [&["log", "st"][..], &["cat", "nothing", "x"], &["show", "nothing", ""], &["--data", "/dev/null", "log", "x"]]
    {
        let known: Vec<String> = completed(&program, line).into_iter().filter(|word| !word.starts_with('-')).collect();
        assert!(known.is_empty(), "{line:?}: {known:?}");
    }
    assert!(program.owners().is_empty());
    std::fs::remove_file(program.path("data/journal")).unwrap();
}

#[test]
fn completion_leaves_out_names_that_a_shell_obeys() {
    let program = Program::new();
    let write = |path: &str| {
        format!("{{\"tool\": \"write_file\", \"params\": {{\"file_path\": \"{path}\", \"content\": \"\"}}}}\n")
    };
    let calls: String = ["d/$(id)", "d/a b", "d/plain", "d/;id"].map(write).concat();
    program.printed(&["run", &program.file("odd.jsonl", calls)]);
    assert_eq!(completed(&program, &["cat", "odd", "d/"]), ["d/plain"]);
}

#[test]
fn completions_work_in_bash() {
    let program = Program::with_story();
    let script = "source \"$SCRIPT\"; COMP_WORDS=(foldspace log sto); COMP_CWORD=2
        $(complete -p foldspace | sed 's/.*-F \\([^ ]*\\) .*/\\1/') foldspace sto log; printf '%s\\n' \"${COMPREPLY[@]}\"";
    let Some(words) = in_shell(&program, "bash", &["--norc"], script) else { return };
    assert_eq!(words, "story\n");
}

#[test]
fn completions_work_in_fish() {
    let program = Program::with_story();
    let script = "source $SCRIPT; complete -C 'foldspace log sto'; complete -C 'foldspace cat story src/'";
    let Some(words) = in_shell(&program, "fish", &["--no-config"], script) else { return };
    let words: Vec<&str> = words.lines().map(|line| line.split('\t').next().unwrap_or_default()).collect();
    assert_eq!(words.iter().filter(|word| !word.starts_with('-')).collect::<Vec<_>>(), [&"story", &"src/main.rs"]);
}

#[test]
fn completions_work_in_zsh() {
    let program = Program::with_story();
    // The widget is not there in a script: what it would offer is printed.
    let script = "autoload -U compinit; compinit -u -D; source \"$SCRIPT\"; _describe() { print -rl -- ${(P)3}; }
        words=(foldspace log sto); CURRENT=3; ${_comps[foldspace]}";
    let Some(words) = in_shell(&program, "zsh", &["-f"], script) else { return };
    assert!(words.contains("story"), "{words}");
}
