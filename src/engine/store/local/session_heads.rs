//! All sessions of a local store.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, RwLock};

use super::session_head::SessionHead;
use crate::engine::store::journal::FramePosition;
use crate::engine::{SessionId, lock, read_lock, write_lock};

#[derive(Default)]
pub(super) struct Slots {
    all: RwLock<BTreeMap<SessionId, Arc<SessionHead>>>,
    dirty: Mutex<Dirty>,
}

/// Changes since the index was last updated.
#[derive(Default)]
pub(super) struct Dirty {
    pub(super) sessions: Vec<Arc<SessionHead>>,
    /// Removals that the index lacks, with their places in the journal.
    pub(super) removed: Vec<(SessionId, FramePosition)>,
    pub(super) end: FramePosition,
    pub(super) group: u64,
    pub(super) full: Vec<u32>,
}

impl Slots {
    pub(super) fn get(&self, session: SessionId) -> Option<Arc<SessionHead>> {
        read_lock(&self.all).get(&session).cloned()
    }

    pub(super) fn get_or_add(&self, session: SessionId) -> Arc<SessionHead> {
        let known = self.get(session);
        let new = || Arc::new(SessionHead::new(session));
        known.unwrap_or_else(|| Arc::clone(write_lock(&self.all).entry(session).or_insert_with(new)))
    }

    pub(super) fn add(&self, slot: Arc<SessionHead>) {
        write_lock(&self.all).insert(slot.id, slot);
    }

    /// Drops a session, unless a new session under its id has replaced it.
    pub(super) fn let_go(&self, slot: &Arc<SessionHead>) {
        let mut all = write_lock(&self.all);
        if all.get(&slot.id).is_some_and(|known| Arc::ptr_eq(known, slot)) {
            all.remove(&slot.id);
        }
    }

    pub(super) fn clear(&self) {
        write_lock(&self.all).clear();
    }

    pub(super) fn all(&self) -> Vec<Arc<SessionHead>> {
        read_lock(&self.all).values().cloned().collect()
    }

    pub(super) fn dirty(&self) -> MutexGuard<'_, Dirty> {
        lock(&self.dirty)
    }
}
