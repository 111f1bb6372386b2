//! Differences that are not of lines: modes, links, directories, binary files, odd names.

use foldspace::event::{DeleteEntry, Node, SystemClock, WriteFile, WriteMode};
use foldspace::session::SnapshotPolicy;
use foldspace::store::{Content, LocalStoreOptions};
use foldspace::{EntryPath, LocalStore, NewSession, Registry, Session, Sessions};
use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::rig::Program;

fn put(session: &Session, path: &[u8], node: Node, bytes: &[u8]) {
    let mut commit = session.commit();
    commit.push(&WriteFile { path: EntryPath::from_bytes(path).unwrap(), mode: WriteMode::Create, node }).unwrap();
    commit.keep(Content::of(bytes.to_vec()));
    session.record(commit).unwrap();
}

fn file(session: &Session, path: &[u8], bytes: &[u8], executable: bool) {
    put(session, path, Node::file(bytes, executable), bytes);
}

fn delete(session: &Session, path: &str) {
    let mut commit = session.commit();
    commit.push(&DeleteEntry { path: EntryPath::lookup(path).unwrap() }).unwrap();
    session.record(commit).unwrap();
}

/// A session whose files no tool could have made so.
fn odd_world() -> Program {
    let program = Program::new();
    let store = LocalStore::open(program.data(), LocalStoreOptions::default()).unwrap();
    let clock = std::sync::Arc::new(SystemClock::default());
    let policy = SnapshotPolicy::default();
    let sessions = Sessions::new(std::sync::Arc::new(store), Registry::standard(), clock, policy).unwrap();
    let session = sessions.create(NewSession::named("odd")).unwrap();
    file(&session, b"run.sh", b"echo\n", false);
    file(&session, b"blob", b"\0\x01", false);
    file(&session, b"kind", b"was a file", false);
    put(&session, b"gone", Node::DIRECTORY, b"");
    put(&session, b"link", Node::Symlink { target: b"run.sh".to_vec() }, b"");
    file(&session, b"run.sh", b"echo\n", true);
    file(&session, b"blob", b"\0\x02", false);
    put(&session, b"kind", Node::Symlink { target: b"link".to_vec() }, b"");
    delete(&session, "gone");
    put(&session, b"link", Node::Symlink { target: b"blob\x1b[31m".to_vec() }, b"");
    file(&session, b"caf\xe9/\x1b[2J\n", b"no end of line", false);
    put(&session, b"empty", Node::DIRECTORY, b"");
    drop(session);
    sessions.close();
    program
}

