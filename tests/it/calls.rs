//! Calls whose surroundings fail: a capture, a runtime that ends, a disk that is full.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use foldspace::backends::{
    BackendError, Below, ChangeDetector, DirtyPath, FileChange, HostOptions, Observed, Shell, ShellCommand,
};
use foldspace::event::{CallFinished, CallStatus, CommandResult, DeleteEntry, DriftFound, Node, WriteFile};
use foldspace::tools::{CaptureBudget, CommandPolicy, CommandTime, Effect, OutputOptions, ShellRules};
use foldspace::{
    EntryPath, Event, HostWorkspace, NewSession, Recorded, Registry, Session, Sessions, Tool, ToolCall, ToolContext,
    ToolError, ToolOutcome, ToolRunner, Tools, VirtualFileSystem, Workspace,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::rig::eventually;

/// A host workspace that fails where it is told to, and tells of directories that it can't look into.
struct Wrapped {
    inner: HostWorkspace,
    capture_fails: AtomicBool,
    disk_is_full: AtomicBool,
    closed: Option<EntryPath>,
}

impl Wrapped {
    fn open(directory: &Path) -> Self {
        let inner = HostWorkspace::open(directory, &HostOptions::default()).unwrap();
        Self { inner, capture_fails: false.into(), disk_is_full: false.into(), closed: None }
    }

    fn disk(&self) -> &dyn ChangeDetector {
        self.inner.capture().unwrap()
    }
}

fn failed(reason: &str) -> BackendError {
    BackendError { backend: "wrapped", reason: reason.to_owned() }
}

impl Workspace for Wrapped {
    fn backend_name(&self) -> &'static str {
        "wrapped"
    }

    fn apply(&self, changes: &[FileChange]) -> Result<(), BackendError> {
        if self.disk_is_full.load(Ordering::Acquire) && !changes.is_empty() {
            return Err(failed("the disk is full"));
        }
        self.inner.apply(changes)
    }

    fn unrecorded_shell(&self) -> Option<Arc<dyn Shell>> {
        self.inner.unrecorded_shell()
    }

    fn capture(&self) -> Option<&dyn ChangeDetector> {
        Some(self)
    }

    fn is_blank(&self) -> bool {
        self.inner.is_blank()
    }

    fn filled(&self) -> Result<(), BackendError> {
        self.inner.filled()
    }
}

impl ChangeDetector for Wrapped {
    fn dirty(&self) -> Result<Vec<DirtyPath>, BackendError> {
        match self.capture_fails.load(Ordering::Acquire) {
            true => Err(failed("the disk can't be read")),
            false => self.disk().dirty(),
        }
    }

    fn mark_clean(&self) -> Result<(), BackendError> {
        self.disk().mark_clean()
    }

    fn observe(&self, path: &EntryPath) -> Result<Option<Observed>, BackendError> {
        self.disk().observe(path)
    }

    fn below(&self, path: &EntryPath) -> Result<Below, BackendError> {
        let mut below = self.disk().below(path)?;
        if let Some(closed) = &self.closed {
            below.entries.retain(|(path, _)| !path.is_below(closed));
            below.closed.push(closed.clone());
        }
        Ok(below)
    }

    fn open(&self, path: &EntryPath) -> Result<Option<Box<dyn Read + Send>>, BackendError> {
        self.disk().open(path)
    }

    fn sparse_data(&self, path: &EntryPath) -> Result<Option<Box<dyn Read + Send>>, BackendError> {
        self.disk().sparse_data(path)
    }
}

/// What the tool `twice` takes.
#[derive(Debug, Deserialize, JsonSchema)]
struct Commands {
    /// The first, which nobody waits for.
    left: String,
    /// The second; none for a file that is written instead.
    then: Option<String>,
}

/// Runs a command, does not wait for its end, and goes on.
struct Twice;

