//! History of files, read from the events alone: the changes of a path, blame, and search. Events are streamed; only
//! requested entries stay in memory.

mod blame;
mod cause;
pub mod error;
pub(crate) mod lineage;
mod lines;
mod merged;
mod path;
mod renames;
mod search;
mod watched;

use std::ops::ControlFlow;

use super::event::{DeleteEntry, WriteFile};
use super::{EventRef, Recorded, Seq, Session, SessionResult};

pub use blame::{Blame, BlameLine, blame};
pub use cause::Cause;
pub use error::HistoryError;
pub use lineage::SessionChange;
pub use lines::kept;
pub use merged::history_through_merges;
pub use path::{PathChange, path_history};
pub use search::{HistoryHit, HistorySearch, Matches, search_history};

fn each(session: &Session, until: Seq, mut visit: impl FnMut(&EventRef<'_>) -> ControlFlow<()>) -> SessionResult<()> {
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

enum FileEvent {
    Write(WriteFile),
    Delete(DeleteEntry),
}

impl FileEvent {
    fn of(event: &EventRef<'_>) -> Option<Self> {
        let write = event.typed::<WriteFile>().and_then(Result::ok);
        let write = write.map(|Recorded { event, .. }| Self::Write(event));
        write.or_else(|| event.typed::<DeleteEntry>()?.ok().map(|Recorded { event, .. }| Self::Delete(event)))
    }
}
