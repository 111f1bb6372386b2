//! History of files, read from the events alone: the changes of a path, blame, and search. Events are streamed; only
//! requested entries stay in memory.

mod blame;
mod cause;
pub mod error;
pub(crate) mod lineage;
mod lines;
mod merged;
mod open_calls;
mod path;
mod renames;
mod search;
mod watched;

use super::event::{DeleteEntry, WriteFile};
use super::{EventRef, Recorded};

pub use blame::{Blame, BlameLine, blame};
pub use cause::Cause;
pub use error::HistoryError;
pub use lineage::SessionChange;
pub use lines::kept;
pub use merged::history_through_merges;
#[doc(hidden)]
pub use open_calls::OpenCalls;
pub use path::{PathChange, path_history};
pub use search::{HistoryHit, HistorySearch, Matches, search_history};

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
