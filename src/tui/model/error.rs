//! The errors of the debugger.

use foldspace::SessionError;
use foldspace::fold::SliceError;

use crate::terminal::exit::Failure;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ViewError {
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error(transparent)]
    Slice(#[from] SliceError),
    #[error("{0}")]
    Nowhere(String),
    #[error("stopped")]
    Stopped,
    #[error("{0}")]
    Words(String),
}

impl From<Failure> for ViewError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Told { message, .. } => Self::Words(message),
            Failure::Closed => Self::Words("the output is closed".to_owned()),
        }
    }
}
