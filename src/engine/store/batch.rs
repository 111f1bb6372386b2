//! Stored events, a run of them at a time.

use std::ops::Range;

use super::StoreError;
use crate::engine::commit::{Commit, CommitView};
use crate::engine::recorded::{EventRef, Recorded, Seq};

/// Events of one session in order and without gaps, as they are stored: read once, looked at in place,
/// by several threads if need be.
#[derive(Debug, Clone, Default)]
pub struct EventBatch {
    bytes: Vec<u8>,
    /// Where the commits lie in `bytes`; each has been read before.
    commits: Vec<Range<usize>>,
    last: Seq,
}

impl EventBatch {
    /// A batch of these events; for stores that keep them in another way.
    ///
    /// # Errors
    /// [`StoreError::Commit`] when an event is over a limit.
    pub fn of(events: &[Recorded]) -> Result<Self, StoreError> {
        let mut batch = Self::default();
        for event in events {
            let mut encoded = Vec::new();
            Commit::of_recorded(event)?.encode(event.seq, event.time, &mut encoded);
            batch.add(&encoded, event.seq);
        }
        Ok(batch)
    }

    pub(super) fn with_buffer(bytes: Vec<u8>) -> Self {
        Self { bytes, ..Self::default() }
    }

    /// Adds a commit that ends at `last`.
    pub(super) fn add(&mut self, encoded: &[u8], last: Seq) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(encoded);
        self.commits.push(start..self.bytes.len());
        self.last = last;
    }

    /// Takes a commit that lies in the buffer.
    pub(super) fn add_range(&mut self, range: Range<usize>, last: Seq) {
        self.commits.push(range);
        self.last = last;
    }

    pub(super) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there are none: the history ends before the position that was asked for.
    pub fn is_empty(&self) -> bool {
        self.commits.is_empty()
    }

    /// The position of its last event; 0 when it is empty.
    pub fn last(&self) -> Seq {
        self.last
    }

    /// Fails when the events ended before the position behind the last one: a commit is not whole.
    pub(crate) fn check(&self, next: Seq) -> Result<(), StoreError> {
        if next > self.last {
            return Ok(());
        }
        Err(StoreError::Damaged { segment: 0, offset: 0, what: format!("event {next} ends early in its commit") })
    }

    /// The events in order. It may begin before the position that was asked for: a commit is whole.
    pub fn events(&self) -> impl Iterator<Item = EventRef<'_>> {
        self.commits().flat_map(|commit| commit.events().map_while(Result::ok))
    }

    pub(super) fn commits(&self) -> impl Iterator<Item = CommitView<'_>> {
        self.commits.iter().filter_map(|range| CommitView::parse(self.bytes.get(range.clone())?).ok())
    }
}
