//! The fold of declared slices.

use std::collections::BTreeMap;

use super::{DeclaredSlice, DeclaredSlices};
use crate::engine::EventRef;
use crate::engine::event::{CodecError, Event, SliceDeclared};
use crate::engine::reducer::Folding;

/// A fold in progress. It finds the slices of an event by its kind.
pub struct DeclaredFolding {
    slices: Vec<DeclaredSlice>,
    /// The places of the slices by the kinds that they take.
    takers: BTreeMap<String, Vec<usize>>,
}

impl DeclaredFolding {
    /// Begins a fold from these slices.
    pub fn new(all: DeclaredSlices) -> Self {
        let slices: Vec<DeclaredSlice> = all.slices.into_iter().map(|(_, slice)| slice).collect();
        let mut takers = BTreeMap::<String, Vec<usize>>::new();
        for (at, slice) in slices.iter().enumerate() {
            for kind in slice.plan.kinds() {
                let takers = takers.entry(kind.to_owned()).or_default();
                takers.push(at);
                takers.dedup();
            }
        }
        Self { slices, takers }
    }

    fn slices(&mut self) -> DeclaredSlices {
        let named = self.slices.drain(..).map(|slice| (slice.declaration().name.clone(), slice));
        DeclaredSlices { slices: named.collect() }
    }
}

pub(super) fn open(all: DeclaredSlices, _: usize) -> Box<dyn Folding<DeclaredSlices>> {
    Box::new(DeclaredFolding::new(all))
}

impl Folding<DeclaredSlices> for DeclaredFolding {
    fn apply(&mut self, event: &EventRef<'_>) -> Result<(), CodecError> {
        if event.kind == SliceDeclared::KIND {
            let mut all = self.slices();
            let declared = all.declare(event);
            *self = Self::new(all);
            return declared;
        }
        for at in self.takers.get(event.kind).into_iter().flatten() {
            self.slices.get_mut(*at).map(|slice| slice.apply(event));
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> DeclaredSlices {
        self.slices()
    }
}
