use std::sync::Arc;

use super::event::{Common, Event, SliceRestored};
use super::id::Seq;
use super::recorded::EventRef;
use super::reducer::ErasedFolding;
use super::registry::Registry;
use super::slice::OnRewind;
use super::state::State;
use super::store::EventBatch;

/// Fold in progress: begins from a state and applies the events that follow it, in order.
///
/// Each event is read once for all slices that take its kind.
pub(crate) struct Fold {
    base: State,
    registry: Arc<Registry>,
    /// By the slice's index in the registry.
    foldings: Vec<Box<dyn ErasedFolding>>,
}

impl Fold {
    /// Begins after `state`; `expected` is an estimate of the number of events.
    pub(crate) fn begin(state: &State, expected: usize) -> Self {
        let registry = Arc::clone(state.registry());
        let types = registry.slice_types().iter().zip(state.slices.iter());
        let foldings = types.map(|(known, slice)| known.begin(slice, expected)).collect();
        Self { base: state.clone(), registry, foldings }
    }

    pub(crate) fn seq(&self) -> Seq {
        self.base.seq
    }

    /// Applies the next events of a batch, up to `until`.
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

    pub(crate) fn finish(self) -> State {
        let mut state = self.base;
        state.slices = self.foldings.into_iter().map(|folding| folding.finish()).collect();
        state
    }
}

/// Restores a slice; false if the event can't be read. Ignores slices that this program does not know or a rewind
/// keeps.
fn restore(registry: &Registry, foldings: &mut [Box<dyn ErasedFolding>], event: &EventRef<'_>) -> bool {
    let Ok(event) = SliceRestored::decode(event.version, event.payload) else { return false };
    let mut known = registry.slice_types().iter().zip(foldings);
    let slice = known.find(|(known, _)| known.name() == event.slice && known.on_rewind() == OnRewind::Restore);
    slice.is_none_or(|(_, folding)| folding.restore(event.version, &event.blocks).is_ok())
}
