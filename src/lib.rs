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
//!     ToolRunner, EntryPath, MemoryWorkspace, NewSession, Registry, Sessions, ToolCall, Tools, VirtualFileSystem,
//! };
//!
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

#[cfg(feature = "tools")]
mod backends;
// Some of it is there for the tools.
#[cfg_attr(not(feature = "tools"), allow(dead_code, reason = "the event store alone has no calls"))]
mod engine;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "tools")]
mod hub;
#[cfg(feature = "mcp")]
mod mcp;
#[cfg_attr(not(feature = "tools"), allow(dead_code, reason = "the event store alone has no calls"))]
mod reducers;
#[cfg(all(test, feature = "tools"))]
mod simulation;
#[cfg(feature = "tools")]
#[cfg(test)]
mod testing;
mod tools;
#[cfg(feature = "tools")]
pub mod view;

#[cfg(feature = "compliance")]
pub use backends::compliance;
#[cfg(feature = "tools")]
pub use backends::{
    BackendError, Below, ChangeDetector, Container, DEFAULT_KEEP_BYTES, DEFAULT_TIMEOUT, DirtyPath, DoctorReport,
    EnvMode, FileChange, Finding, HostOptions, HostWorkspace, Leftover, Leftovers, MAX_COMMAND_CHARS, MAX_SCRIPT_BYTES,
    MAX_STDIN_BYTES, MAX_TIMEOUT, MAX_VARIABLES, MIN_TIMEOUT, MachineNews, MemoryWorkspace, MockAnswer, MockOptions,
    MockRule, MockWorkspace, Observed, Output, OutputWatch, OverlayUse, PodmanOptions, PodmanSandbox, ProgressWatch,
    Running, Shell, ShellCommand, ShellEnv, ShellError, ShellProperties, ShellResult, Throwaway, WarmContainers, Which,
    Workspace, WorkspaceSpec, diagnose, remove_leftovers, sweep_sandboxes, sweep_throwaways, unwatched,
};
pub use engine::bus::Bus;
pub use engine::clock::{Clock, StepClock, SystemClock, Timestamp};
pub use engine::commit::{
    CallLink, Commit, CommitError, Content, Expected, ForkPoint, MAX_AGENT_BYTES, MAX_COMMIT_BYTES, MAX_COMMIT_EVENTS,
    MAX_KIND_BYTES,
};
pub use engine::error::{Diagnostic, ErrorKind, ValueError};
pub use engine::event::{
    CallFinished, CallReason, CallStarted, CallStatus, ChildLimits, ChildMerged, ChildStarted, CodecError,
    CommandDecided, CommandLine, CommandResult, ConflictKind, ContainerStarted, ContainerStopped, DecidedBy,
    DeleteEntry, DriftFound, EvalResult, Event, EventsLost, Isolation, MergeConflict, MergeConflicted, MergeSide,
    MergedEntry, MountHydrated, MountPreview, Node, Origin, PolicyDecision, RecordedOutput, SessionAllow,
    SessionRewound, SessionStarted, SliceRestored, Special, WorkspaceTouched, WriteFile, WriteMode,
};
pub use engine::history::{
    BLAME_BYTES_MAX, Blame, BlameLine, Cause, HistoryError, HistoryHit, HistorySearch, Matches, PathChange,
    SessionChange, blame, history_through_merges, path_history, search_history,
};
pub use engine::id::{CommitId, Digest, Seq, SessionId};
pub use engine::path::{EntryPath, MAX_SEGMENT_CHARS, MAX_SEGMENTS};
pub use engine::portable::{PortableSummary, export_session, import_session, import_session_if};
pub use engine::recorded::{EventRef, Payload, Recorded};
pub use engine::reducer::{Folding, Opener, Reducer};
pub use engine::registry::{Registry, SliceSummary};
pub use engine::replay::Replay;
pub use engine::session::Session;
pub use engine::session::children::ForkOptions;
pub use engine::session::error::{MAX_NAME_CHARS, SessionError};
pub use engine::session::name_index::name_of;
pub use engine::session::output_stream::{CommandOutput, OutputStream, OutputSubscription};
pub use engine::session::sessions::{NewSession, Sessions};
pub use engine::session::snapshot::{Keep, SnapshotPolicy};
pub use engine::slice::{EncodedSlice, OnRewind, Slice, SliceError};
pub use engine::state::State;
pub use engine::store::{
    Committed, Durability, EventBatch, EventStore, FsckReport, GcReport, JournalProblem, Lease, LeaseHolder,
    LocalStore, LocalStoreOptions, Loss, LostEvents, MemoryStore, NamingTurn, Pending, SessionEntry, SharedStore,
    Snapshot, StorageUse, StoreError, Visitor,
};
pub use engine::subscription::{Filter, Subscription, Watcher};
pub use engine::verify::{VerifyDifference, VerifyReport};
#[cfg(feature = "tools")]
pub use hub::operations;
pub use hub::{CallFigures, Forward, Forwarding, Hub, HubError, HubOptions, OpenSession};
#[cfg(feature = "mcp")]
pub use mcp::{McpError, McpOptions, McpServer, ToolGroup};
pub use reducers::{
    Allowances, AppendAll, CallEntry, Change, Child, Children, CommandEntry, Commands, Entry, Keyed, LastMerge,
    LatestByKey, MERGED_BYTES_MAX, MERGED_LINES_MAX, MergeChoices, MergePlan, MergeStep, Merges, Mounts,
    PodmanWorkspace, ReplaceLatest, SharedChild, ToolCalls, UpsertByKey, Usage, VirtualFileSystem, append_all,
    plan_merge, replace_latest, replace_latest_by_key, upsert_by_key,
};
#[cfg(feature = "tools")]
pub use tools::bisection::algorithm::{BisectOutcome, BisectSearch, BisectVerdict};
#[cfg(feature = "tools")]
pub use tools::{
    ASK_THE_PERSON, AllowedBy, AllowedRoots, ApprovalAnswer, Asker, Asking, BisectFound, BisectReport, Bisection,
    CallReport, CallVerdict, CallWatch, CaptureBudget, ChildContext, CommandPolicy, CommandQuestion, Decision,
    DenyRule, Divergence, EditTool, Effect, Expectation, Filesystem, Forker, GlobTool, GrepTool, LineSearch, ListTool,
    MAX_SCRIPT_CHARS, Materialised, MergeOutcome, MergeReport, MergedChange, MountError, MountSpec, NormalRules,
    PathGlob, PodmanShellTool, Predicate, Probe, ProbeRecord, PythonTool, ReadTool, RemoveTool, Rerun, RerunReport,
    RerunWorkspace, RewindOptions, Rewound, Scratch, ScriptedCall, ShellRules, ShellTool, Subagent, SubagentOutcome,
    SubagentResult, Subagents, Tool, ToolCall, ToolContext, ToolDescription, ToolError, ToolOutcome, ToolRunner,
    ToolShell, Tools, TraceContext, WhatIf, WorkspaceError, WorkspaceSection, WriteTool, bisect, bisect_slices,
    changed_positions, dispatch_subagents, first_position, hydrate, lift, lower, materialise, materialise_into,
    merge_child, mounts_of, preview_merge, previews, rewind, write_tar,
};
