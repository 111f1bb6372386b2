use crate::engine::store::StoreError;
use crate::engine::{Advice, Diagnostic, ErrorKind, Seq, SliceError, Timestamp};

/// Maximum characters of a session's name.
pub const MAX_NAME_CHARS: usize = 80;

/// Result of work on a session.
pub(crate) type SessionResult<T> = Result<T, SessionError>;

/// Error of a session.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SessionError {
    /// The store failed or refused.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The worker thread panicked, or the runtime is shutting down.
    #[error("the worker thread stopped before the store answered")]
    Stopped,
    /// A slice could not be encoded or decoded.
    #[error(transparent)]
    Slice(#[from] SliceError),
    /// No session has that name or id.
    #[error("no session is called {wanted:?}, and no id begins with that")]
    NotFound {
        /// Requested name or id.
        wanted: String,
        /// Most similar existing name.
        nearest: Option<String>,
    },
    /// Several ids begin with that text.
    #[error("{wanted:?} could be any of {}", candidates.join(", "))]
    Ambiguous {
        /// Requested text.
        wanted: String,
        /// Matching ids.
        candidates: Vec<String>,
    },
    /// The name is in use.
    #[error("a session called {name:?} exists already")]
    NameTaken {
        /// Requested name.
        name: String,
    },
    /// The name is invalid.
    #[error(
        "session name {name:?} must have 1 to {MAX_NAME_CHARS} letters, digits, dots, underscores or hyphens, \
         and begin with a letter or digit"
    )]
    BadName {
        /// Requested name.
        name: String,
    },
    /// The session may have no children, by its own limits or its parents'.
    #[error("session {name:?} may have no children: its depth limit is reached")]
    TooDeep {
        /// Name of the session.
        name: String,
    },
    /// A shared child has limits and no agent; they bind by the agent's name.
    #[error("a child that shares session {name:?} within limits needs an agent's name to apply them")]
    NoAgent {
        /// Name of the session.
        name: String,
    },
    /// The session's first event can't be read, so its workspace is unknown.
    #[error("the first event of session {name:?} can't be read")]
    Unreadable {
        /// Name of the session.
        name: String,
    },
    /// The session has fewer events.
    #[error("{count} events ago is before the first event: the session has {head} events")]
    NothingBack {
        /// Requested number of events to go back.
        count: u64,
        /// Number of events.
        head: Seq,
    },
    /// The moment is before the first event.
    #[error("the session began at {began}, after the requested time")]
    NotBegun {
        /// Time of the first event.
        began: Timestamp,
    },
    /// The event belongs to no call.
    #[error("event {seq}, a {}, belongs to no call", kind.escape_debug())]
    NotInCall {
        /// Position of the event.
        seq: Seq,
        /// Kind of the event.
        kind: String,
    },
    /// The tag was not found.
    #[error("the session has no tag {name:?}{}", listed(.known))]
    NoTag {
        /// Requested name.
        name: String,
        /// Existing tags.
        known: Vec<String>,
    },
    /// The position was not found.
    #[error("the session has no position {seq}; its last one is {head}")]
    NoPosition {
        /// Requested position.
        seq: Seq,
        /// Last position.
        head: Seq,
    },
    /// The session has another request with the same id.
    #[error("another request of the session has the same id: the one recorded at {seq}")]
    OtherRequest {
        /// Position of the first event of that request.
        seq: Seq,
    },
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { String::new() } else { format!("; its tags are {}", names.join(", ")) }
}

impl Diagnostic for SessionError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Store(error) => error.kind(),
            Self::Slice(error) => error.kind(),
            Self::Ambiguous { .. } => ErrorKind::Ambiguous,
            Self::NotFound { .. } => ErrorKind::NotFound,
            Self::NothingBack { .. } | Self::NotBegun { .. } | Self::NotInCall { .. } => ErrorKind::NotFound,
            Self::NoTag { .. } | Self::NoPosition { .. } => ErrorKind::NotFound,
            Self::NameTaken { .. } | Self::OtherRequest { .. } => ErrorKind::Conflict,
            Self::BadName { .. } | Self::NoAgent { .. } => ErrorKind::Invalid,
            Self::TooDeep { .. } => ErrorKind::Refused,
            Self::Unreadable { .. } => ErrorKind::Newer,
            Self::Stopped => ErrorKind::Io,
        }
    }

    fn advice(&self) -> Option<Advice> {
        match self {
            Self::NotFound { nearest, .. } => Some(Advice::ListSessions { nearest: nearest.clone() }),
            Self::Ambiguous { .. } => Some(Advice::text("give more of the id, or the whole name")),
            Self::NameTaken { .. } => Some(Advice::text("use that session, or choose another name")),
            Self::Unreadable { .. } => Some(Advice::text("a newer foldspace may have created it: use that version")),
            Self::NoPosition { .. } | Self::NotBegun { .. } => Some(Advice::ListPositions),
            Self::NotInCall { .. } => Some(Advice::ListCalls),
            Self::OtherRequest { .. } => Some(Advice::text("use a new id for each request, and repeat it unchanged")),
            _ => self.inner()?.advice(),
        }
    }

    fn inner(&self) -> Option<&dyn Diagnostic> {
        match self {
            Self::Store(error) => Some(error),
            Self::Slice(error) => Some(error),
            _ => None,
        }
    }
}

impl From<crate::engine::commit::CommitError> for SessionError {
    fn from(error: crate::engine::commit::CommitError) -> Self {
        Self::Store(StoreError::Commit(error))
    }
}
