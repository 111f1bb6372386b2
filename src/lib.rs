//! foldspace is the event-sourced state engine for the sandboxes of AI agents.
//!
//! An agent edits files in a workspace. Every tool call becomes typed events in a journal; pure
//! reducers fold them into immutable slices, among them [`VirtualFileSystem`]: every file of the
//! workspace, now or at any past event. The journal is the truth; everything else is a fold of it.
//!
//! ```
//! use std::sync::Arc;
//! use foldspace::{EntryPath, MemoryWorkspace, NewSession, Registry, Sessions};
//! use foldspace::{ToolCall, ToolRunner, Tools, VirtualFileSystem};
//! # let directory = tempfile::tempdir()?;
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
//! # runtime.block_on(async {
//! let sessions = Sessions::open(directory.path(), Registry::standard())?;
//! let session = sessions.create(NewSession::named("demo"))?;
//! let tools = ToolRunner::new(session.clone(), Tools::standard(), Arc::new(MemoryWorkspace))?;
//!
//! let params = serde_json::json!({ "file_path": "hello.txt", "content": "hello\n" });
//! let outcome = tools.call(ToolCall::new("write_file", params)).await?;
//! assert!(outcome.is_ok());
//!
//! let path = EntryPath::lookup("hello.txt")?;
//! let files = |at| session.state_at(at).map(|state| VirtualFileSystem::of(&state));
//! assert!(files(outcome.finished)?.get(&path).is_some() && files(outcome.call)?.get(&path).is_none());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! See also: [`Sessions`] and [`Session`] for histories and states; [`Registry`], [`Event`], [`Slice`] and [`Reducer`]
//! for custom types; [`Tool`] and [`ToolRunner`]; [`Subscription`] for live events; [`Replay`]; [`EventStore`].

#[cfg(feature = "cli")]
extern crate self as foldspace;

#[cfg(feature = "cli")]
#[cfg_attr(not(feature = "mcp"), expect(dead_code, reason = "some of it is for the servers only"))]
mod cli;
#[cfg(feature = "cli")]
#[cfg_attr(not(feature = "tui"), expect(dead_code, reason = "some tones are for the debugger only"))]
mod terminal;
#[cfg(feature = "tui")]
mod tui;

