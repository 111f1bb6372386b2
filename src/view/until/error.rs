//! The error of a condition.

use crate::engine::advice::Advice;
use crate::engine::error::{Diagnostic, ErrorKind};

/// A malformed condition.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{text}")]
pub struct ConditionError {
    pub(super) text: String,
    pub(super) hint: Option<String>,
}

impl ConditionError {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), hint: None }
    }

    pub(super) fn pattern(what: &str, error: impl std::fmt::Display) -> Self {
        Self::new(format!("the {what} can't be understood: {error}"))
    }
}

impl Diagnostic for ConditionError {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Invalid
    }

    fn advice(&self) -> Option<Advice> {
        self.hint.clone().map(Advice::text)
    }
}
