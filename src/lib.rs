//! foldspace is the event-sourced state engine for the sandboxes in which AI agents work.
//!
//! An agent edits files in a workspace. Every tool call becomes typed events in a journal; pure
//! reducers fold them into immutable slices, among them [`VirtualFileSystem`]: every file of the
//! workspace, now or at any event of the past. The journal is the truth, everything else is a fold of it.
//!
//! What it is not: a sandbox by itself, a database for anything else, or an agent framework.
//!
//! ```
//! use std::sync::Arc;
//! use foldspace::{
//!     Dispatcher, EntryPath, MemoryWorkspace, NewSession, Registry, Sessions, ToolCall, Tools, VirtualFileSystem,
//! };
//!
//! # let directory = tempfile::tempdir()?;
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
//! # runtime.block_on(async {
//! let sessions = Sessions::open(directory.path(), Registry::standard())?;
//! let session = sessions.create(NewSession::named("demo"))?;
//! let tools = Dispatcher::new(session.clone(), Tools::standard(), Arc::new(MemoryWorkspace))?;
//!
//! let params = serde_json::json!({ "file_path": "hello.txt", "content": "hello\n" });
//! let outcome = tools.call(ToolCall::new("write_file", params)).await?;
//! assert!(outcome.is_ok());
//!
//! let path = EntryPath::lookup("hello.txt")?;
//! let files = |at| session.state_at(at).map(|state| state.slice::<VirtualFileSystem>().cloned());
//! assert!(files(outcome.finished)?.unwrap().get(&path).is_some());
//! assert!(files(outcome.call)?.unwrap().get(&path).is_none());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Where to go on: [`Sessions`] and [`Session`] for histories and states; [`Registry`], [`Event`],
//! [`Slice`] and [`Reducer`] for own types; [`Tool`] and [`ToolRunner`] for tools; [`Subscription`] for
//! events as they come; [`Replay`] to look back; [`EventStore`] for another place to keep it all.

mod backends;
mod engine;
pub mod http;
mod hub;
mod mcp;
mod reducers;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod testing;
mod tools;
pub mod view;