/// Workspaces and shells, and the traits to implement others.
///
/// ```
/// use foldspace::backends::{
///     BackendError, ChangeDetector, DirtyPath, FileChange, HostOptions, Observed, Shell, ShellCommand, ShellResult,
///     unwatched,
/// };
/// use foldspace::event::{FileMode, Node};
/// use foldspace::{EntryPath, HostWorkspace, Workspace};
///
/// # let directory = tempfile::tempdir()?;
/// # let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
/// # runtime.block_on(async {
/// let workspace = HostWorkspace::open(&directory.path().join("files"), &HostOptions::default())?;
/// let disk: &dyn ChangeDetector = workspace.capture().unwrap();
/// disk.adopt()?;
///
/// // The tool runner applies changes, all or none.
/// let path = EntryPath::for_creation("a.txt")?;
/// let (node, bytes) = (Node::file(b"hello", false), "hello".into());
/// workspace.apply(&[FileChange::Write { path: path.clone(), node, bytes, modified: None }])?;
/// assert_eq!(disk.dirty()?, []);
///
/// // A scan finds the changes of a command.
/// let shell = workspace.unrecorded_shell().unwrap();
/// let command = ShellCommand::shell("cat a.txt; echo more >> b.txt");
/// let result: ShellResult = shell.execute(command, unwatched(), Default::default()).await?;
/// assert_eq!((result.exit_code, result.stdout.text(80)), (0, ("hello".to_owned(), false)));
/// let found = EntryPath::lookup("b.txt")?;
/// assert!(disk.dirty()?.contains(&DirtyPath::Entry(found.clone())));
/// assert_eq!(disk.observe(&found)?, Some(Observed::File { size: 5, mode: FileMode::FILE, shared: None }));
/// disk.mark_clean()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[cfg(feature = "tools")]
pub mod backends {
    #[doc(inline)]
    pub use foldspace_backends::backends::*;
}
/// The HTTP API: a server, and a client on a unix socket.
///
/// ```
/// use std::time::Duration;
/// use foldspace::http::{
///     CallRequest, HttpClient, HttpFace, HttpOptions, HttpServer, ServerLimits, bind_unix,
/// };
/// use foldspace::hub::HubOptions;
/// use foldspace::{Hub, Registry, Sessions, ToolOutcome};
/// use serde_json::{Value, json};
///
/// # let directory = tempfile::tempdir()?;
/// # let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
/// # runtime.block_on(async {
/// let hub = Hub::new(Sessions::open(directory.path(), Registry::standard())?, HubOptions::new(directory.path()));
/// let face = HttpFace::new(hub);
/// let server = HttpServer::new(ServerLimits::default());
/// let path = directory.path().join("socket");
/// let (listener, router, serving) = (bind_unix(&path)?, face.router(HttpOptions::default()), server.clone());
/// tokio::spawn(async move { serving.serve_unix(listener, router).await });
///
/// let client = HttpClient::at(&path);
/// let session: Value = client.post("/v1/sessions", &json!({ "name": "demo" })).await?;
/// let call = json!({ "tool": "write_file", "params": { "file_path": "a.txt", "content": "hi" } });
/// let call: CallRequest = serde_json::from_value(call)?;
/// let done: ToolOutcome = client.call("demo", &call, |_event| ()).await?;
/// assert_eq!((session["name"].as_str(), done.is_ok()), (Some("demo"), true));
///
/// face.end();
/// server.stop(Duration::from_secs(1)).await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[cfg(feature = "http")]
pub mod http {
    #[doc(inline)]
    pub use foldspace_http::http::*;
}
#[cfg(feature = "tools")]
#[doc(inline)]
pub use foldspace_hub::hub;
#[cfg(feature = "mcp")]
#[doc(inline)]
pub use foldspace_mcp::mcp;
/// The program `foldspace`, with slices and kinds of events of your own.
///
/// ```no_run
/// use foldspace::{Event, Recorded, Registry, Slice};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Debug, Clone, Serialize, Deserialize)]
/// struct Spent { cents: u64 }
/// impl Event for Spent { const KIND: &'static str = "spent"; }
/// #[derive(Debug, Clone, Default, Serialize, Deserialize)]
/// struct Budget { cents: u64 }
/// impl Slice for Budget { const NAME: &'static str = "Budget"; }
///
/// fn main() -> Result<std::process::ExitCode, foldspace::event::ValueError> {
///     let add = |budget: Budget, spent: &Recorded<Spent>| Budget { cents: budget.cents + spent.event.cents };
///     Ok(foldspace::program::main_with(Registry::standard().slice::<Budget>()?.reducer(add)?))
/// }
/// ```
#[cfg(feature = "cli")]
pub mod program {
    /// Runs the command in this process's arguments, with all commands and servers of `foldspace`, and returns the exit
    /// status. Every list, state, predicate and server then knows the types in `registry`, which must include those of
    /// [`Registry::standard`](crate::Registry::standard).
    ///
    /// Call it from `main`, and only once: commands read the arguments and the environment, and some start this same
    /// binary again in the background.
    pub fn main_with(registry: crate::Registry) -> std::process::ExitCode {
        crate::cli::main_with(registry)
    }
}
/// The slices that every session has, and general reducers for custom events.
///
/// ```
/// use std::sync::Arc;
/// use foldspace::backends::HostOptions;
/// use foldspace::reducers::{
///     CallEntry, Change, Children, CommandEntry, Commands, Entry, Mounts, PodmanWorkspace, ToolCalls, Usage,
/// };
/// use foldspace::tools::{CommandPolicy, ShellRules};
/// use foldspace::{EntryPath, HostWorkspace, NewSession, Registry, Sessions, ToolCall, ToolRunner, Tools};
/// use foldspace::{State, VirtualFileSystem};
///
/// # let directory = tempfile::tempdir()?;
/// # let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
/// # runtime.block_on(async {
/// let sessions = Sessions::open(directory.path().join("data"), Registry::standard())?;
/// let session = sessions.create(NewSession::named("demo"))?;
/// let workspace = HostWorkspace::open(&directory.path().join("files"), &HostOptions::default())?;
/// let policy = CommandPolicy { auto_confirm: true, ..CommandPolicy::default() };
/// let rules = ShellRules { policy, ..ShellRules::default() };
/// let tools = ToolRunner::with_rules(session.clone(), Tools::standard(), Arc::new(workspace), rules)?;
/// let params = serde_json::json!({ "command": "echo hello > a.txt" });
/// let outcome = tools.call(ToolCall::new("shell_execute", params)).await?;
/// let state: State = session.state()?;
///
/// // The files, including those that commands wrote.
/// let files: &VirtualFileSystem = state.slice().unwrap();
/// let entry: &Entry = files.get(&EntryPath::lookup("a.txt")?).unwrap();
/// assert_eq!((entry.size(), entry.version), (6, 1));
/// let before = session.state_at(outcome.call)?;
/// let changes: Vec<Change> = VirtualFileSystem::of(&before).diff(files);
/// assert_eq!(changes.len(), 1);
///
/// // The calls, their commands, and totals.
/// let call: &CallEntry = state.slice::<ToolCalls>().unwrap().get(outcome.call).unwrap();
/// assert_eq!(&*call.tool, "shell_execute");
/// let command: &CommandEntry = state.slice::<Commands>().unwrap().recent().next().unwrap();
/// assert_eq!(command.exit_code, 0);
/// assert_eq!(state.slice::<Usage>().unwrap().calls, 1);
///
/// // Nothing was mounted or forked, and no container ran.
/// let (mounts, children): (&Mounts, &Children) = (state.slice().unwrap(), state.slice().unwrap());
/// assert_eq!((mounts.iter().count(), children.iter().count()), (0, 0));
/// assert!(!state.slice::<PodmanWorkspace>().unwrap().running);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub mod reducers {
    #[doc(inline)]
    pub use foldspace_engine::reducers::*;
}
/// Tools, the runner that records their calls, and operations on a recorded run.
///
/// ```
/// use std::sync::Arc;
/// use foldspace::event::Isolation;
/// use foldspace::reducers::MergeChoices;
/// use foldspace::tools::{
///     AllowedRoots, BisectFound, CallReport, CallVerdict, Forker, Materialised, MergeOutcome, MergeReport, Predicate,
///     RerunReport, RerunWorkspace, RewindOptions, Rewound, Scratch, ScriptedCall, WhatIf, WorkspaceError, bisect_slices,
///     materialise, merge_child,
/// };
/// use foldspace::{
///     ForkOptions, MemoryWorkspace, NewSession, Registry, Sessions, ToolCall, ToolOutcome, ToolRunner, Tools,
///     WorkspaceSpec,
/// };
/// use serde_json::json;
///
/// # let directory = tempfile::tempdir()?;
/// # let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
/// # runtime.block_on(async {
/// let sessions = Sessions::open(directory.path().join("data"), Registry::standard())?;
/// let session = sessions.create(NewSession::named("lead"))?;
/// let lead = ToolRunner::new(session.clone(), Tools::standard(), Arc::new(MemoryWorkspace))?;
/// let write = |path: &str| ToolCall::new("write_file", json!({ "file_path": path, "content": "text\n" }));
/// let first: ToolOutcome = lead.call(write("a.txt")).await?;
///
/// // A child works in a fork; its changes come back by a merge.
/// let forker = Forker { sessions: sessions.clone(), home: directory.path().into(), roots: AllowedRoots::default() };
/// let child = forker.start(&lead, ForkOptions::new(Isolation::Fork)).await?;
/// child.call(write("b.txt")).await?;
/// let merged: MergeReport = merge_child(&lead, child.session(), &MergeChoices::default()).await?;
/// assert_eq!((merged.outcome, merged.merged.len()), (MergeOutcome::Merged, 1));
/// let itself = merge_child(&lead, &session, &MergeChoices::default()).await;
/// assert!(matches!(itself, Err(WorkspaceError::Itself(_))));
///
/// // The first position where a predicate holds.
/// let holds = Predicate::parse("VirtualFileSystem./b.txt exists", sessions.registry())?;
/// let (BisectFound { bad, .. }, _) = bisect_slices(&session, &holds, first.call, session.head()?)?;
/// assert_eq!(bad, [merged.seq.unwrap() + 1]);
///
/// // Files and state are rewound together; the rewind is an event, too.
/// let rewound: Rewound = lead.rewind(first.finished, RewindOptions::default()).await?;
/// assert_eq!(rewound.changes.len(), 1);
///
/// // A rerun, with another call at its beginning.
/// let scratch = Scratch::begin(Registry::standard(), &WorkspaceSpec::Memory, "again")?;
/// let fresh = RerunWorkspace {
///     session: scratch.session().clone(),
///     workspace: scratch.workspace().clone(),
///     tools: Tools::standard().into(),
///     rules: Default::default(),
///     cancel: Default::default(),
/// };
/// let params = json!({ "file_path": "a.txt", "content": "other\n" });
/// let script = vec![ScriptedCall { tool: "write_file".to_owned(), params, agent: String::new() }];
/// let report: RerunReport = WhatIf::of(&session, first.call - 1, script).run(fresh, &mut |_| {}).await?;
/// let diverged = |call: &&CallReport| matches!(call.verdict, CallVerdict::Diverged { .. });
/// assert_eq!(report.calls.iter().filter(diverged).count(), 1);
///
/// // The files at any position, written to a directory.
/// let target = directory.path().join("files");
/// let written: Materialised = materialise(&session, &session.state_at(first.finished)?, &target)?;
/// assert_eq!((written.entries, std::fs::read(target.join("a.txt"))?), (1, b"text\n".to_vec()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[cfg(feature = "tools")]
pub mod tools {
    #[doc(inline)]
    pub use foldspace_tools::tools::*;
}
#[cfg(feature = "sql")]
#[doc(hidden)]
pub use foldspace_hub::sql;
#[cfg(feature = "seal")]
pub use foldspace_seal::seal;
#[cfg(feature = "tools")]
#[doc(hidden)]
pub use foldspace_view::view;

