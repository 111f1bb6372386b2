//! Calls that wait for a person's answer while no request of their client is open.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::approver::Question;
use super::calls::RunningCall;
use crate::engine::clock::Clock;
use crate::engine::id::SessionId;

/// Calls of a client that wait at most.
pub(super) const PARKED_MAX: usize = 8;
/// Time that a call waits. Nobody else can work in its session meanwhile, and its client may never come back.
const PARKED_FOR: Duration = Duration::from_secs(2 * 60);

/// A call that waits, with what is asked.
pub(super) struct PendingQuestion {
    pub(super) running: RunningCall,
    pub(super) question: Question,
}

type Calls = Vec<(String, PendingQuestion)>;

/// A client's calls that wait, by the handles that it was given. One that is dropped is taken back.
#[derive(Clone, Default)]
pub(super) struct Parked(Arc<Mutex<Calls>>);

impl Parked {
    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a call for a while; gives the handle, which nobody can guess. Where too many wait it is given back.
    pub(super) fn keep(&self, waiting: PendingQuestion, clock: &dyn Clock) -> Result<String, Box<PendingQuestion>> {
        let handle = SessionId::from_bytes(clock.fresh_id()).to_string();
        let mut calls = self.calls();
        calls.retain(|(_, waiting)| !waiting.running.has_ended());
        if calls.len() >= PARKED_MAX {
            return Err(Box::new(waiting));
        }
        calls.push((handle.clone(), waiting));
        drop(calls);
        let (parked, late) = (Arc::downgrade(&self.0), handle.clone());
        tokio::spawn(async move {
            tokio::time::sleep(PARKED_FOR).await;
            if let Some(parked) = parked.upgrade().map(Self) {
                drop(parked.remove(|known, _| known == late));
            }
        });
        Ok(handle)
    }

    /// The call of that handle, if it is of that tool.
    pub(super) fn take(&self, handle: &str, tool: &str) -> Option<PendingQuestion> {
        self.remove(|known, waiting| known == handle && waiting.running.tool == tool)
    }

    fn remove(&self, is_it: impl Fn(&str, &PendingQuestion) -> bool) -> Option<PendingQuestion> {
        let mut calls = self.calls();
        let at = calls.iter().position(|(handle, waiting)| is_it(handle, waiting))?;
        Some(calls.remove(at).1)
    }
}
