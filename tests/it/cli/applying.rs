//! A person's directory in a container, or copied for a session, and the changes on their way back there.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::time::Duration;

use insta::{allow_duplicates, assert_snapshot};

use crate::rig::{Program, eventually};

/// Owners of directories: the person is root, or lets root run the program.
const OWNERS: [u32; 2] = [0, 1000];

impl Program {
    fn mine(&self) -> String {
        self.path("mine").to_string_lossy().into_owned()
    }

    /// Makes a directory `mine` of that owner with some entries.
    fn fill(&self, owner: u32) {
        for (name, text) in [("mine/t.txt", "1\n2\n3\n4\n5\n"), ("mine/src/gone", "gone\n"), ("mine/src/old", "old\n")]
        {
            self.file(name, text);
        }
        self.file("mine/bin", b"\0\x01");
        symlink("t.txt", self.path("mine/link")).unwrap();
        std::fs::set_permissions(self.path("mine/bin"), std::fs::Permissions::from_mode(0o600)).unwrap();
        if rustix::process::geteuid().is_root() {
            for name in ["mine", "mine/src", "mine/t.txt", "mine/src/gone", "mine/src/old", "mine/bin"] {
                chown(self.path(name), Some(owner), Some(owner)).unwrap();
            }
            std::os::unix::fs::lchown(self.path("mine/link"), Some(owner), Some(owner)).unwrap();
        }
    }

    /// Runs a command in a session of this name, which begins with these options.
    fn begin(&self, session: &str, command: &str, options: &[&str]) -> String {
        let call = serde_json::json!({ "tool": "shell_execute", "params": { "command": command } });
        let script = self.file("begin.jsonl", call.to_string());
        let run = ["run", &script, "--session", session, "--yes", "--show-output"];
        let told = self.run(&[&run, options].concat());
        assert!(told.ends_with("[exit 0]"), "{told}");
        told
    }

    fn sh(&self, session: &str, command: &str) -> String {
        self.printed(&["exec", session, "--sh", "--", command])
    }
}

/// Owner, mode, time and contents of an entry.
type HeldEntry = (u32, u32, (i64, i64), Vec<u8>);

/// Everything in a directory.
fn all_in(top: &Path) -> BTreeMap<String, HeldEntry> {
    let mut all = BTreeMap::new();
    let mut left = vec![top.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let stat = path.symlink_metadata().unwrap();
            let contents = match stat.file_type() {
                kind if kind.is_dir() => Vec::new(),
                kind if kind.is_symlink() => std::fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes(),
                _ => std::fs::read(&path).unwrap(),
            };
            let name = path.strip_prefix(top).unwrap().to_string_lossy().into_owned();
            all.insert(name, (stat.uid(), stat.mode(), (stat.mtime(), stat.mtime_nsec()), contents));
            left.extend(stat.is_dir().then_some(path));
        }
    }
    all
}

/// The contents alone.
fn contents(top: &Path) -> BTreeMap<String, Vec<u8>> {
    all_in(top).into_iter().map(|(name, (.., contents))| (name, contents)).collect()
}

#[test]
fn dir_in_container_keeps_owner_and_modes() {
    for owner in OWNERS {
        let Some(program) = Program::with_container() else { return };
        program.fill(owner);
        let made = "umask 022; echo n > new; chmod 640 new; mkdir -p d/e; printf '#!' > d/run; chmod 755 d/run; \
                    ln -s new d/l; echo 6 >> t.txt; od -An -tx1 bin; stat -c '%u %a' bin; echo $HOME";
        let engine = crate::engine::kind().name();
        let told = program.begin("own", made, &["--backend", engine, "--dir", &program.mine()]);
        assert!(told.contains("00 01") && told.contains("65534 600") && told.contains("/tmp\n"), "{told}");
        let root = rustix::process::geteuid().is_root();
        let owner = if root { owner } else { rustix::process::geteuid().as_raw() };
        let all = all_in(&program.path("mine"));
        assert!(all.values().all(|(uid, ..)| *uid == owner), "{owner}: {all:?}");
        let mode = |name: &str| all[name].1 & 0o7777;
        assert_eq!([mode("new"), mode("d/run"), mode("bin"), mode("d/e")], [0o640, 0o755, 0o600, 0o755]);
        assert_eq!(all["t.txt"].3, b"1\n2\n3\n4\n5\n6\n");
        // A file tool makes them the owner's, too.
        let write = r#"{"tool": "write_file", "params": {"file_path": "by/tool", "content": "x"}}"#;
        program.printed(&["run", &program.file("w.jsonl", write), "--session", "own"]);
        let by_tool = |name: &str| program.path(name).metadata().unwrap().uid();
        assert_eq!([by_tool("mine/by"), by_tool("mine/by/tool")], [owner; 2]);
        assert_eq!(program.sh("own", "echo y >> by/tool; cat by/tool"), "xy\n");
        assert!(program.run(&["verify"]).ends_with("[exit 0]"));
    }
}

