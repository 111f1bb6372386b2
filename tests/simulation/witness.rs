//! A store that logs its inputs and its promises, to compare them after a crash.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::engine::bus::Bus;
use crate::engine::commit::Commit;
use crate::engine::event::EventsLost;
use crate::engine::id::{Digest, Seq, SessionId};
use crate::engine::recorded::Recorded;
use crate::engine::store::{
    EventBatch, EventStore, LocalStore, MemoryStore, Pending, SessionEntry, Snapshot, StorageUse, StoreError,
};

/// A change of a store.
enum Deed {
    Commit(Box<Commit>),
    Removal(SessionId),
}

/// Expected contents of a store: what was acknowledged, and what may have followed, in order.
#[derive(Default)]
pub(super) struct Ledger {
    known: MemoryStore,
    deeds: Vec<Deed>,
    /// Number of acknowledged deeds.
    acknowledged: usize,
    /// The longest histories that readers saw.
    seen: BTreeMap<SessionId, Seq>,
}

impl Ledger {
    /// Compares a store that was just opened with what it must hold; from then on, all its contents are promised.
    pub(super) fn audit(&mut self, store: &LocalStore) -> Result<(), String> {
        let mut deeds = std::mem::take(&mut self.deeds).into_iter();
        deeds.by_ref().take(self.acknowledged).for_each(|deed| self.apply(deed));
        let mut differs = difference(store, &self.known);
        let first = differs.clone();
        while differs.is_err()
            && let Some(deed) = deeds.next()
        {
            self.apply(deed);
            differs = difference(store, &self.known);
        }
        // Reports the first difference, which has the fewest unpromised deeds.
        differs.map_err(|_| first.unwrap_err())?;
        for (session, seen) in std::mem::take(&mut self.seen) {
            let head = self.known.head(session).unwrap_or(Seq::MAX);
            if head < seen {
                return Err(format!("session {session}: event {seen} was seen, {head} is the last"));
            }
        }
        self.acknowledged = 0;
        Ok(())
    }

    fn apply(&self, deed: Deed) {
        match deed {
            Deed::Commit(commit) => drop(self.known.submit(*commit)),
            Deed::Removal(session) => drop(self.known.remove(session)),
        }
    }

    /// Checks that every event of a store is as promised, or reported as lost, at its position. Returns true if the
    /// store has all of them.
    pub(super) fn is_part(&self, store: &LocalStore) -> Result<bool, String> {
        let mut is_whole = true;
        for entry in store.entries().map_err(|error| error.to_string())? {
            let (known, there) = (events(&self.known, entry.id)?, events(store, entry.id));
            // A removed session may be back if its removal is lost, which is reported.
            match there {
                Ok(there) if known.is_empty() && !there.is_empty() => is_whole = false,
                Ok(there) if known.starts_with(&there) => is_whole &= known.len() == there.len(),
                Ok(there) if is_kept(&there, &known) => is_whole = false,
                Ok(there) => {
                    let differs = there.iter().zip(&known).find(|(there, known)| there != known);
                    return Err(format!("session {} has another history: {differs:?}", entry.id));
                }
                Err(_) => is_whole = false,
            }
        }
        let known = self.known.entries().map_err(|error| error.to_string())?;
        Ok(is_whole && known.iter().all(|entry| store.head(entry.id).is_ok_and(|head| head == entry.head)))
    }

    /// Counts the sessions that do not end at the expected event.
    pub(super) fn shorter(&self, store: &LocalStore) -> usize {
        let known = self.known.entries().unwrap_or_default();
        known.iter().filter(|entry| store.head(entry.id).ok() != Some(entry.head)).count()
    }

    /// Notes that a store was closed in order.
    pub(super) fn all_is_acknowledged(&mut self) {
        self.acknowledged = self.deeds.len();
    }
}

fn is_kept(there: &[Recorded], known: &[Recorded]) -> bool {
    let is_same = |(there, known): (&Recorded, &Recorded)| there == known || EventsLost::is_gap(&there.view());
    there.len() <= known.len() && there.iter().zip(known).all(is_same)
}

pub(super) fn events(store: &dyn EventStore, session: SessionId) -> Result<Vec<Recorded>, String> {
    let mut events = Vec::new();
    let visited = store.visit(session, 1, &mut |event| {
        events.push(event.to_recorded());
        ControlFlow::Continue(())
    });
    match visited {
        Ok(()) => Ok(events),
        Err(StoreError::NoSession(_)) => Ok(Vec::new()),
        Err(error) => Err(error.to_string()),
    }
}

