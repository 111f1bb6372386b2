//! Help, completions, manual pages.

use insta::assert_snapshot;

use crate::rig::Program;

const COMMANDS: [&str; 32] = [
    "run",
    "sessions",
    "log",
    "show",
    "state",
    "ls",
    "cat",
    "grep",
    "diff",
    "export",
    "import",
    "check",
    "gc",
    "du",
    "remove",
    "tools",
    "completions",
    "man",
    "exec",
    "shell",
    "fork",
    "merge",
    "rewind",
    "rerun",
    "what-if",
    "replay",
    "blame",
    "bisect",
    "materialise",
    "doctor",
    "mcp",
    "serve",
];

/// Returns the commands that a help text lists.
fn listed(help: &str) -> Vec<&str> {
    let lines = help.lines().filter_map(|line| line.strip_prefix("  ")?.split_once("  "));
    lines
        .map(|(name, _)| name)
        .filter(|name| !name.is_empty() && !name.contains(' ') && !name.starts_with('-'))
        .collect()
}

#[test]
fn plain_help_names_common_commands_only() {
    let program = Program::new();
    for help in [&["help"][..], &["--help"], &["-h"], &[]] {
        let help = program.printed(help);
        let commands = listed(&help);
        assert!((14..=16).contains(&commands.len()), "{commands:?}");
        let expected = ["exec", "run", "log", "show", "diff", "undo", "rewind", "fork", "bisect", "ui", "attach"];
        assert!(expected.iter().all(|command| commands.contains(command)), "{commands:?}");
        assert!(help.contains("`foldspace help --all`") && !help.contains("--no-pager"), "{help}");
    }
}

#[test]
fn help_of_command_points_to_the_common_options() {
    let program = Program::new();
    let help = program.printed(&["status", "--help"]);
    assert!(!help.contains("--json <") && help.contains("`foldspace help --all`"), "{help}");
    assert!(help.lines().count() < 16, "{help}");
    for command in ["import", "what-if", "rerun"] {
        assert!(!program.printed(&[command, "-h"]).contains("--writable-root"), "{command}");
        assert!(program.printed(&[command, "--help"]).contains("--writable-root"), "{command}");
    }
}

#[test]
fn other_names_of_commands_work() {
    let program = Program::with_story();
    let sessions = program.printed(&["sessions"]);
    assert_eq!([program.printed(&["list"]), program.printed(&["ps"])], [sessions.clone(), sessions]);
    assert_eq!(program.printed(&["version"]), program.printed(&["--version"]));
    assert!(program.printed(&["clone", "story", "--name", "kid"]).starts_with("session kid"));
    assert_eq!(program.printed(&["tree"]), program.printed(&["sessions", "--tree"]));
    assert!(program.printed(&["sessions", "--tree", "kid"]).starts_with("kid"));
    for (former, now) in [
        (&["history", "story", "src/main.rs", "-p"][..], &["log", "story", "src/main.rs", "-p"][..]),
        (&["stat", "story", "src/main.rs"], &["ls", "--stat", "story", "src/main.rs"]),
        (&["verify", "story"], &["check", "story"]),
        (&["fsck"], &["check", "--bytes"]),
        (&["fsck", "--repair"], &["check", "--repair"]),
        (&["fsck", "--accept-loss"], &["check", "--bytes", "--accept-loss"]),
        (&["commit-notes", "story"], &["blame", "story", "--write-notes"]),
        (&["help", "history"], &["help", "log"]),
    ] {
        assert_eq!(program.run(former), program.run(now), "{former:?}");
        assert!(!program.printed(&["help", "--all"]).contains(&format!("\n  {} ", former[0])), "{former:?}");
    }
    assert!(program.run(&["delete", "kid", "--yes"]).ends_with("[exit 0]"));
    assert!(program.run(&["log", "kid"]).ends_with("[exit 3]"));
}

