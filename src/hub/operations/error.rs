//! Errors of operations.

use crate::backends::{BackendError, ShellError, UnusableDirectory};
use crate::engine::advice::Advice;
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
        advice: Option<Advice>,
    },
}

impl OperationError {
    fn new(kind: ErrorKind, detail: impl Into<String>) -> Self {
        Self::Told { kind, detail: detail.into(), advice: None }
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

    #[must_use]
    #[doc(hidden)]
    pub fn with_advice(mut self, given: Advice) -> Self {
        if let Self::Told { advice, .. } = &mut self {
            *advice = Some(given);
        }
        self
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

    fn advice(&self) -> Option<Advice> {
        match self {
            Self::Told { advice, .. } => advice.clone(),
            _ => self.inner()?.advice(),
        }
    }

    fn inner(&self) -> Option<&dyn Diagnostic> {
        match self {
            Self::Hub(error) => Some(error),
            _ => None,
        }
    }
}

through!(OperationError, HubError: SessionError, StoreError, WorkspaceError, MountError, BackendError, UnusableDirectory);
through!(OperationError, SessionError: SliceError, CommitError);

macro_rules! invalid {
    ($($error:ty),*) => {
        $(impl From<$error> for OperationError {
            fn from(error: $error) -> Self {
                Self::Told { kind: error.kind(), advice: error.advice(), detail: error.to_string() }
            }
        })*
    };
}

invalid!(ValueError, ShellError, ConditionError, crate::hub::PortError);
#[cfg(feature = "mount")]
invalid!(crate::fuse::FuseError);
#[cfg(feature = "sql")]
invalid!(crate::sql::SqlError);
