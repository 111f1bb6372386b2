//! Errors of operations on a session's whole workspace.

use std::path::PathBuf;
use std::sync::Arc;

use super::bisection::probe_record::ProbeRecord;
use super::call::error::ToolError;
use super::mounts::MountError;
use super::words::counted;
use crate::backends::{BackendError, ShellError, UnusableDirectory};
use crate::engine::advice::Advice;
use crate::engine::commit::CommitError;
use crate::engine::error::{Diagnostic, ErrorKind, ValueError};
use crate::engine::history::error::HistoryError;
use crate::engine::id::{Seq, SessionId};
use crate::engine::path::EntryPath;
use crate::engine::session::error::SessionError;
use crate::engine::slice::SliceError;

/// Failure to open, rewind, merge, fork, bisect or rerun. The session and its files stay unchanged unless the variant
/// documents an effect.
#[derive(Debug, Clone, thiserror::Error)]
pub enum WorkspaceError {
    /// The session or its store failed.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The workspace failed.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// A value in the request can't be used.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// The user's directory is not fit for a session.
    #[error(transparent)]
    Directory(#[from] UnusableDirectory),
    /// A command did not run, external changes could not be found, or a limit forbids the operation.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// The disk has no room to record an external change, so no command can run.
    #[error("can't record {}, which changed in the workspace: {source}", path.rooted())]
    Unrecorded {
        /// The largest changed entry.
        path: EntryPath,
        /// Its place on this machine, if the workspace has files here.
        place: Option<String>,
        /// Cause.
        source: SessionError,
    },
    /// The directory to populate has entries.
    #[error("{} is not empty; use an empty or new directory", .0.display())]
    NotEmpty(PathBuf),
    /// The session already has a container.
    #[error("session {0} already has an active container; the limit is one")]
    SecondContainer(String),
    /// Files changed outside of any call; nothing was recorded.
    #[error("{} in the workspace changed outside of any call: {}", counted(.0.len(), "entry"), listed(.0))]
    Drifted(Vec<EntryPath>),
    /// Entries that the operation would lose or can't restore: without stored contents, or not files.
    #[error("{} can't be restored (contents never stored, or not files): {}",
        counted(.0.len(), "entry"), listed(.0))]
    NotKept(Vec<EntryPath>),
    /// Entries of the user's directory that predate the session would be removed.
    #[error("{} that {} the session would be removed: {}",
        counted(*count, "entry"), if *count == 1 { "predates" } else { "predate" }, listed(paths))]
    Earlier {
        /// Number of these entries.
        count: usize,
        /// Topmost of these entries.
        paths: Vec<EntryPath>,
    },
    /// The difference does not fit into one commit.
    #[error("the difference between {from} and {to} is too large for one commit: {reason}")]
    TooLarge {
        /// Current position of the session.
        from: Seq,
        /// Target position.
        to: Seq,
        /// The exceeded limit and the value.
        reason: String,
    },
    /// The operation failed and its changes could not be undone. The next opening undoes them.
    #[error("{failure}; the files could not be restored ({reason}): reopen the workspace to restore them")]
    NotPutBack {
        /// Reason of the failure.
        failure: String,
        /// Reason why the files could not be restored.
        reason: String,
    },
    /// No selected call changed files, or all of them are undone.
    #[error("nothing to undo: {}", call.map_or_else(|| "the selection changed no files, or is undone already".to_owned(),
        |call| format!("call {call} changed no files")))]
    NothingToUndo {
        /// The selected call, if only that was selected.
        call: Option<Seq>,
        /// Position of the latest change from outside of any call, which an undo can revert, too.
        outside: Option<Seq>,
    },
    /// The event to undo is not the start of a call.
    #[error("event {seq} is not a call{}", call.map_or_else(String::new, |call| format!(", but part of call {call}")))]
    NotACall {
        /// Position of the event.
        seq: Seq,
        /// Call that it belongs to.
        call: Option<Seq>,
    },
    /// No undo remains to be redone.
    #[error("nothing to redo: no undo was made, or each was redone")]
    NothingToRedo,
    /// A path had no entry at that position.
    #[error("{path} did not exist at {at}")]
    NotThere {
        /// Path without an entry.
        path: EntryPath,
        /// Position.
        at: Seq,
    },
    /// The agent's run is unknown or ambiguous.
    #[error("{0}")]
    UnknownRun(String),
    /// No agent has reported a run.
    #[error("no agent has reported a run")]
    NoRun,
    /// Files have changed since the position that the caller saw.
    #[error("files have changed since {seen}, at {at}; preview the undo again")]
    Moved {
        /// Last position that the caller saw.
        seen: Seq,
        /// Position of the last change.
        at: Seq,
    },
    /// The worker thread panicked, or the runtime is shutting down.
    #[error("the worker thread stopped before it finished")]
    Stopped,
    /// The child session does not descend from the parent.
    #[error("session {child} does not descend from session {parent}: they share no base to merge from")]
    NotAChild {
        /// Session to merge.
        child: String,
        /// Session to merge into.
        parent: String,
    },
    /// A chosen path or glob matches no entry of either side.
    #[error("no entry of either side matches `{0}`; correct this path or glob, or omit it")]
    UnfitRule(String),
    /// Neither the session nor its ancestors work in a user's directory.
    #[error("session {name} did not begin from a directory")]
    NoDirectory {
        /// Session to apply.
        name: String,
    },
    /// Both are the same session, perhaps under the name of an agent that shares it.
    #[error("session {0} can't be merged into itself: agents that share a session share its changes")]
    Itself(String),
    /// The parent's mounts can't be copied again; the child exists and is empty.
    #[error("the child {name} was created without the parent's mounts: {source}")]
    Mounts {
        /// Id of the child.
        id: SessionId,
        /// Name of the child.
        name: String,
        /// Failure of the mount.
        source: MountError,
    },
    /// The good position of a bisection is not before the bad one.
    #[error("the good position, {good}, must be before the bad one, {bad}")]
    Order {
        /// Good position.
        good: Seq,
        /// Bad position.
        bad: Seq,
    },
    /// No file changed between the ends.
    #[error("no file changed between {good} and {bad}")]
    NothingChanged {
        /// Good position.
        good: Seq,
        /// Bad position.
        bad: Seq,
    },
    /// The good end is not good.
    #[error("position {} is not good: {}", .0.seq, .0.words())]
    GoodIsBad(Box<ProbeRecord>),
    /// The bad end is not bad.
    #[error("position {} is not bad: {}", .0.seq, .0.words())]
    BadIsGood(Box<ProbeRecord>),
    /// The command could not run at a position.
    #[error("the command can't be run at position {}: {}", .0.seq, .0.words())]
    NotRun(Box<ProbeRecord>),
    /// The command reported another problem and ended the search.
    #[error("the search was aborted at position {}: {}, and exit codes from 128 mean abort", .0.seq, .0.words())]
    Aborted(Box<ProbeRecord>),
    /// The predicate has the same value at both ends.
    #[error("the predicate {} at position {seq}", if *.holds { "already holds" } else { "does not hold" })]
    SameAtEnd {
        /// Position with the wrong value.
        seq: Seq,
        /// Value of the predicate there.
        holds: bool,
    },
    /// The caller cancelled the bisection.
    #[error("interrupted; all probes were removed")]
    Cancelled,
    /// The session to rerun calls in already has a history.
    #[error("session {0} is not fresh; a rerun needs a new session with an empty workspace")]
    NotFresh(String),
    /// The command of a recorded call can't run in the workspace of the rerun. No call was made.
    #[error("call {call}: {why}; nothing was run")]
    CantRerun {
        /// Call with the command.
        call: Seq,
        /// Reason.
        why: String,
    },
    /// The workspace of an offline rerun does not record HTTP, so it can't replay it.
    #[error("offline needs a container with `record_http`; nothing was run")]
    NotOffline,
    /// A session could not be copied to another store.
    #[error("the session can't be copied: {0}")]
    NotCopied(Arc<HistoryError>),
    /// The position to replace is not a call, or is before the start of the rerun.
    #[error("{call} is not a call after position {start}")]
    NoCall {
        /// Position without a call.
        call: Seq,
        /// Start of the rerun.
        start: Seq,
    },
}

