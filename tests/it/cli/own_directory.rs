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
        error: 2 entries would be removed that the directory had before the session began; nothing was done:
          src
          and 1 entry below
        hint: --force removes them; `foldspace rewind own --to 11` restores them
        [exit 1]
        "));
    }
    assert_eq!((held(&program), program.json(&["sessions"])[0]["events"].as_u64()), (before, Some(11)));
    let told = program.output(&["--json", "rewind", "own", "--to", "1"]);
    let told: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
    assert_eq!((&told["refused"], &told["count"]), (&"earlier".into(), &2.into()));
    assert_eq!(told["entries"], serde_json::json!(["src"]));
    assert_eq!(program.json(&["rewind", "own", "--to", "1", "--force"])["left"], serde_json::json!([".git"]));
    assert_eq!(held(&program), [".git", ".git/HEAD"]);
    assert_eq!(program.json(&["rewind", "own", "--to", "1", "--force", "--git"])["left"], serde_json::json!([]));
    assert_eq!(held(&program), [""; 0]);
    program.printed(&["rewind", "own", "--to", "11"]);
    assert_eq!(held(&program), [".git", ".git/HEAD", "new.txt", "src", "src/b.txt"]);
}

#[test]
fn rewind_leaves_git_as_it_is_unless_asked() {
    let program = with_files();
    program.file("mine/.git/HEAD", "a commit of the person's");
    let head = || std::fs::read_to_string(program.path("mine/.git/HEAD")).unwrap();
    assert_snapshot!(program.run(&["rewind", "own", "--to", "8", "--force"]), @"
    back     a.txt
    outside  .git/HEAD
    left     .git, as it is now: --git takes it back, too

    session own is back at 8: 1 entry, events 14 to 15
    to undo it: foldspace rewind own --to 13
    [exit 0]
    ");
    assert_eq!(head(), "a commit of the person's");
    assert!(held(&program).contains(&"a.txt".to_owned()));
    assert!(program.printed(&["rewind", "own", "--to", "8", "--force", "--git"]).contains("changed  .git/HEAD"));
    assert_eq!(head(), "mine/.git/HEAD");
    // A `.git` that is gone comes back.
    std::fs::remove_dir_all(program.path("mine/.git")).unwrap();
    assert!(program.run(&["rewind", "own", "--to", "8", "--force"]).ends_with("[exit 0]"));
    assert_eq!(head(), "mine/.git/HEAD");
    assert!(program.run(&["verify"]).ends_with("[exit 0]"));
}

#[test]
fn data_directory_is_never_a_workspace() {
    let program = Program::new();
    let path = |name: &str| program.path(name).to_string_lossy().into_owned();
    for name in ["mine/in/a.txt", "home/b.txt", "outer/c.txt"] {
        program.file(name, "x");
    }
    std::os::unix::fs::symlink(program.data(), program.path("link")).unwrap();
    let (inner, outer) = (path("mine/in/data"), path("outer/store"));
    for data in [&path("data"), &inner, &outer] {
        program.printed(&["--data", data, "new", "first", "--backend", "memory"]);
    }
    for (data, directory) in [
        ("data", ""),
        ("data", "data"),
        ("data", "data/journal"),
        ("data", "link"),
        ("data", "home"),
        ("data", "mine"),
        ("data", "mine/in"),
        ("data", "mine/in/data/journal"),
        ("mine/in/data", "mine/in"),
        ("outer/store", "outer"),
    ] {
        let (data, directory) = (path(data), path(directory));
        for backend in ["host", "podman"] {
            let begin = ["--data", &data, "new", "k", "--backend", backend, "--dir", &directory];
            let told = program.run(&begin);
            assert!(told.starts_with("error: can't use ") && told.ends_with("[exit 2]"), "{directory}: {told}");
        }
        assert!(program.run(&["--data", &data, "attach", &directory]).ends_with("[exit 2]"));
        assert_eq!(program.json(&["--data", &data, "sessions"]).as_array().unwrap().len(), 1);
    }
    // A session that works where the data directory has come is not opened, but is shown.
    std::fs::create_dir(program.path("late")).unwrap();
    program.printed(&["--data", &outer, "new", "late", "--backend", "host", "--dir", &path("late")]);
    std::fs::rename(program.path("outer/store"), program.path("late/store")).unwrap();
    let store = path("late/store");
    let told = program.run(&["--data", &store, "exec", "late", "--", "true"]);
    assert!(told.starts_with("error: can't use ") && told.ends_with("[exit 2]"), "{told}");
    assert!(program.printed(&["--data", &store, "log", "late"]).contains("SessionStarted"));
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
