//! Admission of connections: clients that have not shown the token get only a share of the room.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::engine::lock::lock;

/// Room for the connections of one listener.
///
/// Every new connection is accepted, so that a client can show the token. When strangers have used up their share, the
/// oldest stranger is disconnected.
pub(super) struct ConnectionShare {
    places: Arc<Semaphore>,
    strangers_max: usize,
    strangers: Mutex<VecDeque<Weak<Admission>>>,
}

#[derive(Debug)]
pub(super) struct Admission {
    is_known: AtomicBool,
    is_reset: AtomicBool,
    /// Closes the connection when cancelled.
    pub(super) over: CancellationToken,
}

impl Admission {
    pub(super) fn known() -> Self {
        Self::new(true)
    }

    fn new(is_known: bool) -> Self {
        Self { is_known: is_known.into(), is_reset: false.into(), over: CancellationToken::new() }
    }

    /// Closes the connection at once, as if its other end had crashed.
    #[cfg(feature = "e2b")]
    pub(super) fn reset(&self) {
        self.is_reset.store(true, Ordering::Relaxed);
        self.over.cancel();
    }

    pub(super) fn is_reset(&self) -> bool {
        self.is_reset.load(Ordering::Relaxed)
    }

    pub(super) fn note_known(&self) {
        self.is_known.store(true, Ordering::Relaxed);
    }
}

impl ConnectionShare {
    pub(super) fn new(connections: usize) -> Self {
        let strangers_max = (connections / 4 * 3).max(1);
        Self { places: Arc::new(Semaphore::new(connections)), strangers_max, strangers: Mutex::default() }
    }

    /// Waits for room for a client, which is known or has yet to show the token.
    pub(super) async fn admit(&self, is_known: bool) -> (Arc<Admission>, Option<OwnedSemaphorePermit>) {
        let admission = Arc::new(Admission::new(is_known));
        if !is_known {
            self.make_room(Arc::downgrade(&admission));
        }
        // The semaphore is never closed.
        (admission, Arc::clone(&self.places).acquire_owned().await.ok())
    }

    fn make_room(&self, newest: Weak<Admission>) {
        let mut strangers = lock(&self.strangers);
        let is_stranger = |known: &Admission| !known.is_known.load(Ordering::Relaxed) && !known.over.is_cancelled();
        strangers.retain(|known| known.upgrade().is_some_and(|known| is_stranger(&known)));
        if (strangers.len() >= self.strangers_max || self.places.available_permits() == 0)
            && let Some(oldest) = strangers.pop_front().and_then(|oldest| oldest.upgrade())
        {
            oldest.over.cancel();
        }
        strangers.push_back(newest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn admission_full_drops_oldest_stranger() {
        let room = ConnectionShare::new(4);
        let mut all = Vec::new();
        for _ in 0..3 {
            all.push(room.admit(false).await);
        }
        all[0].0.note_known();
        all.push(room.admit(false).await);
        assert!(all.iter().all(|(admission, _)| !admission.over.is_cancelled()), "there is room for all");
        let (next, _) = tokio::join!(room.admit(false), async {
            tokio::task::yield_now().await;
            let gone = all.iter().position(|(admission, _)| admission.over.is_cancelled());
            assert_eq!(gone, Some(1), "the oldest that is not known");
            drop(all.remove(1));
        });
        assert!(!next.0.over.is_cancelled());
        assert!(!all[0].0.over.is_cancelled());
    }
}
