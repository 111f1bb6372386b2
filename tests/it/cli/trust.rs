//! Sessions of others and of newer programs, and what is left of those that are gone.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use foldspace::event::{ServiceStarted, SessionStarted, SliceRestored};
use foldspace::reducers::{Service, Services};
use foldspace::store::LocalStoreOptions;
use foldspace::{Event, LocalStore, NewSession, Registry, Sessions, Slice};
use insta::assert_snapshot;
use serde::{Deserialize, Serialize};

use crate::rig::{Program, told};

/// How a newer program would begin a session.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Newer {
    place: String,
}

impl Event for Newer {
    const KIND: &'static str = SessionStarted::KIND;
    const VERSION: u16 = 99;
}

#[test]
fn session_of_newer_program_is_not_opened() {
    use foldspace::store::Expected;
    use foldspace::{Commit, EventStore, SessionId, Timestamp};
    let program = Program::with_story();
    let store = LocalStore::open(program.data(), LocalStoreOptions::default()).unwrap();
    let id = SessionId::from_bytes([0xab; 16]);
    let mut commit = Commit::new(id, Timestamp(0)).expecting(Expected::NoSession);
    commit.push(&Newer { place: "moon".to_owned() }).unwrap();
    store.submit(commit).unwrap().wait().unwrap();
    drop(store);
    let name = &id.to_string()[..12];
    let script = program.file("more.jsonl", r#"{"tool": "ls"}"#);
    for refused in [&["exec", name, "--", "ls"][..], &["shell", name], &["run", &script, "--session", name]] {
        let told = program.run(refused);
        assert!(told.contains("the first event of session") && told.ends_with("[exit 5]"), "{refused:?}: {told}");
    }
    assert_eq!(program.json_lines(&["log", name]).len(), 1, "nothing was added to it");
    let removed = program.run(&["remove", name, "--yes"]);
    assert!(removed.contains("its files remain") && removed.ends_with("[exit 0]"), "{removed}");
}

#[test]
fn directory_with_non_utf8_name_is_used() {
    let program = Program::new();
    let odd = program.path("").join(OsStr::from_bytes(b"odd-\xff"));
    std::fs::create_dir(&odd).unwrap();
    std::fs::write(odd.join("kept.txt"), "kept\n").unwrap();
    let script = program.file("odd.jsonl", r#"{"tool": "read_file", "params": {"file_path": "kept.txt"}}"#);
    let mut run = program.command(&["run", &script, "--backend", "host", "--dir"]);
    let ran = told(&run.arg(&odd).output().unwrap());
    assert!(ran.ends_with("[exit 0]"), "{ran}");
    program.printed(&["exec", "odd", "--", "touch", "made"]);
    assert!(odd.join("made").exists());
}

#[test]
fn imported_session_gets_no_host_access() {
    let program = Program::new();
    let script = program.file("s.jsonl", "");
    let mine = program.path("mine").to_string_lossy().into_owned();
    std::fs::create_dir(&mine).unwrap();
    program.printed(&["run", &script, "--session", "own", "--backend", "host", "--dir", &mine]);
    program.printed(&["run", &script, "--session", "plain", "--backend", "host"]);
    let sessions = Sessions::open(program.data(), Registry::standard()).unwrap();
    let options = serde_json::json!({ "connection": "tcp://evil:1", "image": "evil", "pull": true,
        "network": true, "writable_root": true });
    sessions
        .create(NewSession { name: Some("box".into()), backend: Some("podman".into()), options, id: None })
        .unwrap();
    sessions.close();
    for name in ["own", "plain", "box"] {
        program.printed(&["export", name, &format!("{name}.fold")]);
    }
    let there = |arguments: &[&str]| program.run(&[&["--data", "there", "import"], arguments].concat());
    assert_snapshot!(there(&["own.fold"]), @"
    error: the session was not imported: its workspace would use the directory [dir]/mine
    hint: if you trust the file's source, --trust-workspace accepts it
    [exit 2]
    ");
    assert_snapshot!(there(&["box.fold"]), @"
    error: the session was not imported: its workspace would use the engine at tcp://evil:1, the network, root of a user namespace, pulling the image evil
    hint: if you trust the file's source, --trust-workspace accepts it
    [exit 2]
    ");
    assert_snapshot!(program.run(&["--data", "there", "sessions"]), @"
    no sessions
    [exit 0]
    ");
    assert!(there(&["plain.fold"]).ends_with("[exit 0]"));
    assert!(there(&["own.fold", "--trust-workspace"]).ends_with("[exit 0]"));
    assert!(there(&["own.fold"]).ends_with("[exit 0]"), "it is here already");
}

#[test]
fn failed_create_leaves_no_session() {
    let program = Program::with_story();
    let script = program.file("s.jsonl", "");
    let ran = program.run(&["run", &script, "--backend", "host", "--dir", "/"]);
    assert!(ran.ends_with("[exit 2]"), "{ran}");
    let nowhere = program.path("nowhere").to_string_lossy().into_owned();
    let ran = program.run(&["run", &script, "--backend", "host", "--mount", &nowhere]);
    assert!(!ran.ends_with("[exit 0]"), "{ran}");
    assert_eq!(program.json(&["sessions"]).as_array().unwrap().len(), 1);
    let left = std::fs::read_dir(program.data().join("workspaces")).into_iter().flatten().count();
    assert_eq!(left, 0);
}

#[test]
fn remove_takes_session_and_files_or_neither() {
    let program = Program::new();
    let script = program.file("s.jsonl", "");
    program.printed(&["run", &script, "--backend", "host"]);
    let place = program.data().join("workspaces");
    let own = std::fs::read_dir(&place).unwrap().next().unwrap().unwrap().path();
    // A directory that something is mounted on can't be removed.
    std::fs::create_dir_all(own.join("files")).unwrap();
    let Some(disk) = crate::rig::Disk::over(&own.join("files"), 1) else { return };
    assert_snapshot!(program.run(&["remove", "s", "--yes"]), @"
    error: the host workspace failed: cannot remove [dir]/data/workspaces/[session]: Device or resource busy (os error 16)
    hint: `foldspace doctor` shows what works here
    [exit 6]
    ");
    assert!(program.printed(&["sessions"]).contains('s'));
    drop(disk);
    program.printed(&["remove", "s", "--yes"]);
    assert!(!own.exists());
    std::fs::create_dir(&own).unwrap();
    let told = program.run(&["gc", "--engine", "unix:///nowhere.sock"]);
    assert!(told.contains("has files of a removed session") && own.exists(), "{told}");
    assert!(told.contains("note: containers were not checked: ") && told.ends_with("[exit 0]"), "{told}");
}

#[test]
fn wrong_options_are_refused_first() {
    let program = Program::with_story();
    let (long, script) = ("n".repeat(70_000), program.file("s.jsonl", ""));
    let memory = ["run", &script, "--backend", "podman", "--memory", "17592186044416"];
    for wrong in [&memory[..], &["exec", "story", "--agent", &long, "--", "ls"], &["shell", "story", "--agent", ""]] {
        let told = program.run(wrong);
        assert!(told.contains("error: invalid value") && told.ends_with("[exit 2]"), "{told}");
    }
}

#[test]
fn imported_session_starts_no_services() {
    let program = Program::new();
    program.printed(&["new", "work", "--backend", "host"]);
    let sessions = Sessions::open(program.data(), Registry::standard()).unwrap();
    let session = sessions.session(sessions.find("work").unwrap().id).unwrap();
    let import = || program.run(&["--data", "there", "import", "work.fold"]);
    for (restart, told) in [(false, "were new\n[exit 0]"), (true, "--trust-workspace accepts it\n[exit 2]")] {
        let mut commit = session.commit();
        commit.push(&ServiceStarted { name: "web".to_owned(), port: None, after: Vec::new(), restart }).unwrap();
        session.record(commit).unwrap();
        program.printed(&["export", "work", "work.fold", "--force"]);
        let imported = import();
        assert!(imported.ends_with(told), "{imported}");
    }
    let refused = import();
    assert!(
        refused.contains("its next command would start the service web, whose command nobody here approved"),
        "{refused}"
    );
}

#[test]
fn restored_slice_alone_starts_no_service() {
    let program = Program::new().through_owner();
    program.printed(&["new", "work", "--backend", "host"]);
    program.printed(&["service", "start", "work", "web", "--", "sh", "-c", "echo >> started; exec sleep 600"]);
    let call = program.json_lines(&["log", "work", "--kind", "ServiceStarted"])[0]["call"].as_u64().unwrap();
    program.printed(&["stop"]);
    let sessions = Sessions::open(program.data(), Registry::standard()).unwrap();
    let session = sessions.session(sessions.find("work").unwrap().id).unwrap();
    // As of a file from elsewhere, with a service that was to restart.
    let service = Service { process: call, port: None, after: Vec::new(), restart: true, agent: String::new() };
    let forged = Services { by_name: [("web".to_owned(), service)].into() };
    let blocks = vec![serde_json::to_vec(&forged).unwrap().into()];
    let mut commit = session.commit();
    commit.push(&SliceRestored { slice: Services::NAME.to_owned(), version: Services::VERSION, blocks }).unwrap();
    session.record(commit).unwrap();
    assert_eq!(session.state().unwrap().slice::<Services>().unwrap().to_restart().len(), 1);
    drop(session);
    sessions.close();
    assert_eq!(program.printed(&["exec", "work", "--", "wc", "-l", "started"]), "1 started\n");
}
