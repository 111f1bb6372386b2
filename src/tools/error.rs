//! The errors of what is done with a session's workspace as a whole.

use std::path::PathBuf;

use super::bisection::probe_record::ProbeRecord;
use super::call::error::ToolError;
use super::mounts::MountError;
use super::words;
use crate::backends::{BackendError, ShellError};
use crate::engine::commit::CommitError;
use crate::engine::error::{Diagnostic, ErrorKind};
use crate::engine::id::{Seq, SessionId};
use crate::engine::path::EntryPath;
use crate::engine::session::sessions::SessionError;
use crate::engine::slice::SliceError;

/// A failure to open, rewind, merge, fork, bisect or run again. The session and its files are then as before, unless
/// it says otherwise.
#[derive(Debug, Clone, thiserror::Error)]
pub enum WorkspaceError {
    /// The session or its store failed.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The workspace failed.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// A command was not run, external changes could not be found, or a limit forbids it.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// The directory to fill has entries.
    #[error("{} is not empty; give a directory that is empty or not there", .0.display())]
    NotEmpty(PathBuf),
    /// The session has a container already.
    #[error("session {0} has an active container already; a session has one at most")]
    SecondContainer(String),
    /// Files changed outside of any call. Nothing was recorded of it.
    #[error("{} in the workspace changed outside of any call: {}", counted(.0.len()), listed(.0))]
    Drifted(Vec<EntryPath>),
    /// Some of what was there, or is there and would have to go, can't be made again.
    #[error("{} can't be brought back, because their contents were never kept or they are no files: {}",
        counted(.0.len()), listed(.0))]
    NotKept(Vec<EntryPath>),
    /// The position is inside a commit: the files were never like that.
    #[error("position {to} is inside what was recorded at once; go to {before} or to {after}")]
    InsideCommit {
        /// Position that was asked for.
        to: Seq,
        /// The last position before the commit.
        before: Seq,
        /// The last position of the commit.
        after: Seq,
    },
    /// Entries of a person's own directory would be removed that were there before the session began.
    #[error("{} that {} there before the session began would be removed: {}",
        counted(*count), if *count == 1 { "was" } else { "were" }, listed(paths))]
    Earlier {
        /// Count of them.
        count: usize,
        /// Those that are not below another of them.
        paths: Vec<EntryPath>,
    },
    /// The difference does not fit into one commit.
    #[error("the difference between {from} and {to} is too large to be recorded at once: {reason}")]
    TooLarge {
        /// Where the session stands.
        from: Seq,
        /// Where it was to go.
        to: Seq,
        /// What is over which limit.
        reason: String,
    },
    /// It failed, and what was done by then could not be undone. The next opening does that.
    #[error("{failure}; and the files could not be put back ({reason}): open the workspace again, which does that")]
    NotPutBack {
        /// Why it failed.
        failure: String,
        /// Why the files could not be put back.
        reason: String,
    },
    /// The thread that did it panicked, or the runtime ends.
    #[error("the work was stopped before its end")]
    Stopped,
    /// The session to merge does not come from the other.
    #[error("session {child} does not come from session {parent}, so there is nothing to merge it by")]
    NotAChild {
        /// What was to be merged.
        child: String,
        /// Into what.
        parent: String,
    },
    /// It is the same session, perhaps under the name of an agent that shares it.
    #[error("session {0} can't be merged into itself: what is done in it, by whoever shares it, is there already")]
    Itself(String),
    /// The parent's mounts can't be copied again; the child is there, and empty.
    #[error("the child {name} has begun, without the parent's mounts: {source}")]
    Mounts {
        /// The child.
        id: SessionId,
        /// How it is called.
        name: String,
        /// What went wrong.
        source: MountError,
    },
    /// The ends of a bisection are the wrong way round.
    #[error("the good position, {good}, must be before the bad one, {bad}")]
    Order {
        /// The good one.
        good: Seq,
        /// The bad one.
        bad: Seq,
    },
    /// There is nothing to search.
    #[error("no file changed between {good} and {bad}, so nothing there can have made the command fail")]
    NothingChanged {
        /// The good position.
        good: Seq,
        /// The bad one.
        bad: Seq,
    },
    /// The good end is none.
    #[error("position {} is not good: {}", .0.seq, .0.words())]
    GoodIsBad(Box<ProbeRecord>),
    /// The bad end is none.
    #[error("position {} is not bad: {}", .0.seq, .0.words())]
    BadIsGood(Box<ProbeRecord>),
    /// The command could not be run where it has to.
    #[error("the command can't be run at position {}: {}", .0.seq, .0.words())]
    NotRun(Box<ProbeRecord>),
    /// The command said that something else is wrong.
    #[error("the search was given up at position {}: {}, and codes of 128 and more mean that", .0.seq, .0.words())]
    Aborted(Box<ProbeRecord>),
    /// The predicate does not change as it should.
    #[error("the predicate {} at position {seq}", if *.holds { "holds already" } else { "does not hold" })]
    SameAtEnd {
        /// The position.
        seq: Seq,
        /// Whether it holds there.
        holds: bool,
    },
    /// The caller cancelled the bisection.
    #[error("interrupted; nothing of the probes is left")]
    Cancelled,
    /// The session in which recorded calls are to run has had its own past.
    #[error("session {0} is not fresh; recorded calls run in a session that has just begun, on an empty workspace")]
    NotFresh(String),
    /// A call that is to be replaced is none, or stands before the beginning.
    #[error("{call} is no call after position {start}; `foldspace log --calls` shows the calls")]
    NoCall {
        /// Which.
        call: Seq,
        /// Where it was to begin.
        start: Seq,
    },
}

impl Diagnostic for WorkspaceError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Session(error) => error.kind(),
            Self::Backend(error) => error.kind(),
            Self::Mounts { source, .. } => source.kind(),
            Self::NothingChanged { .. } | Self::NoCall { .. } => ErrorKind::NotFound,
            Self::SecondContainer(_) => ErrorKind::Busy,
            Self::NotAChild { .. } | Self::Itself(_) | Self::Order { .. } | Self::NotFresh(_) => ErrorKind::Invalid,
            Self::NotPutBack { .. } | Self::Stopped => ErrorKind::Io,
            Self::Cancelled => ErrorKind::Cancelled,
            _ => ErrorKind::Refused,
        }
    }

    fn inner(&self) -> Option<&dyn Diagnostic> {
        match self {
            Self::Session(error) => Some(error),
            Self::Backend(error) => Some(error),
            Self::Mounts { source, .. } => Some(source),
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

/// Paths that an error names.
const LISTED: usize = 8;

fn counted(count: usize) -> String {
    words::counted(count as u64, "entry")
}

fn listed(paths: &[EntryPath]) -> String {
    let mut shown: Vec<_> = paths.iter().take(LISTED).map(EntryPath::rooted).collect();
    if paths.len() > LISTED {
        shown.push(format!("and {} more", paths.len() - LISTED));
    }
    shown.join(", ")
}
