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
pub mod backends;
#[cfg_attr(not(feature = "tools"), allow(dead_code, reason = "the event store alone has no calls"))]
mod engine;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "tools")]
pub mod hub;
#[cfg(feature = "mcp")]
pub mod mcp;
#[cfg_attr(not(feature = "tools"), allow(dead_code, reason = "the event store alone has no calls"))]
pub mod reducers;
#[cfg(all(test, feature = "tools"))]
mod simulation;
#[cfg(test)]
mod testing;
#[cfg(feature = "tools")]
pub mod tools;
#[cfg(feature = "tools")]
pub mod view;

/// Events, and the values in them.
pub mod event {
    pub use crate::engine::clock::{Clock, StepClock, SystemClock, Timestamp};
    pub use crate::engine::error::{Diagnostic, ErrorKind, ValueError};
    pub use crate::engine::event::{
        CallFinished, CallReason, CallStarted, CallStatus, ChildLimits, ChildMerged, ChildStarted, CodecError,
        CommandDecided, CommandLine, CommandResult, ConflictKind, ContainerStarted, ContainerStopped, DecidedBy,
        DeleteEntry, DriftFound, EvalResult, Event, EventsLost, Isolation, MergeConflict, MergeConflicted, MergeSide,
        MergedEntry, MountHydrated, MountPreview, Node, Origin, PolicyDecision, RecordedOutput, SessionAllow,
        SessionRewound, SessionStarted, SliceRestored, Special, WorkspaceTouched, WriteFile, WriteMode,
    };
    pub use crate::engine::id::{CommitId, Digest, Seq, SessionId};
    pub use crate::engine::path::{EntryPath, MAX_SEGMENT_CHARS, MAX_SEGMENTS};
    pub use crate::engine::recorded::{EventRef, Payload, Recorded};
}

/// The fold: slices, the reducers that make them, and what a program knows of both.
pub mod fold {
    pub use crate::engine::reducer::{Folding, Opener, Reducer};
    pub use crate::engine::registry::{Registry, SliceSummary};
    pub use crate::engine::slice::{EncodedSlice, OnRewind, Slice, SliceError};
    pub use crate::engine::state::State;
}

/// Questions to a history: replay, blame, searches, checks; exports and imports.
pub mod history {
    pub use crate::engine::history::{
        BLAME_BYTES_MAX, Blame, BlameLine, Cause, HistoryError, HistoryHit, HistorySearch, Matches, PathChange,
        SessionChange, blame, history_through_merges, path_history, search_history,
    };
    pub use crate::engine::portable::{PortableSummary, export_session, import_session, import_session_if};
    pub use crate::engine::replay::Replay;
    pub use crate::engine::verify::{VerifyDifference, VerifyReport};
}

/// Sessions, their subscriptions and their output.
pub mod session {
    pub use crate::engine::session::Session;
    pub use crate::engine::session::children::ForkOptions;
    pub use crate::engine::session::error::{MAX_NAME_CHARS, SessionError};
    pub use crate::engine::session::name_index::name_of;
    pub use crate::engine::session::output_stream::{CommandOutput, OutputStream, OutputSubscription};
    pub use crate::engine::session::sessions::{NewSession, Sessions};
    pub use crate::engine::session::snapshot::{Keep, SnapshotPolicy};
    pub use crate::engine::subscription::{Filter, Subscription, Watcher};
}

/// Stores of events: the durable one, the one in memory, and what another one implements.
pub mod store {
    pub use crate::engine::bus::Bus;
    pub use crate::engine::commit::{
        CallLink, Commit, CommitError, Content, Expected, ForkPoint, MAX_AGENT_BYTES, MAX_COMMIT_BYTES,
        MAX_COMMIT_EVENTS, MAX_KIND_BYTES,
    };
    pub use crate::engine::store::{
        Committed, Durability, EventBatch, EventStore, FsckReport, GcReport, JournalProblem, Lease, LeaseHolder,
        LocalStore, LocalStoreOptions, Loss, LostEvents, MemoryStore, NamingTurn, Pending, SessionEntry, SharedStore,
        Snapshot, StorageUse, StoreError, Visitor,
    };
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