impl Tool for Twice {
    const NAME: &'static str = "twice";
    const DESCRIPTION: &'static str = "Runs one command, gives up on it, and goes on.";
    const EFFECT: Effect = Effect::Destructive;
    type Params = Commands;
    type Output = i32;

    async fn call(&self, context: &mut ToolContext, params: Commands) -> Result<i32, ToolError> {
        let mut shell = context.shell().unwrap();
        let left = shell.execute(ShellCommand::shell(params.left));
        let ended = tokio::time::timeout(Duration::from_millis(400), left).await.is_ok();
        let Some(then) = params.then else {
            context.filesystem().create(&EntryPath::for_creation("own.txt")?, "own")?;
            return Ok(i32::from(ended));
        };
        Ok(context.shell().unwrap().execute(ShellCommand::shell(then)).await?.exit_code)
    }

    fn render(&self, code: &i32) -> String {
        code.to_string()
    }
}

/// Only looks, and tries to run something.
struct Looks;

impl Tool for Looks {
    const NAME: &'static str = "looks";
    const DESCRIPTION: &'static str = "Says whether there is a shell.";
    const EFFECT: Effect = Effect::ReadOnly;
    type Params = serde_json::Value;
    type Output = bool;

    async fn call(&self, context: &mut ToolContext, _: serde_json::Value) -> Result<bool, ToolError> {
        Ok(context.shell().is_some())
    }

    fn render(&self, there: &bool) -> String {
        there.to_string()
    }
}

struct Hurried;

impl Tool for Hurried {
    const NAME: &'static str = "hurried";
    const DESCRIPTION: &'static str = "Does nothing, and has no time.";
    const EFFECT: Effect = Effect::Destructive;
    type Params = serde_json::Value;
    type Output = ();

    async fn call(&self, _: &mut ToolContext, _: serde_json::Value) -> Result<(), ToolError> {
        Ok(())
    }

    fn limit(&self) -> Option<Duration> {
        Some(Duration::from_millis(200))
    }

    fn render(&self, (): &()) -> String {
        String::new()
    }
}

/// A session on a workspace that fails where it is told to.
struct FailingSession {
    directory: tempfile::TempDir,
    session: Session,
    _sessions: Sessions,
}

impl FailingSession {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let sessions = Sessions::open(directory.path().join("data"), Registry::standard()).unwrap();
        let session = sessions.create(NewSession::default()).unwrap();
        std::fs::create_dir(directory.path().join("files")).unwrap();
        Self { directory, session, _sessions: sessions }
    }

    fn files(&self) -> std::path::PathBuf {
        self.directory.path().join("files")
    }

    fn workspace(&self) -> Wrapped {
        Wrapped::open(&self.files())
    }

    fn tool_runner(&self, workspace: Arc<Wrapped>) -> ToolRunner {
        let tools = Tools::standard().with(Twice).unwrap().with(Looks).unwrap();
        let policy = CommandPolicy { auto_confirm: true, ..CommandPolicy::default() };
        let rules = ShellRules { policy, ..ShellRules::default() };
        ToolRunner::with_rules(self.session.clone(), tools, workspace, rules).unwrap()
    }

    fn events<E: Event>(&self) -> Vec<E> {
        let events = self.session.events(1, 10_000).unwrap();
        events.iter().filter_map(Recorded::typed::<E>).map(|event| event.unwrap().event).collect()
    }

    fn paths(&self) -> Vec<String> {
        let state = self.session.state().unwrap();
        state.slice::<VirtualFileSystem>().unwrap().iter().map(|(path, _)| path.to_string()).collect()
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap()
}

fn sh(command: &str) -> ToolCall {
    ToolCall::new("shell_execute", json!({ "command": command }))
}

