//! All sessions of a local store.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};

use super::session_head::{SessionHead, SlotInner};
use crate::engine::bus::Bus;
use crate::engine::store::content::Contents;
use crate::engine::store::journal::{FramePosition, Group};
use crate::engine::store::session_index::SessionIndex;
use crate::engine::store::{Result, SessionQuery, SessionTotals};
use crate::engine::{CommitView, Recorded, Seq, SessionId, lock, read_lock, write_lock};

#[derive(Default)]
pub(super) struct Slots {
    all: RwLock<BTreeMap<SessionId, Arc<SessionHead>>>,
    /// The sessions that were not removed. Locked after a session, before `all`.
    index: RwLock<SessionIndex>,
    /// Number of visible events in them.
    events: AtomicU64,
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
        let inner = slot.lock();
        if inner.removed.is_none() {
            self.list(slot.id, &inner);
            self.events.fetch_add(slot.own_events(), Ordering::Relaxed);
        }
        drop(inner);
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
        *write_lock(&self.index) = SessionIndex::default();
        self.events.store(0, Ordering::Relaxed);
    }

    /// Adds a session to the index, once it has its first event.
    pub(super) fn list(&self, id: SessionId, inner: &SlotInner) {
        if let Some(origin) = &inner.origin {
            let place = u64::from(inner.begun.segment) << 32 | u64::from(inner.begun.offset);
            write_lock(&self.index).add(id, origin, place);
        }
    }

    /// Adds a session to the index if it begins with this encoded commit.
    pub(super) fn list_begun(&self, (id, inner): (SessionId, &mut SlotInner), commit: &[u8], place: FramePosition) {
        if inner.origin.is_none()
            && let Ok(view) = CommitView::parse(commit)
        {
            inner.begin(&view, place);
            self.list(id, inner);
        }
    }

    pub(super) fn unlist(&self, id: SessionId) {
        write_lock(&self.index).remove(id);
    }

    /// Makes a session's events up to `last` visible.
    pub(super) fn show(&self, slot: &SessionHead, last: Seq) {
        self.events.fetch_add(slot.show(last), Ordering::Relaxed);
    }

    /// Uncounts the events of a session that was removed.
    pub(super) fn uncount(&self, slot: &SessionHead) {
        self.events.fetch_sub(slot.own_events(), Ordering::Relaxed);
    }

    /// Runs work of a scan that adds events to a session.
    pub(super) fn scanned<T>(&self, slot: &SessionHead, work: impl FnOnce(&SessionHead) -> T) -> T {
        let (events, is_listed) = (slot.own_events(), slot.lock().origin.is_some());
        let done = work(slot);
        self.events.fetch_add(slot.own_events() - events, Ordering::Relaxed);
        if !is_listed {
            self.list(slot.id, &slot.lock());
        }
        done
    }

    pub(super) fn select(&self, query: SessionQuery<'_>, limit: usize) -> Result<Vec<SessionId>> {
        let is_visible = |id| self.get(id).is_some_and(|slot| slot.visible() > 0);
        read_lock(&self.index).select(query, limit, &is_visible)
    }

    pub(super) fn totals(&self) -> SessionTotals {
        SessionTotals { sessions: read_lock(&self.index).len(), events: self.events.load(Ordering::Relaxed) }
    }

    pub(super) fn all(&self) -> Vec<Arc<SessionHead>> {
        read_lock(&self.all).values().cloned().collect()
    }

    pub(super) fn dirty(&self) -> MutexGuard<'_, Dirty> {
        lock(&self.dirty)
    }
}

/// Makes a durable group visible and announces it on the bus.
pub(super) fn told(slots: &Slots, contents: &Contents, bus: &Bus, group: &Group<'_, SessionHead>) {
    contents.written(group.end);
    let mut dirty = slots.dirty();
    dirty.end = group.end;
    dirty.group = group.number;
    for note in &group.notes {
        note.subject.wrote(note.last);
        slots.show(&note.subject, note.last);
        // The flag and the list change only under the lock of `dirty`.
        if !note.subject.dirty.load(Ordering::Relaxed) {
            note.subject.dirty.store(true, Ordering::Relaxed);
            dirty.sessions.push(Arc::clone(&note.subject));
        }
    }
    drop(dirty);
    bus.moved(group.notes.iter().map(|note| note.subject.id));
    if group.notes.iter().any(|note| bus.wanted(note.subject.id)) {
        let commits = group.commits().filter_map(|payload| CommitView::parse(payload).ok());
        for commit in commits.filter(|commit| bus.wanted(commit.session)) {
            let events: Vec<Recorded> = commit.events().map_while(Result::ok).map(|e| e.to_recorded()).collect();
            bus.publish(commit.session, Arc::from(events));
        }
    }
}
