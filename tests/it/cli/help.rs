//! Help, completions, manual pages.

use insta::assert_snapshot;

use crate::rig::Program;

const COMMANDS: [&str; 36] = [
    "run",
    "sessions",
    "log",
    "show",
    "state",
    "ls",
    "cat",
    "grep",
    "stat",
    "diff",
    "export",
    "import",
    "verify",
    "fsck",
    "gc",
    "du",
    "remove",
    "tools",
    "completions",
    "man",
    "exec",
    "shell",
    "clone",
    "tree",
    "merge",
    "rewind",
    "rerun",
    "what-if",
    "replay",
    "blame",
    "history",
    "bisect",
    "materialise",
    "doctor",
    "mcp",
    "serve",
];

#[test]
fn help_names_every_command_and_exit_code() {
    let program = Program::new();
    let help = program.printed(&["help"]);
    for command in COMMANDS {
        assert!(help.contains(&format!("\n  {command} ")), "{command}");
        assert!(!program.printed(&[command, "--help"]).is_empty());
    }
    let codes = help.split_once("Exit codes:\n").unwrap().1;
    assert_snapshot!(format!("codes:\n{codes}"), @"
    codes:
        0  success
        1  a call failed; verify, fsck, doctor or materialise found a problem; rerun found differences;
        merge conflicted; grep, bisect or rescue found nothing
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
    let help = program.printed(&["help"]);
    let commands = help.lines().filter_map(|line| line.strip_prefix("  ")?.split_once("  ")).map(|(name, _)| name);
    let commands: Vec<&str> = commands.filter(|name| !name.is_empty() && !name.contains(' ')).collect();
    assert!(COMMANDS.iter().all(|command| commands.contains(command)), "{commands:?}");
    for command in commands {
        assert_eq!(shown(&[command, "--help"], "80"), shown(&[command, "--help"], "100"), "{command}");
    }
}

#[test]
fn help_explains_positions() {
    let program = Program::new();
    for (command, does) in [
        ("clone", "Forks the session as it was at POSITION"),
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
    assert!(first.contains("Exit codes"));
    assert!(program.printed(&["man"]).starts_with(".ie"));
}

#[test]
fn verbose_prints_log_lines() {
    let program = Program::with_story();
    let quiet = program.output(&["clone", "story"]).stderr;
    assert!(quiet.is_empty());
    let output = program.command(&["clone", "story"]).env("FOLDSPACE_LOG", "trace").output().unwrap();
    assert!(!output.stderr.is_empty() && !output.stderr.contains(&0x1b));
}
