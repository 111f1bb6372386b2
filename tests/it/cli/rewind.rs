//! `foldspace rewind`.

use std::path::PathBuf;
use std::time::Duration;

use insta::assert_snapshot;

use super::World;

/// Where the files of a world's only session are, on the host.
fn root(world: &World) -> PathBuf {
    let sessions = world.json(&["sessions"]);
    world.data().join("workspaces").join(sessions[0]["session"].as_str().unwrap()).join("files")
}

fn exec(world: &World, command: &str) {
    let ran = world.run(&["exec", "work", "--sh", "--", command]);
    assert!(ran.ends_with("[exit 0]"), "{ran}");
}

/// A world with a session on the host: two commands and a position after each.
fn on_the_host() -> (World, [u64; 2]) {
    let world = World::new();
    world.printed(&["run", &world.file("work.jsonl", ""), "--backend", "host", "--session", "work"]);
    let head = || world.json(&["sessions"])[0]["events"].as_u64().unwrap();
    exec(&world, "mkdir d && echo one > d/a && echo gone > b");
    let first = head();
    exec(&world, "echo two > d/a && rm b && echo new > c");
    let second = head();
    (world, [first, second])
}

#[test]
fn a_session_in_memory_goes_back_and_forth() {
    let world = World::with_story();
    assert_snapshot!(world.run(&["rewind", "story", "--to", "7", "--dry-run"]), @"
    back     a.txt

    session story would go back to 7 from 15: 1 entry
    [exit 0]
    ");
    assert_snapshot!(world.run(&["rewind", "story", "--to", "4"]), @"
    back     a.txt
    gone     src
    gone     src/main.rs

    session story is back at 4: 3 entries, events 16 to 18
    to undo it: foldspace rewind story --to 15
    [exit 0]
    ");
    assert_eq!(world.printed(&["cat", "story", "a.txt"]), "one\ntwo\nthree\n");
    assert_eq!(world.printed(&["ls", "story", "-R"]), "a.txt\n");
    assert_snapshot!(world.run(&["rewind", "story", "--to", "4"]), @"
    session story is as it was at 4; there is nothing to do
    [exit 0]
    ");
    assert!(world.run(&["rewind", "story", "--to", "15"]).ends_with("[exit 0]"));
    assert_eq!(world.printed(&["ls", "story", "-R"]), "src/\nsrc/main.rs\n");
    // Nothing of the history is gone.
    assert_eq!(world.printed(&["ls", "story", "-R", "--at", "18"]), "a.txt\n");
    assert!(world.printed(&["log", "story"]).contains("SessionRewound"));
    assert!(world.run(&["verify"]).ends_with("[exit 0]"));
}

#[test]
fn as_json_it_says_what_it_did() {
    let world = World::with_story();
    let told = world.json(&["rewind", "story", "--to", "4"]);
    assert_eq!((told["to"].as_u64(), told["from"].as_u64(), told["refused"].is_null()), (Some(4), Some(15), true));
    assert_eq!((told["recorded"]["first"].as_u64(), told["recorded"]["last"].as_u64()), (Some(16), Some(18)));
    assert_eq!(told["changes"].as_array().unwrap().len(), 3);
    assert!(world.json(&["rewind", "story", "--to", "4"])["recorded"].is_null());
}

#[test]
fn bad_positions_and_sessions_are_refused() {
    let world = World::with_story();
    for (arguments, exit) in [
        (&["rewind", "story", "--to", "99"][..], 3),
        (&["rewind", "story", "--to", "yesterday"], 2),
        (&["rewind", "story"], 2),
        (&["rewind", "nobody", "--to", "1"], 3),
        (&["rewind", "story", "--to", "-99"], 3),
    ] {
        let told = world.run(arguments);
        assert!(told.ends_with(&format!("[exit {exit}]")), "{arguments:?}: {told}");
    }
    assert_eq!(world.json(&["sessions"])[0]["events"], 15, "nothing was recorded");
}

#[test]
fn what_was_changed_from_outside_stands_in_the_way() {
    let (world, [first, second]) = on_the_host();
    let root = root(&world);
    std::fs::write(root.join("c"), "by somebody").unwrap();
    let to = first.to_string();
    assert_snapshot!(world.run(&["rewind", "work", "--to", &to]), @"
    error: 1 entry changed in the workspace outside of any call; nothing was done:
      c
    hint: --force records that first, so that it can be had again; or make a call, which records it, too
    [exit 1]
    ");
    let output = world.output(&["--json", "rewind", "work", "--to", &to]);
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((told["refused"].as_str(), told["entries"][0].as_str()), (Some("changed_outside"), Some("c")));
    assert_eq!(world.json(&["sessions"])[0]["events"], second, "nothing was recorded");
    assert_eq!(std::fs::read_to_string(root.join("c")).unwrap(), "by somebody");

    let forced = world.json(&["rewind", "work", "--to", &to, "--force"]);
    assert_eq!(forced["drift"][0], "c");
    assert_eq!(std::fs::read_to_string(root.join("d/a")).unwrap(), "one\n");
    assert_eq!((root.join("b").exists(), root.join("c").exists()), (true, false));
    world.printed(&["rewind", "work", "--to", &forced["from"].to_string()]);
    assert_eq!(std::fs::read_to_string(root.join("c")).unwrap(), "by somebody");
}

/// Every entry and its contents, to compare.
fn listing(root: &std::path::Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut left = vec![root.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
            match path.is_dir() {
                true => {
                    found.push((name, Vec::new()));
                    left.push(path);
                }
                false => found.push((name, std::fs::read(&path).unwrap())),
            }
        }
    }
    found.sort();
    found
}

#[test]
fn a_killed_rewind_leaves_the_old_or_the_new() {
    let (world, _) = on_the_host();
    let root = root(&world);
    let head = || world.json(&["sessions"])[0]["events"].as_u64().unwrap();
    exec(&world, "for i in $(seq 400); do mkdir -p x/$((i % 20)); echo $i > x/$((i % 20))/$i; done");
    let (full, with) = (head(), listing(&root));
    exec(&world, "rm -r x/1* && for i in $(seq 2 9); do echo changed > x/$i/new; rm x/$i/$i; done");
    let (thin, without) = (head(), listing(&root));
    assert_ne!(with, without);
    let mut killed = 0;
    let (mut at, mut target) = (thin, full);
    for round in 0..14 {
        let mut running = world.spawn(&["rewind", "work", "--to", &target.to_string()]);
        std::thread::sleep(Duration::from_millis(6 * round));
        running.0.kill().unwrap();
        killed += u32::from(!running.0.wait().unwrap().success());
        drop(running);
        // The next process puts right what was cut off.
        exec(&world, "true");
        let stands = listing(&root);
        let went = stands == *if target == full { &with } else { &without };
        assert!(went || stands == *if at == full { &with } else { &without }, "round {round}: neither old nor new");
        assert!(
            !world.printed(&["log", "work"]).contains("DriftFound"),
            "round {round}: a leftover was taken for drift"
        );
        if went {
            (at, target) = (target, at);
        }
    }
    assert!(killed > 0, "at the first rounds it can't have ended yet");
    assert!(world.run(&["verify"]).ends_with("[exit 0]"));
}

#[test]
fn a_container_goes_back_too() {
    let Some(world) = World::with_podman() else { return };
    exec(&world, "mkdir -p src && echo 'print(1)' > src/a.py && python3 src/a.py > out && chmod +x src/a.py");
    let head = world.json(&["sessions"])[0]["events"].as_u64().unwrap();
    exec(&world, "rm -r src && echo broken > out && ln -s out link");
    let told = world.json(&["rewind", "work", "--to", &head.to_string()]);
    assert_eq!(told["changes"].as_array().unwrap().len(), 4, "{told}");
    let ran = world.run(&["exec", "work", "--sh", "--", "cat out; ls -F . src"]);
    assert_eq!(ran, "1\n.:\na.txt\nout\nsrc/\n\nsrc:\na.py*\n[exit 0]");
    let undone = world.run(&["rewind", "work", "--to", &told["from"].to_string()]);
    assert!(undone.ends_with("[exit 0]"), "{undone}");
    assert_eq!(world.run(&["exec", "work", "--sh", "--", "cat link; ls"]), "broken\na.txt\nlink\nout\n[exit 0]");
}

#[test]
fn a_name_from_elsewhere_does_nothing_to_the_terminal() {
    use foldspace::{
        Commit, EventStore, Expected, LocalStore, LocalStoreOptions, SessionId, SessionStarted, Timestamp,
    };
    let world = World::new();
    let store = LocalStore::open(world.data(), LocalStoreOptions::default()).unwrap();
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
    let script = world.file("s.jsonl", r#"{"tool": "write_file", "params": {"file_path": "a", "content": "a"}}"#);
    world.printed(&["run", &script, "--session", &id]);
    let told = world.printed(&["rewind", &id, "--to", "1"]);
    assert!(!told.contains('\u{1b}') && told.contains(&format!("rewind {id} --to")), "{told:?}");
    let told = world.run(&["run", &script, "--session", "other", "--expect", &id]);
    assert!(!told.contains('\u{1b}') && told.contains("compared with session red"), "{told:?}");
}
