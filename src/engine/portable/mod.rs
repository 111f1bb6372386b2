//! One file with everything of a session: its events, and the contents that they refer to.
//!
//! The file is a zstd stream of a head, commits as in the journal, and an end that says how many there
//! were and what they hash to. docs/FORMAT.md describes it.

mod export;
mod import;
mod reader;

use crate::engine::error::{Diagnostic, ErrorKind};
use std::io;

use serde::Serialize;

use super::commit::{CommitView, MAX_COMMIT_BYTES};
use super::id::{Seq, SessionId};
use super::session::sessions::SessionError;
use super::store::StoreError;

pub use export::export_session;
pub use import::{import_session, import_session_if};

const MAGIC: &[u8; 8] = b"FOLDOUT\n";
const VERSION: u32 = 2;
/// The first format, in which each commit had one event.
const FIRST_VERSION: u32 = 1;
const LEVEL: i32 = 3;
/// Bytes of a content.
const CONTENT_MAX: u32 = 1 << 30;
/// Bytes of a commit's record.
const COMMIT_MAX: usize = CommitView::AGENT + u8::MAX as usize + MAX_COMMIT_BYTES;
const CONTENT: u8 = 1;
const COMMIT: u8 = 2;
const END: u8 = 3;
/// Bytes that are hashed and packed at once.
const BUFFER: usize = 64 << 10;

/// Counts of a portable file's parts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PortableSummary {
    /// The session.
    pub session: SessionId,
    /// Its name.
    pub name: String,
    /// Count of events.
    pub events: u64,
    /// Count of those that were not here before; 0 for an export.
    pub added: u64,
    /// Count of contents.
    pub contents: u64,
    /// Bytes before compression.
    pub bytes: u64,
}

/// Failure of an export or an import.
#[derive(Debug, thiserror::Error)]
pub enum PortableError {
    /// The session or the store failed.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The file could not be read or written.
    #[error("can't {action} the file: {source}")]
    Io {
        /// Action that was tried.
        action: &'static str,
        /// Error of the system.
        source: io::Error,
    },
    /// The file is not what it should be; nothing was imported.
    #[error("the file can't be imported: {0}")]
    Damaged(String),
    /// The importing program does not want the session as it began, and why; nothing was imported.
    #[error("the session was not imported: {0}")]
    Refused(String),
    /// The session is there already, with another history.
    #[error("session {session} is here already and has another history from event {seq} on")]
    Differs {
        /// The session.
        session: SessionId,
        /// The first position that differs.
        seq: Seq,
    },
}

impl Diagnostic for PortableError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Session(error) => error.kind(),
            Self::Io { .. } => ErrorKind::Io,
            Self::Damaged(_) => ErrorKind::Damaged,
            Self::Refused(_) => ErrorKind::Invalid,
            Self::Differs { .. } => ErrorKind::Conflict,
        }
    }

    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Session(SessionError::NameTaken { .. } | SessionError::BadName { .. }) => {
                "give it another name with --name"
            }
            Self::Differs { .. } => {
                "nothing was changed; `foldspace remove` what is here, or import into another store (--data)"
            }
            _ => return self.inner()?.hint(),
        };
        Some(hint.to_owned())
    }

    fn inner(&self) -> Option<&dyn Diagnostic> {
        match self {
            Self::Session(error) => Some(error),
            _ => None,
        }
    }
}

impl From<StoreError> for PortableError {
    fn from(error: StoreError) -> Self {
        Self::Session(error.into())
    }
}

fn damaged(what: impl Into<String>) -> PortableError {
    PortableError::Damaged(what.into())
}
