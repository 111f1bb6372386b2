//! A session with a workspace of any kind, whose files are looked at without the library after each call.

pub(crate) mod container;
mod failing;
mod family;
mod processes;
mod program;
pub(crate) mod s3;
mod server;
#[path = "../../rig/mod.rs"]
mod shared;
pub(crate) mod store;
mod tree;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};

use foldspace::backends::{DoctorReport, HostOptions, OverlayUse, PodmanOptions};
use foldspace::event::{
    CallFinished, CallStarted, Clock, CommandDecided, CommandResult, ContainerStarted, ContainerStopped, DriftFound,
    SessionAllow, SystemClock, WriteFile,
};
use foldspace::session::SnapshotPolicy;
use foldspace::tools::WorkspaceError;
use foldspace::tools::{CaptureBudget, CommandPolicy, PodmanShellTool, PythonPlace, PythonRules};
use foldspace::tools::{RewindOptions, Rewound, ShellRules};
use foldspace::{
    Event, NewSession, Recorded, Registry, Seq, Session, SessionId, Sessions, Timestamp, ToolCall, ToolOutcome,
    ToolRunner, Tools, VirtualFileSystem, WorkspaceSpec,
};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

pub(crate) use container::{cache, engine_cli, field, named, named_at, process_of};
pub(crate) use failing::{Failing, Fails};
pub(crate) use family::{Family, Texts, texts, texts_at};
pub(crate) use processes::{eventually_stuck, has_begun, is_running, resume, stop};
pub(crate) use program::{Program, Running, STORY, told};
pub(crate) use server::{Answer, Server, TOKEN, sent, taken};
pub(crate) use shared::testing::{WAIT_LIMIT, report_skip};
pub(crate) use shared::{Disk, Random, eventually, ordered, portable, process, rounds, skip};
pub(crate) use tree::{Files, Seen, differences, walk};

pub(crate) const BEFORE_COMMANDS: [&str; 4] =
    [CommandDecided::KIND, SessionAllow::KIND, ContainerStarted::KIND, ContainerStopped::KIND];

/// Where a session's files lie, and where its commands run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Host,
    Overlay,
    Plain,
}

/// A clock on which no two commits happen at the same time.
struct Ticking {
    now: AtomicI64,
    machine: SystemClock,
}

impl Clock for Ticking {
    fn now(&self) -> Timestamp {
        Timestamp(self.now.fetch_add(1, Ordering::SeqCst))
    }

    fn monotonic_micros(&self) -> u64 {
        self.machine.monotonic_micros()
    }

    fn fresh_id(&self) -> [u8; 16] {
        self.machine.fresh_id()
    }
}

/// A session with its store, its workspace and a tool_runner, all of which may be closed and opened again.
pub(crate) struct Rig {
    pub(crate) runtime: Runtime,
    data: tempfile::TempDir,
    id: SessionId,
    rules: ShellRules,
    open: Option<Opened>,
}

struct Opened {
    sessions: Sessions,
    tool_runner: ToolRunner,
}

/// What a call did, after it was found to be recorded as it must be.
pub(crate) struct Step {
    pub(crate) outcome: ToolOutcome,
    /// What was found before it that somebody had changed from outside.
    pub(crate) drift: Vec<Recorded>,
    /// What the call recorded after its intent, in one commit.
    pub(crate) events: Vec<Recorded>,
}

/// A policy that lets everything run that is not dangerous, and that budget.
fn rules(budget: CaptureBudget) -> ShellRules {
    let policy = CommandPolicy { auto_confirm: true, ..CommandPolicy::default() };
    // Python runs where commands do; `python.rs` has the tests of the other place.
    let python = PythonRules { place: Some(PythonPlace::Container), ..PythonRules::default() };
    ShellRules { policy, budget, python, ..ShellRules::default() }
}

impl Rig {
    /// None for a container where there is no engine.
    pub(crate) fn new(kind: Kind) -> Option<Self> {
        Self::with_budget(kind, CaptureBudget::default())
    }