/// Events, and the values in them.
///
/// ```
/// use foldspace::event::{CallFinished, CallStarted, CallStatus, Digest, Node, WriteFile, WriteMode};
/// use foldspace::store::{CallLink, Committed, Content};
/// use foldspace::{Commit, EntryPath, Event, NewSession, Recorded, Registry, Sessions};
/// # let directory = tempfile::tempdir()?;
/// let sessions = Sessions::open(directory.path(), Registry::standard())?;
/// let session = sessions.create(NewSession::named("demo"))?;
/// // The intent of a call. Its position is the id of the call.
/// let mut intent: Commit = session.commit().of_call(CallLink::Opens);
/// let params = serde_json::json!({ "file_path": "a.txt", "content": "hello" });
/// intent.push(&CallStarted { tool: "write_file".to_owned(), params })?;
/// let Committed { first: call, .. } = session.record(intent)?;
/// // One commit has the changes of the call, and its outcome.
/// let mut commit = session.commit().of_call(CallLink::Of(call));
/// let node = Node::file(b"hello", false);
/// commit.keep(Content::of("hello"));
/// commit.push(&WriteFile { path: EntryPath::for_creation("a.txt")?, mode: WriteMode::Create, node })?;
/// let (message, result) = (String::new(), serde_json::Value::Null);
/// commit.push(&CallFinished { status: CallStatus::Ok, result, message, micros: 900, reason: None })?;
/// let written = session.record(commit)?;
/// assert_eq!(session.content(&Digest::of(b"hello"))?, "hello");
///
/// // An event is read as its type.
/// let last: Recorded = session.event(written.last)?;
/// assert_eq!((last.call, &*last.event.kind), (Some(call), CallFinished::KIND));
/// let last: Recorded<CallFinished> = last.typed().unwrap()?;
/// assert_eq!(last.event.status, CallStatus::Ok);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub mod event {
    #[doc(inline)]
    pub use foldspace_engine::event::*;
}

