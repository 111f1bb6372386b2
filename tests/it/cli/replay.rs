//! The debugger: by options, and at a terminal.

use insta::assert_snapshot;

use std::fs::File;
use std::io::Read;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::terminal::Terminal;
use crate::rig::{Program, Running, WAIT_LIMIT, eventually};

#[test]
fn replay_without_terminal_prints_hint() {
    let program = Program::with_story();
    assert_snapshot!(program.run(&["replay", "story"]), @"
    error: the debugger needs a terminal
    hint: without one, use --step N, --until CONDITION, --show WHAT; see --help
    [exit 2]
    ");
}

#[test]
fn replay_steps_forward_and_back() {
    let program = Program::with_story();
    let seq = |arguments: &[&str]| program.json(&[&["replay", "story"], arguments].concat())["seq"].as_u64();
    assert_eq!(seq(&["--step", "3"]), Some(3));
    assert_eq!(seq(&["--step", "3", "--at", "3"]), Some(6));
    assert_eq!(seq(&["--back", "2"]), Some(13));
    assert_eq!(seq(&["--step", "2", "--backward", "--at", "-1"]), Some(12));
    assert_eq!(seq(&["--step-call", "3"]), Some(8));
    assert_eq!(seq(&["--step-call", "1", "--backward"]), Some(13));
    assert_eq!(seq(&[]), Some(15));
    for too_far in [&["--step", "16"][..], &["--back", "15"], &["--step-call", "6"], &["--step", "0"]] {
        let told = program.run(&[&["replay", "story"], too_far].concat());
        assert!(told.contains("nothing found") && told.ends_with("[exit 1]"), "{told}");
    }
}

#[test]
fn replay_reports_missing_things() {
    let program = Program::with_story();
    for (wrong, code, words) in [
        (&["--diff", "1..99"][..], 3, "the session has no position 99"),
        (&["--diff", "-99.."], 3, "99 events ago is before the first event: the session has 15 events"),
        (&["--diff", "story@99..1"], 3, "the session has no position 99"),
        (&["--diff", "story@x..1"], 2, "no position: story@x; give NAME@POSITION, such as story@15"),
        (&["--show", "file", "nope"], 3, "/nope does not exist at position 15"),
        (&["--show", "nope"], 2, "--show can't show \"nope\""),
        (&["--search", "("], 2, "the pattern can't be understood: unclosed group"),
        (&["--until", "Usage.calls matches \"(\""], 2, "invalid regular expression: unclosed group;"),
        (&["--until", ""], 2, "a value is required for '--until <CONDITION>'"),
        (&["--search", ""], 2, "a value is required for '--search <REGEX>'"),
        (&["--changes", ""], 2, "a value is required for '--changes <PATH>'"),
    ] {
        let told = program.run(&[&["replay", "story"], wrong].concat());
        assert!(told.contains(words) && told.ends_with(&format!("[exit {code}]")), "{wrong:?}: {told}");
    }
    let told = program.run(&["grep", "story", "("]);
    assert_eq!(told, "error: the pattern can't be understood: unclosed group\n[exit 2]");
}

#[test]
fn replay_shows_changes_of_a_step() {
    let program = Program::with_story();
    assert_snapshot!(program.run(&["replay", "story", "--step-call", "3", "--show", "diff"]), @"
       8  CallStarted  #8  edit_file a.txt
    difference 7..10: 1 entry
    slices that differ: ToolCalls, Usage
    diff --git a/a.txt b/a.txt
    --- a/a.txt
    +++ b/a.txt
    @@ -1,3 +1,3 @@
     one
    -two
    +zwei
     three
    [exit 0]
    ");
    assert_snapshot!(program.run(&["replay", "story", "--at", "9", "--show", "file", "a.txt", "--whole"]), @"
       9  WriteFile  #8  overwrite /a.txt  15 B
    /a.txt: changed at this step
        1  one
          -two
        2 +zwei
        3  three
    [exit 0]
    ");
    assert_snapshot!(program.run(&["replay", "story", "--at", "6", "--show", "files"]), @"
       6  WriteFile  #5  create /src/main.rs  13 B
    files at 6: 3 entries, +2 -0 ~0
        a.txt  14 B v1
    + v src/
    +     main.rs  13 B v1
    [exit 0]
    ");
    let slices = program.printed(&["replay", "story", "--at", "3", "--show", "slices"]);
    assert!(slices.contains("* > Usage  3 changes\n    ~ /events: 2 -> 3\n"), "{slices}");
    let usage = program.printed(&["replay", "story", "--at", "3", "--show", "slice", "usage"]);
    assert!(usage.contains("~ /writes: 0 -> 1\n") && usage.contains("\"bytes_written\": 14"), "{usage}");
    let output = program.printed(&["replay", "story", "--at", "11", "--show", "output"]);
    assert!(output.contains("! /missing.txt does not exist"), "{output}");
}

#[test]
fn replay_searches_by_text_condition_and_change() {
    let program = Program::with_story();
    let places = |arguments: &[&str]| -> Vec<u64> {
        let lines = program.json_lines(&[&["replay", "story", "--all"], arguments].concat());
        lines.iter().map(|place| place["seq"].as_u64().unwrap()).collect()
    };
    assert_eq!(places(&["--search", "zwei"]), [8, 9]);
    assert_eq!(places(&["--search", "zwei", "--backward"]), [9, 8]);
    assert_eq!(places(&["--search", "path:^/src"]), [6]);
    assert_eq!(places(&["--changes", "/a.txt"]), [3, 9, 14]);
    let shown = ["--changes", "a.txt", "--show", "file", "src/main.rs"];
    assert_eq!(places(&shown), [3, 9, 14], "another file is shown, and not followed");
    assert_eq!(places(&["--until", "path src/**", "--until", "failed"]), [6, 12]);
    assert_eq!(places(&["--until", "agent tidy", "--at", "13"]), [14, 15]);
    assert_eq!(places(&["--until", "Usage.calls >= 3"]), [8]);
    let place = program.json(&["replay", "story", "--until", "failed"]);
    assert_eq!((&place["because"], &place["event"]["kind"]), (&"failed".into(), &"CallFinished".into()));
    for (wrong, code) in [
        (&["--search", "("][..], 2),
        (&["--until", "what"], 2),
        (&["--changes", "../x"], 2),
        (&["--show", "nonsense"], 2),
        (&["--show", "slice", "Nope"], 3),
        (&["--at", "0", "--show", "event"], 3),
        (&["--diff", "nobody..3"], 3),
        (&["--diff", "3..99"], 3),
        (&["--step", "1", "--back", "1"], 2),
        (&["--all"], 2),
        (&["--backward", "--show", "event"], 2),
        (&["--diff", "3..4", "--all"], 2),
        (&["--search", "nowhere at all"], 1),
        (&["--search", "nowhere at all", "--all"], 1),
    ] {
        let told = program.run(&[&["replay", "story"], wrong].concat());
        assert!(told.ends_with(&format!("[exit {code}]")), "{wrong:?}: {told}");
    }
}

#[test]
fn replay_compares_two_sessions() {
    let program = Program::with_story();
    let script = r#"{"tool": "write_file", "params": {"file_path": "a.txt", "content": "one\nother\nthree\n"}}"#;
    program.printed(&["run", &program.file("other.jsonl", script), "--session", "other"]);
    let shown = program.printed(&["replay", "story", "--diff", "4..other"]);
    assert!(shown.contains("-two\n+other\n"), "{shown}");
    let places = program.json(&["replay", "story", "--diff", "4..other@4"]);
    assert_eq!((&places["compared"][1]["name"], &places["compared"][0]["seq"]), (&"other".into(), &4.into()));
    assert_eq!(places["shown"][0]["path"], "a.txt");
}

#[test]
fn replay_location_has_stable_shape() {
    let program = Program::with_story();
    let place = program.json(&["replay", "story", "--at", "9", "--show", "file", "a.txt"]);
    let fields: Vec<&str> = place.as_object().unwrap().keys().map(String::as_str).collect();
    let names = ["session", "name", "seq", "head", "from", "until", "because", "event", "compared", "shown"];
    assert_eq!(fields, names);
    assert_eq!(
        (&place["from"], &place["until"], &place["shown"]["entry"]["version"]),
        (&8.into(), &9.into(), &2.into())
    );
    let slices = program.json(&["replay", "story", "--at", "3", "--show", "slices"]);
    assert_eq!(slices["shown"][0]["changes"][0]["pointer"], "/a.txt");
}

/// What leaving the alternate screen looks like.
const LEFT: &str = "\u{1b}[?1049l";

/// What coming to it looks like.
const ENTERED: &str = "\u{1b}[?1049h";

/// The screen that a program has drawn: text and where it goes, no more of what terminals know.
fn screen(shown: &str) -> String {
    let mut lines = vec![vec![' '; 400]; 200];
    let (mut row, mut column) = (0, 0);
    let mut chars = shown.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' if chars.next_if_eq(&'[').is_some() => {
                let mut arguments = String::new();
                let last = loop {
                    match chars.next() {
                        Some(c @ '@'..='~') => break c,
                        Some(c) => arguments.push(c),
                        None => break ' ',
                    }
                };
                let numbers: Vec<usize> = arguments.split(';').filter_map(|number| number.parse().ok()).collect();
                match (last, &numbers[..]) {
                    ('H', [y, x]) => (row, column) = (y - 1, x - 1),
                    ('J', _) => lines = vec![vec![' '; 400]; 200],
                    _ => {}
                }
            }
            '\u{1b}' => while chars.next().is_some_and(|c| c != '\u{7}' && c != '\\') {},
            '\r' => column = 0,
            '\n' => row += 1,
            c => {
                if let Some(cell) = lines.get_mut(row).and_then(|line| line.get_mut(column)) {
                    *cell = c;
                }
                column += 1;
            }
        }
    }
    lines.iter().map(|line| line.iter().collect::<String>()).collect::<Vec<_>>().join("\n")
}

/// Waits until the screen has a text.
fn see(debugger: &Terminal, text: &str) {
    let begun = Instant::now();
    while !screen(&debugger.shown()).contains(text) {
        assert!(begun.elapsed() < WAIT_LIMIT, "{text:?} is not on the screen; printed: {:?}", debugger.shown());
        std::thread::sleep(Duration::from_millis(3));
    }
}

#[test]
fn replay_keys_work_and_terminal_is_restored() {
    let program = Program::with_story();
    let mut debugger = Terminal::of(program.command(&["replay", "story"]));
    see(&debugger, "event 2 of 15");
    assert!(debugger.is_raw());
    debugger.type_in("jj");
    see(&debugger, "event 8 of 15");
    debugger.type_in("2");
    see(&debugger, "+zwei");
    debugger.type_in("/main.rs\r");
    see(&debugger, "nothing found up to the end");
    debugger.type_in("?");
    see(&debugger, "Esc closes");
    debugger.type_in("q");
    debugger.type_in("y");
    see(&debugger, "copied: story@8");
    debugger.type_in("q");
    debugger.wait_for(LEFT, 1);
    assert!(!debugger.is_raw(), "the terminal is as it was");
    assert_eq!(debugger.end(), 0);
}

#[test]
fn replay_asks_before_it_forks_or_rewinds() {
    let program = Program::with_story();
    let mut command = program.command(&["replay", "story", "--at", "8"]);
    // A pager has words for the terminal that `screen` does not know.
    command.env("FOLDSPACE_PAGER", "");
    let mut debugger = Terminal::of(command);
    see(&debugger, "event 8 of 15");
    debugger.type_in("Fkid\r");
    debugger.wait_for("fork story --at @10 --name=kid", 1);
    debugger.wait_for("run this? [y/N]", 1);
    assert!(!debugger.is_raw());
    debugger.type_in("y\n");
    debugger.wait_for("is story as of event 10", 1);
    debugger.wait_for("press Enter to return", 1);
    debugger.type_in("\n");
    see(&debugger, "done: ");
    assert!(debugger.is_raw());
    // The menu's item.
    debugger.type_in("aw");
    debugger.wait_for("run this? [y/N]", 2);
    debugger.type_in("\n");
    debugger.wait_for(ENTERED, 3);
    see(&debugger, "not run: ");
    assert_eq!(program.json_lines(&["log", "story"]).len(), 16, "of the child alone");
    debugger.type_in("R");
    debugger.wait_for("run this? [y/N]", 3);
    debugger.signal("-INT");
    debugger.wait_for(ENTERED, 4);
    debugger.type_in("R");
    debugger.wait_for("run this? [y/N]", 4);
    debugger.type_in("y\n");
    debugger.wait_for("is back at 10", 1);
    // What is typed before is thrown away.
    debugger.wait_for("press Enter to return", 2);
    debugger.type_in("\n");
    see(&debugger, " of 18");
    debugger.type_in("q");
    assert_eq!(debugger.end(), 0);
    assert_eq!(program.printed(&["cat", "kid", "a.txt"]), "one\nzwei\nthree\n");
}

#[test]
fn replay_takes_the_mouse_and_gives_it_back() {
    const ON: &str = "\u{1b}[?1000h";
    const OFF: &str = "\u{1b}[?1000l";
    let program = Program::with_story();
    let mut debugger = Terminal::of(program.command(&["replay", "story"]));
    see(&debugger, "event 2 of 15");
    debugger.wait_for(ON, 1);
    // A click on the third row, and then on the tab of the event.
    debugger.type_in("\u{1b}[<0;9;5M\u{1b}[<0;9;5m");
    see(&debugger, "event 5 of 15");
    debugger.type_in("\u{1b}[<0;30;13M\u{1b}[<0;30;13m");
    see(&debugger, "[4 event]");
    debugger.type_in("M");
    debugger.wait_for(OFF, 1);
    debugger.type_in("M");
    debugger.wait_for(ON, 2);
    debugger.type_in("q");
    debugger.wait_for(OFF, 2);
    assert_eq!(debugger.end(), 0);
    let mut without = Terminal::of(program.command(&["replay", "story", "--no-mouse"]));
    see(&without, "event 2 of 15");
    assert!(!without.shown().contains(ON));
    without.type_in("q");
    assert_eq!(without.end(), 0);
}

#[test]
fn replay_without_name_asks_which_session() {
    let program = Program::with_story();
    program.run(&["clone", "story", "--name", "kid"]);
    let mut debugger = Terminal::of(program.command(&["replay"]));
    see(&debugger, "Sessions, the latest first  2 of 2");
    debugger.type_in("kid");
    see(&debugger, "1 of 2");
    debugger.type_in("\r");
    see(&debugger, " kid  event ");
    debugger.type_in("q");
    assert_eq!(debugger.end(), 0);
    let mut none = Terminal::of(program.command(&["replay"]));
    see(&none, "Sessions, the latest first");
    none.type_in("\u{1b}");
    assert_eq!(none.end(), 130);
    let told = program.run(&["replay"]);
    assert!(told.starts_with("error: no session named: the store has 2"), "{told}");
}

#[test]
fn replay_shell_runs_in_a_copy_of_the_past() {
    let program = Program::with_story();
    let mut command = program.command(&["replay", "story", "--at", "4"]);
    command.env("SHELL", "/bin/false");
    let mut debugger = Terminal::of(command);
    see(&debugger, "event 4 of 15");
    debugger.type_in("!");
    debugger.wait_for("this is a copy", 1);
    debugger.wait_for("story@4", 1);
    debugger.type_in("tr a-z A-Z < a.txt; echo new > b.txt\n");
    debugger.wait_for("TWO", 1);
    debugger.type_in("rm -rf /\n");
    debugger.wait_for("not allowed", 1);
    debugger.type_in("echo be''gun; sleep 1000\n");
    debugger.wait_for("begun", 1);
    debugger.signal("-INT");
    debugger.wait_for("interrupted", 1);
    debugger.type_in("exit\n");
    see(&debugger, "the copy is gone");
    assert!(debugger.is_raw(), "Ctrl-C at the prompt is not for the debugger");
    debugger.type_in("q");
    debugger.wait_for(LEFT, 2);
    assert_eq!(debugger.end(), 0);
    assert_eq!(program.json_lines(&["log", "story"]).len(), 15, "nothing was recorded");
}

#[test]
fn replay_signal_restores_the_terminal() {
    let program = Program::with_story();
    let debugger = Terminal::of(program.command(&["replay", "story"]));
    see(&debugger, "event 2 of 15");
    debugger.signal("-TERM");
    debugger.wait_for(LEFT, 1);
    assert!(!debugger.is_raw());
    assert_eq!(debugger.end(), 130);
}

/// A terminal that goes away, as a window does, and not a byte more comes from it.
#[test]
fn replay_ends_with_its_terminal() {
    let program = Program::with_story();
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    tcsetwinsize(&master, Winsize { ws_row: 24, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    let path = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
    let side = || Stdio::from(File::options().read(true).write(true).open(&path).unwrap());
    let mut command = program.command(&["replay", "story"]);
    let child = command.env("TERM", "xterm").stdin(side()).stdout(side()).stderr(side()).spawn().unwrap();
    drop(command);
    let (mut master, mut seen, mut buffer) = (File::from(master), Vec::new(), [0; 4096]);
    while !String::from_utf8_lossy(&seen).contains("event 2 of 15") {
        let read = master.read(&mut buffer).unwrap();
        seen.extend_from_slice(&buffer[..read]);
    }
    drop(master);
    let mut child = Running(child);
    eventually("it ends without a terminal", || child.0.try_wait().unwrap().is_some());
}
