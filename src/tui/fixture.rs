//! Histories for tests, identical in each run, to the millisecond.

use std::sync::Arc;

use foldspace::event::{
    CommandLine, CommandResult, DeleteEntry, Node, RecordedOutput, StepClock, WriteFile, WriteMode,
};
use foldspace::session::SnapshotPolicy;
use foldspace::store::{CallLink, Content};
use foldspace::{
    EntryPath, MemoryStore, MemoryWorkspace, NewSession, Registry, Session, Sessions, Timestamp, ToolCall, ToolRunner,
    Tools,
};
use serde_json::{Value, json};

use super::model::{FindRunning, Model, SessionHistory};

pub(crate) fn sessions() -> Sessions {
    let clock = Arc::new(StepClock::new(Timestamp(1_700_000_000_000), 10));
    Sessions::new(Arc::new(MemoryStore::default()), Registry::standard(), clock, SnapshotPolicy::default()).unwrap()
}

impl Model {
    /// Runs all background tasks here.
    pub(crate) fn settle(&mut self) {
        while let Some(errand) = self.next_errand() {
            let done = errand.run();
            self.take(done);
        }
    }
}

/// Makes calls in a new session: each has an agent, a tool and parameters.
pub(crate) fn session(sessions: &Sessions, name: &str, calls: &[(&str, &str, Value)]) -> Session {
    let session = sessions.create(NewSession::named(name)).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    for (agent, tool, params) in calls {
        let tools = ToolRunner::new(session.as_agent(*agent), Tools::standard(), Arc::new(MemoryWorkspace)).unwrap();
        runtime.block_on(tools.call(ToolCall::new(*tool, params.clone()))).unwrap();
    }
    session
}

/// Creates six calls of two agents: files are added, changed and removed, one call fails, one writes control codes.
pub(crate) fn story() -> (Sessions, Session) {
    let sessions = sessions();
    let write = |path: &str, content: &str| json!({ "file_path": path, "content": content });
    let calls = [
        ("main", "write_file", write("a.txt", "one\ntwo\nthree\n")),
        ("main", "write_file", write("src/main.rs", "fn main() {}\n")),
        ("main", "edit_file", json!({ "file_path": "a.txt", "old_string": "two", "new_string": "zwei" })),
        ("tidy", "read_file", json!({ "file_path": "missing.txt" })),
        ("tidy", "rm", json!({ "path": "a.txt" })),
        ("main", "write_file", write("evil.txt", "\u{1b}[2Jgone\u{202e}\r\n\u{6f22}\u{5b57}\tend\n")),
    ];
    let session = session(&sessions, "story", &calls);
    (sessions, session)
}

/// Returns the debugger on a session, at a position.
pub(crate) fn model(sessions: &Sessions, session: &Session, at: u64) -> Model {
    let mut model = unsettled(sessions, session, at, Arc::new(|_| Default::default()));
    model.settle();
    model
}

/// Returns the debugger before its background tasks have run.
pub(crate) fn unsettled(sessions: &Sessions, session: &Session, at: u64, find_running: FindRunning) -> Model {
    let past = SessionHistory::new(sessions, session, find_running).unwrap();
    Model::new(Arc::new(past), at)
}

/// Adds a call with that many events; each removes a path.
pub(crate) fn long_call(session: &Session, events: usize) {
    let head = session.head().unwrap();
    let mut begun = session.commit().of_call(CallLink::Opens);
    begun.push(&foldspace::event::CallStarted { tool: "sweep".to_owned(), params: json!({}) }).unwrap();
    session.record(begun).unwrap();
    let path = EntryPath::lookup("gone.txt").unwrap();
    let mut left = events;
    while left > 0 {
        let mut commit = session.commit().of_call(CallLink::Of(head + 1));
        for _ in 0..left.min(4000) {
            commit.push(&DeleteEntry { path: path.clone() }).unwrap();
        }
        left -= left.min(4000);
        session.record(commit).unwrap();
    }
}

/// Adds a call with a command that printed something.
pub(crate) fn command(session: &Session, stdout: &str, stderr: &str, exit_code: i32) {
    let mut commit = session.commit().of_call(CallLink::Opens);
    let params = json!({ "command": "make" });
    commit.push(&foldspace::event::CallStarted { tool: "shell_execute".to_owned(), params }).unwrap();
    let mut kept = |text: &str| {
        let content = Content::of(text.as_bytes().to_vec());
        let (digest, bytes) = (content.digest, text.len() as u64);
        commit.keep(content);
        RecordedOutput { content: digest, kept: bytes, bytes }
    };
    let (stdout, stderr) = (kept(stdout), kept(stderr));
    let result = CommandResult {
        backend: "mock".to_owned(),
        command: CommandLine::Shell("make".to_owned()),
        cwd: EntryPath::root(),
        exit_code,
        signal: None,
        timed_out: false,
        cancelled: false,
        lost: false,
        micros: 1500,
        stdout,
        stderr,
    };
    commit.push(&result).unwrap();
    session.record(commit).unwrap();
}

/// Makes one more call that writes; returns its position.
pub(crate) fn write(session: &Session, params: &Value) -> u64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let tools = ToolRunner::new(session.clone(), Tools::standard(), Arc::new(MemoryWorkspace)).unwrap();
    runtime.block_on(tools.call(ToolCall::new("write_file", params.clone()))).unwrap().call
}

/// Adds nested directories, outside of any call; returns the position.
pub(crate) fn deep(session: &Session, levels: usize) -> u64 {
    let mut commit = session.commit();
    let path = EntryPath::from_bytes(&b"d/".repeat(levels)[..levels * 2 - 1]).unwrap();
    commit.push(&WriteFile { path, mode: WriteMode::Create, node: Node::DIRECTORY }).unwrap();
    session.record(commit).unwrap().last
}
