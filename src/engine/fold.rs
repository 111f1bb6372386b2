//! The fold: events into slices.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::recorded::{EventRef, Seq};
use super::reducer::ErasedFolding;
use super::registry::Registry;
use super::state::State;
use super::store::EventBatch;

/// A fold in progress: it begins from a state and takes the events that follow it, in order.
///
/// Slices do not see each other, so a fold may be split by slice over threads: see [`Fold::split`].
pub(crate) struct Fold {
    base: State,
    registry: Arc<Registry>,
    /// By the slice's place in the registry; none where another half of a split fold has it.
    foldings: Vec<Option<Box<dyn ErasedFolding>>>,
    routes: Routes,
    seq: Seq,
    /// Positions of events that could not be read.
    unreadable: Vec<Seq>,
}

impl Fold {
    /// Begins after `state`; about `expected` events will come.
    pub(crate) fn begin(state: &State, expected: usize) -> Self {
        Self::begin_some(state, expected, |_| true)
    }

    /// Two folds over the same events, each with some of the slices: the first slice alone, and the
    /// others. [`join`](Fold::join) puts them together.
    pub(crate) fn split(state: &State, expected: usize) -> (Self, Self) {
        (Self::begin_some(state, expected, |at| at == 0), Self::begin_some(state, expected, |at| at != 0))
    }

    fn begin_some(state: &State, expected: usize, mine: impl Fn(usize) -> bool) -> Self {
        let registry = Arc::clone(state.registry());
        let types = registry.slice_types().iter().zip(state.slices.iter()).enumerate();
        let foldings = types.map(|(at, (known, slice))| mine(at).then(|| known.begin(slice, expected))).collect();
        Self {
            base: state.clone(),
            registry,
            foldings,
            routes: Routes::default(),
            seq: state.seq,
            unreadable: Vec::new(),
        }
    }

    /// The position of the last event taken.
    pub(crate) fn seq(&self) -> Seq {
        self.seq
    }

    /// Takes the events of a batch that come next, up to `until`.
    pub(crate) fn apply_batch(&mut self, batch: &EventBatch, until: Seq) {
        for event in batch.events() {
            if event.seq > self.seq && event.seq <= until {
                self.apply(&event);
            }
        }
    }

    /// Takes the next event. One that can't be read changes nothing and is counted.
    #[inline]
    pub(crate) fn apply(&mut self, event: &EventRef<'_>) {
        debug_assert_eq!(event.seq, self.seq + 1, "events must come without gaps");
        let mut read = true;
        let routes = self.routes.of(event.kind, &self.registry);
        for at in routes.iter().chain(self.registry.everything()) {
            if let Some(folding) = &mut self.foldings[*at] {
                read &= folding.apply(event).is_ok();
            }
        }
        self.seq = event.seq;
        self.base.time = event.time;
        if !read {
            self.unreadable.push(event.seq);
        }
    }

    /// The state after the events so far.
    pub(crate) fn finish(self) -> State {
        let Self { mut base, foldings, seq, unreadable, .. } = self;
        let old = base.slices.iter();
        base.slices = old
            .zip(foldings)
            .map(|(old, folding)| folding.map_or_else(|| Arc::clone(old), |folding| folding.finish()))
            .collect();
        base.seq = seq;
        base.unreadable += unreadable.len() as u64;
        base
    }

    /// The state of two halves of a split fold that took the same events.
    pub(crate) fn join(self, other: Self) -> State {
        let before = self.base.unreadable;
        let unreadable: BTreeSet<Seq> = self.unreadable.iter().chain(&other.unreadable).copied().collect();
        let theirs: Vec<bool> = other.foldings.iter().map(Option::is_some).collect();
        let (mut state, other) = (self.finish(), other.finish());
        let pairs = state.slices.iter().zip(other.slices.iter()).zip(theirs);
        state.slices = pairs.map(|((mine, other), take)| Arc::clone(if take { other } else { mine })).collect();
        state.unreadable = before + unreadable.len() as u64;
        state
    }
}

/// The routes of the kinds that came lately: a history has few, and they come again and again.
#[derive(Default)]
struct Routes(Vec<(Box<str>, Vec<usize>)>);

impl Routes {
    #[inline]
    fn of(&mut self, kind: &str, registry: &Registry) -> &[usize] {
        const KEPT: usize = 16;
        let at = match self.0.iter().position(|(known, _)| **known == *kind) {
            Some(at) => at,
            None => {
                if self.0.len() == KEPT {
                    self.0.clear();
                }
                self.0.push((Box::from(kind), registry.route(kind).to_vec()));
                self.0.len() - 1
            }
        };
        &self.0[at].1
    }
}
