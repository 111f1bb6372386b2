//! The bus: announces stored events to subscribers, in order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock, Weak};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, TrySendError};
use tokio::sync::Notify;

use super::{Recorded, SessionId, lock, read_lock, write_lock};

/// Batches that wait for one subscriber before it has to catch up from the journal.
const WAITING_MAX: usize = 1024;

/// Bus of stored events. Publishing never blocks: a subscriber that falls behind receives nothing more until it has
/// read the missed events from the store. So no subscriber misses an event, and none slows the writer.
#[derive(Default)]
pub struct Bus {
    lines: RwLock<BTreeMap<SessionId, Vec<Arc<QueuedBatch>>>>,
    count: AtomicUsize,
    taps: RwLock<Vec<Weak<Tap>>>,
}

pub(super) struct QueuedBatch {
    sender: Sender<Arc<[Recorded]>>,
    /// True if a batch was not sent because the queue was full.
    pub(super) behind: AtomicBool,
    pub(super) woken: Notify,
}

/// Sessions with new events since the last read; its size does not grow with a slow reader.
#[derive(Default)]
pub(crate) struct Tap {
    moved: Mutex<BTreeSet<SessionId>>,
    changed: Condvar,
}

impl Tap {
    pub(crate) fn moved_within(&self, patience: Duration) -> BTreeSet<SessionId> {
        let moved = lock(&self.moved);
        let waited = self.changed.wait_timeout_while(moved, patience, |moved| moved.is_empty());
        std::mem::take(&mut *waited.unwrap_or_else(PoisonError::into_inner).0)
    }
}

impl Bus {
    pub(crate) fn tap(&self) -> Arc<Tap> {
        let tap = Arc::<Tap>::default();
        let mut taps = write_lock(&self.taps);
        taps.retain(|tap| tap.strong_count() > 0);
        taps.push(Arc::downgrade(&tap));
        tap
    }

    pub(crate) fn moved(&self, sessions: impl Iterator<Item = SessionId> + Clone) {
        let taps = read_lock(&self.taps);
        for tap in taps.iter().filter_map(Weak::upgrade) {
            lock(&tap.moved).extend(sessions.clone());
            tap.changed.notify_one();
        }
    }

    /// Makes the subscribers of a session read the store, because another process has recorded events.
    pub(crate) fn nudge(&self, session: SessionId) {
        for line in read_lock(&self.lines).get(&session).into_iter().flatten() {
            line.behind.store(true, Ordering::Release);
            // A full queue wakes its reader as well.
            drop(line.sender.try_send(Arc::from([])));
            line.woken.notify_one();
        }
    }

    pub(crate) fn wanted(&self, session: SessionId) -> bool {
        self.count.load(Ordering::Relaxed) > 0 && read_lock(&self.lines).contains_key(&session)
    }

    /// Returns the sessions that have a subscriber.
    #[cfg(feature = "nats")]
    pub(crate) fn followed(&self) -> BTreeSet<SessionId> {
        read_lock(&self.lines).keys().copied().collect()
    }

    pub(crate) fn publish(&self, session: SessionId, events: Arc<[Recorded]>) {
        for line in read_lock(&self.lines).get(&session).into_iter().flatten() {
            if let Err(TrySendError::Full(_)) = line.sender.try_send(Arc::clone(&events)) {
                line.behind.store(true, Ordering::Release);
            }
            line.woken.notify_one();
        }
    }

    pub(super) fn connect(&self, session: SessionId) -> (Receiver<Arc<[Recorded]>>, Arc<QueuedBatch>) {
        let (sender, receiver) = crossbeam_channel::bounded(WAITING_MAX);
        let line = Arc::new(QueuedBatch { sender, behind: AtomicBool::new(false), woken: Notify::new() });
        let mut lines = write_lock(&self.lines);
        lines.entry(session).or_default().push(Arc::clone(&line));
        self.count.fetch_add(1, Ordering::Relaxed);
        (receiver, line)
    }

    pub(super) fn disconnect(&self, session: SessionId, line: &Arc<QueuedBatch>) {
        let mut lines = write_lock(&self.lines);
        let Some(of_session) = lines.get_mut(&session) else { return };
        of_session.retain(|known| !Arc::ptr_eq(known, line));
        self.count.fetch_sub(1, Ordering::Relaxed);
        if of_session.is_empty() {
            lines.remove(&session);
        }
    }
}

impl std::fmt::Debug for Bus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bus").field("subscribers", &self.count).finish_non_exhaustive()
    }
}
