//! What happened to files, asked of the events alone: the history of a path, who wrote a line, and what was
//! ever there. Events are read in a stream; only what is asked about is kept.

mod blame;
mod cause;
pub(crate) mod error;
pub(crate) mod lineage;
mod lines;
mod merged;
mod path;
mod renames;
mod search;
mod watched;

use std::ops::ControlFlow;

use super::event::{DeleteEntry, WriteFile};
use super::id::Seq;
use super::recorded::{EventRef, Recorded};
use super::session::Session;
use super::session::sessions::SessionError;

pub use blame::{Blame, BlameLine, blame};
pub use cause::Cause;
pub use error::{BLAME_BYTES_MAX, HistoryError};
pub use lineage::SessionChange;
pub use merged::history_through_merges;
pub use path::{PathChange, path_history};
pub use search::{HistoryHit, HistorySearch, Matches, search_history};

/// Shows the events up to a position, in order, until the visitor breaks off.
fn each(
    session: &Session,
    until: Seq,
    mut visit: impl FnMut(&EventRef<'_>) -> ControlFlow<()>,
) -> Result<(), SessionError> {
    if until == 0 {
        return Ok(());
    }
    session.visit(1, &mut |event| {
        if event.seq <= until {
            visit(event)?;
        }
        if event.seq < until { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })
}

/// A change of files.
enum FileEvent {
    Write(WriteFile),
    Delete(DeleteEntry),
}

impl FileEvent {
    /// The change that an event tells; one that can't be read changes nothing, as in a fold.
    fn of(event: &EventRef<'_>) -> Option<Self> {
        let write = event.typed::<WriteFile>().and_then(Result::ok);
        let write = write.map(|Recorded { event, .. }| Self::Write(event));
        write.or_else(|| event.typed::<DeleteEntry>()?.ok().map(|Recorded { event, .. }| Self::Delete(event)))
    }
}