pub use backends::{
    BackendError, Below, ChangeDetector, Container, DEFAULT_KEEP_BYTES, DEFAULT_TIMEOUT, DirtyPath, DoctorReport,
    EnvMode, FileChange, Finding, HostOptions, HostWorkspace, Leftover, Leftovers, MAX_COMMAND_CHARS, MAX_SCRIPT_BYTES,
    MAX_STDIN_BYTES, MAX_TIMEOUT, MAX_VARIABLES, MIN_TIMEOUT, MachineNews, MemoryWorkspace, MockAnswer, MockOptions,
    MockRule, MockWorkspace, Observed, Output, OutputWatch, OverlayUse, PodmanOptions, PodmanSandbox, ProgressWatch,
    RunnerUse, Running, Shell, ShellCommand, ShellEnv, ShellError, ShellProperties, ShellResult, Throwaway,
    WarmContainers, Which, Workspace, WorkspaceSpec, compliance, diagnose, remove_leftovers, sweep_sandboxes,
    sweep_throwaways, unwatched,
};
pub use engine::bus::Bus;
pub use engine::clock::{Clock, StepClock, SystemClock, Timestamp};
pub use engine::commit::{
    CallLink, Commit, CommitError, Content, Expected, ForkPoint, MAX_AGENT_BYTES, MAX_COMMIT_BYTES, MAX_COMMIT_EVENTS,
    MAX_KIND_BYTES,
};
pub use engine::event::{
    CallFinished, CallStarted, CallStatus, ChildLimits, ChildMerged, ChildStarted, CodecError, CommandDecided,
    CommandLine, CommandResult, ConflictKind, ContainerStarted, ContainerStopped, DecidedBy, DeleteEntry, DriftFound,
    EvalResult, Event, EventsLost, Isolation, MergeConflict, MergeConflicted, MergeSide, MergedEntry, MountHydrated,
    MountPreview, Node, Origin, PolicyDecision, RecordedOutput, SessionAllow, SessionRewound, SessionStarted,
    SliceRestored, Special, WorkspaceTouched, WriteFile, WriteMode,
};
pub use engine::history::{
    BLAME_BYTES_MAX, Blame, BlameError, BlameLine, Cause, HistoryHit, HistorySearch, Matches, PathChange,
    SessionChange, blame, history_through_merges, path_history, search_history,
};
pub use engine::id::{CommitId, Digest, IdError, Seq, SessionId};
pub use engine::path::{EntryPath, MAX_SEGMENT_CHARS, MAX_SEGMENTS, PathError};
pub use engine::portable::{PortableError, PortableSummary, export_session, import_session, import_session_if};
pub use engine::recorded::{EventRef, Payload, Recorded};
pub use engine::reducer::{Folding, Opener, Reducer};
pub use engine::registry::{Registry, RegistryError, SliceSummary};
pub use engine::replay::Replay;
pub use engine::session::Session;
pub use engine::session::children::ForkOptions;
pub use engine::session::output_stream::{CommandOutput, OutputStream, OutputSubscription};
pub use engine::session::sessions::{MAX_NAME_CHARS, NewSession, SessionError, Sessions, name_of};
pub use engine::session::snapshot::{Keep, SnapshotPolicy};
pub use engine::slice::{EncodedSlice, OnRewind, Slice, SliceError};
pub use engine::state::State;
pub use engine::store::filtered_batch::EventRun;
pub use engine::store::{
    Committed, Durability, EventBatch, EventStore, FsckReport, GcReport, JournalProblem, Lease, LeaseHolder,
    LocalStore, LocalStoreOptions, Loss, LostEvents, MemoryStore, NamingTurn, Pending, SessionEntry, SharedStore,
    Snapshot, StorageUse, StoreError, Visitor,
};
pub use engine::subscription::{Filter, Subscription, Watcher};
pub use engine::verify::{VerifyDifference, VerifyReport};
pub use hub::{CallFigures, Forward, ForwardError, Forwarding, Hub, HubError, HubOptions, OpenSession};
pub use mcp::{McpError, McpOptions, McpServer, ToolGroup, UnknownGroup};
pub use reducers::{
    Allowances, AppendAll, CallEntry, Change, Child, Children, ChoiceError, CommandEntry, Commands, Entry, Keyed,
    LastMerge, LatestByKey, MERGED_BYTES_MAX, MERGED_LINES_MAX, MergeChoices, MergePlan, MergeStep, Merges, Mounts,
    PodmanWorkspace, ReplaceLatest, SharedChild, ToolCalls, UpsertByKey, Usage, VirtualFileSystem, append_all,
    plan_merge, replace_latest, replace_latest_by_key, upsert_by_key,
};
pub use tools::bisection::algorithm::{BisectOutcome, BisectSearch, BisectVerdict};
pub use tools::{
    ASK_THE_PERSON, AllowedBy, AllowedRoots, ApprovalAnswer, Asker, Asking, BisectError, BisectFound, BisectReport,
    Bisection, CallReport, CallVerdict, CallWatch, CaptureBudget, ChildContext, ChildError, CommandPolicy,
    CommandQuestion, Decision, DenyRule, DispatchError, Divergence, EditTool, Effect, Expectation, Filesystem, Forker,
    GlobTool, GrepTool, LineSearch, ListTool, MAX_SCRIPT_CHARS, Materialised, MergeError, MergeOutcome, MergeReport,
    MergedChange, MountError, MountSpec, NormalRules, PathGlob, PodmanShellTool, Predicate, PredicateError, Probe,
    ProbeRecord, PythonTool, ReadTool, RemoveTool, Rerun, RerunError, RerunReport, RerunWorkspace, RewindError,
    RewindOptions, Rewound, RulesError, Scratch, ScriptedCall, ShellRules, ShellTool, Subagent, SubagentOutcome,
    SubagentResult, Subagents, Tool, ToolCall, ToolContext, ToolDescription, ToolError, ToolOutcome, ToolRunner,
    ToolShell, Tools, ToolsError, TraceContext, WhatIf, WorkspaceSection, WriteTool, bisect, bisect_slices,
    changed_positions, dispatch_subagents, first_position, hydrate, lift, lower, materialise, materialise_into,
    merge_child, mounts_of, preview_merge, previews, rewind,
};