#[test]
fn dir_in_container_is_seen_on_both_sides_at_once() {
    let Some(program) = Program::with_container() else { return };
    program.fill(1000);
    program.begin("own", "true", &["--backend", crate::engine::kind().name(), "--dir", &program.mine()]);
    let waits = "echo begun > begun; until [ -e go ]; do sleep 0.05; done; cat go > got";
    let running = program.spawn(&["exec", "own", "--timeout", "100", "--sh", "--", waits]);
    eventually("the command's file is here", || program.path("mine/begun").exists());
    program.file("mine/go", "from the host\n");
    let got = || std::fs::read_to_string(program.path("mine/got")).is_ok_and(|got| got == "from the host\n");
    eventually("the command has read the file", got);
    drop(running);
    // What came between two processes is recorded, and read by the next command.
    program.file("mine/t.txt", "by a person\n");
    std::fs::remove_file(program.path("mine/src/gone")).unwrap();
    assert_eq!(program.sh("own", "cat t.txt; ls src"), "by a person\nold\n");
    assert_eq!(program.printed(&["cat", "own", "t.txt"]), "by a person\n");
    let log = program.printed(&["log", "own"]);
    assert!(log.contains("DriftFound") && log.contains("/src/gone"), "{log}");
    // A link out of the directory is not followed.
    symlink("/etc/hostname", program.path("mine/out")).unwrap();
    let read = r#"{"tool": "read_file", "params": {"file_path": "out"}}"#;
    let told = program.run(&["run", &program.file("r.jsonl", read), "--session", "own", "--show-output"]);
    assert!(!told.ends_with("[exit 0]"), "{told}");
}

