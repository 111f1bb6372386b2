//! Failures of backends.

use std::path::PathBuf;

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

/// A user's directory that no session may work in or copy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("can't use {}: {why}", directory.display())]
pub struct UnusableDirectory {
    /// The directory, with resolved links.
    pub directory: PathBuf,
    /// The reason, and what to use instead.
    pub why: String,
}

impl Diagnostic for UnusableDirectory {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Invalid
    }
}
