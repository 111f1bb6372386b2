//! Searches through a history.

use std::sync::Arc;

use foldspace::view::{SearchQuery, Sought, StopCondition, touches};
use foldspace::{EntryPath, Seq};

use super::{Brief, Direction, Failure, Leash, Reached, Rows, SessionHistory};

#[derive(Clone)]
pub(crate) struct Seek {
    pub(crate) from: Seq,
    pub(crate) way: Direction,
    pub(crate) wanted: SeekTarget,
}

#[derive(Clone)]
pub(crate) enum SeekTarget {
    Row(Rows, fn(&Brief) -> bool),
    Search(Arc<SearchQuery>, Rows),
    Change(EntryPath),
    Any(Vec<Arc<StopCondition>>),
}

impl Seek {
    pub(crate) fn run(&self, past: &SessionHistory, leash: &Leash) -> Result<Option<Sought>, Failure> {
        let from = (self.from, self.way);
        match &self.wanted {
            SeekTarget::Row(rows, wanted) => {
                let reached = rows.next(past, self.from, self.way, Some(leash), *wanted)?;
                Ok(match reached {
                    Reached::Row(seq) => Some(Sought { seq, because: String::new() }),
                    Reached::End | Reached::TooFar => None,
                })
            }
            SeekTarget::Search(search, rows) => past.next_event(from, leash, &|event| {
                (rows.lists(event.seq, event.call) && past.matches(search, event)).then(String::new)
            }),
            SeekTarget::Change(path) => past.next_event(from, leash, &|event| touches(event, path).then(String::new)),
            SeekTarget::Any(conditions) => past.next_stop(from, leash, conditions),
        }
    }
}