#[test]
fn copy_on_write_leaves_directory_as_it_is_until_applied() {
    for owner in OWNERS {
        let Some(program) = Program::with_container() else { return };
        program.fill(owner);
        let before = all_in(&program.path("mine"));
        let work = "sed -i s/1/one/ t.txt; rm src/gone; mv src/old src/moved; printf '\\0\\2' > bin; chmod +x t.txt; \
                    ln -sfn bin link; mkdir -p new/deep; echo n > new/deep/n";
        let options = ["--backend", crate::engine::kind().name(), "--dir", &program.mine(), "--copy-on-write"];
        program.begin("fix", work, &[&options[..], &["--env", "KEPT=value"]].concat());
        assert_eq!(program.sh("fix", "echo $KEPT"), "value\n");
        assert_eq!(all_in(&program.path("mine")), before);
        // Meanwhile a person works there.
        program.file("mine/t.txt", "1\n2\n3\n4\nfive\n");
        program.file("mine/mine", "mine\n");
        let between = all_in(&program.path("mine"));
        allow_duplicates!(assert_snapshot!(program.run(&["apply", "fix", "--dry-run"]), @"
        removed  src/gone    by event 14 of fix
        removed  src/old     by event 15 of fix
        changed  bin         by event 16 of fix
        changed  link        by event 17 of fix
        added    new/deep/n  by event 18 of fix
        added    src/moved   by event 19 of fix
        changed  t.txt       by event 20 of fix, with the lines of both
        would apply 7 entries of fix to [dir]/mine
        [exit 0]
        "));
        assert_eq!(all_in(&program.path("mine")), between);
        let applied = program.json(&["apply", "fix"]);
        assert_eq!((&applied["outcome"], &applied["directory"]), (&"merged".into(), &program.mine().into()));
        let after = all_in(&program.path("mine"));
        let text = |name: &str| String::from_utf8_lossy(&after[name].3).into_owned();
        assert_eq!([text("t.txt"), text("new/deep/n"), text("mine")], ["one\n2\n3\n4\nfive\n", "n\n", "mine\n"]);
        assert_eq!([text("bin"), text("link"), text("src/moved")], ["\0\u{2}", "bin", "old\n"]);
        assert!(!after.contains_key("src/gone") && !after.contains_key("src/old"));
        assert_eq!((after["t.txt"].1 & 0o7777, after["bin"].1 & 0o7777), (0o755, 0o600));
        if rustix::process::geteuid().is_root() {
            let others: Vec<_> = after.iter().filter(|(name, (uid, ..))| *uid != owner && *name != "mine").collect();
            assert!(others.is_empty(), "{others:?}");
        }
        assert!(program.run(&["apply", "fix"]).starts_with("nothing to apply"));
        let refused = program.run(&["exec", "fix.dir", "--", "true"]);
        assert!(!refused.ends_with("[exit 0]") && !refused.contains("panicked"), "{refused}");
        // What comes after is measured by what was applied.
        program.sh("fix", "echo more >> new/deep/n");
        assert!(program.run(&["apply", "fix"]).contains("applied 1 entry"), "{:?}", program.run(&["log", "fix"]));
        assert_eq!(std::fs::read(program.path("mine/new/deep/n")).unwrap(), b"n\nmore\n");
    }
}

/// A session in `mine` on the host, and a clone of it.
fn with_clone(work: &str) -> Program {
    let program = Program::new();
    program.fill(0);
    program.begin("own", "true", &["--backend", "host", "--dir", &program.mine()]);
    program.printed(&["clone", "own", "--name", "kid"]);
    program.sh("kid", work);
    program
}

#[test]
fn apply_with_conflicts_changes_nothing_until_decided() {
    let program = with_clone("sed -i s/1/one/ t.txt; rm src/gone; echo new > new");
    program.file("mine/t.txt", "eins\n2\n3\n4\n5\n");
    program.file("mine/src/gone", "still needed\n");
    let before = all_in(&program.path("mine"));
    assert_snapshot!(program.run(&["apply", "kid"]), @"
    conflict  src/gone  dir: file 13 B [id]  session: nothing                 changed here, removed by the child
    conflict  t.txt     dir: file 13 B [id]  session: file 12 B [id]  both changed the same lines
    error: 2 conflicts to resolve; nothing was changed in [dir]/mine
    hint: choose the session's side with --take PATH, or the directory's with --keep PATH, for a file or a directory
    [exit 1]
    ");
    let told = program.output(&["--json", "apply", "kid"]);
    let document: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
    assert_eq!((told.status.code(), &document["outcome"]), (Some(1), &"conflicted".into()));
    assert_eq!(document["conflicts"].as_array().unwrap().len(), 2);
    assert_eq!(all_in(&program.path("mine")), before);
    let decided = program.run(&["apply", "kid", "--take", "t.txt", "--keep", "src"]);
    assert!(decided.ends_with("[exit 0]") && decided.contains("applied 2 entries of kid"), "{decided}");
    let text = |name: &str| std::fs::read_to_string(program.path(name)).unwrap();
    assert_eq!(text("mine/t.txt"), "one\n2\n3\n4\n5\n");
    assert_eq!([text("mine/src/gone"), text("mine/new")], ["still needed\n", "new\n"]);
}

#[test]
fn apply_to_another_directory_is_measured_by_the_beginning() {
    let program = with_clone("sed -i s/1/one/ t.txt; echo new > new");
    program.file("other/t.txt", "1\n2\n3\n4\n5\nsix\n");
    let other = program.path("other").to_string_lossy().into_owned();
    let told = program.run(&["apply", "kid", "--to", &other]);
    assert!(told.contains("applied 2 entries of kid"), "{told}");
    let text = |name: &str| std::fs::read_to_string(program.path(name)).unwrap();
    assert_eq!([text("other/t.txt"), text("other/new")], ["one\n2\n3\n4\n5\nsix\n", "new\n"]);
    // What was not there is nothing that the session changed.
    assert!(!program.path("other/bin").exists() && !program.path("mine/new").exists());
    program.sh("kid", "echo newer > new");
    assert!(program.run(&["apply", "kid", "--to", &other]).contains("applied 1 entry of kid"));
    assert_eq!(text("other/new"), "newer\n");
    // The session that works in the directory can go elsewhere, too.
    program.sh("own", "sed -i s/4/four/ t.txt");
    assert!(program.run(&["apply", "own", "--to", &other]).ends_with("[exit 0]"));
    assert_eq!(text("other/t.txt"), "one\n2\n3\nfour\n5\nsix\n");
}

#[test]
fn apply_leaves_what_the_copy_could_not_have() {
    let program = Program::new();
    program.fill(0);
    let socket = program.path("mine/src/socket");
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    program.begin("own", "true", &["--backend", "host", "--dir", &program.mine()]);
    program.printed(&["clone", "own", "--name", "kid"]);
    assert!(program.run(&["apply", "kid"]).starts_with("nothing to apply"));
    program.sh("kid", "rm -r src; echo new > new");
    let told = program.run(&["apply", "kid"]);
    assert!(told.contains("left out /src/socket") && told.ends_with("[exit 0]"), "{told}");
    assert!(socket.exists() && program.path("mine/new").exists() && !program.path("mine/src/old").exists());
}

#[test]
fn apply_killed_anywhere_is_whole_or_absent() {
    let work = "for i in $(seq 400); do echo new > f$i; done; rm -r src; sed -i s/1/one/ t.txt";
    let program = with_clone(work);
    let before = contents(&program.path("mine"));
    let (mut absent, mut whole) = (0, 0);
    for millis in (0..400).step_by(25) {
        let running = program.spawn(&["apply", "kid"]);
        std::thread::sleep(Duration::from_millis(millis));
        drop(running);
        // The next process puts right what it finds.
        program.run(&["apply", "kid", "--dry-run"]);
        let now = contents(&program.path("mine"));
        match now == before {
            true => absent += 1,
            false => {
                assert_eq!(now.len(), before.len() - 3 + 400, "after {millis} ms");
                assert!(now["t.txt"].starts_with(b"one\n"), "after {millis} ms");
                whole += 1;
                break;
            }
        }
    }
    assert!(absent > 0, "none was killed early enough, {whole} were done");
    program.run(&["apply", "kid"]);
    assert_eq!(contents(&program.path("mine")).len(), before.len() - 3 + 400);
    assert!(program.run(&["verify"]).ends_with("[exit 0]"));
}

#[test]
fn dir_that_can_not_be_used_is_refused_with_reason() {
    let program = Program::new();
    let (script, file) = (program.file("s.jsonl", r#"{"tool": "ls", "params": {}}"#), program.file("file", "x"));
    let run = |options: &[&str]| {
        let told = program.run(&[&["run", &script, "--session", "s"], options].concat());
        assert!(!told.ends_with("[exit 0]"), "{options:?}: {told}");
        told
    };
    let missing = program.path("none").to_string_lossy().into_owned();
    let above = program.path("").to_string_lossy().into_owned();
    let data = program.data().join("workspaces").to_string_lossy().into_owned();
    std::fs::create_dir_all(&data).unwrap();
    for also in [&[][..], &["--copy-on-write"]] {
        let podman = |dir: &str| run(&[&["--backend", "podman", "--dir", dir], also].concat());
        assert!(podman(&missing).contains("is not a directory"));
        assert!(podman(&file).contains("is not a directory"));
        for dir in ["/", &above, &data] {
            let told = podman(dir);
            assert!(told.contains("error: can't use ") && !told.contains("panicked"), "{told}");
        }
    }
    assert!(run(&["--dir", &above]).contains("--dir requires --backend host or container"));
    assert!(run(&["--backend", "memory", "--dir", &above]).contains("--dir requires --backend host or container"));
    assert!(run(&["--backend", "host", "--dir", &above, "--copy-on-write"]).contains("requires --backend container"));
    assert!(run(&["--backend", "podman", "--copy-on-write"]).contains("--dir"));
    let (mine, mounted) = (program.path("theirs").to_string_lossy().into_owned(), program.file("theirs/a", "x"));
    let copied = ["--backend", "podman", "--dir", &mine, "--copy-on-write", "--mount", &mounted.replace("/a", "")];
    assert!(run(&copied).contains("a session with a copied directory takes no mounts"));
    assert_eq!(program.json(&["sessions"]), serde_json::json!([]));
}

#[test]
fn apply_without_a_directory_is_refused_with_advice() {
    let program = with_clone("true");
    program.file("empty/.keep", "");
    std::fs::remove_file(program.path("empty/.keep")).unwrap();
    let refused = |arguments: &[&str]| {
        let told = program.run(&[&["apply"], arguments].concat());
        assert!(!told.ends_with("[exit 0]"), "{arguments:?}: {told}");
        told
    };
    assert!(refused(&["own"]).contains("its changes are already there"));
    let write = r#"{"tool": "write_file", "params": {"file_path": "a", "content": "x"}}"#;
    program.printed(&["run", &program.file("m.jsonl", write), "--session", "mem"]);
    assert!(refused(&["mem"]).contains("did not begin from a directory"));
    let path = |name: &str| program.path(name).to_string_lossy().into_owned();
    assert!(refused(&["kid", "--to", &path("empty")]).contains("foldspace materialise"));
    assert!(refused(&["kid", "--to", &path("none")]).contains("is not a directory"));
    assert!(refused(&["kid", "--to", "/"]).contains("it is a home or root directory"));
    assert!(refused(&["kid", "--to", &path("data/workspaces")]).contains("data directory is there"));
    assert!(refused(&["kid", "--take", "a", "--keep", "a"]).contains("a"));
    assert!(refused(&["nobody"]).contains("nobody"));
}