/// The fold: slices, the reducers that produce them, and the registry of both.
///
/// ```
/// use foldspace::event::CallFinished;
/// use foldspace::fold::OnRewind;
/// use foldspace::{NewSession, Recorded, Registry, Sessions, Slice, State};
///
/// /// Time that calls took.
/// #[derive(Debug, Clone, Default, serde::Serialize, serde::Deserialize)]
/// struct Took {
///     micros: u64,
/// }
///
/// impl Slice for Took {
///     const NAME: &'static str = "Took";
///     // A log: a rewind leaves it unchanged.
///     const ON_REWIND: OnRewind = OnRewind::Keep;
/// }
/// // A reducer is a pure function.
/// fn add(took: Took, finished: &Recorded<CallFinished>) -> Took {
///     Took { micros: took.micros + finished.event.micros }
/// }
///
/// let registry = Registry::standard().slice::<Took>()?.reducer(add)?;
/// # let directory = tempfile::tempdir()?;
/// let sessions = Sessions::open(directory.path(), registry)?;
/// let session = sessions.create(NewSession::default())?;
/// let state: State = session.state()?;
/// assert_eq!(state.slice::<Took>().unwrap().micros, 0);
/// assert_eq!(state.seq(), session.head()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub mod fold {
    #[doc(inline)]
    pub use foldspace_engine::fold::*;
}