    pub(crate) fn with_budget(kind: Kind, budget: CaptureBudget) -> Option<Self> {
        let spec = match kind {
            Kind::Host => WorkspaceSpec::Host(HostOptions::default()),
            Kind::Overlay | Kind::Plain => WorkspaceSpec::Podman(Self::options(kind)?),
        };
        Some(Self::of(&spec, budget))
    }

    /// What makes a container of that kind; none where there can't be one.
    pub(crate) fn options(kind: Kind) -> Option<PodmanOptions> {
        let options = crate::engine::options()?;
        match kind {
            Kind::Plain => Some(PodmanOptions { overlay: OverlayUse::Never, ..options }),
            Kind::Overlay | Kind::Host => has_overlays().then_some(options),
        }
    }

    /// A container of its own; none where there is no engine.
    pub(crate) fn container(change: impl FnOnce(PodmanOptions) -> PodmanOptions) -> Option<Self> {
        let options = change(crate::engine::options()?);
        Some(Self::of(&WorkspaceSpec::Podman(options), CaptureBudget::default()))
    }

    pub(crate) fn of(spec: &WorkspaceSpec, budget: CaptureBudget) -> Self {
        Self::within(spec, budget, tempfile::tempdir().unwrap())
    }

    /// With everything in that directory.
    pub(crate) fn within(spec: &WorkspaceSpec, budget: CaptureBudget, data: tempfile::TempDir) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let sessions = sessions(data.path());
        let new =
            NewSession { name: None, backend: Some(spec.backend_name().to_owned()), options: spec.options(), id: None };
        let id = sessions.create(new).unwrap().id();
        spec.keep_values(id, data.path()).unwrap();
        sessions.close();
        let mut rig = Self { runtime, data, id, rules: rules(budget), open: None };
        rig.reopen();
        rig
    }

    /// Closes everything as the end of a process does, and opens it again.
    pub(crate) fn reopen(&mut self) {
        self.try_reopen().unwrap();
    }

    /// The same where the workspace may fail.
    pub(crate) fn try_reopen(&mut self) -> Result<(), WorkspaceError> {
        self.close();
        let sessions = sessions(self.data.path());
        let session = sessions.session(self.id).unwrap();
        let opened = self.spec(&session).open(self.id, self.data.path()).map_err(WorkspaceError::from);
        let tools = Tools::standard().with(PodmanShellTool).unwrap();
        let rules = self.rules.clone();
        match opened.and_then(|workspace| ToolRunner::with_rules(session, tools, workspace, rules)) {
            Ok(tool_runner) => {
                self.open = Some(Opened { sessions, tool_runner });
                Ok(())
            }
            Err(error) => {
                sessions.close();
                Err(error)
            }
        }
    }

    /// Opens everything again, with other rules from now on.
    pub(crate) fn reopen_with(&mut self, rules: ShellRules) {
        self.rules = rules;
        self.reopen();
    }

    /// Where the journal is, and where the files of the host's sessions are.
    pub(crate) fn data(&self) -> &Path {
        self.data.path()
    }

    /// Lets go of everything without a word, as when its last owner goes.
    pub(crate) fn abandon(&mut self) {
        drop(self.open.take());
    }

    /// Lets go of the store, the workspace and what runs in it.
    pub(crate) fn close(&mut self) {
        let Some(Opened { sessions, tool_runner }) = self.open.take() else { return };
        tool_runner.workspace().close();
        drop(tool_runner);
        sessions.close();
    }

    fn spec(&self, session: &Session) -> WorkspaceSpec {
        WorkspaceSpec::of_session(session.started().unwrap()).unwrap()
    }

    fn opened(&self) -> &Opened {
        self.open.as_ref().unwrap()
    }

    pub(crate) fn tool_runner(&self) -> &ToolRunner {
        &self.opened().tool_runner
    }

    pub(crate) fn sessions(&self) -> &Sessions {
        &self.opened().sessions
    }

    pub(crate) fn session(&self) -> &Session {
        self.tool_runner().session()
    }

    pub(crate) fn kind(&self) -> Kind {
        match self.spec(self.session()) {
            WorkspaceSpec::Podman(PodmanOptions { overlay: OverlayUse::Never, .. }) => Kind::Plain,
            WorkspaceSpec::Podman(_) if has_overlays() => Kind::Overlay,
            WorkspaceSpec::Podman(_) => Kind::Plain,
            _ => Kind::Host,
        }
    }

    /// The container's name.
    pub(crate) fn name(&self) -> String {
        format!("foldspace-{}", self.id)
    }

    /// Where the container's things are.
    pub(crate) fn cache(&self) -> PathBuf {
        container::cache().join(self.id.to_string())
    }

    /// The workspace as this process reaches it; for a container that must run.
    pub(crate) fn root(&self) -> PathBuf {
        match self.kind() {
            Kind::Host => self.data.path().join("workspaces").join(self.id.to_string()).join("files"),
            Kind::Overlay | Kind::Plain => {
                let process = process_of(&self.name()).expect("the container runs");
                PathBuf::from(format!("/proc/{process}/root/workspace"))
            }
        }
    }

    /// Makes a call; what it gives is not looked at.
    pub(crate) fn bare(&self, tool: &str, params: Value) -> ToolOutcome {
        self.runtime.block_on(self.tool_runner().call(ToolCall::new(tool, params))).unwrap()
    }

    /// Takes the session back.
    pub(crate) fn rewind(&self, to: Seq, options: RewindOptions) -> Result<Rewound, WorkspaceError> {
        self.runtime.block_on(self.tool_runner().rewind(to, options))
    }

    /// Makes a call and checks what it recorded, and that the files are as the slice says.
    pub(crate) fn call(&self, tool: &str, params: Value) -> Step {
        let shown = shortened(&params);
        let step = self.recorded(self.bare(tool, params), &shown);
        self.check(&format!("{tool} {shown}"));
        step
    }

    /// A text for the shell.
    pub(crate) fn sh(&self, command: &str) -> Step {
        self.call("shell_execute", json!({ "command": command, "timeout_seconds": 100 }))
    }

    /// A text for the shell, which must do well.
    pub(crate) fn ok(&self, command: &str) -> Step {
        let step = self.sh(command);
        step.assert_ok(command);
        step
    }

    /// Commands that make, change, move and remove all kinds of entries. Gives the position after each, and the files
    /// that were there then.
    pub(crate) fn moments(&self) -> Vec<(Seq, Files)> {
        let commands = [
            "mkdir -p src/deep && echo one > src/a && echo two > src/deep/b && ln -s a src/link",
            "chmod +x src/a && mkdir empty",
            "mv src/deep moved && echo three >> moved/b",
            "rm -r src && echo file > src",
            "rm src && mkdir src && printf '\\000\\377' > src/bytes && echo x > 'name with\\backslash'",
            "rm -rf * && echo last > last",
        ];
        commands.map(|command| (self.ok(command).outcome.finished, walk(&self.root()))).into()
    }

    /// The same where the container may be stopped by the time the files could be looked at.
    pub(crate) fn unchecked(&self, command: &str) -> Step {
        let step = self.recorded(self.bare("shell_execute", json!({ "command": command })), command);
        step.assert_ok(command);
        step
    }

    /// A Python program, from standard input, as newlines are not allowed in commands; it must do well.
    pub(crate) fn python(&self, program: &str) -> Step {
        let step = self.python_any(program);
        step.assert_ok(program);
        step
    }

    pub(crate) fn python_any(&self, program: &str) -> Step {
        self.call("shell_execute", json!({ "command": "python3 -", "stdin": program, "timeout_seconds": 100 }))
    }

    /// What a command prints, trimmed; it must do well. The files are not looked at.
    pub(crate) fn printed(&self, command: &str) -> String {
        let outcome = self.bare("shell_execute", json!({ "command": command, "timeout_seconds": 100 }));
        assert_eq!(outcome.result["exit_code"], 0, "{command}: {}", outcome.text);
        outcome.result["stdout"].as_str().unwrap().trim().to_owned()
    }

    /// Whether commands find a program.
    pub(crate) fn has(&self, program: &str) -> bool {
        let shell = self.tool_runner().workspace().unrecorded_shell().unwrap();
        self.runtime.block_on(shell.which(program)).unwrap().path.is_some()
    }

    /// Returns what a call recorded, after finding its outcome to be one commit by the caller, of the call.
    pub(crate) fn recorded(&self, outcome: ToolOutcome, what: &str) -> Step {
        let count = usize::try_from(outcome.finished - outcome.call).unwrap();
        let mut events = self.session().events(outcome.call, count + 1).unwrap();
        assert_eq!(events.len(), count + 1, "{what}");
        let intent = events.remove(0);
        assert_eq!((kind(&intent), intent.call), (CallStarted::KIND, Some(outcome.call)), "{what}");
        let drifted = events.iter().take_while(|event| event.call.is_none()).count();
        let of_call = events.split_off(drifted);
        assert_drift(&events, what);
        let time = of_call.last().unwrap().time;
        // What happens before a command is recorded then.
        let begins = |event: &Recorded| BEFORE_COMMANDS.contains(&kind(event));
        let rest = of_call.iter().rposition(begins).map_or(0, |last| last + 1);
        for (at, event) in of_call.iter().enumerate() {
            assert_eq!(event.call, Some(outcome.call), "{what}: {event:?}");
            assert!(at < rest || event.time == time, "{what}: not one commit: {event:?}");
            assert_eq!(event.agent, intent.agent, "{what}");
        }
        let ends: Vec<_> = of_call.iter().filter(|event| kind(event) == CallFinished::KIND).map(|e| e.seq).collect();
        assert_eq!(ends, [outcome.finished], "{what}");
        let step = Step { outcome, drift: events, events: of_call };
        for started in step.of::<ContainerStarted>() {
            assert_eq!(
                started.overlay,
                self.kind() == Kind::Overlay,
                "{what}: the files lie elsewhere than they should"
            );
        }
        step
    }

    /// Checks that the files are what the slice says, entry by entry.
    pub(crate) fn check(&self, after: &str) {
        let found = differences(&self.known(), &walk(&self.root()));
        assert!(found.is_empty(), "after {after}:\n{}", found.join("\n"));
    }

    pub(crate) fn slice(&self) -> VirtualFileSystem {
        VirtualFileSystem::of(&self.session().state().unwrap())
    }

    pub(crate) fn slice_at(&self, seq: Seq) -> VirtualFileSystem {
        VirtualFileSystem::of(&self.session().state_at(seq).unwrap())
    }

    /// The files as the slice has them.
    pub(crate) fn known(&self) -> Files {
        tree::known(&self.slice())
    }

    /// Folds everything again: nothing may be found.
    pub(crate) fn verify(&self) {
        let report = self.sessions().verify(Some(self.id)).unwrap();
        assert_eq!(report.differences, []);
        assert_eq!(report.unreadable, 0);
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.close();
        drop(std::fs::remove_dir_all(self.cache()));
    }
}

