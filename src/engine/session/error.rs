//! Reasons why a session, or its store, refuses.

use crate::engine::error::{Diagnostic, ErrorKind};
use crate::engine::id::Seq;
use crate::engine::slice::SliceError;
use crate::engine::store::StoreError;

/// Characters that a session's name may have.
pub const MAX_NAME_CHARS: usize = 80;

/// What went wrong with a session.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SessionError {
    /// The store failed or refused.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A slice could not be read.
    #[error(transparent)]
    Slice(#[from] SliceError),
    /// Nothing goes by that name or id.
    #[error("no session is called {wanted:?}, and no id begins with that")]
    NotFound {
        /// What was asked for.
        wanted: String,
    },
    /// Several ids begin so.
    #[error("{wanted:?} could be any of {}", candidates.join(", "))]
    Ambiguous {
        /// What was asked for.
        wanted: String,
        /// Which it could be.
        candidates: Vec<String>,
    },
    /// The name is in use.
    #[error("there is a session called {name:?} already")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// The name can't be used.
    #[error(
        "session name {name:?} must have 1 to {MAX_NAME_CHARS} letters, digits, dots, underscores or hyphens, \
         and begin with a letter or digit"
    )]
    BadName {
        /// The name.
        name: String,
    },
    /// The session may have no children: its limits, or those of who cloned it, say so.
    #[error("session {name:?} may have no more generations of children: that limit was given with it")]
    TooDeep {
        /// The session's name.
        name: String,
    },
    /// A child that shares its parent's session is held to its limits by its agent's name, and was given none.
    #[error("a child that shares session {name:?} within limits needs an agent's name, by which it is held to them")]
    NoAgent {
        /// The session's name.
        name: String,
    },
    /// How the session began can't be read, so neither can what its workspace is.
    #[error("how session {name:?} began can't be read")]
    Unreadable {
        /// The session's name.
        name: String,
    },
    /// The session has fewer events.
    #[error("there is nothing {count} events ago: the session has {head}")]
    NothingBack {
        /// How many events ago.
        count: u64,
        /// How many there are.
        head: Seq,
    },
    /// The session has no such position.
    #[error("the session has no position {seq}; its last one is {head}")]
    NoPosition {
        /// The position.
        seq: Seq,
        /// The last one.
        head: Seq,
    },
}

impl Diagnostic for SessionError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Store(error) => error.kind(),
            Self::Slice(error) => error.kind(),
            Self::NotFound { .. } | Self::Ambiguous { .. } => ErrorKind::NotFound,
            Self::NothingBack { .. } | Self::NoPosition { .. } => ErrorKind::NotFound,
            Self::NameTaken { .. } => ErrorKind::Conflict,
            Self::BadName { .. } | Self::NoAgent { .. } => ErrorKind::Invalid,
            Self::TooDeep { .. } => ErrorKind::Refused,
            Self::Unreadable { .. } => ErrorKind::Damaged,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::NotFound { .. } => Some("`foldspace sessions` lists them".to_owned()),
            Self::Ambiguous { .. } => Some("give more of the id, or the whole name".to_owned()),
            Self::NameTaken { .. } => Some("open that session, or choose another name".to_owned()),
            Self::Unreadable { .. } => Some("a newer foldspace may have begun it: use that one".to_owned()),
            Self::NoPosition { .. } => Some("`foldspace log` shows the positions".to_owned()),
            _ => self.inner()?.hint(),
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
