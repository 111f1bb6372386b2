//! Subscriptions: existing events of a session, then new ones.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, TryRecvError};

use super::bus::QueuedBatch;
use super::event::{CodecError, Event};
use super::store::{EventStore, StoreError};
use super::{Recorded, Seq, SessionId};

const CATCH_UP: usize = 1024;
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Filter of events.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    kinds: Option<Vec<&'static str>>,
    agent: Option<String>,
    call: Option<Seq>,
}

impl Filter {
    /// Accepts every event.
    pub fn all() -> Self {
        Self::default()
    }

    /// Accepts events of this type only.
    pub fn of<E: Event>() -> Self {
        Self { kinds: Some(vec![E::KIND]), ..Self::default() }
    }

    /// Accepts events of this type, too.
    #[must_use]
    pub fn or<E: Event>(mut self) -> Self {
        self.kinds.get_or_insert_default().push(E::KIND);
        self
    }

    /// Accepts only this agent's events.
    #[must_use]
    pub fn by_agent(mut self, agent: impl Into<String>) -> Self {
        self.agent = Some(agent.into());
        self
    }

    /// Accepts only this call's events.
    #[must_use]
    pub fn of_call(mut self, call: Seq) -> Self {
        self.call = Some(call);
        self
    }

    fn wants(&self, event: &Recorded) -> bool {
        self.kinds.as_ref().is_none_or(|kinds| kinds.contains(&&*event.event.kind))
            && self.agent.as_ref().is_none_or(|agent| **agent == *event.agent)
            && self.call.is_none_or(|call| event.call == Some(call))
    }
}

/// Subscription to the events of a session from a position on: existing ones, then new ones. It returns every accepted
/// event once, in order, however slow the reader is.
pub struct Subscription {
    store: Arc<dyn EventStore>,
    session: SessionId,
    filter: Filter,
    next: Seq,
    ready: VecDeque<Recorded>,
    receiver: Receiver<Arc<[Recorded]>>,
    line: Arc<QueuedBatch>,
    caught_up: bool,
}

impl Subscription {
    pub(crate) fn new(store: Arc<dyn EventStore>, session: SessionId, from: Seq, filter: Filter) -> Self {
        let (receiver, line) = store.bus().connect(session);
        let next = from.max(1);
        Self { store, session, filter, next, ready: VecDeque::new(), receiver, line, caught_up: false }
    }

    /// Returns the next event; `None` if `timeout` passes. After an error from the store, call it again.
    pub fn next_within(&mut self, timeout: Duration) -> Result<Option<Recorded>, StoreError> {
        let mut left = timeout;
        loop {
            if let Some(event) = self.next_at_hand() {
                return Ok(Some(event));
            }
            if !self.look()? {
                if left.is_zero() {
                    return Ok(None);
                }
                let pause = left.min(LOOK_AGAIN);
                left -= pause;
                match self.receiver.recv_timeout(pause) {
                    Ok(batch) => self.accept(&batch),
                    // The writer may be another process, which announces nothing here.
                    Err(RecvTimeoutError::Timeout) => self.caught_up = false,
                    Err(RecvTimeoutError::Disconnected) => return Ok(None),
                }
            }
        }
    }

    /// Returns the next event that was already announced or read, without reading the store. If
    /// [`is_behind`](Subscription::is_behind) returns true, there may be more.
    pub fn next_at_hand(&mut self) -> Option<Recorded> {
        loop {
            while let Some(event) = self.ready.pop_front() {
                if self.filter.wants(&event) {
                    return Some(event);
                }
            }
            match self.receiver.try_recv() {
                Ok(batch) => self.accept(&batch),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => return None,
            }
        }
    }

    /// Returns the next event of type `E` as [`next_within`](Subscription::next_within), skipping others. The inner
    /// error means that such an event can't be read.
    pub fn next_typed<E: Event>(
        &mut self,
        timeout: Duration,
    ) -> Result<Option<Result<Recorded<E>, CodecError>>, StoreError> {
        while let Some(event) = self.next_within(timeout)? {
            if let Some(typed) = event.typed() {
                return Ok(Some(typed));
            }
        }
        Ok(None)
    }

    /// Waits asynchronously for an announcement. After `timeout` the subscription
    /// [is behind](Subscription::is_behind), because other processes' events may not be announced:
    /// [`next_within`](Subscription::next_within) with a timeout of zero then returns any.
    pub async fn announced(&mut self, timeout: Duration) {
        if tokio::time::timeout(timeout, self.line.woken.notified()).await.is_err() {
            self.caught_up = false;
        }
    }

