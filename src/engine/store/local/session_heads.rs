//! All sessions of a local store.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, RwLock};

use super::session_head::SessionHead;
use crate::engine::id::SessionId;
use crate::engine::lock::{lock, read_lock, write_lock};
use crate::engine::store::journal::FramePosition;

/// Shards with a lock each, so that writers of different sessions rarely meet.
const PARTS: usize = 16;

type Part = RwLock<BTreeMap<SessionId, Arc<SessionHead>>>;

#[derive(Default)]
pub(super) struct Slots {
    parts: [Part; PARTS],
    dirty: Mutex<Dirty>,
}

/// Changes since the index was last updated.
#[derive(Default)]
pub(super) struct Dirty {
    pub(super) sessions: Vec<Arc<SessionHead>>,
    /// Removals that the index does not know, with their positions in the journal.
    pub(super) removed: Vec<(SessionId, FramePosition)>,
    pub(super) end: FramePosition,
    pub(super) group: u64,
    pub(super) full: Vec<u32>,
}

impl Slots {
    fn part(&self, session: SessionId) -> &Part {
        let mixed = session.as_bytes().iter().fold(0, |mixed, byte| mixed ^ byte);
        &self.parts[usize::from(mixed) % PARTS]
    }

    pub(super) fn get(&self, session: SessionId) -> Option<Arc<SessionHead>> {
        read_lock(self.part(session)).get(&session).cloned()
    }

    pub(super) fn get_or_add(&self, session: SessionId) -> Arc<SessionHead> {
        if let Some(slot) = self.get(session) {
            return slot;
        }
        let mut part = write_lock(self.part(session));
        Arc::clone(part.entry(session).or_insert_with(|| Arc::new(SessionHead::new(session))))
    }

    pub(super) fn add(&self, slot: Arc<SessionHead>) {
        let mut part = write_lock(self.part(slot.id));
        part.insert(slot.id, slot);
    }

    /// Drops one life of a session; another may have begun under its id.
    pub(super) fn let_go(&self, slot: &Arc<SessionHead>) {
        let mut part = write_lock(self.part(slot.id));
        if part.get(&slot.id).is_some_and(|known| Arc::ptr_eq(known, slot)) {
            part.remove(&slot.id);
        }
    }

    pub(super) fn clear(&self) {
        self.parts.iter().for_each(|part| write_lock(part).clear());
    }

    pub(super) fn all(&self) -> Vec<Arc<SessionHead>> {
        let mut all = Vec::new();
        for part in &self.parts {
            all.extend(read_lock(part).values().cloned());
        }
        all.sort_by_key(|slot| slot.id);
        all
    }

    pub(super) fn dirty(&self) -> MutexGuard<'_, Dirty> {
        lock(&self.dirty)
    }
}
