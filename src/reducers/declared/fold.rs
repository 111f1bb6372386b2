//! The fold of declared slices.

use std::collections::BTreeMap;

use super::{DeclaredSlice, DeclaredSlices};
use crate::engine::EventRef;
use crate::engine::event::{CodecError, Event, SliceDeclared};
use crate::engine::reducer::Folding;

/// A fold in progress. It finds the slices of an event by its kind.
pub struct DeclaredFolding {
    all: DeclaredSlices,
    /// The names of the slices by the kinds that they take.
    takers: BTreeMap<String, Vec<String>>,
}

impl DeclaredFolding {
    /// Begins a fold from these slices.
    pub fn new(all: DeclaredSlices) -> Self {
        let mut fold = Self { all, takers: BTreeMap::new() };
        fold.find_takers();
        fold
    }

    fn find_takers(&mut self) {
        self.takers.clear();
        for slice in self.all.iter() {
            for kind in slice.plan.kinds() {
                let takers = self.takers.entry(kind.to_owned()).or_default();
                takers.push(slice.declaration().name.clone());
                takers.dedup();
            }
        }
    }
}

pub(super) fn open(all: DeclaredSlices, _: usize) -> Box<dyn Folding<DeclaredSlices>> {
    Box::new(DeclaredFolding::new(all))
}

impl Folding<DeclaredSlices> for DeclaredFolding {
    fn apply(&mut self, event: &EventRef<'_>) -> Result<(), CodecError> {
        if event.kind == SliceDeclared::KIND {
            self.all.declare(event)?;
            self.find_takers();
            return Ok(());
        }
        let Some(takers) = self.takers.get(event.kind) else { return Ok(()) };
        for name in takers {
            self.all.slices.get_mut(name).map(|slice: &mut DeclaredSlice| slice.apply(event));
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> DeclaredSlices {
        self.all
    }
}
