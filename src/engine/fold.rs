//! The fold: events into slices.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::event::{Common, Event, EventsLost, SliceRestored};
use super::reducer::ErasedFolding;
use super::slice::SliceSummary;
use super::store::EventBatch;
use super::{EventRef, OnRewind, Registry, Seq, State};

/// Fold in progress: starts from a state and applies the events that follow it, in order.
///
/// All slices that take an event's kind see it at once. Slices are independent, so threads may share a fold by slice;
/// see [`Fold::split`].
pub(crate) struct Fold {
    base: State,
    registry: Arc<Registry>,
    /// By index in the registry; `None` for a slice of the other half of a split fold.
    foldings: Vec<Option<Box<dyn ErasedFolding>>>,
    /// By [`Common`]: true if a slice of this fold takes such events; always true for [`Common::Other`].
    takes: [bool; Common::COUNT],
    unreadable: Vec<Seq>,
}

impl Fold {
    pub(crate) fn begin(state: &State, expected: usize) -> Self {
        Self::begin_some(state, expected, |_| true)
    }

    /// Begins two folds over the same events, the first slice alone and the others; [`join`](Fold::join) combines them.
    pub(crate) fn split(state: &State, expected: usize) -> (Self, Self) {
        (Self::begin_some(state, expected, |at| at == 0), Self::begin_some(state, expected, |at| at != 0))
    }

    fn begin_some(state: &State, expected: usize, mine: impl Fn(usize) -> bool) -> Self {
        let registry = Arc::clone(state.registry());
        let types = registry.slices.iter().zip(state.slices.iter()).enumerate();
        let foldings =
            types.map(|(at, (known, slice))| mine(at).then(|| known.begin(slice.as_ref(), expected))).collect();
        let mut takes = registry.common.each_ref().map(|takers| takers.iter().any(|at| mine(*at)));
        takes[Common::Other as usize] = true;
        Self { base: state.clone(), registry, foldings, takes, unreadable: Vec::new() }
    }

    pub(crate) fn seq(&self) -> Seq {
        self.base.seq
    }

    pub(crate) fn apply_batch(&mut self, batch: &EventBatch, until: Seq) {
        let Some((reached, time)) = batch.reached(until).filter(|(reached, _)| *reached > self.base.seq) else {
            return;
        };
        let takes = self.takes;
        batch.visit(
            self.base.seq,
            reached,
            |common| takes[common as usize],
            |event| {
                event.validate();
                let mut is_read = true;
                for at in self.registry.takers(event) {
                    if let Some(folding) = &mut self.foldings[*at] {
                        is_read &= folding.apply(event).is_ok();
                    }
                }
                if event.common == Common::Other {
                    is_read &= match event.kind {
                        SliceRestored::KIND => restore(&self.registry, &mut self.foldings, event),
                        EventsLost::KIND => !EventsLost::is_gap(event),
                        _ => true,
                    };
                }
                if !is_read {
                    self.unreadable.push(event.seq);
                }
            },
        );
        self.base.seq = reached;
        self.base.time = time;
    }

    pub(crate) fn finish(self) -> State {
        let mut state = self.base;
        let slices = state.slices.iter().zip(self.foldings);
        state.slices =
            slices.map(|(old, folding)| folding.map_or_else(|| Arc::clone(old), |folding| folding.finish())).collect();
        state.unreadable += self.unreadable.len() as u64;
        state
    }

    pub(crate) fn join(mut self, mut other: Self) -> State {
        let unreadable: BTreeSet<Seq> = self.unreadable.drain(..).chain(other.unreadable.drain(..)).collect();
        let pairs = self.foldings.into_iter().zip(other.foldings);
        let foldings = pairs.map(|(mine, other)| mine.or(other)).collect();
        Self { foldings, unreadable: unreadable.into_iter().collect(), ..self }.finish()
    }
}

/// Restores a slice; false if the event can't be read. Skips unknown slices, and slices that a rewind keeps.
fn restore(registry: &Registry, foldings: &mut [Option<Box<dyn ErasedFolding>>], event: &EventRef<'_>) -> bool {
    let Ok(event) = SliceRestored::decode(event.version, event.payload) else { return false };
    let mut known = registry.slices.iter().zip(foldings);
    let slice = known.find(|(known, _)| {
        let SliceSummary { name, on_rewind, .. } = known.summary();
        name == event.slice && on_rewind == OnRewind::Restore
    });
    let folding = slice.and_then(|(_, folding)| folding.as_mut());
    folding.is_none_or(|folding| folding.restore(event.version, &event.blocks).is_ok())
}
