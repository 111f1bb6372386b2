//! What a store does when its index fails while it is open: everything goes on without one.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use super::{LocalInner, SledIndex};
use crate::engine::commit::CommitView;
use crate::engine::id::{Seq, SessionId};
use crate::engine::store::journal::frame::FrameKind;
use crate::engine::store::journal::{self, FramePosition};
use crate::engine::store::{StoreError, content, index};

impl LocalInner {
    /// Does something with the index that can be left undone when there is none.
    pub(super) fn with_index<T>(
        &self,
        without: T,
        work: impl FnOnce(&SledIndex) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let Some(index) = self.index() else { return Ok(without) };
        match work(&index) {
            Err(error @ StoreError::Index(_)) => {
                self.do_without_index(&error)?;
                Ok(without)
            }
            done => done,
        }
    }

    /// Does something for which the index, or else the journal, must be asked.
    pub(super) fn healing<T>(&self, mut work: impl FnMut() -> Result<T, StoreError>) -> Result<T, StoreError> {
        match work() {
            Err(error @ StoreError::Index(_)) => {
                self.do_without_index(&error)?;
                work()
            }
            done => done,
        }
    }

    /// Sets the index aside, so that the next opening makes another, and reads what only it knew from
    /// the journal into memory. No slot may be locked by the caller.
    pub(super) fn do_without_index(&self, error: &StoreError) -> Result<(), StoreError> {
        let _learning = self.learning.lock().unwrap_or_else(PoisonError::into_inner);
        if self.index.write().unwrap_or_else(PoisonError::into_inner).take().is_none() {
            return Ok(());
        }
        tracing::warn!(%error, "the index failed and is not used any more");
        if let Err(error) = index::set_aside(&self.directory.join("index")) {
            tracing::warn!(%error, "the index could not be set aside");
        }
        let mut positions = self.read_positions()?;
        for slot in self.slots.all() {
            slot.lock().complete(positions.remove(&slot.id).unwrap_or_default());
        }
        Ok(())
    }

    /// Reads where everything is; what is damaged is passed over, and shows when it is read.
    fn read_positions(&self) -> Result<BTreeMap<SessionId, Vec<(Seq, FramePosition)>>, StoreError> {
        let end = self.slots.dirty().end;
        let mut positions = BTreeMap::<SessionId, Vec<(Seq, FramePosition)>>::new();
        for number in self.segments.numbers()? {
            journal::walk(&*self.segments.get(number)?, &mut |item| {
                let journal::Item::Frame(frame) = item else { return Ok(()) };
                let place = FramePosition { segment: number, offset: u32::try_from(frame.offset).unwrap_or(u32::MAX) };
                match frame.header.kind {
                    _ if place >= end => {}
                    FrameKind::Commit | FrameKind::Fork => {
                        let commit = frame.header.kind.commit_in(frame.payload).unwrap_or_default();
                        if let Ok(commit) = CommitView::parse(commit) {
                            // Another life may have been under its id.
                            if commit.first == 1 || frame.header.kind == FrameKind::Fork {
                                positions.remove(&commit.session);
                            }
                            positions.entry(commit.session).or_default().push((commit.first, place));
                        }
                    }
                    FrameKind::Content | FrameKind::Manifest => {
                        if let Some(head) = content::head_of(frame.header.kind, frame.payload) {
                            self.contents.found(head.digest, place);
                        }
                    }
                    FrameKind::Removal => {
                        if let Some(session) = frame.payload.first_chunk().map(|id| SessionId::from_bytes(*id))
                            && !self.slots.get(session).is_some_and(|slot| slot.is_buried())
                        {
                            positions.remove(&session);
                        }
                    }
                    FrameKind::Close | FrameKind::Seal => {}
                }
                Ok(())
            })?;
        }
        Ok(positions)
    }
}
