//! The fold: events into slices.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::event::{Event, SliceRestored};
use super::id::Seq;
use super::reducer::ErasedFolding;
use super::registry::Registry;
use super::slice::OnRewind;
use super::state::State;
use super::store::EventBatch;
use super::store::filtered_batch::{EventRun, WantedKinds};

/// A fold in progress: it begins from a state and takes the events that follow it, in order.
///
/// Slices do not see each other, so a fold may be split by slice over threads: see [`Fold::split`].
pub(crate) struct Fold {
    base: State,
    registry: Arc<Registry>,
    /// By the slice's place in the registry; none where another half of a split fold has it.
    foldings: Vec<Option<Box<dyn ErasedFolding>>>,
    seq: Seq,
    /// Positions of events that some slice could not read; one for each such slice.
    unreadable: Vec<Seq>,
}

/// A slice that was put back.
struct Restored {
    /// The slice's place in the registry.
    at: usize,
    seq: Seq,
    event: SliceRestored,
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
        Self { base: state.clone(), registry, foldings, seq: state.seq, unreadable: Vec::new() }
    }

    /// The position of the last event taken.
    pub(crate) fn seq(&self) -> Seq {
        self.seq
    }

    /// Takes the events of a batch that come next, up to `until`.
    pub(crate) fn apply_batch(&mut self, batch: &EventBatch, until: Seq) {
        let Some((reached, time)) = batch.reached(until).filter(|(reached, _)| *reached > self.seq) else { return };
        let restored = self.restored(batch, reached);
        let foldings = self.foldings.iter_mut().zip(self.registry.wanted()).enumerate();
        for (at, (folding, wanted)) in foldings {
            let Some(folding) = folding else { continue };
            let mut after = self.seq;
            for Restored { seq, event, .. } in restored.iter().filter(|restored| restored.at == at) {
                folding.apply_all(&EventRun { batch, wanted, after, until: *seq }, &mut self.unreadable);
                if folding.restore(event.version, &event.blocks).is_err() {
                    self.unreadable.push(*seq);
                }
                after = *seq;
            }
            folding.apply_all(&EventRun { batch, wanted, after, until: reached }, &mut self.unreadable);
        }
        self.seq = reached;
        self.base.time = time;
    }

    /// The slices that were put back between here and `until`, in order. What this program does not know, and what a
    /// rewind keeps, is passed over.
    fn restored(&mut self, batch: &EventBatch, until: Seq) -> Vec<Restored> {
        static UNCOMMON: WantedKinds = WantedKinds::uncommon();
        let mut found = Vec::new();
        for event in batch.select(&UNCOMMON, self.seq, until).filter(|event| event.kind == SliceRestored::KIND) {
            let seq = event.seq;
            let Ok(event) = SliceRestored::decode(event.version, event.payload) else {
                self.unreadable.push(seq);
                continue;
            };
            let known = self.registry.slice_types().iter();
            let mut places = known.map(|known| known.name() == event.slice && known.on_rewind() == OnRewind::Restore);
            if let Some(at) = places.position(|is_it| is_it) {
                found.push(Restored { at, seq, event });
            }
        }
        found
    }

    /// The state after the events so far.
    pub(crate) fn finish(self) -> State {
        let Self { mut base, foldings, seq, unreadable, .. } = self;
        let unreadable: BTreeSet<Seq> = unreadable.into_iter().collect();
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