#[test]
fn call_with_failing_capture_records_its_command() {
    let world = FailingSession::new();
    let workspace = Arc::new(world.workspace());
    let tool_runner = world.tool_runner(Arc::clone(&workspace));
    let running = Arc::clone(&workspace);
    let begun = world.files().join("begun");
    // It fails from the time on that the command runs.
    let failing = std::thread::spawn(move || {
        eventually("the command runs", || begun.exists());
        running.capture_fails.store(true, Ordering::Release);
    });
    let command = "touch begun; while [ ! -e go ]; do sleep 0.05; done; echo said";
    let outcome = runtime().block_on(async {
        let files = world.files();
        let call = tool_runner.call(sh(command));
        let go = tokio::task::spawn_blocking(move || {
            failing.join().unwrap();
            std::fs::write(files.join("go"), "").unwrap();
        });
        let (outcome, _) = tokio::join!(call, go);
        outcome.unwrap()
    });
    assert_eq!(outcome.status, CallStatus::Error);
    assert!(outcome.text.contains("the disk can't be read"), "{}", outcome.text);
    let results = world.events::<CommandResult>();
    assert_eq!((results.len(), results[0].exit_code, results[0].stdout.bytes), (1, 0, 5));

    // What it changed is found by the next call.
    workspace.capture_fails.store(false, Ordering::Release);
    assert!(runtime().block_on(tool_runner.call(sh("true"))).unwrap().is_ok());
    assert_eq!(world.paths(), ["begun", "go"]);
}

#[test]
fn call_with_failing_write_records_its_command() {
    let world = FailingSession::new();
    let workspace = Arc::new(world.workspace());
    let tool_runner = world.tool_runner(Arc::clone(&workspace));
    workspace.disk_is_full.store(true, Ordering::Release);
    let call = ToolCall::new("twice", json!({ "left": "echo x > f" }));
    let outcome = runtime().block_on(tool_runner.call(call)).unwrap();
    assert_eq!(outcome.status, CallStatus::Error);
    assert!(outcome.text.contains("the disk is full"), "{}", outcome.text);
    assert_eq!(world.events::<CommandResult>().len(), 1);
    assert_eq!(world.paths(), ["f"]);
}

#[test]
fn command_given_up_ends_before_the_next_starts() {
    let world = FailingSession::new();
    let tool_runner = world.tool_runner(Arc::new(world.workspace()));
    let call = json!({ "left": "echo 1 > f; sleep 60.17; echo 2 > f", "then": "cat f; ps -e -o args | grep -c '^sleep 60[.]17' " });
    let outcome = runtime().block_on(tool_runner.call(ToolCall::new("twice", call))).unwrap();
    assert!(outcome.is_ok(), "{}", outcome.text);
    let results = world.events::<CommandResult>();
    assert_eq!(results.iter().map(|result| result.cancelled).collect::<Vec<_>>(), [true, false]);
    let printed = world.session.content(&results[1].stdout.content).unwrap();
    assert_eq!(printed, "1\n0\n", "the first one still ran");
    assert_eq!(world.paths(), ["f"]);
}

#[test]
fn read_only_tool_has_no_shell() {
    let world = FailingSession::new();
    let tool_runner = world.tool_runner(Arc::new(world.workspace()));
    let outcome = runtime().block_on(tool_runner.call(ToolCall::new("looks", json!({})))).unwrap();
    assert_eq!(outcome.result, json!(false));
}

/// The command's shell writes its number and sleeps; gives it once it does.
fn process(world: &FailingSession) -> rustix::process::Pid {
    let file = world.files().join("pid");
    let number = || std::fs::read_to_string(&file).ok().and_then(|text| text.trim().parse().ok());
    eventually("the command runs", || number().is_some());
    rustix::process::Pid::from_raw(number().unwrap()).unwrap()
}

fn until_gone(pid: rustix::process::Pid) {
    eventually("the command ends", || rustix::process::test_kill_process(pid).is_err());
}

const SLEEPS: &str = "echo $$ > pid.new; mv pid.new pid; exec sleep 60";

