//! `foldspace rewind`.

use std::path::PathBuf;

use insta::assert_snapshot;

use crate::rig::{Program, eventually, rounds};

/// Where the files of a world's only session are, on the host.
fn root(program: &Program) -> PathBuf {
    let sessions = program.json(&["sessions"]);
    program.data().join("workspaces").join(sessions[0]["session"].as_str().unwrap()).join("files")
}

fn exec(program: &Program, command: &str) {
    let ran = program.run(&["exec", "work", "--sh", "--", command]);
    assert!(ran.ends_with("[exit 0]"), "{ran}");
}

/// A world with a session on the host: two commands and a position after each.
fn on_the_host() -> (Program, [u64; 2]) {
    let program = Program::new();
    program.printed(&["run", &program.file("work.jsonl", ""), "--backend", "host", "--session", "work"]);
    let head = || program.json(&["sessions"])[0]["events"].as_u64().unwrap();
    exec(&program, "mkdir d && echo one > d/a && echo gone > b");
    let first = head();
    exec(&program, "echo two > d/a && rm b && echo new > c");
    let second = head();
    (program, [first, second])
}

#[test]
fn rewind_in_memory_goes_back_and_forth() {
    let program = Program::with_story();
    assert_snapshot!(program.run(&["rewind", "story", "--to", "7", "--dry-run"]), @"
    back     a.txt

    session story would go back to 7 from 15: 1 entry
    [exit 0]
    ");
    assert_snapshot!(program.run(&["rewind", "story", "--to", "4"]), @"
    back     a.txt
    gone     src
    gone     src/main.rs

    session story is back at 4: 3 entries, events 16 to 18
    to undo it: foldspace rewind story --to 15
    [exit 0]
    ");
    assert_eq!(program.printed(&["cat", "story", "a.txt"]), "one\ntwo\nthree\n");
    assert_eq!(program.printed(&["ls", "story", "-R"]), "a.txt\n");
    assert_snapshot!(program.run(&["rewind", "story", "--to", "4"]), @"
    nothing to do: session story is already as it was at 4
    [exit 0]
    ");
    assert!(program.run(&["rewind", "story", "--to", "15"]).ends_with("[exit 0]"));
    assert_eq!(program.printed(&["ls", "story", "-R"]), "src/\nsrc/main.rs\n");
    // Nothing of the history is gone.
    assert_eq!(program.printed(&["ls", "story", "-R", "--at", "18"]), "a.txt\n");
    assert!(program.printed(&["log", "story"]).contains("SessionRewound"));
    assert!(program.run(&["verify"]).ends_with("[exit 0]"));
}

#[test]
fn rewind_json_tells_what_it_did() {
    let program = Program::with_story();
    let told = program.json(&["rewind", "story", "--to", "4"]);
    assert_eq!((told["to"].as_u64(), told["from"].as_u64(), told["refused"].is_null()), (Some(4), Some(15), true));
    assert_eq!((told["recorded"]["first"].as_u64(), told["recorded"]["last"].as_u64()), (Some(16), Some(18)));
    assert_eq!(told["changes"].as_array().unwrap().len(), 3);
    assert!(program.json(&["rewind", "story", "--to", "4"])["recorded"].is_null());
}

#[test]
fn rewind_wrong_arguments_are_refused() {
    let program = Program::with_story();
    for (arguments, exit) in [
        (&["rewind", "story", "--to", "99"][..], 3),
        (&["rewind", "story", "--to", "yesterday"], 2),
        (&["rewind", "story"], 2),
        (&["rewind", "nobody", "--to", "1"], 3),
        (&["rewind", "story", "--to", "-99"], 3),
    ] {
        let told = program.run(arguments);
        assert!(told.ends_with(&format!("[exit {exit}]")), "{arguments:?}: {told}");
    }
    assert_eq!(program.json(&["sessions"])[0]["events"], 15, "nothing was recorded");
}

#[test]
fn rewind_over_drift_needs_force() {
    let (program, [first, second]) = on_the_host();
    let root = root(&program);
    std::fs::write(root.join("c"), "by somebody").unwrap();
    let to = first.to_string();
    assert_snapshot!(program.run(&["rewind", "work", "--to", &to]), @"
    error: 1 entry changed in the workspace outside of any call; nothing was done:
      c
    hint: --force records these changes first, so that they can be restored; any call records them, too
    [exit 1]
    ");
    let output = program.output(&["--json", "rewind", "work", "--to", &to]);
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((told["refused"].as_str(), told["entries"][0].as_str()), (Some("changed_outside"), Some("c")));
    assert_eq!(program.json(&["sessions"])[0]["events"], second, "nothing was recorded");
    assert_eq!(std::fs::read_to_string(root.join("c")).unwrap(), "by somebody");

    let forced = program.json(&["rewind", "work", "--to", &to, "--force"]);
    assert_eq!(forced["drift"][0], "c");
    assert_eq!(std::fs::read_to_string(root.join("d/a")).unwrap(), "one\n");
    assert_eq!((root.join("b").exists(), root.join("c").exists()), (true, false));
    program.printed(&["rewind", "work", "--to", &forced["from"].to_string()]);
    assert_eq!(std::fs::read_to_string(root.join("c")).unwrap(), "by somebody");
}

/// Every entry and its contents, to compare.
fn listing(root: &std::path::Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut left = vec![root.to_owned()];
    while let Some(directory) = left.pop() {
        // What goes meanwhile has gone.
        for entry in std::fs::read_dir(&directory).into_iter().flatten().map_while(Result::ok) {
            let path = entry.path();
            let name = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
            found.push((name, std::fs::read(&path).unwrap_or_default()));
            if path.is_dir() {
                left.push(path);
            }
        }
    }
    found.sort();
    found
}

#[test]
fn rewind_killed_leaves_old_or_new_files() {
    let (program, _) = on_the_host();
    let root = root(&program);
    let head = || program.json(&["sessions"])[0]["events"].as_u64().unwrap();
    exec(&program, "for i in $(seq 400); do mkdir -p x/$((i % 20)); echo $i > x/$((i % 20))/$i; done");
    let (full, with) = (head(), listing(&root));
    exec(&program, "rm -r x/1* && for i in $(seq 2 9); do echo changed > x/$i/new; rm x/$i/$i; done");
    let (thin, without) = (head(), listing(&root));
    assert_ne!(with, without);
    let mut killed = 0;
    let (mut at, mut target) = (thin, full);
    // How many entries have come or gone when it is killed.
    for (round, changed) in [0, 1, 20, 60, 120, 180, 215].repeat(rounds(1) as usize).into_iter().enumerate() {
        let before = listing(&root).len();
        let mut running = program.spawn(&["rewind", "work", "--to", &target.to_string()]);
        eventually("the rewind has come so far", || {
            listing(&root).len().abs_diff(before) >= changed || running.0.try_wait().unwrap().is_some()
        });
        running.0.kill().unwrap();
        killed += u32::from(!running.0.wait().unwrap().success());
        drop(running);
        // The next process puts right what was cut off.
        exec(&program, "true");
        let stands = listing(&root);
        let went = stands == *if target == full { &with } else { &without };
        assert!(went || stands == *if at == full { &with } else { &without }, "round {round}: neither old nor new");
        assert!(
            !program.printed(&["log", "work"]).contains("DriftFound"),
            "round {round}: a leftover was taken for drift"
        );
        if went {
            (at, target) = (target, at);
        }
    }
    assert!(killed > 0, "in the first round nothing has happened yet");
    assert!(program.run(&["verify"]).ends_with("[exit 0]"));
}

#[test]
fn rewind_in_container_restores_files() {
    let Some(program) = Program::with_container() else { return };
    exec(&program, "mkdir -p src && echo 'print(1)' > src/a.py && python3 src/a.py > out && chmod +x src/a.py");
    let head = program.json(&["sessions"])[0]["events"].as_u64().unwrap();
    exec(&program, "rm -r src && echo broken > out && ln -s out link");
    let told = program.json(&["rewind", "work", "--to", &head.to_string()]);
    assert_eq!(told["changes"].as_array().unwrap().len(), 4, "{told}");
    let ran = program.run(&["exec", "work", "--sh", "--", "cat out; ls -F . src"]);
    assert_eq!(ran, "1\n.:\na.txt\nout\nsrc/\n\nsrc:\na.py*\n[exit 0]");
    let undone = program.run(&["rewind", "work", "--to", &told["from"].to_string()]);
    assert!(undone.ends_with("[exit 0]"), "{undone}");
    assert_eq!(program.run(&["exec", "work", "--sh", "--", "cat link; ls"]), "broken\na.txt\nlink\nout\n[exit 0]");
}

#[test]
fn rewind_escapes_session_name_for_terminal() {
    use foldspace::event::SessionStarted;
    use foldspace::store::{Expected, LocalStoreOptions};
    use foldspace::{Commit, EventStore, LocalStore, SessionId, Timestamp};
    let program = Program::new();
    let store = LocalStore::open(program.data(), LocalStoreOptions::default()).unwrap();
    let id = SessionId::from_bytes([0xab; 16]);
    let mut commit = Commit::new(id, Timestamp(0)).expecting(Expected::NoSession);
    let started = SessionStarted {
        name: "red\u{1b}[31m; rm -rf $HOME".to_owned(),
        backend: "memory".to_owned(),
        program: "0".to_owned(),
        options: serde_json::Value::Null,
        origin: None,
        limits: Default::default(),
    };
    commit.push(&started).unwrap();
    store.submit(commit).unwrap().wait().unwrap();
    drop(store);
    let id = id.to_string();
    let script = program.file("s.jsonl", r#"{"tool": "write_file", "params": {"file_path": "a", "content": "a"}}"#);
    program.printed(&["run", &script, "--session", &id]);
    let told = program.printed(&["rewind", &id, "--to", "1"]);
    assert!(!told.contains('\u{1b}') && told.contains(&format!("rewind {id} --to")), "{told:?}");
    let told = program.run(&["run", &script, "--session", "other", "--expect", &id]);
    assert!(!told.contains('\u{1b}') && told.contains("compared with session red"), "{told:?}");
}
