//! The fold: events into slices.

use std::sync::Arc;

use super::event::{Common, Event, SliceRestored};
use super::id::Seq;
use super::recorded::EventRef;
use super::reducer::ErasedFolding;
use super::registry::Registry;
use super::slice::OnRewind;
use super::state::State;
use super::store::EventBatch;

/// A fold in progress: it begins from a state and takes the events that follow it, in order.
///
/// Each event is looked at once, by all slices that take its kind.
pub(crate) struct Fold {
    base: State,
    registry: Arc<Registry>,
    /// By the slice's place in the registry.
    foldings: Vec<Box<dyn ErasedFolding>>,
}

impl Fold {
    /// Begins after `state`; about `expected` events will come.
    pub(crate) fn begin(state: &State, expected: usize) -> Self {
        let registry = Arc::clone(state.registry());
        let types = registry.slice_types().iter().zip(state.slices.iter());
        let foldings = types.map(|(known, slice)| known.begin(slice, expected)).collect();
        Self { base: state.clone(), registry, foldings }
    }

    /// The position of the last event taken.
    pub(crate) fn seq(&self) -> Seq {
        self.base.seq
    }

    /// Takes the events of a batch that come next, up to `until`.
    pub(crate) fn apply_batch(&mut self, batch: &EventBatch, until: Seq) {
        let Some((reached, time)) = batch.reached(until).filter(|(reached, _)| *reached > self.base.seq) else {
            return;
        };
        batch.visit(self.base.seq, reached, |event| {
            event.validate();
            let mut is_read = true;
            for at in self.registry.takers(event) {
                is_read &= self.foldings[*at].apply(event).is_ok();
            }
            if event.common == Common::Other && event.kind == SliceRestored::KIND {
                is_read &= restore(&self.registry, &mut self.foldings, event);
            }
            self.base.unreadable += u64::from(!is_read);
        });
        self.base.seq = reached;
        self.base.time = time;
    }

    /// The state after the events so far.
    pub(crate) fn finish(self) -> State {
        let mut state = self.base;
        state.slices = self.foldings.into_iter().map(|folding| folding.finish()).collect();
        state
    }
}

/// Puts a slice back; false when the event can't be read. What this program does not know, and what a rewind keeps, is
/// passed over.
fn restore(registry: &Registry, foldings: &mut [Box<dyn ErasedFolding>], event: &EventRef<'_>) -> bool {
    let Ok(event) = SliceRestored::decode(event.version, event.payload) else { return false };
    let mut known = registry.slice_types().iter().zip(foldings);
    let slice = known.find(|(known, _)| known.name() == event.slice && known.on_rewind() == OnRewind::Restore);
    slice.is_none_or(|(_, folding)| folding.restore(event.version, &event.blocks).is_ok())
}