#[test]
fn call_ends_with_its_runtime() {
    let world = FailingSession::new();
    let tool_runner = world.tool_runner(Arc::new(world.workspace()));
    let runtime = runtime();
    let caller = tool_runner.clone();
    runtime.spawn(async move { caller.call(sh(SLEEPS)).await });
    let pid = process(&world);
    drop(runtime);
    until_gone(pid);
    eventually("the end is recorded", || !world.events::<CallFinished>().is_empty());
    assert_eq!(world.events::<CallFinished>()[0].status, CallStatus::Interrupted);
}

#[test]
fn call_dropped_outside_a_runtime_kills_its_command() {
    let world = FailingSession::new();
    let tool_runner = world.tool_runner(Arc::new(world.workspace()));
    let runtime = runtime();
    let mut call = Box::pin(tool_runner.call(sh(SLEEPS)));
    let waited = runtime.block_on(async { tokio::time::timeout(Duration::from_millis(300), &mut call).await });
    assert!(waited.is_err());
    let pid = process(&world);
    drop(call);
    until_gone(pid);
    eventually("the end is recorded", || !world.events::<CallFinished>().is_empty());
    assert_eq!(world.events::<CallFinished>()[0].status, CallStatus::Interrupted);
}

#[test]
fn unreadable_directory_keeps_its_recorded_entries() {
    let world = FailingSession::new();
    std::fs::create_dir_all(world.files().join("d/e")).unwrap();
    for file in ["d/in", "d/e/deep", "out"] {
        std::fs::write(world.files().join(file), file).unwrap();
    }
    drop(world.tool_runner(Arc::new(world.workspace())));
    let all = ["d", "d/e", "d/e/deep", "d/in", "out"];
    assert_eq!(world.paths(), all);

    let mut workspace = world.workspace();
    workspace.closed = Some(EntryPath::lookup("d").unwrap());
    std::fs::remove_file(world.files().join("out")).unwrap();
    let tool_runner = world.tool_runner(Arc::new(workspace));
    assert_eq!(world.paths(), all[..4]);
    assert_eq!(world.events::<DeleteEntry>().len(), 1);
    drop(tool_runner);
}

#[test]
fn shared_workspace_is_populated_once() {
    let world = FailingSession::new();
    let workspace = Arc::new(world.workspace());
    let first = world.tool_runner(Arc::clone(&workspace));
    let write = ToolCall::new("write_file", json!({ "file_path": "a.txt", "content": "old" }));
    assert!(runtime().block_on(first.call(write)).unwrap().is_ok());
    std::fs::write(world.files().join("a.txt"), "somebody's").unwrap();
    // The second one finds what somebody did, and does not put back what was there.
    let _second = world.tool_runner(workspace);
    assert_eq!(std::fs::read_to_string(world.files().join("a.txt")).unwrap(), "somebody's");
    assert_eq!(world.events::<DriftFound>().iter().map(|drift| drift.entries).collect::<Vec<_>>(), [1]);
}

