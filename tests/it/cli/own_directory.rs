//! A person's own directory, with which a session works: nothing in it goes without a word.

use insta::{allow_duplicates, assert_snapshot};

use crate::rig::Program;

/// A session in a directory that held five entries before, and in which it wrote `new.txt` and removed `a.txt`.
fn with_files() -> Program {
    let program = Program::new();
    for name in ["mine/.git/HEAD", "mine/a.txt", "mine/src/b.txt"] {
        program.file(name, name);
    }
    let script = program.file(
        "own.jsonl",
        r#"{"tool": "write_file", "params": {"file_path": "new.txt", "content": "new"}}
{"tool": "rm", "params": {"path": "a.txt"}}"#,
    );
    let mine = program.path("mine").to_string_lossy().into_owned();
    program.printed(&["run", &script, "--backend", "host", "--dir", &mine, "--session", "own"]);
    program
}

/// Lists the directory, in order.
fn held(program: &Program) -> Vec<String> {
    let mine = program.path("mine");
    let mut held = Vec::new();
    let mut left = vec![mine.clone()];
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            held.push(path.strip_prefix(&mine).unwrap().to_string_lossy().into_owned());
            left.extend(path.is_dir().then_some(path));
        }
    }
    held.sort();
    held
}

const TAKEN_UP: [&str; 5] = [".git", ".git/HEAD", "a.txt", "src", "src/b.txt"];

#[test]
fn rewind_into_a_commit_goes_to_its_end() {
    let program = with_files();
    let before = held(&program);
    let note = "note: event 4 is inside a commit; this goes to its end, 5";
    assert!(program.run(&["rewind", "own", "--to", "4", "--dry-run"]).contains(note));
    let told = program.json(&["rewind", "own", "--to", "4", "--dry-run"]);
    assert_eq!((told["to"].as_u64(), told["asked"].as_u64()), (Some(5), Some(4)));
    assert_eq!((held(&program), program.json(&["sessions"])[0]["events"].as_u64()), (before, Some(11)));
    let files = |at: &str| program.printed(&["ls", "own", "-R", "--at", at]);
    assert_eq!((files("4"), files("-7")), (files("5"), files("5")));
    assert_eq!(files("@4"), ".git/\n.git/HEAD\na.txt\n");
    assert!(
        program.run(&["materialise", "own", "--at", "4", &program.path("out").to_string_lossy()]).ends_with("[exit 0]")
    );
    // What the directory held comes back without being asked for twice.
    assert!(program.run(&["rewind", "own", "--to", "4"]).ends_with("[exit 0]"));
    assert_eq!(held(&program), TAKEN_UP);
}

#[test]
fn rewind_before_the_start_keeps_own_directory() {
    let program = with_files();
    let before = held(&program);
    for to in ["1", "0"] {
        allow_duplicates!(assert_snapshot!(program.run(&["rewind", "own", "--to", to]), @"
        error: 4 entries would be removed that the directory had before the session began; nothing was done:
          .git
          src
          and 2 entries below
        hint: --force removes them; `foldspace rewind own --to 11` restores them
        [exit 1]
        "));
    }
    assert_eq!((held(&program), program.json(&["sessions"])[0]["events"].as_u64()), (before, Some(11)));
    let told = program.output(&["--json", "rewind", "own", "--to", "1"]);
    let told: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
    assert_eq!((&told["refused"], &told["count"]), (&"earlier".into(), &4.into()));
    assert_eq!(told["entries"], serde_json::json!([".git", "src"]));
    assert_eq!(program.json(&["rewind", "own", "--to", "1", "--force"])["from"], 11);
    assert_eq!(held(&program), [""; 0]);
    program.printed(&["rewind", "own", "--to", "11"]);
    assert_eq!(held(&program), [".git", ".git/HEAD", "new.txt", "src", "src/b.txt"]);
}

#[test]
fn rewind_over_removed_own_file_needs_force() {
    let program = with_files();
    program.printed(&["rewind", "own", "--to", "8"]);
    assert!(held(&program).contains(&"a.txt".to_owned()));
    let refused = program.run(&["rewind", "own", "--to", "11"]);
    assert!(refused.contains("1 entry would be removed") && refused.contains(":\n  a.txt\nhint: --force"), "{refused}");
    program.printed(&["rewind", "own", "--to", "11", "--force"]);
    assert_eq!(held(&program), [".git", ".git/HEAD", "new.txt", "src", "src/b.txt"]);
}

#[test]
fn clone_into_a_commit_begins_at_its_end() {
    let program = with_files();
    assert_snapshot!(program.run(&["clone", "own", "--at", "4", "--name", "kid"]), @"
    session kid ([id]) is own as of event 5
    note: event 4 is inside a commit; this goes to its end, 5
    [exit 0]
    ");
    assert_eq!(program.printed(&["ls", "kid", "-R"]), program.printed(&["ls", "own", "-R", "--at", "5"]));
    let told = program.json(&["clone", "own", "--at", "4"]);
    assert_eq!((told["at"].as_u64(), told["asked"].as_u64()), (Some(5), Some(4)));
    let told = program.json(&["clone", "own", "--at", "5"]);
    assert_eq!((told["at"].as_u64(), told["asked"].is_null()), (Some(5), true));
}
