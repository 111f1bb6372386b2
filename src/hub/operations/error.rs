//! Errors of operations.

use crate::backends::{BackendError, ShellError};
use crate::engine::commit::CommitError;
use crate::engine::error::{Diagnostic, ErrorKind, ValueError};
use crate::engine::session::error::SessionError;
use crate::engine::slice::SliceError;
use crate::engine::store::StoreError;
use crate::hub::HubError;
use crate::hub::error::through;
use crate::tools::{MountError, WorkspaceError};
use crate::view::ConditionError;

/// A failure of an operation. Nothing has changed, unless the error states it.
#[derive(Debug, thiserror::Error)]
pub enum OperationError {
    /// A session, its store or its workspace failed.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// The parameters do not fit their schema.
    #[error("invalid parameters: {0}")]
    Parameters(serde_json::Error),
    /// The request can't be fulfilled, or is invalid.
    #[error("{detail}")]
    Told {
        /// The kind.
        kind: ErrorKind,
        /// The reason.
        detail: String,
        /// The advice.
        hint: Option<String>,
    },
}

impl OperationError {
    fn new(kind: ErrorKind, detail: impl Into<String>) -> Self {
        Self::Told { kind, detail: detail.into(), hint: None }
    }

    #[doc(hidden)]
    pub fn invalid(detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, detail)
    }

    #[doc(hidden)]
    pub fn refused(detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::Refused, detail)
    }

    #[doc(hidden)]
    pub fn not_found(detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotFound, detail)
    }
}

impl Diagnostic for OperationError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Hub(error) => error.kind(),
            Self::Parameters(_) => ErrorKind::Invalid,
            Self::Told { kind, .. } => *kind,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Told { hint, .. } => hint.clone(),
            _ => self.inner()?.hint(),
        }
    }

    fn inner(&self) -> Option<&dyn Diagnostic> {
        match self {
            Self::Hub(error) => Some(error),
            _ => None,
        }
    }
}

through!(OperationError, HubError: SessionError, StoreError, WorkspaceError, MountError, BackendError);
through!(OperationError, SessionError: SliceError, CommitError);

macro_rules! invalid {
    ($($error:ty),*) => {
        $(impl From<$error> for OperationError {
            fn from(error: $error) -> Self {
                Self::Told { kind: error.kind(), hint: error.hint(), detail: error.to_string() }
            }
        })*
    };
}

invalid!(ValueError, ShellError, ConditionError);
