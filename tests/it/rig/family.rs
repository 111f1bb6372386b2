//! Sessions of one store that are related.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use foldspace::backends::HostOptions;
use foldspace::event::{ChildLimits, Isolation, Node};
use foldspace::tools::{AllowedRoots, CommandPolicy, Forker, ShellRules};
use foldspace::{
    ForkOptions, NewSession, Seq, Session, Sessions, ToolCall, ToolOutcome, ToolRunner, Tools, VirtualFileSystem,
    Workspace, WorkspaceSpec,
};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::{Kind, Rig, walk};

/// A store, and sessions in it that are related.
pub(crate) struct Family {
    pub(crate) runtime: Runtime,
    pub(crate) sessions: Sessions,
    directory: PathBuf,
    /// Gone with the family.
    kept: Option<tempfile::TempDir>,
    pub(crate) spec: WorkspaceSpec,
}

/// The texts of a session's files by path.
pub(crate) type Texts = BTreeMap<String, String>;

impl Family {
    /// A store of its own, whose sessions work in such workspaces.
    pub(crate) fn new(spec: WorkspaceSpec) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let family = Self::at(directory.path().to_owned());
        Self { kept: Some(directory), spec, ..family }
    }

    /// One whose files are in directories of this machine.
    pub(crate) fn on_host() -> Self {
        Self::new(WorkspaceSpec::Host(HostOptions::default()))
    }

    /// The family that another process has left in a directory.
    pub(crate) fn at(directory: PathBuf) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let sessions = super::store::sessions(&directory.join("data"));
        Self { runtime, sessions, directory, kept: None, spec: WorkspaceSpec::Host(HostOptions::default()) }
    }

    /// Lets go of all but the files, for another process.
    pub(crate) fn leave(self) -> tempfile::TempDir {
        self.sessions.close();
        self.kept.unwrap()
    }

    /// One on every backend that is here: in memory, in directories, in containers of both kinds.
    pub(crate) fn everywhere() -> Vec<Self> {
        let podman = |kind| Rig::options(kind).map(WorkspaceSpec::Podman);
        let host = WorkspaceSpec::Host(HostOptions::default());
        let specs = [Some(WorkspaceSpec::Memory), Some(host), podman(Kind::Overlay), podman(Kind::Plain)];
        specs.into_iter().flatten().map(Self::new).collect()
    }

    pub(crate) fn has_shell(&self) -> bool {
        self.spec != WorkspaceSpec::Memory
    }

    pub(crate) fn path(&self) -> &Path {
        &self.directory
    }

    /// Directory of a session's files on this machine.
    pub(crate) fn files_of(&self, session: &Session) -> PathBuf {
        WorkspaceSpec::directory(session.id(), &self.directory)
    }

    pub(crate) fn forker(&self) -> Forker {
        let home = self.directory.clone();
        Forker { sessions: self.sessions.clone(), roots: AllowedRoots::new([&home]).unwrap(), home }
    }

    /// A new session `founder`.
    pub(crate) fn founder(&self) -> ToolRunner {
        self.founder_on(&self.spec)
    }

    pub(crate) fn founder_on(&self, spec: &WorkspaceSpec) -> ToolRunner {
        let (backend, options) = (Some(spec.backend_name().to_owned()), spec.options());
        self.open(&self.sessions.create(NewSession { backend, options, ..NewSession::named("founder") }).unwrap())
    }

    /// A tool runner for a session that has none.
    pub(crate) fn open(&self, session: &Session) -> ToolRunner {
        let policy = CommandPolicy { auto_confirm: true, ..CommandPolicy::default() };
        let rules = ShellRules { policy, ..ShellRules::default() };
        ToolRunner::with_rules(session.clone(), Tools::standard(), self.workspace(session), rules).unwrap()
    }

    pub(crate) fn workspace(&self, session: &Session) -> Arc<dyn Workspace> {
        WorkspaceSpec::of_session(session.started().unwrap()).unwrap().open(session.id(), &self.directory).unwrap()
    }

    pub(crate) fn start(&self, parent: &ToolRunner, new: ForkOptions) -> ToolRunner {
        self.runtime.block_on(self.forker().start(parent, new)).unwrap()
    }

    pub(crate) fn fork(&self, parent: &ToolRunner) -> ToolRunner {
        self.start(parent, ForkOptions::new(Isolation::Fork))
    }

    pub(crate) fn fork_at(&self, parent: &ToolRunner, at: Seq) -> ToolRunner {
        self.start(parent, ForkOptions::fork_at(at))
    }

    /// A fork of the present with a name and limits.
    pub(crate) fn child(&self, parent: &ToolRunner, name: &str, limits: ChildLimits) -> ToolRunner {
        self.start(parent, ForkOptions { name: Some(name.to_owned()), limits, ..ForkOptions::new(Isolation::Fork) })
    }

    pub(crate) fn call(&self, runner: &ToolRunner, tool: &str, params: Value) -> ToolOutcome {
        self.runtime.block_on(runner.call(ToolCall::new(tool, params))).unwrap()
    }

    /// Makes a call that must succeed.
    pub(crate) fn does(&self, runner: &ToolRunner, tool: &str, params: Value) -> ToolOutcome {
        let outcome = self.call(runner, tool, params);
        assert!(outcome.is_ok(), "{tool}: {}", outcome.text);
        outcome
    }

    pub(crate) fn create(&self, runner: &ToolRunner, path: &str, content: &str) -> ToolOutcome {
        self.does(runner, "write_file", json!({ "file_path": path, "content": content }))
    }

    /// Writes a file, in place of what is there.
    pub(crate) fn write(&self, runner: &ToolRunner, path: &str, text: &str) -> ToolOutcome {
        if texts_at(runner.session(), runner.session().head().unwrap()).contains_key(path) {
            self.remove(runner, path);
        }
        self.create(runner, path, text)
    }

    pub(crate) fn edit(&self, runner: &ToolRunner, path: &str, old: &str, new: &str) -> ToolOutcome {
        self.does(runner, "edit_file", json!({ "file_path": path, "old_string": old, "new_string": new }))
    }

    pub(crate) fn remove(&self, runner: &ToolRunner, path: &str) -> ToolOutcome {
        self.does(runner, "rm", json!({ "path": path }))
    }

    /// Returns the output of a command, which must succeed.
    pub(crate) fn sh(&self, runner: &ToolRunner, command: &str) -> String {
        let outcome = self.call(runner, "shell_execute", json!({ "command": command }));
        assert!(outcome.is_ok() && outcome.result["exit_code"] == 0, "{command}: {}", outcome.text);
        outcome.result["stdout"].as_str().unwrap_or_default().to_owned()
    }

    /// Its files as its history has them; on a disk they must be the same.
    pub(crate) fn texts(&self, runner: &ToolRunner) -> Texts {
        let texts = texts_at(runner.session(), runner.session().head().unwrap());
        if self.has_shell() {
            let script = "find . -type f | sort | while read -r f; do printf '%s=' \"${f#./}\"; cat \"$f\"; echo; done";
            let expected: String = texts.iter().map(|(path, text)| format!("{path}={text}\n")).collect();
            let printed = self.sh(runner, script);
            assert_eq!(printed.trim_end(), expected.trim_end(), "on the disk of {}", runner.session().name());
        }
        texts
    }

    /// The texts of a session in a directory of this machine, in which nothing else may be.
    pub(crate) fn texts_on_host(&self, session: &Session) -> Texts {
        let state = session.state().unwrap();
        let found =
            super::differences(&super::tree::known(&VirtualFileSystem::of(&state)), &walk(&self.files_of(session)));
        assert_eq!(found, Vec::<String>::new(), "on the disk of {}", session.name());
        texts_at(session, session.head().unwrap())
    }

    /// Everything that is stored is as the events say.
    pub(crate) fn verify(&self) {
        let report = self.sessions.verify(None).unwrap();
        assert_eq!(report.differences, Vec::new());
    }
}

pub(crate) fn texts_at(session: &Session, seq: Seq) -> Texts {
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

pub(crate) fn texts<const N: usize>(files: [(&str, &str); N]) -> Texts {
    files.into_iter().map(|(path, text)| (path.to_owned(), text.to_owned())).collect()
}
