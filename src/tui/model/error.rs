//! What keeps the debugger from showing something.

use foldspace::SessionError;
use foldspace::fold::SliceError;

use crate::terminal::exit::Failure;

/// Why something could not be looked at, in words for the person who looks.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ViewError {
    /// What the session says.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// A slice without a JSON form.
    #[error(transparent)]
    Slice(#[from] SliceError),
    /// There is no such place in the history.
    #[error("{0}")]
    Nowhere(String),
    /// Nobody wants it any more.
    #[error("stopped")]
    Stopped,
    /// Anything else.
    #[error("{0}")]
    Words(String),
}

impl From<Failure> for ViewError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Told { message, .. } => Self::Words(message),
            Failure::Closed => Self::Words("nobody reads any more".to_owned()),
        }
    }
}
