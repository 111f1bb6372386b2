//! One file with everything of a session: its events, and the contents that they refer to.
//!
//! The file is a zstd stream of a head, commits as in the journal, and an end that says how many there
//! were and what they hash to. docs/FORMAT.md describes it.

mod export;
mod import;
mod reader;

use crate::engine::history::error::HistoryError;

use serde::Serialize;

use super::commit::{CommitView, MAX_COMMIT_BYTES};
use super::id::SessionId;

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

fn damaged(what: impl Into<String>) -> HistoryError {
    HistoryError::Damaged(what.into())
}
