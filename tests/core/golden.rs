//! Golden bytes: an encoding that a journal may hold stays readable for good.
//!
//! `FOLDSPACE_BLESS=1` writes the bytes of a kind and version that has none yet; it never overwrites.

use std::collections::BTreeMap;

use foldspace::event::{
    Annotated, CallFinished, CallReason, CallStarted, CallStatus, ChildLimits, ChildStarted, CommandDecided,
    CommandLine, CommandResult, ContainerStarted, ContainerStopped, DecidedBy, DeleteEntry, Digest, DriftFound,
    EvalResult, EventsLost, FileMode, Isolation, LinkFile, LostBytes, MountHydrated, MountPreview, Node, Origin,
    PolicyDecision, PositionTagged, RecordedOutput, SessionAllow, SessionStarted, SessionTaken, Special,
    TerminalRecorded, VariableValue, WorkspaceTouched, WriteFile, WriteMode,
};
use foldspace::event::{ChildMerged, ConflictKind, MergeConflict, MergeConflicted, MergeSide, MergedEntry};
use foldspace::{EntryPath, Event, SessionId};
use serde_json::{Value, json};

fn check<E: Event + PartialEq>(name: &str, event: &E) {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/events");
    let path = folder.join(format!("{}-{}-{name}.bin", E::KIND, E::VERSION));
    let mut encoded = Vec::new();
    event.encode(&mut encoded).unwrap();
    if !path.exists() && std::env::var_os("FOLDSPACE_BLESS").is_some() {
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(&path, &encoded).unwrap();
    }
    let golden = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    assert_eq!(&E::decode(E::VERSION, &golden).unwrap(), event, "{name} reads differently");
    assert_eq!(encoded, golden, "{name} is written differently: raise VERSION instead");
    assert!(E::decode(E::VERSION + 1, &golden).is_err(), "a newer version is not guessed at");
    for cut in 0..golden.len() {
        // Whatever it gives, it must not panic; a cut archive of one event is never the same event.
        let read = E::decode(E::VERSION, &golden[..cut]);
        assert!(read.is_err() || read.unwrap() != *event, "{name} cut at {cut}");
    }
}

fn path(text: &str) -> EntryPath {
    EntryPath::lookup(text).unwrap()
}

#[test]
fn file_events_keep_their_bytes() {
    let node = Node::file(b"hello", false);
    check("file", &WriteFile { path: path("src/lib.rs"), mode: WriteMode::Create, node });
    let node = Node::file(b"\0", true);
    check("executable", &WriteFile { path: path("bin/run"), mode: WriteMode::Overwrite, node });
    let node = Node::Symlink { target: b"../caf\xe9".to_vec() };
    check("symlink", &WriteFile { path: path("odd\\xff name"), mode: WriteMode::Create, node });
    check("directory", &WriteFile { path: path("empty"), mode: WriteMode::Append, node: Node::DIRECTORY });
    let node = Node::file_with(b"key", FileMode::of(0o600));
    check("private", &WriteFile { path: path(".ssh/id"), mode: WriteMode::Create, node });
    let node = Node::Directory { mode: FileMode::of(0o2750) };
    check("private-directory", &WriteFile { path: path(".ssh"), mode: WriteMode::Overwrite, node });
    let node = Node::File {
        content: Digest::of(b"big"),
        size: 1 << 40,
        mode: FileMode::EXECUTABLE,
        text: false,
        incomplete: true,
    };
    check("incomplete", &WriteFile { path: path("core"), mode: WriteMode::Overwrite, node });
    let node = Node::Special { special: Special::Fifo };
    check("fifo", &WriteFile { path: path("run/pipe"), mode: WriteMode::Create, node });
    check("name", &LinkFile { path: path("a/name"), to: path("file") });
    check("entry", &DeleteEntry { path: path("src/old.rs") });
}

