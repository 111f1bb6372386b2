//! Subscriptions: the events of a session from a position on, caught up from the store and then as they come.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, TryRecvError};

use super::bus::QueuedBatch;
use super::event::{CodecError, Event};
use super::id::{Seq, SessionId};
use super::recorded::Recorded;
use super::store::{EventStore, StoreError};

/// Events read from the journal at once while catching up.
const CATCH_UP: usize = 1024;
/// How often a subscriber looks again by itself.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Which events a subscriber wants.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    kinds: Option<Vec<&'static str>>,
    agent: Option<String>,
    call: Option<Seq>,
}

impl Filter {
    /// Every event.
    pub fn all() -> Self {
        Self::default()
    }

    /// Events of this type only.
    pub fn of<E: Event>() -> Self {
        Self { kinds: Some(vec![E::KIND]), ..Self::default() }
    }

    /// Events of this type too.
    #[must_use]
    pub fn or<E: Event>(mut self) -> Self {
        self.kinds.get_or_insert_default().push(E::KIND);
        self
    }

    /// Of these, only what this agent did.
    #[must_use]
    pub fn by_agent(mut self, agent: impl Into<String>) -> Self {
        self.agent = Some(agent.into());
        self
    }

    /// Of these, only what this tool call did.
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

/// The events of a session from a position on: first what is there, then what comes.
///
/// Every event that the filter wants is given once, in order, however slow the reader is.
pub struct Subscription {
    store: Arc<dyn EventStore>,
    session: SessionId,
    filter: Filter,
    next: Seq,
    ready: VecDeque<Recorded>,
    receiver: Receiver<Arc<[Recorded]>>,
    /// Given up when this is dropped, so that the bus finds it gone.
    line: Option<Arc<QueuedBatch>>,
    caught_up: bool,
}

impl Subscription {
    /// Subscribes to the events of `session` from position `from` on.
    pub(crate) fn new(store: Arc<dyn EventStore>, session: SessionId, from: Seq, filter: Filter) -> Self {
        let (receiver, line) = store.bus().connect(session);
        let next = from.max(1);
        Self { store, session, filter, next, ready: VecDeque::new(), receiver, line: Some(line), caught_up: false }
    }

    /// The next event, waiting for it at most so long; none when the time is over.
    ///
    /// # Errors
    /// What went wrong while catching up from the store; calling again tries again.
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
                    // Looking again also serves stores whose writer is another process.
                    Err(RecvTimeoutError::Timeout) => self.caught_up = false,
                    Err(RecvTimeoutError::Disconnected) => return Ok(None),
                }
            }
        }
    }

    /// The next of those events that were announced or read already. It never looks into the store, so it takes no time;
    /// [`is_behind`](Subscription::is_behind) tells whether there may be more.
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

    /// The next event of type `E`, as [`next_within`](Subscription::next_within); others are skipped.
    ///
    /// # Errors
    /// As there; the inner error says that an event of that type can't be read.
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

    /// Waits, without a thread, until something was announced since this was last waited for, or that time is over: then
    /// it [is behind](Subscription::is_behind), because not everything is announced that other processes record.
    /// [`next_within`](Subscription::next_within) with no time then gives what there is.
    pub async fn announced(&mut self, timeout: Duration) {
        let Some(line) = &self.line else { return };
        if tokio::time::timeout(timeout, line.woken.notified()).await.is_err() {
            self.caught_up = false;
        }
    }

    /// Whether the next event may have to be read from the store, which may take a while.
    pub fn is_behind(&self) -> bool {
        let is_known_of = self.line.as_ref().is_some_and(|line| line.behind.load(Ordering::Acquire));
        self.ready.is_empty() && (is_known_of || (self.receiver.is_empty() && !self.caught_up))
    }

    /// The position that it has not looked at yet.
    pub fn position(&self) -> Seq {
        self.ready.front().map_or(self.next, |event| event.seq)
    }

    /// Reads from the store if there may be something; false when there is nothing.
    fn look(&mut self) -> Result<bool, StoreError> {
        if self.line.as_ref().is_some_and(|line| line.behind.swap(false, Ordering::Acquire)) {
            self.caught_up = false;
        }
        if self.caught_up {
            return Ok(false);
        }
        let found = self.catch_up()?;
        self.caught_up = !found;
        Ok(found)
    }

    /// Takes a batch that follows what is known; one with a gap before it is left to the store.
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

    fn catch_up(&mut self) -> Result<bool, StoreError> {
        let (ready, mut room) = (&mut self.ready, CATCH_UP);
        let mut next = self.next;
        let looked = self.store.visit(self.session, self.next, &mut |event| {
            ready.push_back(event.to_recorded());
            next = event.seq + 1;
            room -= 1;
            if room == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        // What was found before something went wrong is given, and not again.
        let found = next > self.next;
        self.next = next;
        looked.map(|()| found)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.line = None;
        self.store.bus().sweep(self.session);
    }
}

/// A function that is called with events on a thread of its own, until this is dropped.
pub struct Watcher {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Watcher {
    /// Calls `watch` with each event. A panic in it ends this watcher and harms nobody else.
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
                        tracing::warn!(%error, "a watcher could not read its session");
                        std::thread::sleep(LOOK_AGAIN);
                    }
                }
            }
        })?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Whether it still watches: false after a panic of its function.
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
            // Its panic, if there was one, has been printed by the hook; there is no more to it.
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
        // What is announced behind a gap is read, too, and not taken for the next.
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