#[test]
fn help_names_every_command_and_exit_code() {
    let program = Program::new();
    let help = program.printed(&["help", "--all"]);
    for command in COMMANDS {
        assert!(help.contains(&format!("\n  {command} ")), "{command}");
        assert!(!program.printed(&[command, "--help"]).is_empty());
    }
    let codes = help.split_once("Exit codes:\n").unwrap().1;
    assert_snapshot!(format!("codes:\n{codes}"), @"
    codes:
        0  success
        1  a call failed; check, verify, seal, doctor or materialise found a problem; rerun or what-if
        found differences; merge or apply conflicted; rewind was refused; undo or revert left changes;
        grep, bisect, replay or rescue found nothing
        2  usage error: invalid command, script or position
        3  no such session, path, event or store
        4  another process owns the store
        5  the store or the file to import is damaged
        6  the operating system or the container engine refused
      130  stopped by Ctrl-C, SIGTERM or SIGHUP
    ");
}

#[test]
fn help_examples_fit_on_a_terminal() {
    let program = Program::new();
    let shown = |arguments: &[&str], columns: &str| {
        let output = program.command(arguments).env("COLUMNS", columns).output().unwrap();
        let help = String::from_utf8(output.stdout).unwrap();
        help.split_once("Examples:").and_then(|(_, rest)| rest.split("\n\n").next().map(str::to_owned))
    };
    assert_eq!(shown(&["help"], "80"), shown(&["help"], "100"));
    let help = program.printed(&["help", "--all"]);
    let commands: Vec<&str> = listed(&help);
    assert!(COMMANDS.iter().all(|command| commands.contains(command)), "{commands:?}");
    for command in commands {
        assert_eq!(shown(&[command, "--help"], "80"), shown(&[command, "--help"], "100"), "{command}");
    }
}

#[test]
fn help_explains_positions() {
    let program = Program::new();
    for (command, does) in [
        ("fork", "Forks the session as it was at POSITION"),
        ("log", "Shows only what happened until POSITION"),
        ("materialise", "Writes the files as they were at POSITION"),
        ("replay", "Begins at POSITION"),
        ("shell", "Opens a throw-away copy of the workspace as it was at POSITION"),
    ] {
        let help = program.printed(&[command, "--help"]);
        assert!(help.contains(does), "{help}");
    }
    for command in COMMANDS {
        let help = program.printed(&[command, "--help"]);
        let described = |option: &str| help.split(option).nth(1).is_some_and(|rest| rest.trim_start().starts_with('-'));
        assert!(!described("--at <POSITION>") && !described("--before <CALL>"), "{help}");
    }
}

#[test]
fn wrong_command_line_exits_with_2() {
    let program = Program::new();
    for wrong in [&["nonsense"][..], &["cat"], &["run"], &["ls", "x", "--nonsense"], &["--color", "x", "ls", "y"]] {
        assert!(program.run(wrong).ends_with("[exit 2]"), "{wrong:?}");
    }
    assert!(program.run(&["--version"]).starts_with("foldspace "));
}

#[test]
fn completions_exist_for_every_shell() {
    let program = Program::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        assert!(program.printed(&["completions", shell]).contains("FOLDSPACE_COMPLETE"), "{shell}");
    }
    assert!(program.run(&["completions", "dos"]).ends_with("[exit 2]"));
}

#[test]
fn man_pages_exist_for_every_command() {
    let program = Program::new();
    program.printed(&["man", "pages/man1"]);
    for command in COMMANDS {
        assert!(program.path(&format!("pages/man1/foldspace-{command}.1")).is_file(), "{command}");
    }
    let first = std::fs::read_to_string(program.path("pages/man1/foldspace.1")).unwrap();
    assert!(first.contains("Exit codes") && first.contains("Uses the store that several hosts share"));
    let synopsis = |name: &str| {
        let page = std::fs::read_to_string(program.path(&format!("pages/man1/foldspace-{name}.1"))).unwrap();
        let synopsis = page.split_once(".SH SYNOPSIS\n").unwrap().1.lines().next().unwrap().to_owned();
        synopsis.replace(['\\'], "")
    };
    assert!(synopsis("log").contains("[--at POSITION] [--before CALL]"), "{}", synopsis("log"));
    assert!(synopsis("rewind").ends_with("<--to <POSITION>|--before <CALL>|--run <RUN>> <SESSION>"));
    for command in COMMANDS {
        let page = std::fs::read_to_string(program.path(&format!("pages/man1/foldspace-{command}.1"))).unwrap();
        let lines: Vec<&str> = page.lines().collect();
        let lacking = lines.windows(3).find(|lines| lines[0] == ".TP" && lines[2].starts_with('.'));
        assert!(lacking.is_none(), "{command}: {lacking:?} has no description");
    }
    assert!(program.printed(&["man"]).starts_with(".ie"));
}

#[test]
fn verbose_prints_log_lines() {
    let program = Program::with_story();
    let quiet = program.output(&["fork", "story"]).stderr;
    assert!(quiet.is_empty());
    let output = program.command(&["fork", "story"]).env("FOLDSPACE_LOG", "trace").output().unwrap();
    assert!(!output.stderr.is_empty() && !output.stderr.contains(&0x1b));
}
