//! Calls that wait for a person's answer while no request of their client is open.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use super::asking::Question;
use super::calls::Running;
use crate::engine::clock::Clock;
use crate::engine::id::SessionId;

/// Calls that wait at most; one more ends the oldest.
const PARKED_MAX: usize = 64;

/// A call that waits, with what is asked.
pub(super) struct Waiting {
    pub(super) running: Running,
    pub(super) question: Question,
}

/// Calls that wait, by the handle that their clients were given. One that is dropped is taken back.
#[derive(Default)]
pub(super) struct Parked(Mutex<VecDeque<(String, Waiting)>>);

impl Parked {
    /// Keeps a call; gives the handle, which nobody can guess.
    pub(super) fn keep(&self, waiting: Waiting, clock: &dyn Clock) -> String {
        let handle = SessionId::from_bytes(clock.fresh_id()).to_string();
        let mut parked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        parked.retain(|(_, waiting)| !waiting.running.has_ended());
        while parked.len() >= PARKED_MAX {
            parked.pop_front();
        }
        parked.push_back((handle.clone(), waiting));
        handle
    }

    /// The call of that handle, if it is of that tool.
    pub(super) fn take(&self, handle: &str, tool: &str) -> Option<Waiting> {
        let mut parked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = parked.iter().position(|(known, waiting)| known == handle && waiting.running.tool == tool)?;
        parked.remove(at).map(|(_, waiting)| waiting)
    }
}