impl Diagnostic for WorkspaceError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Session(error) => error.kind(),
            Self::Backend(error) => error.kind(),
            Self::Directory(error) => error.kind(),
            Self::Tool(error) => error.kind(),
            Self::Value(error) => error.kind(),
            Self::Mounts { source, .. } => source.kind(),
            Self::Unrecorded { source, .. } => source.kind(),
            Self::NotCopied(error) => error.kind(),
            Self::NoCall { .. } => ErrorKind::NotFound,
            Self::NothingToUndo { .. } | Self::NothingToRedo | Self::NotACall { .. } => ErrorKind::NotFound,
            Self::NotThere { .. } | Self::UnknownRun(_) | Self::NoRun => ErrorKind::NotFound,
            Self::SecondContainer(_) => ErrorKind::Busy,
            Self::NotEmpty(_) => ErrorKind::Conflict,
            Self::NotAChild { .. } | Self::NoDirectory { .. } | Self::UnfitRule(_) => ErrorKind::Invalid,
            Self::NothingChanged { .. } => ErrorKind::Invalid,
            Self::Itself(_) | Self::Order { .. } | Self::NotFresh(_) | Self::CantRerun { .. } | Self::NotOffline => {
                ErrorKind::Invalid
            }
            Self::NotPutBack { .. } => ErrorKind::Io,
            Self::Stopped => ErrorKind::Broken,
            Self::Cancelled => ErrorKind::Cancelled,
            _ => ErrorKind::Refused,
        }
    }

    fn advice(&self) -> Option<Advice> {
        match self {
            Self::Drifted(_) | Self::NotKept(_) => Some(Advice::ForceRewind),
            Self::Earlier { .. } => Some(Advice::RemoveEarlier),
            Self::NothingToUndo { outside, call: None } => Some(Advice::SelectUndo { outside: *outside }),
            Self::NotOffline => Some(Advice::text("use the workspace of the recording, if that has `record_http`")),
            Self::UnknownRun(_) => Some(Advice::ListRuns),
            Self::NotAChild { .. } | Self::Itself(_) => Some(Advice::ShowLineage),
            Self::NoDirectory { .. } => Some(Advice::NameDirectory),
            Self::Mounts { name, .. } => Some(Advice::RemoveChild { name: name.clone() }),
            Self::NoCall { .. } | Self::NotACall { .. } | Self::NothingToUndo { .. } => Some(Advice::ListCalls),
            Self::Unrecorded { path, place: Some(place), .. } => Some(Advice::text(format!(
                "make room by hand: delete {place} or another file; a command can't, because {} is recorded first",
                path.rooted()
            ))),
            _ => self.inner()?.advice(),
        }
    }

    fn inner(&self) -> Option<&dyn Diagnostic> {
        match self {
            Self::Session(error) => Some(error),
            Self::Backend(error) => Some(error),
            Self::Tool(error) => Some(error),
            Self::Value(error) => Some(error),
            Self::Mounts { source, .. } => Some(source),
            Self::Unrecorded { source, .. } => Some(source),
            Self::NotCopied(error) => Some(error.as_ref()),
            _ => None,
        }
    }
}

impl From<CommitError> for WorkspaceError {
    fn from(error: CommitError) -> Self {
        Self::Session(error.into())
    }
}

impl From<SliceError> for WorkspaceError {
    fn from(error: SliceError) -> Self {
        Self::Session(error.into())
    }
}

impl From<ShellError> for WorkspaceError {
    fn from(error: ShellError) -> Self {
        Self::Tool(error.into())
    }
}

const LISTED: usize = 8;

fn listed(paths: &[EntryPath]) -> String {
    let mut shown: Vec<_> = paths.iter().take(LISTED).map(EntryPath::rooted).collect();
    if paths.len() > LISTED {
        shown.push(format!("and {} more", paths.len() - LISTED));
    }
    shown.join(", ")
}
