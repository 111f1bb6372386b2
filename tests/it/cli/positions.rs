//! How a session and a moment of it are named.

use insta::assert_snapshot;

use crate::rig::Program;

#[test]
fn session_is_found_by_name_or_id_prefix() {
    let program = Program::with_story();
    let id = program.json(&["sessions"])[0]["session"].as_str().unwrap().to_owned();
    for wanted in ["story", &id, &id[..12], &id[..4]] {
        assert_eq!(program.printed(&["ls", wanted]), "src/\n", "{wanted}");
    }
    assert_snapshot!(program.run(&["ls", "nobody"]), @r#"
    error: no session is called "nobody", and no id begins with that
    hint: `foldspace sessions` lists them
    [exit 3]
    "#);
    assert!(program.run(&["ls", ""]).ends_with("[exit 3]"));
}

#[test]
fn session_id_prefix_of_several_is_refused() {
    let program = Program::new();
    let script = program.file("s.jsonl", "");
    // Among seventeen ids two begin with the same digit.
    for _ in 0..17 {
        program.printed(&["run", &script]);
    }
    let told = "0123456789abcdef".chars().map(|digit| program.run(&["ls", &digit.to_string()]));
    let refused = told.filter(|told| told.contains("could be any of") && told.ends_with("[exit 3]")).count();
    assert!(refused > 0);
}

#[test]
fn position_accepts_every_form() {
    let program = Program::with_story();
    let files = |at: &[&str]| program.printed(&[&["ls", "story", "-R"], at].concat()).replace('\n', " ");
    assert_eq!(files(&["--at", "0"]), "");
    assert_eq!(files(&["--at", "4"]), "a.txt ");
    assert_eq!(files(&["--at", "@7"]), "a.txt src/ src/main.rs ");
    assert_eq!(files(&["--at", "-2"]), "a.txt src/ src/main.rs ");
    assert_eq!(files(&["--at=-15"]), "");
    assert_eq!(files(&["--before", "5"]), "a.txt ");
    assert_eq!(files(&["--before", "@6"]), "a.txt ");
    assert_eq!(files(&["--at", "0s"]), "src/ src/main.rs ");
    assert_eq!(files(&["--at", "2999-12-31"]), "src/ src/main.rs ");
    let written = program.json(&["stat", "story", "src/main.rs"])["updated_at"].as_str().unwrap().to_owned();
    assert!(files(&["--at", &written]).contains("src/main.rs"));
}

/// The call 5 ends at 7, and its commit begins at 6.
#[test]
fn position_of_a_call_is_its_end_for_all_verbs() {
    let program = Program::with_story();
    let files = |at: &str| program.printed(&["ls", "story", "-R", "--at", at]);
    assert_eq!([files("5"), files("6"), files("-9")], [files("7"), files("7"), files("7")]);
    assert_eq!([files("@5"), files("before:5"), files("before:7")], [files("4"), files("4"), files("4")]);
    let diff = |range: &str| program.printed(&["diff", "story", range, "--name-only"]);
    assert_eq!([diff("2..5"), diff("before:5..5")], [diff("4..7"), diff("4..7")]);
    let rewound = |arguments: &[&str]| {
        let told = program.json(&[&["rewind", "story", "--dry-run"], arguments].concat());
        (told["to"].as_u64(), told["asked"].as_u64())
    };
    assert_eq!(rewound(&["--to", "5"]), (Some(7), None));
    assert_eq!(rewound(&["--to", "6"]), (Some(7), Some(6)));
    assert_eq!(rewound(&["--before", "5"]), (Some(4), None));
    let cloned = |arguments: &[&str]| program.json(&[&["clone", "story"], arguments].concat())["at"].as_u64();
    assert_eq!([cloned(&["--at", "5"]), cloned(&["--before", "5"]), cloned(&["--at", "@5"])], [7, 4, 5].map(Some));
    let undone = |option: &str, at: &str| program.json(&["undo", "story", option, at, "--dry-run"])["calls"].clone();
    assert_eq!(undone("--before", "5"), undone("--to", "4"));
    for arguments in [&["undo", "story", "--dry-run", "--to"][..], &["revert", "story", "a.txt", "--dry-run", "--at"]] {
        let told = |at| program.run(&[arguments, &[at]].concat());
        assert!(told("6").contains("note: event 6 is inside a commit; this goes to its end, 7"), "{}", told("6"));
        assert!(["5", "7", "@6"].iter().all(|at| !told(at).contains("note:")), "{arguments:?}");
    }
    let told = program.run(&["bisect", "story", "--good", "6", "--slice", "Usage.calls > 4"]);
    assert!(told.contains("note: event 6 is inside a commit; this goes to its end, 7"), "{told}");
    assert_eq!(undone("--to", "5").as_array().unwrap().len() + 1, undone("--before", "5").as_array().unwrap().len());
}

#[test]
fn position_for_fork_names_allowed_seqs() {
    let program = Program::with_story();
    assert_snapshot!(program.run(&["clone", "story", "--at", "0"]), @"
    error: a fork has at least the first event of its session
    hint: the earliest position is --at 1
    [exit 3]
    ");
    assert_snapshot!(program.run(&["what-if", "story", "--script", "-"]), @"
    error: the following required arguments were not provided:
      <--at <POSITION>|--before <CALL>|--replace <CALL>>

    Usage: foldspace what-if --script <FILE> <--at <POSITION>|--before <CALL>|--replace <CALL>> <SESSION>

    For more information, try '--help'.
    [exit 2]
    ");
}

#[test]
fn position_that_is_none_is_refused() {
    let program = Program::with_story();
    assert_snapshot!(program.run(&["ls", "story", "--at", "yesterday"]), @"
    error: invalid value 'yesterday' for '--at <POSITION>': a position is a call's or an event's number (12), exactly an event (@12), before a call (before:12), so many events ago (-5), a moment (2025-01-31T[time]Z), how long ago (10m, 2h, 1h30m), or a name (tag:NAME)

    For more information, try '--help'.
    [exit 2]
    ");
    assert_snapshot!(program.run(&["ls", "story", "--at", "99"]), @"
    error: the session has no position 99; its last one is 15
    hint: `foldspace log` shows the positions
    [exit 3]
    ");
    assert_snapshot!(program.run(&["ls", "story", "--at", "-99"]), @"
    error: 99 events ago is before the first event: the session has 15 events
    [exit 3]
    ");
    assert_snapshot!(program.run(&["ls", "story", "--before", "1"]), @"
    error: event 1, a SessionStarted, belongs to no call
    hint: `foldspace log --calls` lists the calls
    [exit 3]
    ");
    assert_snapshot!(program.run(&["ls", "story", "--before", "99"]), @"
    error: the session has no position 99; its last one is 15
    hint: `foldspace log` shows the positions
    [exit 3]
    ");
    assert_snapshot!(program.run(&["diff", "story", "1..x"]), @"
    error: invalid value '1..x' for '[A..B]': a position is a call's or an event's number (12), exactly an event (@12), before a call (before:12), so many events ago (-5), a moment (2025-01-31T[time]Z), how long ago (10m, 2h, 1h30m), or a name (tag:NAME)

    For more information, try '--help'.
    [exit 2]
    ");
    for at in ["1h", "2020-01-01"] {
        insta::allow_duplicates!(assert_snapshot!(program.run(&["rewind", "story", "--to", at]), @"
        error: the session began at [time], after the requested time
        hint: `foldspace log` shows the positions
        [exit 3]
        "));
    }
    for both in [&["--at", "1", "--before", "2"][..], &["--at"], &["--before", "-1"]] {
        assert!(program.run(&[&["ls", "story"], both].concat()).ends_with("[exit 2]"), "{both:?}");
    }
}
