//! Errors of the verbs.

use crate::backends::{BackendError, ShellError};
use crate::engine::path::PathError;
use crate::engine::session::sessions::SessionError;
use crate::engine::slice::SliceError;
use crate::engine::store::StoreError;
use crate::hub::HubError;
use crate::reducers::ChoiceError;
use crate::tools::{BisectError, DispatchError, MountError, PredicateError};
use crate::view::PositionError;

/// Why a verb could not be done. Nothing has changed then, unless it says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum OperationError {
    /// A session, its store or its workspace failed.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// The session has no such position.
    #[error(transparent)]
    Position(#[from] PositionError),
    /// A bisection failed.
    #[error(transparent)]
    Bisect(#[from] BisectError),
    /// The predicate can't be read.
    #[error(transparent)]
    Predicate(#[from] PredicateError),
    /// The path can't be read.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The parameters do not fit their schema.
    #[error("the parameters are not right: {0}")]
    Parameters(serde_json::Error),
    /// A value can't be used.
    #[error("{0}")]
    Invalid(String),
    /// Something is not there.
    #[error("{detail}")]
    NotFound {
        /// The thing.
        detail: String,
        /// The things that are there.
        hint: Option<String>,
    },
    /// It can't be done as things are.
    #[error("{detail}")]
    Refused {
        /// The reason.
        detail: String,
        /// The advice.
        hint: Option<String>,
    },
    /// The caller may not do that.
    #[error("{detail}")]
    Forbidden {
        /// The reason.
        detail: String,
        /// The advice.
        hint: String,
    },
}

impl OperationError {
    /// Returns the advice for the caller, if there is any.
    pub(crate) fn hint(&self) -> Option<&str> {
        match self {
            Self::NotFound { hint, .. } | Self::Refused { hint, .. } => hint.as_deref(),
            Self::Forbidden { hint, .. } => Some(hint),
            _ => None,
        }
    }

    /// Says what is not there.
    pub(crate) fn not_found(detail: impl Into<String>) -> Self {
        Self::NotFound { detail: detail.into(), hint: None }
    }

    /// Says why it can't be done as things are.
    pub(crate) fn refused(detail: impl Into<String>) -> Self {
        Self::Refused { detail: detail.into(), hint: None }
    }
}

macro_rules! through {
    ($through:ty: $($error:ty),*) => {
        $(impl From<$error> for OperationError {
            fn from(error: $error) -> Self {
                <$through>::from(error).into()
            }
        })*
    };
}

through!(HubError: SessionError, StoreError, DispatchError, MountError, BackendError);
through!(SessionError: SliceError);

impl From<ChoiceError> for OperationError {
    fn from(error: ChoiceError) -> Self {
        Self::Invalid(error.to_string())
    }
}

impl From<ShellError> for OperationError {
    fn from(error: ShellError) -> Self {
        Self::Invalid(error.to_string())
    }
}