/// Queries of a history: replay, blame, searches, verification; exports and imports.
///
/// ```
/// use foldspace::event::{Node, WriteFile, WriteMode};
/// use foldspace::history::{
///     Blame, Cause, HistoryError, PathChange, PortableSummary, VerifyReport, blame, export_session, import_session,
///     path_history,
/// };
/// use foldspace::store::Content;
/// use foldspace::{EntryPath, NewSession, Registry, Replay, Sessions};
/// # let directory = tempfile::tempdir()?;
/// let sessions = Sessions::open(directory.path(), Registry::standard())?;
/// let session = sessions.create(NewSession::named("demo"))?;
/// let path = EntryPath::for_creation("poem.txt")?;
/// for text in ["roses\n", "roses\nviolets\n"] {
///     let mut commit = session.commit();
///     let (mode, node) = (WriteMode::Overwrite, Node::file(text.as_bytes(), false));
///     commit.keep(Content::of(text));
///     commit.push(&WriteFile { path: path.clone(), mode, node })?;
///     session.record(commit)?;
/// }
///
/// // Both changes of the file; no call made them.
/// let changes: Vec<PathChange> = path_history(&session, &path, session.head()?)?;
/// assert_eq!((changes.len(), &changes[0].cause), (2, &Cause::Recorded));
///
/// // The change that wrote each line.
/// let Blame { lines, .. } = blame(&session, &path, session.head()?)?;
/// assert_eq!((&*lines[1].text, lines[1].change), ("violets", 1));
/// let absent = blame(&session, &EntryPath::for_creation("prose.txt")?, session.head()?);
/// assert!(matches!(absent, Err(HistoryError::NotThere { .. })));
///
/// // Step through the run, or go to the event before.
/// let mut replay = Replay::at_start(&session)?;
/// while let Some(event) = replay.step()? {
///     assert_eq!(event.seq, replay.position());
/// }
/// assert!(replay.back()?);
///
/// // An export to a file, which another store imports.
/// let mut file = std::io::Cursor::new(Vec::new());
/// let exported: PortableSummary = export_session(&sessions, session.id(), &mut file)?;
/// # let other = tempfile::tempdir()?;
/// let other = Sessions::open(other.path(), Registry::standard())?;
/// file.set_position(0);
/// assert_eq!(import_session(&other, &mut file, None)?.events, exported.events);
/// let report: VerifyReport = other.verify(None)?;
/// assert!(report.differences.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub mod history {
    #[doc(inline)]
    pub use foldspace_engine::history::*;
}

