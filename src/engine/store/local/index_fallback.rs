//! Operation without the index after it has failed.

use super::{LocalInner, SledIndex};
use crate::engine::store::{Result, StoreError, index};
use crate::engine::{lock, write_lock};

impl LocalInner {
    /// Runs work on the index; returns `without` if the index is missing or fails.
    pub(super) fn with_index<T>(&self, without: T, work: impl FnOnce(&SledIndex) -> Result<T>) -> Result<T> {
        let Some(index) = self.index() else { return Ok(without) };
        match work(&index) {
            Err(error @ StoreError::Index(_)) => {
                self.do_without_index(&error)?;
                Ok(without)
            }
            done => done,
        }
    }

    /// Runs work that reads the index; if the index fails, runs it again without the index.
    pub(super) fn healing<T>(&self, mut work: impl FnMut() -> Result<T>) -> Result<T> {
        match work() {
            Err(error @ StoreError::Index(_)) => {
                self.do_without_index(&error)?;
                work()
            }
            done => done,
        }
    }

    /// Sets the index aside for the next opening to rebuild, and finds the contents that only it knew in the journal.
    /// From then on, reads of old events [scan](Self::scan_positions) for them.
    pub(super) fn do_without_index(&self, error: &StoreError) -> Result<()> {
        let _learning = lock(&self.learning);
        if write_lock(&self.index).take().is_none() {
            return Ok(());
        }
        tracing::warn!(%error, "the index failed; continuing without it");
        if let Err(error) = index::set_aside(&self.directory.join("index")) {
            tracing::warn!(%error, "failed to set the index aside");
        }
        let end = self.slots.dirty().end;
        self.find_contents(end)
    }
}
