//! One open workspace, and those who use it.

use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::tools::Dispatcher;

/// A workspace that is kept open.
pub(super) struct Kept {
    dispatcher: Dispatcher,
    users: AtomicUsize,
    /// When it was last used.
    since: Mutex<Instant>,
}

impl Kept {
    pub(super) fn new(dispatcher: Dispatcher) -> Self {
        Self { dispatcher, users: AtomicUsize::new(0), since: Mutex::new(Instant::now()) }
    }

    pub(super) fn is_used(&self) -> bool {
        self.users.load(Ordering::Acquire) > 0
    }

    pub(super) fn unused_for(&self) -> Duration {
        self.since.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    /// Blocks until the container is gone and that is recorded.
    pub(super) fn close(&self) {
        if let Err(error) = self.dispatcher.close() {
            tracing::warn!(%error, "what became of a workspace could not be recorded");
        }
    }
}

/// A session whose workspace is open, for as long as somebody has this; it is a [`Dispatcher`].
pub struct OpenSession {
    kept: Arc<Kept>,
    /// The same under another agent's name or other rules.
    dispatcher: Dispatcher,
}

impl OpenSession {
    /// The holder of the place has its lock, so that nobody closes it meanwhile.
    pub(super) fn of(kept: &Arc<Kept>) -> Self {
        kept.users.fetch_add(1, Ordering::AcqRel);
        Self { kept: Arc::clone(kept), dispatcher: kept.dispatcher.clone() }
    }

    /// The same workspace through another dispatcher of it.
    pub(super) fn sharing(&self, dispatcher: Dispatcher) -> Self {
        self.kept.users.fetch_add(1, Ordering::AcqRel);
        Self { kept: Arc::clone(&self.kept), dispatcher }
    }

    /// The same for another agent.
    #[must_use]
    pub fn by(&self, agent: &str) -> Self {
        let dispatcher = self.dispatcher.as_agent(agent);
        self.sharing(dispatcher)
    }
}

impl Deref for OpenSession {
    type Target = Dispatcher;

    fn deref(&self) -> &Dispatcher {
        &self.dispatcher
    }
}

impl Clone for OpenSession {
    fn clone(&self) -> Self {
        self.sharing(self.dispatcher.clone())
    }
}

impl Drop for OpenSession {
    fn drop(&mut self) {
        *self.kept.since.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.kept.users.fetch_sub(1, Ordering::AcqRel);
    }
}

impl std::fmt::Debug for OpenSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("OpenSession").field(&self.dispatcher).finish()
    }
}
