//! Failures of backends.

/// A failure of a backend.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the {backend} workspace failed: {reason}")]
pub struct BackendError {
    /// The backend's name.
    pub backend: &'static str,
    /// The cause, for a person.
    pub reason: String,
}
