//! Cached states at recent fork points.

use std::collections::VecDeque;

use crate::engine::event::{Isolation, Origin};
use crate::engine::{SessionId, State};

/// The states, most recently used last. They share data with the states of the parents and the forks.
#[derive(Default)]
pub(super) struct ForkPoints(VecDeque<(SessionId, State)>);

const KEPT: usize = 16;

impl ForkPoints {
    /// Returns the state that a fork starts from, if it is known.
    pub(super) fn state_of(&mut self, origin: &Origin) -> Option<State> {
        let is_asked = |(parent, state): &(SessionId, State)| (*parent, state.seq()) == (origin.parent, origin.at);
        let found = self.0.iter().position(is_asked).filter(|_| origin.isolation == Isolation::Fork)?;
        let known = self.0.remove(found)?;
        let state = known.1.clone();
        self.0.push_back(known);
        Some(state)
    }

    pub(super) fn add(&mut self, parent: SessionId, state: State) {
        self.0.retain(|(known, of)| (*known, of.seq()) != (parent, state.seq()));
        if self.0.len() >= KEPT {
            self.0.pop_front();
        }
        self.0.push_back((parent, state));
    }
}
