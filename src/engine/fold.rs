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
    /// By index in the registry.
    foldings: Vec<SliceFold>,
    /// The number of events that the fold expects.
    expected: usize,
    /// By [`Common`]: true if a slice of this fold takes such events; always true for [`Common::Other`].
    takes: [bool; Common::COUNT],
    unreadable: Vec<Seq>,
}

/// A slice in a fold.
enum SliceFold {
    /// In the other half of a split fold.
    Elsewhere,
    /// Not opened yet: no event has changed it.
    Unopened,
    Open(Box<dyn ErasedFolding>),
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
        let slice = |at| if mine(at) { SliceFold::Unopened } else { SliceFold::Elsewhere };
        let foldings = (0..registry.slices.len()).map(slice).collect();
        let mut takes = registry.common.each_ref().map(|takers| takers.iter().any(|at| mine(*at)));
        takes[Common::Other as usize] = true;
        Self { base: state.clone(), registry, foldings, expected, takes, unreadable: Vec::new() }
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
                    let is_ignored = matches!(self.foldings[*at], SliceFold::Unopened)
                        && self.registry.slices[*at].ignores(self.base.slices[*at].as_ref(), event);
                    let folding =
                        if is_ignored { None } else { opened(&self.base, &mut self.foldings, *at, self.expected) };
                    if let Some(folding) = folding {
                        is_read &= folding.apply(event).is_ok();
                    }
                }
                if event.common == Common::Other {
                    is_read &= match event.kind {
                        SliceRestored::KIND => restore(&self.base, &mut self.foldings, event, self.expected),
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

    pub(crate) fn opened_slices(&self) -> u64 {
        self.foldings.iter().filter(|folding| matches!(folding, SliceFold::Open(_))).count() as u64
    }

    pub(crate) fn finish(self) -> State {
        let mut state = self.base;
        let slices = state.slices.iter().zip(self.foldings).map(|(old, folding)| match folding {
            SliceFold::Open(folding) => folding.finish(),
            SliceFold::Unopened | SliceFold::Elsewhere => Arc::clone(old),
        });
        state.slices = slices.collect();
        state.unreadable += self.unreadable.len() as u64;
        state
    }

    pub(crate) fn join(mut self, mut other: Self) -> State {
        let unreadable: BTreeSet<Seq> = self.unreadable.drain(..).chain(other.unreadable.drain(..)).collect();
        let pairs = self.foldings.into_iter().zip(other.foldings);
        let open = |(mine, other)| if matches!(mine, SliceFold::Open(_)) { mine } else { other };
        let foldings = pairs.map(open).collect();
        Self { foldings, unreadable: unreadable.into_iter().collect(), ..self }.finish()
    }
}

/// Returns a slice of this fold, which it opens.
fn opened<'a>(
    base: &State,
    foldings: &'a mut [SliceFold],
    at: usize,
    expected: usize,
) -> Option<&'a mut Box<dyn ErasedFolding>> {
    let folding = &mut foldings[at];
    if matches!(folding, SliceFold::Unopened) {
        *folding = SliceFold::Open(base.registry().slices[at].begin(base.slices[at].as_ref(), expected));
    }
    match folding {
        SliceFold::Open(folding) => Some(folding),
        SliceFold::Unopened | SliceFold::Elsewhere => None,
    }
}

/// Restores a slice; false if the event can't be read. Skips unknown slices, and slices that a rewind keeps.
fn restore(base: &State, foldings: &mut [SliceFold], event: &EventRef<'_>, expected: usize) -> bool {
    let Ok(event) = SliceRestored::decode(event.version, event.payload) else { return false };
    let slice = base.registry().slices.iter().position(|known| {
        let SliceSummary { name, on_rewind, .. } = known.summary();
        name == event.slice && on_rewind == OnRewind::Restore
    });
    let folding = slice.and_then(|at| opened(base, foldings, at, expected));
    folding.is_none_or(|folding| folding.restore(event.version, &event.blocks).is_ok())
}
