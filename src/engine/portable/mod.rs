//! Portable files: one file with all events of a session, and the contents that they refer to.
//!
//! A file is a zstd stream of a head, commits as in the journal, and an end with their number and hash. docs/FORMAT.md
//! describes it.

mod export;
mod export_chain;
mod import;
mod reader;

use std::io::{BufReader, BufWriter, Seek, SeekFrom};

use serde::Serialize;

use super::commit::{CommitView, MAX_COMMIT_BYTES};
use super::history::error::HistoryError;
use super::id::SessionId;
use super::session::sessions::Sessions;

pub use export::{export_session, export_session_seen};
pub use export_chain::{ExportChain, chain_of_export};
pub use import::{import_session, import_session_if};

const MAGIC: &[u8; 8] = b"FOLDOUT\n";
const VERSION: u32 = 1;
const LEVEL: i32 = 3;
const CONTENT_MAX: u32 = 1 << 30;
const COMMIT_MAX: usize = CommitView::AGENT + u8::MAX as usize + MAX_COMMIT_BYTES;
const CONTENT: u8 = 1;
const COMMIT: u8 = 2;
const END: u8 = 3;
/// Content named by its id as a git blob.
const BLOB: u8 = 4;
const BUFFER: usize = 64 << 10;

/// Summary of an export or an import.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PortableSummary {
    /// Session of the file.
    pub session: SessionId,
    /// Name of the session.
    pub name: String,
    /// Number of events.
    pub events: u64,
    /// Number of events that were new here; 0 for an export.
    pub added: u64,
    /// Number of contents.
    pub contents: u64,
    /// Bytes before compression.
    pub bytes: u64,
}

/// Copies the events and contents of a session that the other store lacks.
///
/// # Errors
/// Errors of [`export_session`] and [`import_session`]; [`HistoryError::Differs`] if the target diverged.
pub fn copy_session(id: SessionId, from: &Sessions, to: &Sessions) -> Result<PortableSummary, HistoryError> {
    let io = |action| move |source| HistoryError::Io { action, source };
    let mut file = tempfile::tempfile().map_err(io("create"))?;
    export_session(from, id, &mut BufWriter::new(&mut file))?;
    file.seek(SeekFrom::Start(0)).map_err(io("read"))?;
    import_session(to, &mut BufReader::new(file), None)
}

fn damaged(what: impl Into<String>) -> HistoryError {
    HistoryError::Damaged(what.into())
}
