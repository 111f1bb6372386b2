//! Work without the index after it has failed.

use std::collections::BTreeMap;

use super::{LocalInner, SledIndex};
use crate::engine::store::journal::frame::FrameBody;
use crate::engine::store::journal::{self, FramePosition};
use crate::engine::store::{Result, StoreError, index};
use crate::engine::{Seq, SessionId, lock, write_lock};

impl LocalInner {
    /// Runs work on the index; returns `without` if there is none or it fails.
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

    /// Runs work that reads the index, and again without it if it fails.
    pub(super) fn healing<T>(&self, mut work: impl FnMut() -> Result<T>) -> Result<T> {
        match work() {
            Err(error @ StoreError::Index(_)) => {
                self.do_without_index(&error)?;
                work()
            }
            done => done,
        }
    }

    /// Sets the index aside for the next open to rebuild, and reads what only it knew from the journal. The caller
    /// must hold no session's lock.
    pub(super) fn do_without_index(&self, error: &StoreError) -> Result<()> {
        let _learning = lock(&self.learning);
        if write_lock(&self.index).take().is_none() {
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

    /// Reads all positions; damage is skipped, and reported when it is read.
    fn read_positions(&self) -> Result<BTreeMap<SessionId, Vec<(Seq, FramePosition)>>> {
        let end = self.slots.dirty().end;
        let mut positions = BTreeMap::<SessionId, Vec<(Seq, FramePosition)>>::new();
        let mut ends = BTreeMap::<SessionId, Seq>::new();
        let mut hole = None;
        for number in self.segments.numbers()? {
            journal::walk(&*self.segments.get(number)?, &mut |item| {
                let frame = match item {
                    journal::Item::Frame(frame) | journal::Item::Flipped(frame, _) => frame,
                    journal::Item::Hole(from, ..) => {
                        hole = Some(FramePosition::new(number, from));
                        return Ok(());
                    }
                };
                let place = frame.position(number);
                if place >= end {
                    return Ok(());
                }
                match frame.body() {
                    Ok(FrameBody::Commit(fork, commit)) => {
                        // Another life may have been under its id.
                        if commit.first == 1 || fork.is_some() {
                            positions.remove(&commit.session);
                        }
                        let known = positions.entry(commit.session).or_default();
                        let end = ends.insert(commit.session, commit.last()).unwrap_or(commit.first);
                        known.extend(hole.filter(|_| commit.first > end + 1).map(|hole| (end + 1, hole)));
                        known.push((commit.first, place));
                    }
                    Ok(FrameBody::Content(digest, _)) => self.contents.found(digest, place),
                    Ok(FrameBody::Removal(session))
                        if !self.slots.get(session).is_some_and(|slot| slot.is_buried()) =>
                    {
                        positions.remove(&session);
                    }
                    // Another life may have been under its id.
                    Ok(FrameBody::LateStart(session, _)) => drop(positions.remove(&session)),
                    Ok(FrameBody::Removal(_) | FrameBody::Mark) | Err(_) => {}
                }
                Ok(())
            })?;
        }
        Ok(positions)
    }
}
