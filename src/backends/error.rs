//! Failures of backends.

use crate::engine::advice::Advice;
use crate::engine::error::{Diagnostic, ErrorKind};

/// A failure of a backend.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the {backend} workspace failed: {reason}")]
pub struct BackendError {
    /// The backend's name.
    pub backend: &'static str,
    /// The human-readable cause.
    pub reason: String,
}

impl Diagnostic for BackendError {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Backend
    }

    fn advice(&self) -> Option<Advice> {
        Some(Advice::CheckMachine)
    }
}
