//! A parent with children, on a disk.

use std::path::PathBuf;
use std::sync::Arc;

use foldspace::{
    AllowedRoots, ChildLimits, Content, EntryPath, Event, ForkOptions, Forker, HostOptions, Isolation, NewSession,
    Node, Recorded, Registry, Seq, Session, Sessions, ToolCall, ToolOutcome, ToolRunner, Tools, VirtualFileSystem,
    Workspace, WorkspaceSpec, WriteFile, WriteMode,
};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

/// A store with sessions whose files are in directories of this machine.
pub(super) struct Rig {
    pub(super) runtime: Runtime,
    pub(super) sessions: Sessions,
    directory: PathBuf,
    /// Gone with the rig.
    kept: Option<tempfile::TempDir>,
}

impl Rig {
    pub(super) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let rig = Self::at(directory.path().to_owned());
        Self { kept: Some(directory), ..rig }
    }

    /// The same where another process left it.
    pub(super) fn at(directory: PathBuf) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let sessions = Sessions::open(directory.join("data"), Registry::standard()).unwrap();
        Self { runtime, sessions, directory, kept: None }
    }

    /// Lets go of all but the files, for another process.
    pub(super) fn leave(self) -> tempfile::TempDir {
        self.sessions.close();
        self.kept.unwrap()
    }

    /// A session of its own.
    pub(super) fn parent(&self) -> ToolRunner {
        self.parent_on(&WorkspaceSpec::Host(HostOptions { directory: None }))
    }

    pub(super) fn parent_on(&self, spec: &WorkspaceSpec) -> ToolRunner {
        let (backend, options) = (Some(spec.backend_name().to_owned()), spec.options());
        let new = NewSession { backend, options, ..NewSession::named("main") };
        self.dispatcher(&self.sessions.create(new).unwrap())
    }

    /// A fork of the present.
    pub(super) fn child(&self, parent: &ToolRunner, name: &str, limits: ChildLimits) -> ToolRunner {
        self.start(parent, ForkOptions { name: Some(name.to_owned()), limits, ..ForkOptions::new(Isolation::Fork) })
    }

    pub(super) fn start(&self, parent: &ToolRunner, new: ForkOptions) -> ToolRunner {
        self.runtime.block_on(self.nursery().start(parent, new)).unwrap()
    }

    pub(super) fn nursery(&self) -> Forker {
        let home = self.directory.clone();
        let roots = AllowedRoots::new([&home]).unwrap();
        Forker { sessions: self.sessions.clone(), home, roots }
    }

    /// A dispatcher on the files of a session.
    pub(super) fn dispatcher(&self, session: &Session) -> ToolRunner {
        ToolRunner::with_rules(session.clone(), Tools::standard(), self.workspace(session), yes()).unwrap()
    }

    /// A place for files that are no session's.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub(super) fn place(&self, session: &Session) -> PathBuf {
        WorkspaceSpec::directory(session.id(), &self.directory)
    }

    pub(super) fn workspace(&self, session: &Session) -> Arc<dyn Workspace> {
        WorkspaceSpec::of_session(session.started().unwrap()).unwrap().open(session.id(), &self.directory).unwrap()
    }

    pub(super) fn call(&self, dispatcher: &ToolRunner, tool: &str, params: Value) -> ToolOutcome {
        self.runtime.block_on(dispatcher.call(ToolCall::new(tool, params))).unwrap()
    }

    /// Makes a call that must do well.
    pub(super) fn does(&self, dispatcher: &ToolRunner, tool: &str, params: Value) -> ToolOutcome {
        let outcome = self.call(dispatcher, tool, params);
        assert!(outcome.is_ok(), "{tool}: {}", outcome.text);
        outcome
    }

    pub(super) fn write(&self, dispatcher: &ToolRunner, path: &str, content: &str) -> ToolOutcome {
        self.does(dispatcher, "write_file", json!({ "file_path": path, "content": content }))
    }

    pub(super) fn edit(&self, dispatcher: &ToolRunner, path: &str, old: &str, new: &str) -> ToolOutcome {
        self.does(dispatcher, "edit_file", json!({ "file_path": path, "old_string": old, "new_string": new }))
    }

    pub(super) fn remove(&self, dispatcher: &ToolRunner, path: &str) -> ToolOutcome {
        self.does(dispatcher, "rm", json!({ "path": path }))
    }

    /// The session's files are on the disk as its history has them. Gives the texts by path.
    pub(super) fn texts(&self, session: &Session) -> Vec<(String, String)> {
        let mut texts = Vec::new();
        for (path, entry) in files(session).iter() {
            let place = self.place(session).join(path.to_string());
            if let Node::File { content, .. } = &entry.node {
                let bytes = session.content(content).unwrap();
                assert_eq!(std::fs::read(&place).unwrap(), bytes, "{path} on the disk");
                texts.push((path.to_string(), String::from_utf8(bytes.to_vec()).unwrap()));
            } else {
                assert!(place.is_dir(), "{path}");
            }
        }
        let on_disk = walk(&self.place(session));
        assert_eq!(on_disk, files(session).len(), "nothing else is on the disk");
        texts
    }
}

fn walk(directory: &std::path::Path) -> usize {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| 1 + if path.is_dir() { walk(&path) } else { 0 }).sum()
}

fn yes() -> foldspace::ShellRules {
    let policy = foldspace::CommandPolicy { auto_confirm: true, ..foldspace::CommandPolicy::default() };
    foldspace::ShellRules { policy, ..foldspace::ShellRules::default() }
}

pub(super) fn path(text: &str) -> EntryPath {
    EntryPath::lookup(text).unwrap()
}

pub(super) fn files(session: &Session) -> VirtualFileSystem {
    session.state().unwrap().slice::<VirtualFileSystem>().cloned().unwrap()
}

pub(super) fn texts(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
}

/// The event at a position, which must be one of that type.
pub(super) fn event<E: Event>(session: &Session, seq: Seq) -> Recorded<E> {
    session.event(seq).unwrap().typed::<E>().unwrap_or_else(|| panic!("{seq} is another event")).unwrap()
}

/// Files that somebody recorded without a workspace.
pub(super) fn record(session: &Session, path: &str, bytes: &[u8]) {
    let mut commit = session.commit();
    let node = Node::file(bytes, false);
    commit.push(&WriteFile { path: EntryPath::lookup(path).unwrap(), mode: WriteMode::Overwrite, node }).unwrap();
    commit.keep(Content::of(bytes.to_vec()));
    session.record(commit).unwrap();
}