#[test]
fn diff_shows_every_kind_of_change() {
    let program = odd_world();
    let patches = program.run(&["diff", "odd", "6.."]);
    assert!(patches.contains("+blob\u{1b}[31m"), "what is no terminal gets the contents as they are");
    assert_snapshot!(patches.replace('\u{1b}', "[esc]"), @r"
    diff --git a/blob b/blob
    Binary files a/blob and b/blob differ
    diff --git a/caf\xe9/\x1b[2J\x0a b/caf\xe9/\x1b[2J\x0a
    new file mode 100644
    --- /dev/null
    +++ b/caf\xe9/\x1b[2J\x0a
    @@ -0,0 +1 @@
    +no end of line
    \ No newline at end of file
    new directory empty/
    deleted directory gone/
    diff --git a/kind b/kind
    deleted file mode 100644
    --- a/kind
    +++ /dev/null
    @@ -1 +0,0 @@
    -was a file
    \ No newline at end of file
    diff --git a/kind b/kind
    new file mode 120000
    --- /dev/null
    +++ b/kind
    @@ -0,0 +1 @@
    +link
    \ No newline at end of file
    diff --git a/link b/link
    --- a/link
    +++ b/link
    @@ -1 +1 @@
    -run.sh
    \ No newline at end of file
    +blob[esc][31m
    \ No newline at end of file
    diff --git a/run.sh b/run.sh
    old mode 100644
    new mode 100755
    [exit 0]
    ");
}

#[test]
fn diff_stat_and_ls_show_every_kind_of_entry() {
    let program = odd_world();
    assert_snapshot!(program.run(&["diff", "odd", "6..", "--stat"]), @r"
    changed  blob                 binary
    added    caf\xe9/\x1b[2J\x0a  +1 -0
    added    empty                new directory empty/
    removed  gone                 deleted directory gone/
    removed  kind                 +0 -1
    added    kind                 +1 -0
    changed  link                 +1 -1
    changed  run.sh               old mode 100644, new mode 100755
    7 entries changed, +3 -2
    [exit 0]
    ");
    assert_snapshot!(program.run(&["ls", "odd", "-lR"]), @r"
    file  v2   2 B  [time]  blob
    dir   v1        [time]  caf\xe9/
    file  v1  14 B  [time]  caf\xe9/\x1b[2J\x0a
    dir   v1        [time]  empty/
    link  v2   0 B  [time]  kind -> link
    link  v2   0 B  [time]  link -> blob\x1b[31m
    exec  v2   5 B  [time]  run.sh
    [exit 0]
    ");
}

#[test]
fn path_printed_is_accepted_as_argument() {
    let program = odd_world();
    assert_eq!(program.printed(&["cat", "odd", r"caf\xe9/\x1b[2J\x0a"]), "no end of line");
    assert_snapshot!(program.run(&["cat", "odd", "link"]), @r"
    error: /link is a symbolic link
    hint: it points to blob\x1b[31m
    [exit 3]
    ");
    assert_snapshot!(program.run(&["stat", "odd", "link"]), @r"
    path        /link
    kind        symbolic link
    target      blob\x1b[31m
    version     2
    created     [time]
    updated     [time]
    written by  event 11
    [exit 0]
    ");
    assert_eq!(program.output(&["cat", "odd", "blob"]).stdout, b"\0\x02");
}

#[test]
fn path_printed_has_no_escape_sequence() {
    let program = odd_world();
    for arguments in [
        &["log", "odd"][..],
        &["ls", "odd", "-lR"],
        &["diff", "odd", "..", "--stat"],
        &["show", "odd", "12"],
        &["stat", "odd", "link"],
        &["state", "odd", "VirtualFileSystem"],
        &["--json", "ls", "odd", "-R"],
    ] {
        assert!(!program.printed(arguments).contains('\u{1b}'), "{arguments:?}");
    }
}

#[test]
fn ways_back_name_what_is_not_as_it_was() {
    let program = Program::new();
    let call = |command: &str| json!({ "tool": "shell_execute", "params": { "command": command } }).to_string();
    let calls = [call("yes | head -c 3000 > big; echo a > a; mkfifo pipe"), call("rm big a pipe; echo b > b")];
    let script = program.file("work.jsonl", calls.join("\n"));
    let budget = ["--keep-file-bytes", "1000", "--backend", "host"];
    program.printed(&[&["run", &script, "--yes", "--session", "work"], &budget[..]].concat());
    let at = program.json_lines(&["log", "work", "--calls"])[0]["finished"].to_string();
    let lines = "left     big\nnot as it was: 1 entry, which can't be recreated\n";
    let copied = program.run(&["materialise", "work", "--at", &at, "copy"]);
    assert!(copied.contains(&format!(" to copy\n{lines}")) && copied.ends_with("[exit 1]"), "{copied}");
    let copied = program.output(&["--json", "materialise", "work", "--at", &at, "other"]).stdout;
    let copied: Value = serde_json::from_slice(&copied).unwrap();
    assert_eq!((&copied["left"], &copied["entries"]), (&json!(["big"]), &json!(2)), "a and the pipe");
    let cloned = program.run(&["clone", "work", "--at", &at]);
    assert!(cloned.contains(lines) && cloned.ends_with("[exit 0]"), "{cloned}");
    let clone = ["clone", "work", "--at", &at, "--name", "back"];
    assert_eq!(program.json(&clone)["left"], json!(["big"]));
    assert_eq!(program.printed(&["ls", "back"]).lines().count(), 2);
    assert_eq!(program.json(&["clone", "work", "--name", "now"])["left"], json!([]));
    let rewound = program.run(&["rewind", "work", "--to", &at, "--force"]);
    assert!(rewound.contains(lines), "{rewound}");
}

#[test]
fn undo_of_what_is_no_call_with_changes_says_which() {
    let program = Program::with_story();
    let undo = |call: &str| program.run(&["undo", "story", "--yes", "--call", call]);
    assert!(undo("99").starts_with("error: the session has no position 99; its last one is 15"));
    assert!(undo("3").starts_with("error: event 3 is not a call, but part of call 2\nhint: `foldspace log --calls`"));
    let failed = program.json_lines(&["log", "story", "--calls"]).iter().position(|call| call["tool"] == "read_file");
    let failed = program.json_lines(&["log", "story", "--calls"])[failed.unwrap()]["call"].to_string();
    assert!(undo(&failed).contains(&format!("nothing to undo: call {failed} changed no files")));
}