impl Step {
    /// The events of a kind.
    pub(crate) fn of<E: Event>(&self) -> Vec<E> {
        self.events.iter().filter_map(Recorded::typed::<E>).map(|event| event.unwrap().event).collect()
    }

    /// How often it wrote and deleted.
    pub(crate) fn writes_and_deletes(&self) -> (usize, usize) {
        let count = |wanted| self.events.iter().filter(|event| kind(event) == wanted).count();
        (count(WriteFile::KIND), count(foldspace::event::DeleteEntry::KIND))
    }

    /// The paths that it wrote, and those that it deleted.
    pub(crate) fn paths(&self) -> (Vec<String>, Vec<String>) {
        let deleted = self.of::<foldspace::event::DeleteEntry>().into_iter().map(|event| event.path.to_string());
        (self.of::<WriteFile>().into_iter().map(|event| event.path.to_string()).collect(), deleted.collect())
    }

    pub(crate) fn exit_code(&self) -> i64 {
        self.outcome.result["exit_code"].as_i64().unwrap_or_else(|| panic!("no command ended: {}", self.outcome.text))
    }

    pub(crate) fn stdout(&self) -> &str {
        self.outcome.result["stdout"].as_str().unwrap().trim()
    }

    pub(crate) fn assert_ok(&self, command: &str) {
        let results = self.of::<CommandResult>();
        assert_eq!(self.exit_code(), 0, "{command}: {}", self.outcome.text);
        assert_eq!(results.len(), 1, "{command}");
        assert_eq!(results[0].exit_code, 0, "{command}");
    }
}

