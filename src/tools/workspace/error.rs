//! Reasons why a workspace can't be used.

use std::path::PathBuf;

use crate::backends::BackendError;
use crate::engine::session::sessions::SessionError;

/// Why a dispatcher can't be made.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DispatchError {
    /// The session or its store failed.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The workspace failed.
    #[error(transparent)]
    Workspace(#[from] BackendError),
    /// A directory that is to be filled holds something.
    #[error("{} is not empty; give a directory that is empty or not there", .0.display())]
    NotEmpty(PathBuf),
    /// The session has a container-backed shell already.
    #[error("session {0} has an active container already; a session has one at most")]
    SecondContainer(String),
}
