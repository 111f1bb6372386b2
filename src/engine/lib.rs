//! The engine and the reducers of foldspace. Programs use them through the package `foldspace`, which documents them.

#[cfg(test)]
#[expect(dead_code, reason = "faults that only the simulation injects")]
#[path = "../../tests/simulation/disk.rs"]
mod disk;
#[path = "mod.rs"]
pub mod engine;
#[cfg(test)]
#[path = "../../tests/simulation/random.rs"]
mod random;
#[path = "../reducers/mod.rs"]
pub mod reducers;
#[cfg(test)]
#[expect(dead_code, reason = "the tests of other packages use the rest")]
#[path = "../testing.rs"]
mod testing;

/// Events, and the values in them.
pub mod event {
    pub use crate::engine::clock::{Clock, StepClock, SystemClock, Timestamp};
    pub use crate::engine::error::{Advice, Diagnostic, ErrorKind, ValueError};
    pub use crate::engine::event::{
        Annotated, CallFinished, CallNoted, CallObserved, CallReason, CallStarted, CallStatus, ChangesShared,
        ChangesUnknown, ChildLimits, ChildMerged, ChildStarted, CodecError, CommandDecided, CommandLine, CommandResult,
        ConflictKind, ContainerStarted, ContainerStopped, DecidedBy, DeleteEntry, DriftFound, EffectOutcome,
        EffectSource, EvalResult, Event, EventsLost, ExternalEffect, FileMode, GitMoved, HttpExchange, HttpPart,
        Isolation, LinkFile, LostBytes, MergeConflict, MergeConflicted, MergeSide, MergedEntry, MountHydrated,
        MountPreview, NetworkConnection, Node, ObservedAccess, Origin, PolicyDecision, PositionTagged, RecordedOutput,
        ReportLate, RunBegan, RunEnded, RunNoted, RunPrompted, ServiceStarted, ServiceStopped, SessionAllow,
        SessionRewound, SessionStarted, SessionTaken, SliceDeclared, SliceRestored, Special, TaskObserved,
        TerminalRecorded, ToolPolicySet, TranscriptRecord, VariableValue, WorkspaceTouched, WriteFile, WriteMode,
    };
    pub use crate::engine::id::{CommitId, Digest, Seq, SessionId};
    pub use crate::engine::path::EntryPath;
    pub use crate::engine::recorded::{EventRef, Payload, Recorded};
}

/// The fold: slices, the reducers that produce them, and the registry of both.
pub mod fold {
    pub use crate::engine::reducer::Reducer;
    #[doc(hidden)]
    pub use crate::engine::reducer::{Folding, Opener};
    pub use crate::engine::registry::Registry;
    #[doc(hidden)]
    pub use crate::engine::slice::EncodedSlice;
    pub use crate::engine::slice::{OnRewind, Slice, SliceError, SliceSummary};
    pub use crate::engine::state::State;
}

/// Queries of a history: replay, blame, searches, verification; exports and imports.
pub mod history {
    pub use crate::engine::chain::{HistoryChain, chain_at, chain_before_export};
    pub use crate::engine::history::{
        Blame, BlameLine, Cause, HistoryError, HistoryHit, HistorySearch, Matches, PathChange, SessionChange, blame,
        history_through_merges, path_history, search_history,
    };
    pub use crate::engine::portable::{
        ExportChain, PortableSummary, chain_of_export, export_session, export_session_seen, import_session,
        import_session_if,
    };
    pub use crate::engine::replay::Replay;
    pub use crate::engine::verify::{VerifyDifference, VerifyReport};
}

/// Sessions and their subscriptions.
pub mod session {
    pub use crate::engine::session::Session;
    pub use crate::engine::session::children::ForkOptions;
    pub use crate::engine::session::error::SessionError;
    pub use crate::engine::session::sessions::{NewSession, Sessions};
    pub use crate::engine::session::snapshot::{Keep, SnapshotPolicy};
    pub use crate::engine::subscription::{Filter, Subscription, Watcher};
    #[doc(hidden)]
    pub use crate::engine::{nearest::nearest, session::error::MAX_NAME_CHARS};
}

/// Event stores: a durable one, one in memory, and their trait.
pub mod store {
    pub use crate::engine::bus::Bus;
    pub use crate::engine::commit::{CallLink, Commit, CommitError, Content, Expected, ForkPoint};
    #[doc(hidden)]
    pub use crate::engine::commit::{MAX_AGENT_BYTES, MAX_COMMIT_BYTES, MAX_COMMIT_EVENTS, MAX_KIND_BYTES};
    #[doc(hidden)]
    pub use crate::engine::store::StorageUse;
    #[cfg(feature = "replicate")]
    pub use crate::engine::store::replication;
    #[cfg(feature = "nats")]
    pub use crate::engine::store::{
        AddressError, NatsAddress, NatsStore, NatsStoreOptions, ReplicaHealth, StreamHealth, StreamProblem,
    };
    pub use crate::engine::store::{
        Committed, Durability, EventBatch, EventStore, FsckReport, Gap, GcReport, HostFigures, JournalProblem,
        LocalStore, LocalStoreOptions, Loss, LostEvents, MemoryStore, Pending, RemoteStore, SessionClaim, SessionEntry,
        SessionHosts, SessionQuery, SessionTotals, Snapshot, StoreError, StoreHost, StoreOwner, StoreServer, Visitor,
    };
}

pub use event::{EntryPath, ErrorKind, Event, Recorded, Seq, SessionId, Timestamp};
pub use fold::{Reducer, Registry, Slice, State};
pub use history::Replay;
pub use reducers::VirtualFileSystem;
pub use session::{Filter, ForkOptions, NewSession, Session, SessionError, Sessions, Subscription};
pub use store::{Commit, EventStore, LocalStore, MemoryStore, StoreError};