/// Sessions and their subscriptions.
///
/// ```
/// use std::time::Duration;
/// use foldspace::event::{ChildStarted, SessionStarted};
/// use foldspace::session::{Keep, SnapshotPolicy};
/// use foldspace::{Filter, NewSession, Registry, SessionError, Sessions, Subscription};
/// # let directory = tempfile::tempdir()?;
/// let sessions = Sessions::open(directory.path(), Registry::standard())?;
/// let session = sessions.create(NewSession::named("demo"))?;
/// // Live events, beginning with the first.
/// let mut started: Subscription = session.subscribe(1, Filter::of::<SessionStarted>().or::<ChildStarted>());
/// assert_eq!(started.next_within(Duration::from_secs(1))?.unwrap().seq, 1);
/// let refused = sessions.create(NewSession::named("demo"));
/// assert!(matches!(refused, Err(SessionError::NameTaken { .. })));
/// assert_eq!(SnapshotPolicy::default().keep, Keep::All);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub mod session {
    #[doc(inline)]
    pub use foldspace_engine::session::*;
}

/// Event stores: a durable one, one in memory, and their trait.
///
/// ```
/// use foldspace::store::{Durability, EventBatch, Expected, FsckReport, GcReport, LocalStoreOptions, Pending};
/// use foldspace::event::{Node, SystemClock, WriteFile, WriteMode};
/// use foldspace::session::SnapshotPolicy;
/// use foldspace::{EntryPath, EventStore, LocalStore, NewSession, Registry, SessionError, Sessions, StoreError};
/// use std::sync::Arc;
///
/// # let directory = tempfile::tempdir()?;
/// // Commits count as recorded once they are synced or, faster, about 20 ms earlier.
/// let options = LocalStoreOptions { durability: Durability::Buffered, ..LocalStoreOptions::default() };
/// let store = Arc::new(LocalStore::open(directory.path(), options)?);
/// let (shared, clock) = (Arc::clone(&store) as Arc<dyn EventStore>, Arc::new(SystemClock::default()));
/// let sessions = Sessions::new(shared, Registry::standard(), clock, SnapshotPolicy::default())?;
/// let session = sessions.create(NewSession::default())?;
///
/// // A commit may state the position that it expects.
/// let (path, node) = (EntryPath::for_creation("a.txt")?, Node::file(b"", false));
/// let write = WriteFile { path, mode: WriteMode::Create, node };
/// let mut commit = session.commit().expecting(Expected::Exactly(1));
/// commit.push(&write)?;
/// let late = commit.duplicate();
/// let pending: Pending = session.submit(commit)?;
/// assert_eq!(pending.wait()?.last, 2);
/// let refused = session.record(late);
/// assert!(matches!(refused, Err(SessionError::Store(StoreError::Conflict { .. }))));
///
/// let entries: Vec<foldspace::store::SessionEntry> = store.entries()?;
/// let batch: EventBatch = store.read(entries[0].id, 1, 2, 1 << 20)?;
/// assert_eq!(batch.events().count(), 2);
///
/// drop((session, sessions, store));
/// let report: FsckReport = LocalStore::fsck(directory.path(), false)?;
/// assert_eq!(report.commits, 2);
/// let removed: GcReport = LocalStore::collect(directory.path(), false)?;
/// assert_eq!(removed.commits, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub mod store {
    #[doc(inline)]
    pub use foldspace_engine::store::*;
}

#[cfg(feature = "tools")]
pub use backends::{HostWorkspace, MemoryWorkspace, PodmanSandbox, Workspace, WorkspaceSpec};
pub use event::{EntryPath, ErrorKind, Event, Recorded, Seq, SessionId, Timestamp};
pub use fold::{Reducer, Registry, Slice, State};
pub use history::Replay;
#[cfg(feature = "tools")]
pub use hub::Hub;
pub use reducers::VirtualFileSystem;
pub use session::{Filter, ForkOptions, NewSession, Session, SessionError, Sessions, Subscription};
pub use store::{Commit, EventStore, LocalStore, MemoryStore, StoreError};
#[cfg(feature = "tools")]
pub use tools::{Tool, ToolCall, ToolContext, ToolError, ToolOutcome, ToolRunner, Tools};
