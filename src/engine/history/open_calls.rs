//! The calls of a history while it is read.

use std::collections::VecDeque;

use crate::engine::event::Common;
use crate::engine::{EventRef, Seq};

/// Assigns events to their calls, and returns the calls in the order of their intents. A call keeps a value of the
/// reader.
#[derive(Debug)]
pub struct OpenCalls<C>(VecDeque<CallSlot<C>>);

#[derive(Debug)]
struct CallSlot<C> {
    call: Seq,
    has_ended: bool,
    value: C,
}

impl<C> Default for OpenCalls<C> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<C> OpenCalls<C> {
    /// Adds the call that begins at a position.
    pub fn begin(&mut self, call: Seq, value: C) {
        self.0.push_back(CallSlot { call, has_ended: false, value });
    }

    /// Returns the call of an event, if it has not ended before. Its outcome ends it.
    pub fn of(&mut self, event: &EventRef<'_>) -> Option<&mut C> {
        let at = self.0.binary_search_by_key(&event.call?, |open| open.call).ok()?;
        let open = self.0.get_mut(at).filter(|open| !open.has_ended)?;
        open.has_ended = event.common == Common::CallFinished;
        Some(&mut open.value)
    }

    /// Iterates over the calls at these positions, ended or not.
    pub fn among(&mut self, calls: &[Seq]) -> impl Iterator<Item = (Seq, &mut C)> {
        let is_one = |open: &&mut CallSlot<C>| calls.contains(&open.call);
        self.0.iter_mut().filter(is_one).map(|open| (open.call, &mut open.value))
    }

    /// Returns the next call if it has ended.
    pub fn next_ended(&mut self) -> Option<C> {
        if self.0.front()?.has_ended { self.next_begun() } else { None }
    }

    /// Returns the next call, ended or not.
    pub fn next_begun(&mut self) -> Option<C> {
        Some(self.0.pop_front()?.value)
    }
}
