//! The kinds of errors, and the trait of every error that reaches a user.

use std::error::Error;

pub use super::advice::Advice;

/// Kind of an error. Each interface maps it with one table: to exit codes, HTTP problems or MCP codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The named session, path, event or content does not exist.
    NotFound,
    /// The history names a content that is not stored.
    ContentMissing,
    /// A name or an id fits several things.
    Ambiguous,
    /// The state differs from the state that the request expects.
    Conflict,
    /// Another process or call holds the resource. A later retry can succeed.
    Busy,
    /// A value in the request can't be used.
    Invalid,
    /// The request is valid, but can't be carried out in the current state.
    Refused,
    /// The caller may not use it.
    Forbidden,
    /// Stored data is damaged.
    Damaged,
    /// A newer program created it.
    Newer,
    /// The operating system or the disk failed.
    Io,
    /// The disk is full.
    Full,
    /// The workspace's backend failed.
    Backend,
    /// Another host has claimed it.
    OtherHost,
    /// A part of foldspace ended before its work did.
    Broken,
    /// The caller cancelled the work.
    Cancelled,
    /// The service that does the work is shutting down or gone.
    Unavailable,
    /// The work took longer than its limit.
    TimedOut,
}

/// Error with a kind, for the interfaces.
///
/// ```
/// # use foldspace_engine as foldspace;
/// use foldspace::{EntryPath, ErrorKind, event::Diagnostic};
/// assert_eq!(EntryPath::lookup("a/../b").unwrap_err().kind(), ErrorKind::Invalid);
/// ```
pub trait Diagnostic: Error + 'static {
    /// Returns the kind of the error.
    fn kind(&self) -> ErrorKind;

    /// Returns advice for the user, if any.
    fn advice(&self) -> Option<Advice> {
        self.inner().and_then(|inner| inner.advice())
    }

    /// Returns the wrapped error, if this error only forwards it with the same text.
    fn inner(&self) -> Option<&dyn Diagnostic> {
        None
    }
}

/// Error about a value that can't be used. Its text names the problem and the valid values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ValueError(String);

impl ValueError {
    /// Creates an error with this text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl Diagnostic for ValueError {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Invalid
    }
}

impl dyn Diagnostic {
    /// Iterates over the error and its wrapped errors, outermost first.
    pub fn chain(&self) -> impl Iterator<Item = &dyn Diagnostic> {
        std::iter::successors(Some(self), |error| error.inner())
    }

    /// Returns the error as an `E`, if it is one.
    pub fn downcast_ref<E: Error + 'static>(&self) -> Option<&E> {
        let error: &(dyn Error + 'static) = self;
        error.downcast_ref()
    }
}
