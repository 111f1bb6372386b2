//! Histories for tests: always the same, to the millisecond.

use std::sync::Arc;

use foldspace::{
    CommandLine, CommandResult, Commit, DeleteEntry, Dispatcher, EntryPath, MemoryStore, MemoryWorkspace, NewSession,
    RecordedOutput, Registry, Session, Sessions, SnapshotPolicy, StepClock, Timestamp, ToolCall, Tools,
};
use serde_json::{Value, json};

use super::model::{Model, Past, Predicate};

/// A predicate for tests: `calls N`, which holds from N calls on.
struct Calls(u64);

impl Predicate for Calls {
    fn holds(&self, state: &foldspace::State) -> bool {
        state.slice::<foldspace::Usage>().is_some_and(|usage| usage.calls >= self.0)
    }
}

pub(crate) fn read_predicate(text: &str) -> Result<Box<dyn Predicate>, String> {
    let count = text.strip_prefix("calls ").and_then(|count| count.parse().ok());
    count.map(|count| Box::new(Calls(count)) as Box<dyn Predicate>).ok_or_else(|| format!("{text:?} is no condition"))
}

pub(crate) fn sessions() -> Sessions {
    let clock = Arc::new(StepClock::new(Timestamp(1_700_000_000_000), 10));
    Sessions::new(Arc::new(MemoryStore::default()), Registry::standard(), clock, SnapshotPolicy::default()).unwrap()
}

/// Makes calls in a new session; an agent's name stands before the tool's.
pub(crate) fn session(sessions: &Sessions, name: &str, calls: &[(&str, &str, Value)]) -> Session {
    let session = sessions.create(NewSession::named(name)).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    for (agent, tool, params) in calls {
        let tools = Dispatcher::new(session.as_agent(*agent), Tools::standard(), Arc::new(MemoryWorkspace)).unwrap();
        runtime.block_on(tools.call(ToolCall::new(*tool, params.clone()))).unwrap();
    }
    session
}

/// Six calls of two agents: files come, change and go, one call fails, one writes what a terminal would obey.
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

/// The debugger on a session, at a position.
pub(crate) fn model(sessions: &Sessions, session: &Session, at: u64) -> Model {
    let past = Past::new(sessions, session, false).unwrap();
    let mut model = Model::new(Arc::new(past), at, read_predicate);
    model.settle();
    model
}

/// Adds a call that removes so many paths, one event each.
pub(crate) fn long_call(session: &Session, events: usize) {
    let begun = Commit::new(session.id(), session.now());
    let head = session.head().unwrap();
    let mut begun = begun.of_call(head + 1);
    begun.push(&foldspace::CallStarted { tool: "sweep".to_owned(), params: json!({}) }).unwrap();
    session.record(begun).unwrap();
    let path = EntryPath::lookup("gone.txt").unwrap();
    let mut left = events;
    while left > 0 {
        let mut commit = session.commit().of_call(head + 1);
        for _ in 0..left.min(4000) {
            commit.push(&DeleteEntry { path: path.clone() }).unwrap();
        }
        left -= left.min(4000);
        session.record(commit).unwrap();
    }
}

/// Adds a call with a command that printed something.
pub(crate) fn command(session: &Session, stdout: &str, stderr: &str, exit_code: i32) {
    let call = session.head().unwrap() + 1;
    let mut commit = session.commit().of_call(call);
    let params = json!({ "command": "make" });
    commit.push(&foldspace::CallStarted { tool: "shell_execute".to_owned(), params }).unwrap();
    let mut kept = |text: &str| RecordedOutput {
        content: commit.add_content(text.as_bytes().to_vec()),
        kept: text.len() as u64,
        bytes: text.len() as u64,
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
        micros: 1500,
        stdout,
        stderr,
    };
    commit.push(&result).unwrap();
    session.record(commit).unwrap();
}