#[test]
fn call_events_keep_their_bytes() {
    let params = json!({ "file_path": "/a", "content": { "$content": Digest::of(b"x"), "bytes": 300 } });
    check("call", &CallStarted { tool: "write_file".to_owned(), params });
    let result = json!({ "version": 1 });
    check("ok", &CallFinished { status: CallStatus::Ok, result, message: String::new(), micros: 1234, reason: None });
    let message = "the pattern is not a regular expression".to_owned();
    check("error", &CallFinished { status: CallStatus::Error, result: json!(null), message, micros: 7, reason: None });
    let failed = |message: &str, reason| CallFinished {
        status: CallStatus::Error,
        result: json!(null),
        message: message.to_owned(),
        micros: 7,
        reason,
    };
    check("reason", &failed("this session has used up its 3 calls", Some(CallReason::OverLimit)));
    assert_eq!(serde_json::from_value::<CallReason>(json!("newer")).unwrap(), CallReason::Other);
}

#[test]
fn session_events_keep_their_bytes() {
    let text = |text: &str| text.to_owned();
    let session = SessionStarted {
        name: text("demo"),
        backend: text("memory"),
        program: text("0.1.0"),
        options: json!(null),
        origin: None,
        limits: ChildLimits::default(),
    };
    check("session", &session);
    let options = json!({ "directory": "/srv/project" });
    check("host", &SessionStarted { backend: text("host"), options, ..session.clone() });
    let (parent, at, isolation) = (SessionId::from_bytes([7; 16]), 41, Isolation::Fork);
    check("taken", &SessionTaken { host: text("box-2"), epoch: 3 });
    check("cut", &EventsLost { first: 12, last: 40, segment: 3, gap: None });
    let gap = LostBytes { offset: 4096, bytes: 512, contents: vec![Digest::of(b"kept")] };
    check("gap", &EventsLost { first: 12, last: 14, segment: 3, gap: Some(gap) });
    let origin = Some(Origin { parent, parent_name: text("demo"), at, isolation });
    let limits = ChildLimits {
        calls: Some(100),
        wall_millis: Some(60_000),
        bytes_written: Some(1 << 20),
        depth: Some(1),
        tools: Some([text("ls"), text("read_file")].into()),
        deny: [text("git push")].into(),
    };
    check("child", &SessionStarted { name: text("demo-1"), origin, limits, ..session });
    let child = SessionId::from_bytes([8; 16]);
    check(
        "child",
        &ChildStarted {
            child,
            name: text("demo-1"),
            at,
            isolation,
            agent: text("worker"),
            limits: ChildLimits::default(),
        },
    );
    let preview = MountPreview { entries: vec![text("src/"), text("README.md")], more: 3 };
    let mount = MountHydrated {
        host_path: text("/srv/project"),
        mount_path: path("project"),
        include_glob: vec![text("**/*.py")],
        exclude_glob: Vec::new(),
        max_bytes: Some(1_000_000),
        follow_symlinks: false,
        files: 12,
        bytes: 3456,
        preview,
    };
    check("mount", &mount);
}

fn output(bytes: &[u8], written: u64) -> RecordedOutput {
    RecordedOutput { content: Digest::of(bytes), kept: bytes.len() as u64, bytes: written }
}

#[test]
fn command_events_keep_their_bytes() {
    let text = |text: &str| text.to_owned();
    let ran = CommandResult {
        backend: text("podman"),
        command: CommandLine::Args(vec![text("sort"), text("-u")]),
        cwd: path("src"),
        exit_code: 143,
        signal: Some(15),
        timed_out: true,
        cancelled: false,
        lost: false,
        micros: 30_000_123,
        stdout: output(b"part", 10_000_000_000),
        stderr: output(b"", 0),
    };
    check("args", &ran);
    let command = CommandLine::Script { interpreter: text("/bin/bash"), script: text("echo 1\n") };
    check("lost", &CommandResult { lost: true, ..ran.clone() });
    check("script", &CommandResult { command, signal: None, timed_out: false, exit_code: 0, ..ran });
    let evaluated = EvalResult {
        language: text("python"),
        place: text("in-process"),
        code: Digest::of(b"print(1)"),
        exit_code: 0,
        timed_out: false,
        cancelled: false,
        micros: 20_000,
        stdout: output(b"1\n", 2),
        stderr: output(b"", 0),
    };
    check("python", &evaluated);
    let command = CommandLine::Shell(text("make && make install"));
    let reason = text("the person said no");
    let refused = CommandDecided {
        command,
        env: Default::default(),
        stdin: None,
        code: None,
        environment: None,
        decision: PolicyDecision::Deny,
        by: DecidedBy::Answer,
        reason,
    };
    check("refused", &refused);
    let env = [(text("PYTHONPATH"), text("lib"))].into();
    let stdin = Some(Digest::of(b"1 2\n"));
    check("variables", &CommandDecided { env, stdin, reason: text("no"), ..refused.clone() });
    let command = CommandLine::Args(vec![text("python3"), text("-c"), text("print(1)")]);
    check("code", &CommandDecided { command, code: Some(Digest::of(b"print(1)")), ..refused.clone() });
    check("environment", &CommandDecided { environment: Some(Digest::of(b"{}")), ..refused });
    check("everything", &SessionAllow { programs: Vec::new(), everything: true });
    check("programs", &SessionAllow { programs: vec![text("cargo test"), text("git")], everything: false });
}

