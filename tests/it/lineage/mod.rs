//! Children: what they have of their parents, and that nothing else goes between relatives.

mod isolation;
mod past;
mod random;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use foldspace::{
    AllowedRoots, CommandPolicy, ForkOptions, Forker, HostOptions, Isolation, NewSession, Node, Registry, Seq, Session,
    Sessions, ShellRules, ToolCall, ToolOutcome, ToolRunner, Tools, VirtualFileSystem, WorkspaceSpec,
};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::rig::{Kind, Rig};

/// A store, and sessions in it that are related.
struct Family {
    runtime: Runtime,
    sessions: Sessions,
    directory: tempfile::TempDir,
    spec: WorkspaceSpec,
}

/// The texts of a session's files by path.
type Texts = BTreeMap<String, String>;

impl Family {
    fn new(spec: WorkspaceSpec) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let sessions = Sessions::open(directory.path().join("data"), Registry::standard()).unwrap();
        Self { runtime, sessions, directory, spec }
    }

    /// On every backend that is here: in memory, in directories, in containers of both ways.
    fn everywhere() -> Vec<Self> {
        let podman = |kind| Rig::options(kind).map(WorkspaceSpec::Podman);
        let host = WorkspaceSpec::Host(HostOptions::default());
        let specs = [Some(WorkspaceSpec::Memory), Some(host), podman(Kind::Overlay), podman(Kind::Plain)];
        specs.into_iter().flatten().map(Self::new).collect()
    }

    fn has_shell(&self) -> bool {
        self.spec != WorkspaceSpec::Memory
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn nursery(&self) -> Forker {
        let roots = AllowedRoots::new([self.path()]).unwrap();
        Forker { sessions: self.sessions.clone(), home: self.path().to_owned(), roots }
    }

    fn founder(&self) -> ToolRunner {
        let new = NewSession {
            backend: Some(self.spec.backend_name().to_owned()),
            options: self.spec.options(),
            ..NewSession::named("founder")
        };
        self.open(&self.sessions.create(new).unwrap())
    }

    /// A dispatcher for a session that has none.
    fn open(&self, session: &Session) -> ToolRunner {
        let spec = WorkspaceSpec::of_session(session.started().unwrap()).unwrap();
        let workspace = spec.open(session.id(), self.path()).unwrap();
        let policy = CommandPolicy { auto_confirm: true, ..CommandPolicy::default() };
        let rules = ShellRules { policy, ..ShellRules::default() };
        ToolRunner::with_rules(session.clone(), Tools::standard(), workspace, rules).unwrap()
    }

    fn start(&self, parent: &ToolRunner, new: ForkOptions) -> ToolRunner {
        self.runtime.block_on(self.nursery().start(parent, new)).unwrap()
    }

    fn fork(&self, parent: &ToolRunner) -> ToolRunner {
        self.start(parent, ForkOptions::new(Isolation::Fork))
    }

    fn fork_at(&self, parent: &ToolRunner, at: Seq) -> ToolRunner {
        self.start(parent, ForkOptions::fork_at(at))
    }

    fn call(&self, dispatcher: &ToolRunner, tool: &str, params: Value) -> ToolOutcome {
        self.runtime.block_on(dispatcher.call(ToolCall::new(tool, params))).unwrap()
    }

    /// Writes a file, in place of what is there.
    fn write(&self, dispatcher: &ToolRunner, path: &str, text: &str) -> ToolOutcome {
        if texts_at(dispatcher.session(), dispatcher.session().head().unwrap()).contains_key(path) {
            assert!(self.call(dispatcher, "rm", json!({ "path": path })).is_ok());
        }
        let outcome = self.call(dispatcher, "write_file", json!({ "file_path": path, "content": text }));
        assert!(outcome.is_ok(), "{}", outcome.text);
        outcome
    }

    /// What a command prints; it must do well.
    fn sh(&self, dispatcher: &ToolRunner, command: &str) -> String {
        let outcome = self.call(dispatcher, "shell_execute", json!({ "command": command }));
        assert!(outcome.is_ok() && outcome.result["exit_code"] == 0, "{command}: {}", outcome.text);
        outcome.result["stdout"].as_str().unwrap_or_default().to_owned()
    }

    /// Its files as its history has them; on a disk they must be the same.
    fn texts(&self, dispatcher: &ToolRunner) -> Texts {
        let texts = texts_at(dispatcher.session(), dispatcher.session().head().unwrap());
        if self.has_shell() {
            let script = "find . -type f | sort | while read -r f; do printf '%s=' \"${f#./}\"; cat \"$f\"; echo; done";
            let expected: String = texts.iter().map(|(path, text)| format!("{path}={text}\n")).collect();
            let printed = self.sh(dispatcher, script);
            assert_eq!(printed.trim_end(), expected.trim_end(), "on the disk of {}", dispatcher.session().name());
        }
        texts
    }

    /// Everything that is stored is as the events say.
    fn verify(&self) {
        let report = self.sessions.verify(None).unwrap();
        assert_eq!(report.differences, Vec::new());
    }
}

fn texts_at(session: &Session, seq: Seq) -> Texts {
    let state = session.state_at(seq).unwrap();
    let files = VirtualFileSystem::of(&state);
    let mut texts = Texts::new();
    for (path, entry) in files.iter() {
        if let Node::File { content, .. } = &entry.node {
            let bytes = session.content(content).unwrap();
            texts.insert(path.to_string(), String::from_utf8(bytes.to_vec()).unwrap());
        }
    }
    texts
}

fn texts<const N: usize>(files: [(&str, &str); N]) -> Texts {
    files.into_iter().map(|(path, text)| (path.to_owned(), text.to_owned())).collect()
}

/// An outcome's digest of every slice, at a position.
fn digests(session: &Session, seq: Seq) -> Vec<(&'static str, foldspace::Digest)> {
    session.state_at(seq).unwrap().digests().unwrap()
}

/// The same dispatcher, shared.
fn shared(dispatcher: ToolRunner) -> Arc<ToolRunner> {
    Arc::new(dispatcher)
}
