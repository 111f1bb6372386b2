//! A session on the memory backend for the tests of the file tools.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::backends::MemoryWorkspace;
use crate::engine::clock::{StepClock, Timestamp};
use crate::engine::commit::Content;
use crate::engine::event::{CallStatus, Node, WriteFile, WriteMode};
use crate::engine::path::EntryPath;
use crate::engine::registry::Registry;
use crate::engine::session::sessions::NewSession;
use crate::engine::session::sessions::Sessions;
use crate::engine::session::snapshot::SnapshotPolicy;
use crate::engine::store::MemoryStore;
use crate::reducers::VirtualFileSystem;
use crate::tools::{ToolCall, ToolOutcome, ToolRunner, Tools};

/// A session with the standard tools, called through a real tool runner.
pub(in crate::tools) struct ToolWorld {
    runtime: tokio::runtime::Runtime,
    pub(in crate::tools) tool_runner: ToolRunner,
}

impl ToolWorld {
    pub(in crate::tools) fn new() -> Self {
        let store = Arc::new(MemoryStore::default());
        let clock = Arc::new(StepClock::new(Timestamp(1_700_000_000_000), 0));
        let sessions = Sessions::new(store, Registry::standard(), clock, SnapshotPolicy::default()).unwrap();
        let session = sessions.create(NewSession::default()).unwrap();
        let tool_runner = ToolRunner::new(session, Tools::standard(), Arc::new(MemoryWorkspace)).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        Self { runtime, tool_runner }
    }

    /// Creates a world with these text files.
    pub(in crate::tools) fn with(files: &[(&str, &str)]) -> Self {
        let world = Self::new();
        files.iter().for_each(|(path, text)| world.file(path, text));
        world
    }

    /// Records a file as a command would have left it.
    pub(in crate::tools) fn file(&self, path: impl AsRef<[u8]>, bytes: impl AsRef<[u8]>) {
        self.left(path.as_ref(), Node::file(bytes.as_ref(), false), bytes.as_ref());
    }

    /// Records an executable file.
    pub(in crate::tools) fn executable(&self, path: &str, text: &str) {
        self.left(path.as_bytes(), Node::file(text.as_bytes(), true), text.as_bytes());
    }

    /// Records a link.
    pub(in crate::tools) fn link(&self, path: &str, target: &str) {
        self.left(path.as_bytes(), Node::Symlink { target: target.into() }, b"");
    }

    /// Records several entries at once.
    pub(in crate::tools) fn many(&self, paths: impl IntoIterator<Item = String>, text: &str) {
        let mut commit = self.tool_runner.session().commit();
        for path in paths {
            let path = EntryPath::lookup(&path).unwrap();
            commit
                .push(&WriteFile { path, mode: WriteMode::Create, node: Node::file(text.as_bytes(), false) })
                .unwrap();
        }
        commit.keep(Content::of(text.to_owned()));
        self.tool_runner.session().record(commit).unwrap();
    }

    fn left(&self, path: &[u8], node: Node, bytes: &[u8]) {
        let mut commit = self.tool_runner.session().commit();
        let path = EntryPath::from_bytes(path).unwrap();
        commit.push(&WriteFile { path, mode: WriteMode::Create, node }).unwrap();
        commit.keep(Content::of(bytes.to_vec()));
        self.tool_runner.session().record(commit).unwrap();
    }

    pub(in crate::tools) fn call(&self, call: ToolCall) -> ToolOutcome {
        self.runtime.block_on(self.tool_runner.call(call)).unwrap()
    }

    /// Returns the result of a call that succeeds.
    pub(in crate::tools) fn ok(&self, tool: &str, params: Value) -> Value {
        let outcome = self.call(ToolCall::new(tool, params));
        assert!(outcome.is_ok(), "{}", outcome.text);
        outcome.result
    }

    /// Returns the text of a call that succeeds.
    pub(in crate::tools) fn text(&self, tool: &str, params: Value) -> String {
        let outcome = self.call(ToolCall::new(tool, params));
        assert!(outcome.is_ok(), "{}", outcome.text);
        outcome.text
    }

    /// Returns the error of a call that fails, and leaves the files as they were.
    pub(in crate::tools) fn error(&self, tool: &str, params: Value) -> String {
        let before = self.tree();
        let outcome = self.call(ToolCall::new(tool, params));
        assert_eq!(outcome.status, CallStatus::Error, "{}", outcome.text);
        assert_eq!(self.tree(), before);
        outcome.text
    }

    pub(in crate::tools) fn tree(&self) -> VirtualFileSystem {
        self.tool_runner.session().state().unwrap().slice::<VirtualFileSystem>().unwrap().clone()
    }

    /// Returns the paths of all entries.
    pub(in crate::tools) fn paths(&self) -> Vec<String> {
        self.tree().iter().map(|(path, _)| path.rooted()).collect()
    }

    /// Returns the contents of a file.
    pub(in crate::tools) fn read(&self, path: &str) -> Vec<u8> {
        let tree = self.tree();
        let Some(Node::File { content, .. }) = tree.get(&EntryPath::lookup(path).unwrap()).map(|e| &e.node) else {
            panic!("{path} is not a file");
        };
        self.tool_runner.session().content(content).unwrap().to_vec()
    }

    /// Returns a call of every file tool with that path.
    pub(in crate::tools) fn calls_with_path(path: &str) -> Vec<(&'static str, Value)> {
        vec![
            ("ls", json!({ "path": path })),
            ("read_file", json!({ "file_path": path })),
            ("write_file", json!({ "file_path": path, "content": "x" })),
            ("edit_file", json!({ "file_path": path, "old_string": "x", "new_string": "y" })),
            ("glob", json!({ "path": path, "pattern": "**" })),
            ("grep", json!({ "path": path, "pattern": "x" })),
            ("rm", json!({ "path": path })),
        ]
    }
}
