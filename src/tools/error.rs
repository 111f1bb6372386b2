//! Errors of operations on a session's whole workspace.

use std::path::PathBuf;
use std::sync::Arc;

use super::bisection::probe_record::ProbeRecord;
use super::call::error::ToolError;
use super::mounts::MountError;
use super::words::counted;
use crate::backends::{BackendError, ShellError};
use crate::engine::commit::CommitError;
use crate::engine::error::{Diagnostic, ErrorKind};
use crate::engine::history::error::HistoryError;
use crate::engine::id::{Seq, SessionId};
use crate::engine::path::EntryPath;
use crate::engine::session::error::SessionError;
use crate::engine::slice::SliceError;

/// Failure to open, rewind, merge, fork, bisect or rerun. It leaves the session and its files unchanged unless it says
/// otherwise.
#[derive(Debug, Clone, thiserror::Error)]
pub enum WorkspaceError {
    /// The session or its store failed.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The workspace failed.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// A command did not run, external changes could not be found, or a limit forbids the operation.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// The directory to populate has entries.
    #[error("{} is not empty; give a directory that is empty or not there", .0.display())]
    NotEmpty(PathBuf),
    /// The session already has a container.
    #[error("session {0} has an active container already; a session has one at most")]
    SecondContainer(String),
    /// Files changed outside of any call; nothing was recorded.
    #[error("{} in the workspace changed outside of any call: {}", counted(.0.len(), "entry"), listed(.0))]
    Drifted(Vec<EntryPath>),
    /// Some entries to restore, or to remove, could not be restored later.
    #[error("{} can't be brought back, because their contents were never kept or they are no files: {}",
        counted(.0.len(), "entry"), listed(.0))]
    NotKept(Vec<EntryPath>),
    /// The position is inside a commit, so the files never had that state.
    #[error("position {to} is inside what was recorded at once; go to {before} or to {after}")]
    InsideCommit {
        /// Requested position.
        to: Seq,
        /// Last position before the commit.
        before: Seq,
        /// Last position of the commit.
        after: Seq,
    },
    /// Entries of the user's own directory from before the session would be removed.
    #[error("{} that {} there before the session began would be removed: {}",
        counted(*count, "entry"), if *count == 1 { "was" } else { "were" }, listed(paths))]
    Earlier {
        /// Number of these entries.
        count: usize,
        /// Topmost of these entries.
        paths: Vec<EntryPath>,
    },
    /// The difference does not fit into one commit.
    #[error("the difference between {from} and {to} is too large to be recorded at once: {reason}")]
    TooLarge {
        /// Current position of the session.
        from: Seq,
        /// Target position.
        to: Seq,
        /// Limit that is exceeded, and by what.
        reason: String,
    },
    /// The operation failed and its changes could not be undone. The next opening undoes them.
    #[error("{failure}; and the files could not be put back ({reason}): open the workspace again, which does that")]
    NotPutBack {
        /// Reason of the failure.
        failure: String,
        /// Reason why the files could not be restored.
        reason: String,
    },
    /// No such calls, none that changed files, or all of them undone.
    #[error(
        "there is nothing to undo: no call changed files that is not undone; `undo --call N` takes what such a call left{}",
        outside.map_or(String::new(), |seq| format!("; `undo --external` takes back what changed outside of any call, last at {seq}"))
    )]
    NothingToUndo {
        /// Position of the latest change from outside of any call, which an undo can take back, too.
        outside: Option<Seq>,
    },
    /// No undo is left to be undone.
    #[error("there is nothing to redo: no undo was made, or each was redone")]
    NothingToRedo,
    /// Nothing was at a path at that position.
    #[error("{path} was not there at {at}")]
    NotThere {
        /// Path without an entry.
        path: EntryPath,
        /// Position.
        at: Seq,
    },
    /// The agent's run is unknown, or could be several.
    #[error("{0}; `log --runs` lists them")]
    UnknownRun(String),
    /// Files have changed since the caller looked.
    #[error("files have changed since {seen}, at {at}; look again at what would be undone")]
    Moved {
        /// Position up to which the caller has looked.
        seen: Seq,
        /// Position of the last change.
        at: Seq,
    },
    /// The worker thread panicked, or the runtime is shutting down.
    #[error("the work was stopped before its end")]
    Stopped,
    /// The child session does not descend from the parent.
    #[error("session {child} does not come from session {parent}, so there is nothing to merge it by")]
    NotAChild {
        /// Session to merge.
        child: String,
        /// Session to merge into.
        parent: String,
    },
    /// A chosen path or glob fits no entry of either side.
    #[error("no entry of either side fits `{0}`; correct this path or glob, or leave it out")]
    UnfitRule(String),
    /// The session and those above it work in no directory of a person's.
    #[error("session {name} did not begin from a directory; name the one into which its changes go (--to)")]
    NoDirectory {
        /// Session to apply.
        name: String,
    },
    /// Both are the same session, perhaps under the name of an agent that shares it.
    #[error("session {0} can't be merged into itself: what is done in it, by whoever shares it, is there already")]
    Itself(String),
    /// The parent's mounts can't be copied again; the child exists and is empty.
    #[error("the child {name} has begun, without the parent's mounts: {source}")]
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
    #[error("no file changed between {good} and {bad}, so nothing there can have made the command fail")]
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
    #[error("the search was given up at position {}: {}, and codes of 128 and more mean that", .0.seq, .0.words())]
    Aborted(Box<ProbeRecord>),
    /// The predicate has the same value at both ends.
    #[error("the predicate {} at position {seq}", if *.holds { "holds already" } else { "does not hold" })]
    SameAtEnd {
        /// Position with the wrong value.
        seq: Seq,
        /// Value of the predicate there.
        holds: bool,
    },
    /// The caller cancelled the bisection.
    #[error("interrupted; nothing of the probes is left")]
    Cancelled,
    /// The session to rerun calls in already has a history.
    #[error("session {0} is not fresh; recorded calls run in a session that has just begun, on an empty workspace")]
    NotFresh(String),
    /// A session could not be copied to another store.
    #[error("the session can't be copied: {0}")]
    NotCopied(Arc<HistoryError>),
    /// A call to replace is no call, or is before the start of the rerun.
    #[error("{call} is no call after position {start}; `foldspace log --calls` shows the calls")]
    NoCall {
        /// Position that is no call.
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
            Self::Tool(error) => error.kind(),
            Self::Mounts { source, .. } => source.kind(),
            Self::NotCopied(error) => error.kind(),
            Self::NothingChanged { .. } | Self::NoCall { .. } => ErrorKind::NotFound,
            Self::NothingToUndo { .. } | Self::NothingToRedo => ErrorKind::NotFound,
            Self::NotThere { .. } | Self::UnknownRun(_) => ErrorKind::NotFound,
            Self::SecondContainer(_) => ErrorKind::Busy,
            Self::NotAChild { .. } | Self::NoDirectory { .. } | Self::UnfitRule(_) => ErrorKind::Invalid,
            Self::Itself(_) | Self::Order { .. } | Self::NotFresh(_) => ErrorKind::Invalid,
            Self::NotPutBack { .. } | Self::Stopped => ErrorKind::Io,
            Self::Cancelled => ErrorKind::Cancelled,
            _ => ErrorKind::Refused,
        }
    }

    fn inner(&self) -> Option<&dyn Diagnostic> {
        match self {
            Self::Session(error) => Some(error),
            Self::Backend(error) => Some(error),
            Self::Tool(error) => Some(error),
            Self::Mounts { source, .. } => Some(source),
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
