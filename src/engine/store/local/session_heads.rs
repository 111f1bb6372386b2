//! All sessions of a local store.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use super::session_head::SessionHead;
use crate::engine::id::SessionId;
use crate::engine::store::journal::FramePosition;

/// Parts with a lock each, so that writers of different sessions seldom meet.
const PARTS: usize = 16;

type Part = RwLock<BTreeMap<SessionId, Arc<SessionHead>>>;

/// All sessions, and what the indexer has not seen of them.
#[derive(Default)]
pub(super) struct Slots {
    parts: [Part; PARTS],
    dirty: Mutex<Dirty>,
}

/// What has changed since the index last learned.
#[derive(Default)]
pub(super) struct Dirty {
    pub(super) sessions: Vec<Arc<SessionHead>>,
    /// Sessions whose removal the index has not heard of, with its place in the journal.
    pub(super) removed: Vec<(SessionId, FramePosition)>,
    /// Up to where the journal is durable, and in which group.
    pub(super) end: FramePosition,
    pub(super) group: u64,
    /// Segments that were filled and can be packed.
    pub(super) full: Vec<u32>,
}

impl Slots {
    fn part(&self, session: SessionId) -> &Part {
        let mixed = session.as_bytes().iter().fold(0, |mixed, byte| mixed ^ byte);
        &self.parts[usize::from(mixed) % PARTS]
    }

    pub(super) fn get(&self, session: SessionId) -> Option<Arc<SessionHead>> {
        self.part(session).read().unwrap_or_else(PoisonError::into_inner).get(&session).cloned()
    }

    pub(super) fn get_or_add(&self, session: SessionId) -> Arc<SessionHead> {
        if let Some(slot) = self.get(session) {
            return slot;
        }
        let mut part = self.part(session).write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(part.entry(session).or_insert_with(|| Arc::new(SessionHead::new(session))))
    }

    /// Puts in a session that is not there.
    pub(super) fn add(&self, slot: Arc<SessionHead>) {
        let mut part = self.part(slot.id).write().unwrap_or_else(PoisonError::into_inner);
        part.insert(slot.id, slot);
    }

    /// Lets go of one life of a session; another may have begun under its id.
    pub(super) fn let_go(&self, slot: &Arc<SessionHead>) {
        let mut part = self.part(slot.id).write().unwrap_or_else(PoisonError::into_inner);
        if part.get(&slot.id).is_some_and(|known| Arc::ptr_eq(known, slot)) {
            part.remove(&slot.id);
        }
    }

    pub(super) fn clear(&self) {
        self.parts.iter().for_each(|part| part.write().unwrap_or_else(PoisonError::into_inner).clear());
    }

    /// All sessions, in the order of their ids.
    pub(super) fn all(&self) -> Vec<Arc<SessionHead>> {
        let mut all = Vec::new();
        for part in &self.parts {
            all.extend(part.read().unwrap_or_else(PoisonError::into_inner).values().cloned());
        }
        all.sort_by_key(|slot| slot.id);
        all
    }

    pub(super) fn dirty(&self) -> MutexGuard<'_, Dirty> {
        self.dirty.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