fn sessions(directory: &Path) -> Sessions {
    let clock = Ticking { now: AtomicI64::new(SystemClock::default().now().0), machine: SystemClock::default() };
    Sessions::new(store::open(directory), Registry::standard(), Arc::new(clock), SnapshotPolicy::default()).unwrap()
}

/// Returns whether overlays can be mounted here; else the test is skipped, or the part of it that needs one.
fn has_overlays() -> bool {
    static MISSING: OnceLock<Option<String>> = OnceLock::new();
    let missing = MISSING.get_or_init(|| {
        let nowhere = PodmanOptions { connection: Some("unix:///nowhere".to_owned()), ..PodmanOptions::default() };
        let findings = foldspace::backends::diagnose(&nowhere);
        let overlay = findings.iter().find(|finding| finding.what == "overlay").unwrap();
        (overlay.state != DoctorReport::Ok).then(|| overlay.found.clone())
    });
    if let Some(found) = missing {
        skip(&format!("no overlay: {found}"));
    }
    missing.is_none()
}

/// Waits until a condition holds that is asked for asynchronously.
pub(crate) async fn eventually_async(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !holds().await {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(WAIT_LIMIT, waiting).await;
    waited.unwrap_or_else(|_| panic!("not within {WAIT_LIMIT:?}: {what}"));
}

pub(crate) fn kind(event: &Recorded) -> &str {
    &event.event.kind
}

/// What was found outside of calls is by nobody, and one commit each.
fn assert_drift(events: &[Recorded], what: &str) {
    assert!(events.iter().all(|event| event.agent.is_empty()), "{what}: {events:?}");
    if let Some(first) = events.first() {
        assert_eq!(kind(first), DriftFound::KIND, "{what}");
        let found = first.typed::<DriftFound>().unwrap().unwrap().event.entries;
        assert_eq!(found, events.len() as u64 - 1, "{what}");
        assert!(events.iter().all(|event| event.time == first.time), "{what}");
    }
}

fn shortened(params: &Value) -> String {
    params.to_string().chars().take(200).collect()
}

/// Makes tests of functions that take a [`Rig`]: one on each kind of workspace.
macro_rules! everywhere {
    ($($test:ident),+ $(,)?) => {
        mod on_the_host {
            $(#[test] fn $test() { super::$test(crate::rig::Rig::new(crate::rig::Kind::Host).unwrap()); })+
        }
        mod on_an_overlay {
            $(#[test] fn $test() {
                let Some(rig) = crate::rig::Rig::new(crate::rig::Kind::Overlay) else { return };
                super::$test(rig);
            })+
        }
        mod on_a_plain_directory {
            $(#[test] fn $test() {
                let Some(rig) = crate::rig::Rig::new(crate::rig::Kind::Plain) else { return };
                super::$test(rig);
            })+
        }
    };
}

pub(crate) use everywhere;
