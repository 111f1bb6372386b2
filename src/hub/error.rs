//! Errors between a face and a session's workspace.

use crate::backends::BackendError;
use crate::engine::error::{Diagnostic, ErrorKind};
use crate::engine::session::error::SessionError;
use crate::engine::store::{LeaseHolder, StoreError};
use crate::tools::{MountError, WorkspaceError};

/// A failure of a [`Hub`](super::Hub). Nothing has changed then, unless it says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// The session or its store failed.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The workspace can't be opened, rewound, merged or forked.
    #[error(transparent)]
    Workspace(WorkspaceError),
    /// The mounts can't be copied.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// The process that has the workspace does not answer. Nothing was done.
    #[error("{0} has the workspace, and does not answer")]
    Gone(String),
    /// The process that has the workspace takes nothing on any more. Nothing was done.
    #[error("{0} has the workspace, and is ending")]
    OwnerEnding(String),
    /// The process that has the workspace ended at work: it is interrupted, or done and not reported.
    #[error("{holder} ended, or let go, before it answered ({reason}); what became of it is in the session's log")]
    Lost {
        /// The process.
        holder: String,
        /// The fate of the connection.
        reason: String,
    },
    /// The process that has the workspace says no.
    #[error("{message}")]
    Elsewhere {
        /// Its kind.
        kind: ErrorKind,
        /// The problem in a word, as the API has it: `not_found`, `conflict`, ...
        problem: String,
        /// Its words.
        message: String,
        /// Its advice.
        hint: Option<String>,
    },
    /// The session is in use: by a call, a child or another caller.
    #[error("session {session} is in use: {what}")]
    Busy {
        /// The session's name.
        session: String,
        /// By whom.
        what: &'static str,
    },
    /// It takes nothing on any more.
    #[error("foldspace is ending; it takes no more calls")]
    Ending,
    /// The work came upon a fault of foldspace's own.
    #[error("the work panicked, which is a fault of foldspace; the log on its error stream has the place")]
    Panicked,
}

impl Diagnostic for HubError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Session(error) => error.kind(),
            Self::Workspace(error) => error.kind(),
            Self::Mount(error) => error.kind(),
            Self::Busy { .. } | Self::Gone(_) | Self::OwnerEnding(_) => ErrorKind::Busy,
            Self::Elsewhere { kind, .. } => *kind,
            Self::Ending => ErrorKind::Unavailable,
            Self::Lost { .. } | Self::Panicked => ErrorKind::Io,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Busy { .. } => Some("try again when that is done".to_owned()),
            Self::Gone(_) | Self::OwnerEnding(_) => Some("nothing was done; try again".to_owned()),
            Self::Lost { .. } => Some("look into the session's log before you do it again".to_owned()),
            Self::Elsewhere { hint, .. } => hint.clone(),
            _ => self.inner()?.hint(),
        }
    }

    fn inner(&self) -> Option<&dyn Diagnostic> {
        match self {
            Self::Session(error) => Some(error),
            Self::Workspace(error) => Some(error),
            Self::Mount(error) => Some(error),
            _ => None,
        }
    }
}

impl From<WorkspaceError> for HubError {
    fn from(error: WorkspaceError) -> Self {
        match error {
            WorkspaceError::Session(error) => Self::Session(error),
            other => Self::Workspace(other),
        }
    }
}

impl From<BackendError> for HubError {
    fn from(error: BackendError) -> Self {
        Self::Workspace(error.into())
    }
}

impl From<StoreError> for HubError {
    fn from(error: StoreError) -> Self {
        Self::Session(error.into())
    }
}

impl HubError {
    /// The other process that has the session's workspace, where that is what is in the way.
    pub fn holder(&self) -> Option<&LeaseHolder> {
        let error: &dyn Diagnostic = self;
        error.chain().find_map(|error| match error.downcast_ref() {
            Some(StoreError::InUse { holder, .. }) => Some(holder.as_ref()),
            _ => None,
        })
    }
}