fn difference(store: &LocalStore, known: &MemoryStore) -> Result<(), String> {
    let text = |error: StoreError| error.to_string();
    let (there, expected) = (store.entries().map_err(text)?, known.entries().map_err(text)?);
    if there != expected {
        let heads = |entries: &[SessionEntry]| {
            entries.iter().map(|e| format!("{} {} {}", e.id, e.head, e.updated.0)).collect::<Vec<_>>()
        };
        return Err(format!("found {:?}, expected {:?}", heads(&there), heads(&expected)));
    }
    for entry in expected {
        if events(store, entry.id)? != events(known, entry.id)? {
            return Err(format!("session {}: the events differ", entry.id));
        }
    }
    Ok(())
}

/// A store on a simulated disk that keeps a ledger. Submitting waits, since no thread writes.
pub(super) struct Witness {
    pub(super) store: LocalStore,
    pub(super) ledger: Arc<Mutex<Ledger>>,
}

impl Witness {
    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Submits a commit without waiting; returns its number too.
    pub(super) fn submit_only(&self, commit: Commit) -> Result<(Pending, usize), StoreError> {
        let pending = self.store.submit(commit.duplicate())?;
        let mut ledger = self.ledger();
        if !pending.committed().unwrap().repeated {
            ledger.deeds.push(Deed::Commit(Box::new(commit)));
        }
        let number = ledger.deeds.len();
        Ok((pending, number))
    }

    /// Waits until everything is durable.
    pub(super) fn sync_all(&self) -> Result<(), StoreError> {
        let number = self.ledger().deeds.len();
        self.store.sync()?;
        self.ledger().acknowledged = number;
        Ok(())
    }

    /// Notes what a reader can see now.
    pub(super) fn look(&self) -> Result<(), StoreError> {
        for entry in self.store.entries()? {
            self.ledger().seen.insert(entry.id, entry.head);
        }
        Ok(())
    }
}

impl EventStore for Witness {
    fn submit(&self, commit: Commit) -> Result<Pending, StoreError> {
        let (pending, number) = self.submit_only(commit)?;
        let committed = pending.wait()?;
        let mut ledger = self.ledger();
        ledger.acknowledged = ledger.acknowledged.max(number);
        Ok(Pending::done(committed))
    }

    fn remove(&self, session: SessionId) -> Result<(), StoreError> {
        self.ledger().deeds.push(Deed::Removal(session));
        let removed = self.store.remove(session);
        let mut ledger = self.ledger();
        match &removed {
            Ok(()) => ledger.acknowledged = ledger.deeds.len(),
            Err(StoreError::NoSession(_)) => drop(ledger.deeds.pop()),
            Err(_) => {}
        }
        ledger.seen.remove(&session);
        removed
    }

    fn head(&self, session: SessionId) -> Result<Seq, StoreError> {
        self.store.head(session)
    }

    fn entry(&self, session: SessionId) -> Result<Option<SessionEntry>, StoreError> {
        self.store.entry(session)
    }

    fn entries(&self) -> Result<Vec<SessionEntry>, StoreError> {
        self.store.entries()
    }

    fn read(&self, session: SessionId, from: Seq, until: Seq, bytes: usize) -> Result<EventBatch, StoreError> {
        self.store.read(session, from, until, bytes)
    }

    fn content(&self, digest: &Digest) -> Result<Bytes, StoreError> {
        self.store.content(digest)
    }

    fn has_content(&self, digest: &Digest) -> Result<bool, StoreError> {
        self.store.has_content(digest)
    }

    fn snapshot(&self, session: SessionId, seq: Seq) -> Result<Option<Snapshot>, StoreError> {
        self.store.snapshot(session, seq)
    }

    fn snapshots(&self, session: SessionId) -> Result<Vec<Seq>, StoreError> {
        self.store.snapshots(session)
    }

    fn put_snapshot(&self, snapshot: &Snapshot) -> Result<u64, StoreError> {
        self.store.put_snapshot(snapshot)
    }

    fn drop_snapshot(&self, session: SessionId, seq: Seq) -> Result<(), StoreError> {
        self.store.drop_snapshot(session, seq)
    }

    fn may_wait(&self) -> bool {
        false
    }

    fn bus(&self) -> &Arc<Bus> {
        self.store.bus()
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.sync_all()
    }

    fn usage(&self) -> Result<Vec<StorageUse>, StoreError> {
        self.store.usage()
    }
}
