//! What can go wrong between a face and a session's workspace.

use super::forward::ForwardError;
use crate::backends::BackendError;
use crate::engine::error::{Diagnostic, ErrorKind};
use crate::engine::session::sessions::SessionError;
use crate::engine::store::{LeaseHolder, StoreError};
use crate::tools::{ChildError, DispatchError, MergeError, MountError, RewindError};

/// Why a [`Hub`](super::Hub) could not do what it was asked for. Nothing has changed then, unless it says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// The session or its store failed.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The workspace can't be opened.
    #[error(transparent)]
    Dispatch(DispatchError),
    /// The mounts can't be copied.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// A child can't begin.
    #[error(transparent)]
    Child(#[from] ChildError),
    /// A child can't be merged.
    #[error(transparent)]
    Merge(#[from] MergeError),
    /// The session can't be rewound.
    #[error(transparent)]
    Rewind(#[from] RewindError),
    /// The process that has the session's workspace could not do it, or would not.
    #[error(transparent)]
    Forward(ForwardError),
    /// A call or a child of the session is under way.
    #[error("session {session} is being worked in: {what}")]
    Busy {
        /// The session's name.
        session: String,
        /// By whom.
        what: &'static str,
    },
    /// It takes nothing on any more.
    #[error("foldspace is ending, and takes no more calls")]
    Ending,
    /// What was asked for came upon a fault of foldspace's own.
    #[error("the work panicked, which is a fault of foldspace; the log on its error stream has the place")]
    Panicked,
}

impl Diagnostic for HubError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Session(error) => error.kind(),
            Self::Dispatch(error) => error.kind(),
            Self::Mount(error) => error.kind(),
            Self::Child(error) => error.kind(),
            Self::Merge(error) => error.kind(),
            Self::Rewind(error) => error.kind(),
            Self::Forward(error) => error.kind(),
            Self::Busy { .. } => ErrorKind::Busy,
            Self::Ending => ErrorKind::Unavailable,
            Self::Panicked => ErrorKind::Io,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Busy { .. } => Some("try again when that is done".to_owned()),
            _ => self.inner()?.hint(),
        }
    }

    fn inner(&self) -> Option<&dyn Diagnostic> {
        match self {
            Self::Session(error) => Some(error),
            Self::Dispatch(error) => Some(error),
            Self::Mount(error) => Some(error),
            Self::Child(error) => Some(error),
            Self::Merge(error) => Some(error),
            Self::Rewind(error) => Some(error),
            Self::Forward(error) => Some(error),
            _ => None,
        }
    }
}

impl From<DispatchError> for HubError {
    fn from(error: DispatchError) -> Self {
        match error {
            DispatchError::Session(error) => Self::Session(error),
            other => Self::Dispatch(other),
        }
    }
}

impl From<BackendError> for HubError {
    fn from(error: BackendError) -> Self {
        Self::Dispatch(error.into())
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
        let session = match self {
            Self::Session(error)
            | Self::Mount(MountError::Session(error))
            | Self::Child(ChildError::Dispatch(DispatchError::Session(error)))
            | Self::Merge(MergeError::Session(error))
            | Self::Rewind(RewindError::Session(error)) => error,
            _ => return None,
        };
        match session {
            SessionError::Store(StoreError::InUse { holder, .. }) => Some(holder),
            _ => None,
        }
    }
}
