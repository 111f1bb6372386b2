//! The store as a whole: portable files, checks, space.

use std::path::PathBuf;

use insta::assert_snapshot;

use crate::rig::{Program, told};

#[test]
fn read_commands_create_no_store() {
    let program = Program::new();
    assert_snapshot!(program.run(&["sessions"]), @"
    error: no store found in [dir]/data
    hint: `foldspace new` creates one; --data or FOLDSPACE_DATA names its directory
    [exit 3]
    ");
    for arguments in [
        &["log", "x"][..],
        &["log", "x", "--follow"],
        &["ls", "x"],
        &["verify"],
        &["fsck"],
        &["gc"],
        &["du"],
        &["remove", "x", "--yes"],
        &["export", "x", "-"],
    ] {
        assert!(program.run(arguments).ends_with("[exit 3]"), "{arguments:?}");
    }
    assert!(!program.data().exists());
}

#[test]
fn data_directory_follows_option_and_environment() {
    let program = Program::new();
    let script = program.file("s.jsonl", "");
    let (home, xdg) = (program.path("home"), program.path("xdg"));
    let run = |set: &[(&str, &str)], more: &[&str]| {
        let mut command = program.command(&[more, &["run", &script]].concat());
        command.env_remove("FOLDSPACE_DATA").env_remove("HOME").envs(set.iter().copied());
        told(&command.output().unwrap())
    };
    assert!(run(&[("HOME", home.to_str().unwrap())], &[]).ends_with("[exit 0]"));
    assert!(home.join(".local/share/foldspace/journal").is_dir());
    assert!(run(&[("XDG_DATA_HOME", xdg.to_str().unwrap())], &[]).ends_with("[exit 0]"));
    assert!(xdg.join("foldspace/journal").is_dir());
    let told = run(&[], &["--data", "it's here"]);
    assert!(program.path("it's here/journal").is_dir());
    assert!(told.contains(r"--data 'it'\''s here' log s --calls"), "{told}");
    assert_snapshot!(run(&[("XDG_DATA_HOME", "not/absolute")], &[]), @"
    error: no data directory: neither HOME nor XDG_DATA_HOME is set
    hint: name one with --data DIR or FOLDSPACE_DATA
    [exit 2]
    ");
}

#[test]
fn export_and_import_round_trip() {
    let program = Program::with_story();
    assert_snapshot!(program.run(&["export", "story", "story.fold"]), @"
    story: 15 events, 3 contents, 2.0 KiB written to story.fold
    [exit 0]
    ");
    assert_snapshot!(program.run(&["export", "story", "story.fold"]), @"
    error: story.fold exists
    hint: --force replaces it
    [exit 2]
    ");
    assert!(program.run(&["export", "story", "--atif", "-o", "story.fold"]).ends_with("[exit 2]"));
    assert!(program.run(&["export", "story", "story.fold", "--force"]).ends_with("[exit 0]"));
    let file = std::fs::read(program.path("story.fold")).unwrap();
    assert_eq!(program.output(&["export", "story", "-"]).stdout, file);
    let there = |arguments: &[&str]| program.run(&[&["--data", "there"], arguments].concat());
    assert_snapshot!(there(&["import", "story.fold"]), @"
    story: 15 events, 3 contents, 2.0 KiB read, 15 events were new
    [exit 0]
    ");
    assert!(there(&["log", "story"]) == program.run(&["log", "story"]), "the history is the same");
    let inside = there(&["rewind", "story", "--to", "3", "--dry-run"]);
    assert!(inside.contains("event 3 is inside a commit; this goes to its end, 4"), "{inside}");
    assert_eq!(inside, program.run(&["rewind", "story", "--to", "3", "--dry-run"]));
    assert!(there(&["diff", "story", ".."]) == program.run(&["diff", "story", ".."]));
    assert!(there(&["import", "story.fold"]).ends_with("[exit 0]"), "once more is no harm");
    program.printed(&["rewind", "story", "--to", "4"]);
    assert!(there(&["rewind", "story", "--to", "7"]).ends_with("[exit 0]"));
    program.printed(&["export", "story", "longer.fold"]);
    assert_snapshot!(there(&["import", "longer.fold"]), @"
    error: session [session] exists already, with another history from event 16 on
    hint: nothing was changed; `foldspace remove` the existing session, or import into another store (--data)
    [exit 1]
    ");
    let renamed = there(&["import", "story.fold", "--name", "tale"]);
    assert!(renamed.contains("note: the session already exists and is called story"), "{renamed}");
    let other = |arguments: &[&str]| program.run(&[&["--data", "other"], arguments].concat());
    assert_snapshot!(other(&["import", "story.fold", "--name", "tale"]), @"
    tale: 15 events, 3 contents, 2.0 KiB read, 15 events were new
    [exit 0]
    ");
    assert!(other(&["ls", "tale"]).starts_with("src/"));
    assert!(program.fed(&["--data", "third", "import", "-"], &file).ends_with("[exit 0]"));
}

#[test]
fn import_of_other_file_is_refused() {
    let program = Program::with_story();
    program.printed(&["export", "story", "story.fold"]);
    let whole = std::fs::read(program.path("story.fold")).unwrap();
    program.file("short.fold", &whole[..whole.len() / 2]);
    program.file("empty.fold", "");
    program.file("text.fold", "hello");
    assert_snapshot!(program.run(&["--data", "there", "import", "short.fold"]), @"
    error: the file can't be imported: it ends early
    [exit 5]
    ");
    for bad in ["empty.fold", "text.fold"] {
        assert!(program.run(&["--data", "there", "import", bad]).ends_with("[exit 5]"), "{bad}");
    }
    assert_snapshot!(program.run(&["import", "nothing.fold"]), @"
    error: no such file: nothing.fold
    [exit 3]
    ");
    assert_snapshot!(program.run(&["export", "story", "no/such/place"]), @"
    error: can't write no/such/place: No such file or directory (os error 2)
    [exit 6]
    ");
    assert_snapshot!(program.run(&["--data", "there", "sessions"]), @"
    no sessions
    [exit 0]
    ");
    program.printed(&["--data", "taken", "run", &program.file("story.jsonl", "")]);
    assert_snapshot!(program.run(&["--data", "taken", "import", "story.fold"]), @r#"
    error: a session called "story" exists already
    hint: give it another name with --name
    [exit 2]
    "#);
}

#[test]
fn fsck_of_healthy_store_reports_ok() {
    let program = Program::with_story();
    assert_snapshot!(program.run(&["verify"]), @"
    1 session, 15 events, 0 snapshots, 3 contents: all is as the events say
    [exit 0]
    ");
    assert_snapshot!(program.run(&["verify", "story"]), @"
    1 session, 15 events, 0 snapshots, 3 contents: all is as the events say
    [exit 0]
    ");
    assert_snapshot!(program.run(&["fsck"]), @"
    1 segment, 1 session, 11 commits, 15 events, 3 contents: no damage
    [exit 0]
    ");
    assert_snapshot!(program.run(&["fsck", "--repair"]), @"
    1 segment, 1 session, 11 commits, 15 events, 3 contents: no damage
    [exit 0]
    ");
    assert_snapshot!(program.run(&["verify", "nobody"]), @r#"
    error: no session is called "nobody", and no id begins with that
    hint: `foldspace sessions` lists them
    [exit 3]
    "#);
}

fn segment(program: &Program) -> PathBuf {
    let mut files = std::fs::read_dir(program.data().join("journal")).unwrap().map(|entry| entry.unwrap().path());
    files.next().unwrap()
}

#[test]
fn fsck_finds_and_repairs_damage() {
    let program = Program::with_story();
    let segment = segment(&program);
    let mut bytes = std::fs::read(&segment).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    std::fs::write(&segment, &bytes).unwrap();
    let checked = program.run(&["fsck"]);
    assert!(checked.contains("segment 1 at byte") && checked.ends_with("[exit 1]"), "{checked}");
    let used = program.run(&["cat", "story", "src/main.rs", "--at", "10"]);
    assert!(used.ends_with("[exit 5]") || used.ends_with("[exit 0]"), "{used}");
    let repaired = program.run(&["fsck", "--repair"]);
    // Several bits of one frame can't be put right, so its events are lost, and the status says so.
    assert!(repaired.contains("repaired, without ") && repaired.ends_with("[exit 1]"), "{repaired}");
    assert!(program.run(&["fsck"]).contains("no damage"));
    let verified = program.run(&["verify"]);
    assert!(verified.ends_with("[exit 0]") || verified.contains("difference"), "{verified}");
}

#[test]
fn gc_frees_space_of_removed_session() {
    let program = Program::with_story();
    program.printed(&["run", &program.file("other.jsonl", "")]);
    assert_snapshot!(program.run(&["remove", "story"]), @"
    error: no terminal to ask on: remove session story ([id]) with its 15 events for good?
    hint: --yes removes it without asking
    [exit 2]
    ");
    assert_snapshot!(program.run(&["remove", "story", "--yes"]), @"
    removed story ([id]), 15 events; `gc` frees its space
    [exit 0]
    ");
    assert_snapshot!(program.run(&["remove", "story", "--yes"]), @r#"
    error: no session is called "story", and no id begins with that
    hint: `foldspace sessions` lists them
    [exit 3]
    "#);
    let rehearsed = program.run(&["gc", "--dry-run"]);
    assert!(rehearsed.starts_with("would free") && rehearsed.contains("11 commits"), "{rehearsed}");
    let freed = program.run(&["gc"]);
    assert!(freed.starts_with("freed") && freed.contains("11 commits"), "{freed}");
    assert!(program.run(&["gc"]).contains("freed 0 B"));
    assert!(program.printed(&["sessions"]).contains("other"));
}

#[test]
fn index_loss_is_reported_only_if_lost() {
    let program = Program::with_story();
    program.printed(&["run", &program.file("other.jsonl", "")]);
    let empty = program.file("probe.jsonl", "");
    let told = || program.run(&["-v", "run", &empty]).contains("the index was missing");
    for session in ["story", "other"] {
        program.printed(&["remove", session, "--yes"]);
        let freed = program.printed(&["gc"]);
        assert!(!freed.contains("freed 0 B"), "{freed}");
        assert!(!told(), "gc made it again");
    }
    program.printed(&["run", &program.file("other.jsonl", "")]);
    std::fs::remove_dir_all(program.data().join("index")).unwrap();
    assert!(told());
    assert!(!told(), "once");
    std::fs::remove_dir_all(program.data().join("index")).unwrap();
    assert!(!program.run(&["run", &empty]).contains("the index"), "only who asks is told");
}

#[test]
fn remove_names_children() {
    let program = Program::with_story();
    program.printed(&["clone", "story", "--name", "one"]);
    assert_snapshot!(program.run(&["remove", "story"]), @"
    error: no terminal to ask on: remove session story ([id]) with its 16 events for good? (its child one remains, with its history)
    hint: --yes removes it without asking
    [exit 2]
    ");
    program.printed(&["clone", "story", "--name", "two", "--isolation", "full"]);
    assert_snapshot!(program.run(&["remove", "story", "--yes"]), @"
    removed story ([id]), 17 events; `gc` frees its space
    its children one and two remain, with their history
    [exit 0]
    ");
    program.printed(&["clone", "one", "--name", "three"]);
    let removed = program.json(&["remove", "one", "--yes"]);
    let child = &removed["children"][0];
    assert_eq!((&child["name"], &child["isolation"]), (&"three".into(), &"fork".into()), "{removed}");
    assert_eq!(program.json(&["remove", "three", "--yes"])["children"], serde_json::json!([]));
}

#[test]
fn du_accounts_for_all_space() {
    let program = Program::with_story();
    let whole = program.printed(&["du"]);
    for word in ["WriteFile", "CallStarted", "story", "contents", "journal files", "stored on the disk"] {
        assert!(whole.contains(word), "{word} is not in\n{whole}");
    }
    let sum = program.json(&["du", "story"]);
    assert_eq!(sum["sessions"][0]["events"], 15);
    assert_eq!(sum["written_bytes"], 14 + 13 + 15);
    assert_eq!(sum["kept_bytes"], 14 + 13 + 15);
    let count = |kind: &str| {
        let kinds = sum["kinds"].as_array().unwrap();
        kinds.iter().find(|row| row["kind"] == kind).unwrap()["count"].clone()
    };
    assert_eq!((count("WriteFile"), count("CallStarted"), count("DeleteEntry")), (3.into(), 5.into(), 1.into()));
}
