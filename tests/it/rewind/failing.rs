//! Rewinds that fail, and processes that die in them.

use std::sync::Arc;

use foldspace::backends::HostOptions;
use foldspace::event::WriteFile;
use foldspace::tools::WorkspaceError;
use foldspace::tools::{CaptureBudget, RewindOptions, rewind};
use foldspace::{
    Event, HostWorkspace, NewSession, Recorded, Registry, Session, Sessions, ToolRunner, Tools, VirtualFileSystem,
    Workspace,
};
use serde_json::json;

use crate::rig::{Failing, Fails, differences, walk};

/// A session on the host with two moments; gives what is needed to open it again.
struct Broken {
    directory: tempfile::TempDir,
    /// Held open as long as its session is used.
    _sessions: Sessions,
    session: Session,
    runtime: tokio::runtime::Runtime,
}

impl Broken {
    fn new() -> (Self, u64) {
        let directory = tempfile::tempdir().unwrap();
        let sessions = Sessions::open(directory.path().join("data"), Registry::standard()).unwrap();
        let session = sessions.create(NewSession::named("broken")).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let broken = Self { directory, _sessions: sessions, session, runtime };
        let tool_runner = broken.opened();
        let run = |command: &str| {
            let call = foldspace::ToolCall::new("shell_execute", json!({ "command": command }));
            broken.runtime.block_on(tool_runner.call(call)).unwrap().finished
        };
        let first = run("mkdir -p d/old && for i in 1 2 3 4 5 6; do echo one > d/$i; echo gone > d/old/$i; done");
        run("rm -r d/old d/1 && for i in 2 3 4; do echo two > d/$i; done && mkdir -p new/deep && echo x > new/deep/x");
        tool_runner.close().unwrap();
        (broken, first)
    }

    fn workspace(&self) -> HostWorkspace {
        HostWorkspace::open(&self.directory.path().join("work"), &HostOptions::default()).unwrap()
    }

    /// The same, which fails from now on.
    fn failing(&self, how: Fails) -> Arc<Failing> {
        let failing = Failing::new(Arc::new(self.workspace()));
        failing.set(how);
        failing
    }

    fn opened(&self) -> ToolRunner {
        let rules = foldspace::tools::ShellRules {
            policy: foldspace::tools::CommandPolicy { auto_confirm: true, ..Default::default() },
            ..Default::default()
        };
        let workspace = Arc::new(self.workspace());
        ToolRunner::with_rules(self.session.clone(), Tools::standard(), workspace, rules).unwrap()
    }

    fn rewind(&self, workspace: Arc<dyn Workspace>, to: u64) -> Result<foldspace::tools::Rewound, WorkspaceError> {
        let (budget, options) = (CaptureBudget::default(), RewindOptions::default());
        self.runtime.block_on(rewind(&self.session, &workspace, budget, to, options))
    }

    fn files(&self) -> VirtualFileSystem {
        self.session.state().unwrap().slice::<VirtualFileSystem>().unwrap().clone()
    }

    /// The files on the disk are those of the log, and these are those at `seq`.
    fn stands_at(&self, seq: u64) {
        let then = self.session.state_at(seq).unwrap().slice::<VirtualFileSystem>().unwrap().clone();
        assert_eq!(self.files().diff(&then), Vec::new());
        let copy = tempfile::tempdir().unwrap();
        let copy = copy.path().join("copy");
        foldspace::tools::materialise(&self.session, &self.session.state_at(seq).unwrap(), &copy).unwrap();
        assert_eq!(differences(&walk(&copy), &walk(&self.directory.path().join("work"))), Vec::<String>::new());
    }
}

#[test]
fn rewind_on_failing_workspace_changes_nothing() {
    let (broken, first) = Broken::new();
    let before = broken.session.head().unwrap();
    let error = broken.rewind(broken.failing(Fails::AtOnce), first).unwrap_err();
    assert!(error.to_string().contains("the disk is full"), "{error}");
    assert_eq!(broken.session.head().unwrap(), before);
    broken.stands_at(before);
    drop(broken.opened());
    assert_eq!(broken.session.head().unwrap(), before, "there is no drift");
    // And it can be done after that.
    broken.rewind(Arc::new(broken.workspace()), first).unwrap();
    broken.stands_at(first);
}

#[test]
fn rewind_of_dying_process_leaves_recorded_state() {
    for (how, goes_back) in [(Fails::DyingHalfway, false), (Fails::DyingAtTheEnd, true)] {
        let (broken, first) = Broken::new();
        let before = broken.session.head().unwrap();
        assert!(matches!(broken.rewind(broken.failing(how), first), Err(WorkspaceError::Stopped)));
        let recorded = broken.session.head().unwrap();
        assert_eq!(recorded > before, goes_back);
        // Somebody else's file is neither taken for a leftover nor lost.
        std::fs::write(broken.directory.path().join("work/mine"), "mine").unwrap();
        drop(broken.opened());
        let events = broken.session.events(recorded + 1, 10).unwrap();
        let written: Vec<_> = events.iter().filter_map(Recorded::typed::<WriteFile>).collect();
        assert_eq!((events.len(), written.len()), (2, 1), "{events:?}");
        std::fs::remove_file(broken.directory.path().join("work/mine")).unwrap();
        drop(broken.opened());
        broken.stands_at(if goes_back { first } else { before });
    }
}

#[test]
fn rewind_half_done_is_repaired_before_next_call() {
    let (broken, first) = Broken::new();
    let before = broken.session.head().unwrap();
    let failing = broken.failing(Fails::Halfway);
    let rules = foldspace::tools::ShellRules {
        policy: foldspace::tools::CommandPolicy { auto_confirm: true, ..Default::default() },
        ..Default::default()
    };
    let workspace = Arc::clone(&failing) as Arc<dyn Workspace>;
    let live = ToolRunner::with_rules(broken.session.clone(), Tools::standard(), workspace, rules).unwrap();
    let told = broken.runtime.block_on(live.rewind(first, RewindOptions::default()));
    assert!(matches!(told, Err(WorkspaceError::NotPutBack { .. })), "{told:?}");
    failing.set(None);
    let call = foldspace::ToolCall::new("shell_execute", json!({ "command": "ls d" }));
    let outcome = broken.runtime.block_on(live.call(call)).unwrap();
    assert!(outcome.text.contains("reopen the session"), "{outcome:?}");
    drop(live);
    let _opened = broken.opened();
    let events = broken.session.events(before + 1, 100).unwrap();
    let drift = events.iter().filter(|event| *event.event.kind == *foldspace::event::DriftFound::KIND).count();
    assert_eq!(drift, 0, "what is half done is nobody's change");
    broken.stands_at(before);
}

#[test]
fn rewind_without_final_note_has_happened() {
    let (broken, first) = Broken::new();
    let rewound = broken.rewind(broken.failing(Fails::AtTheEnd), first).unwrap();
    assert_eq!(rewound.recorded.map(|(_, last)| last), Some(broken.session.head().unwrap()));
    broken.stands_at(first);
    drop(broken.opened());
    broken.stands_at(first);
}