#[test]
fn annotation_events_keep_their_bytes() {
    let text = |text: &str| text.to_owned();
    let (score, value) = (Some(0.5), json!({ "passed": 3 }));
    check("all", &Annotated { name: text("reward"), at: 7, score, note: Some(text("nearly")), value });
    let value = Value::Null;
    check("score", &Annotated { name: text("reward"), at: 7, score, note: None, value });
    check("tag", &PositionTagged { name: text("good"), at: Some(7) });
    check("untagged", &PositionTagged { name: text("good"), at: None });
}

#[test]
fn container_events_keep_their_bytes() {
    let text = |text: &str| text.to_owned();
    check("podman", &WorkspaceTouched { backend: text("podman") });
    check("host", &DriftFound { backend: text("host"), entries: 3, late: 0, perhaps: Vec::new() });
    let started = ContainerStarted {
        name: text("foldspace-1"),
        id: text("0123456789ab"),
        image: text("docker.io/library/python:3.12-bookworm"),
        engine: text("podman 5.4.0"),
        created: true,
        rootless: false,
        limits_enforced: true,
        overlay: true,
        workdir: text("/workspace"),
        environment: BTreeMap::new(),
        overlay_path: String::new(),
        image_digest: String::new(),
        kernel: String::new(),
    };
    check("started", &started);
    let (image_digest, kernel) = (format!("sha256:{}", "ab".repeat(32)), text("6.1.0-13-amd64"));
    check("started-with-digest", &ContainerStarted { image_digest, kernel, ..started.clone() });
    let digest = Digest::of(b"secret");
    let with_options = ContainerStarted {
        workdir: text("/workspace/app"),
        environment: [
            ("TOKEN".to_owned(), VariableValue::Recorded { digest }),
            ("A".to_owned(), VariableValue::Text(text("1"))),
        ]
        .into(),
        overlay_path: text("/var/cache/foldspace/layers/1"),
        ..started
    };
    check("started-with-options", &with_options);
    check("idle", &ContainerStopped { name: text("foldspace-1"), reason: text("idle") });
}

#[test]
fn merge_events_keep_their_bytes() {
    let file = |text: &[u8]| Some(Node::file(text, false));
    let (child, child_name) = (SessionId::from_bytes([8; 16]), "demo-1".to_owned());
    let open = MergeConflict {
        path: path("a.txt"),
        kind: ConflictKind::DeletedByOurs,
        base: file(b"1"),
        ours: None,
        theirs: file(b"2"),
        resolved: None,
    };
    let decided = MergeConflict { resolved: Some(MergeSide::Theirs), ..open.clone() };
    let merged = vec![
        MergedEntry { path: path("a.txt"), from: Some(52), both: false },
        MergedEntry { path: path("src/b.txt"), from: None, both: true },
    ];
    let conflicted =
        MergeConflicted { child, child_name: child_name.clone(), base: 41, child_at: 52, conflicts: vec![open] };
    check("open", &conflicted);
    check("decided", &ChildMerged { child, child_name, base: 41, child_at: 52, merged, conflicts: vec![decided] });
}

#[test]
fn golden_terminal_recording_is_stable() {
    let cast = Digest::of(b"cast");
    check("cast", &TerminalRecorded { rows: 24, columns: 80, cast, bytes: 70_000, truncated: true });
}
