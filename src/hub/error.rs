//! Errors of a hub.

use crate::backends::{BackendError, UnusableDirectory};
use crate::engine::advice::Advice;
use crate::engine::error::{Diagnostic, ErrorKind};
use crate::engine::session::error::SessionError;
use crate::engine::store::StoreError;
use crate::tools::{MountError, ToolError, WorkspaceError};

/// A failure of a [`Hub`](super::Hub). Nothing has changed, unless the variant states it.
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
    /// The session is in use: by a call, a child or another caller.
    #[error("session {session} is in use: {what}")]
    Busy {
        /// The session's name.
        session: String,
        /// The kind of use.
        what: &'static str,
    },
    /// Hook reports of agents can't be recorded now. They stay in the spool.
    #[error("{count} hook report{} not recorded yet: {source}", if *count == 1 { "" } else { "s" })]
    Unrecorded {
        /// The number of reports.
        count: usize,
        /// The reason.
        source: Box<HubError>,
    },
    /// The hub accepts no new work.
    #[error("foldspace is shutting down and accepts no new calls")]
    Ending,
    /// The work panicked: a bug in foldspace.
    #[error("internal error: the operation panicked; the log on stderr shows where")]
    Panicked,
}

impl Diagnostic for HubError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Session(error) => error.kind(),
            Self::Workspace(error) => error.kind(),
            Self::Mount(error) => error.kind(),
            Self::Unrecorded { source, .. } => source.kind(),
            Self::Busy { .. } => ErrorKind::Busy,
            Self::Ending => ErrorKind::Unavailable,
            Self::Panicked => ErrorKind::Broken,
        }
    }

    fn advice(&self) -> Option<Advice> {
        match self {
            Self::Busy { .. } => Some(Advice::text("try again when it is no longer in use")),
            Self::Unrecorded { source, .. } => source.advice(),
            _ => self.inner()?.advice(),
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

/// Implements `From` for errors by way of an intermediate error.
macro_rules! through {
    ($target:ty, $through:ty: $($error:ty),*) => {
        $(impl From<$error> for $target {
            fn from(error: $error) -> Self {
                <$through>::from(error).into()
            }
        })*
    };
}
pub(super) use through;

through!(HubError, WorkspaceError: ToolError, BackendError, UnusableDirectory);
through!(HubError, SessionError: StoreError);

impl HubError {
    /// Creates the error for a malformed report.
    pub(super) fn unreadable(error: impl std::fmt::Display) -> Self {
        BackendError { backend: "host", reason: format!("invalid hook report: {error}") }.into()
    }
}