#[test]
fn half_populated_workspace_is_populated_again() {
    let world = FailingSession::new();
    let tool_runner = world.tool_runner(Arc::new(world.workspace()));
    for file in ["a.txt", "b.txt"] {
        let write = ToolCall::new("write_file", json!({ "file_path": file, "content": file }));
        assert!(runtime().block_on(tool_runner.call(write)).unwrap().is_ok());
    }
    drop(tool_runner);
    // The files are lost, and who puts them back is killed when the first one is there.
    std::fs::remove_dir_all(world.files()).unwrap();
    let killed = HostWorkspace::open(&world.files(), &HostOptions::default()).unwrap();
    killed.filling().unwrap();
    std::fs::write(world.files().join("a.txt"), "a.txt").unwrap();
    drop(killed);

    drop(world.tool_runner(Arc::new(world.workspace())));
    assert_eq!(std::fs::read_to_string(world.files().join("b.txt")).unwrap(), "b.txt");
    assert_eq!(world.paths(), ["a.txt", "b.txt"]);
    assert_eq!(world.events::<DeleteEntry>(), []);
    let beside: Vec<_> = std::fs::read_dir(world.directory.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(beside.len(), 2, "only data and files: {beside:?}");
}

#[test]
fn sparse_file_is_recorded_by_its_data() {
    let world = FailingSession::new();
    let rules = ShellRules {
        policy: CommandPolicy { auto_confirm: true, ..CommandPolicy::default() },
        budget: CaptureBudget { file_bytes: 10, step_bytes: 100, digest_bytes: 1 << 20 },
        ..ShellRules::default()
    };
    let workspace = Arc::new(world.workspace());
    let tool_runner = ToolRunner::with_rules(world.session.clone(), Tools::standard(), workspace, rules).unwrap();
    let command = "truncate -s 8T huge && truncate -s 1000 large && echo x > small";
    assert!(runtime().block_on(tool_runner.call(sh(command))).unwrap().is_ok());
    let written = world.events::<WriteFile>();
    let shown = written.iter().map(|write| match &write.node {
        Node::File { size, incomplete, content, .. } => {
            (write.path.to_string(), *size, *incomplete, content.as_bytes() == &[0; 32])
        }
        other => panic!("{other:?}"),
    });
    let expected = [("huge", 8 << 40, true, false), ("large", 1000, true, false), ("small", 2, false, false)];
    let expected = expected.map(|(path, size, incomplete, zero)| (path.to_owned(), size, incomplete, zero));
    assert_eq!(shown.collect::<Vec<_>>(), expected);
}

#[test]
fn deleted_directory_is_one_event() {
    let world = FailingSession::new();
    let tool_runner = world.tool_runner(Arc::new(world.workspace()));
    // Between a directory and what is below it others come in order.
    let make = "mkdir -p a/d a.b && touch a/x a/d/y a.b/z a-c";
    for command in [make, "rm -r a a.b"] {
        assert!(runtime().block_on(tool_runner.call(sh(command))).unwrap().is_ok());
    }
    let deleted: Vec<_> = world.events::<DeleteEntry>().iter().map(|event| event.path.to_string()).collect();
    assert_eq!(deleted, ["a", "a.b"]);
    assert_eq!(world.paths(), ["a-c"]);
}

/// Makes a call with little time while another one runs; gives its outcome, and what was shown meanwhile.
fn behind_another(time: CommandTime) -> (ToolOutcome, String) {
    let world = FailingSession::new();
    let policy = CommandPolicy { auto_confirm: true, ..CommandPolicy::default() };
    let rules = ShellRules { policy, time, ..ShellRules::default() };
    let (tools, workspace) = (Tools::standard().with(Hurried).unwrap(), Arc::new(world.workspace()));
    let runner = ToolRunner::with_rules(world.session.clone(), tools, workspace, rules).unwrap();
    let output = runner.output(OutputOptions::default());
    let (begun, first) = (world.files().join("begun"), sh("touch begun; sleep 2"));
    let outcome = runtime().block_on(async {
        let hurried = async {
            tokio::task::spawn_blocking(move || eventually("the first runs", || begun.exists())).await.unwrap();
            runner.call(ToolCall::new("hurried", json!({}))).await.unwrap()
        };
        tokio::join!(runner.call(first), hurried).1
    });
    let shown =
        std::iter::from_fn(|| output.try_next()).map(|piece| String::from_utf8_lossy(&piece.bytes).into_owned());
    (outcome, shown.collect())
}

#[test]
fn call_behind_another_waits_as_long_as_its_author_may() {
    let (agents, _) = behind_another(CommandTime::default());
    assert!(!agents.is_ok() && agents.text.contains("time limit"), "{}", agents.text);
    let (persons, shown) = behind_another(CommandTime::default().unlimited());
    assert!(persons.is_ok(), "{}", persons.text);
    assert_eq!(shown, "[waiting for another call of this session]\n");
}