    /// Returns true if the next event may have to be read from the store, which can be slow.
    pub fn is_behind(&self) -> bool {
        let is_known_of = self.line.behind.load(Ordering::Acquire);
        self.ready.is_empty() && (is_known_of || (self.receiver.is_empty() && !self.caught_up))
    }

    /// Returns the position of the next event to examine.
    pub fn position(&self) -> Seq {
        self.ready.front().map_or(self.next, |event| event.seq)
    }

    fn look(&mut self) -> Result<bool, StoreError> {
        if self.line.behind.swap(false, Ordering::Acquire) {
            self.caught_up = false;
        }
        if self.caught_up {
            return Ok(false);
        }
        let (ready, mut room) = (&mut self.ready, CATCH_UP);
        let mut next = self.next;
        let looked = self.store.visit(self.session, self.next, &mut |event| {
            ready.push_back(event.to_recorded());
            next = event.seq + 1;
            room -= 1;
            if room == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        // Events that were read before an error are returned, and not read again.
        let found = next > self.next;
        self.next = next;
        looked?;
        self.caught_up = !found;
        Ok(found)
    }

    /// Accepts a batch that continues the last one; events after a gap are left to the store.
    fn accept(&mut self, batch: &[Recorded]) {
        if batch.first().is_some_and(|first| first.seq > self.next) {
            self.caught_up = false;
            return;
        }
        for event in batch.iter().filter(|event| event.seq >= self.next) {
            self.ready.push_back(event.clone());
        }
        self.next = self.next.max(batch.last().map_or(0, |last| last.seq + 1));
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.store.bus().disconnect(self.session, &self.line);
    }
}

/// Thread that calls a function with each event, until this is dropped.
pub struct Watcher {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Watcher {
    pub(crate) fn spawn(
        mut subscription: Subscription,
        mut watch: impl FnMut(&Recorded) + Send + 'static,
    ) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("foldspace-watcher".to_owned()).spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                match subscription.next_within(LOOK_AGAIN) {
                    Ok(Some(event)) => watch(&event),
                    Ok(None) => {}
                    Err(error) => {
                        tracing::warn!(%error, "watcher failed to read its session");
                        std::thread::sleep(LOOK_AGAIN);
                    }
                }
            }
        })?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Returns true while the thread runs; false after its function panicked.
    pub fn is_watching(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            // The panic hook has printed its panic, if any.
            drop(thread.join());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::event::DeleteEntry;
    use crate::engine::path::EntryPath;
    use crate::engine::session::sessions::NewSession;
    use crate::engine::session::sessions::Sessions;
    use crate::engine::session::snapshot::SnapshotPolicy;
    use crate::engine::store::MemoryStore;

    #[test]
    fn subscription_reads_store_only_when_behind() {
        let (registry, clock) = (crate::Registry::standard(), Arc::new(crate::event::SystemClock::default()));
        let sessions = Sessions::new(Arc::<MemoryStore>::default(), registry, clock, SnapshotPolicy::default());
        let sessions = sessions.unwrap();
        let session = sessions.create(NewSession::default()).unwrap();
        let mut subscription = session.subscribe(2, Filter::all());
        assert!(subscription.is_behind(), "nothing was looked at yet");
        assert_eq!(subscription.next_within(Duration::ZERO).unwrap(), None);
        assert!(!subscription.is_behind());
        let record = || {
            let mut commit = session.commit();
            commit.push(&DeleteEntry { path: EntryPath::for_creation("x").unwrap() }).unwrap();
            session.submit(commit).unwrap().wait().unwrap();
        };
        record();
        assert!(!subscription.is_behind(), "it was announced");
        assert_eq!(subscription.next_at_hand().unwrap().seq, 2);
        // Another process has recorded something, or nothing: only the store knows.
        let bus = Arc::clone(sessions.store().bus());
        bus.nudge(session.id());
        assert!(subscription.is_behind());
        assert_eq!(subscription.next_at_hand(), None);
        assert!(subscription.is_behind());
        assert_eq!(subscription.next_within(Duration::ZERO).unwrap(), None);
        assert!(!subscription.is_behind());
        // An event announced after a gap is read later, not taken for the next one.
        record();
        let third = subscription.next_at_hand().unwrap();
        bus.publish(session.id(), Arc::from([Recorded { seq: 5, ..third }]));
        assert_eq!(subscription.next_at_hand(), None);
        assert!(subscription.is_behind());
        record();
        record();
        let rest: Vec<Seq> =
            std::iter::from_fn(|| subscription.next_within(Duration::ZERO).unwrap()).map(|e| e.seq).collect();
        assert_eq!(rest, [4, 5]);
    }
}
