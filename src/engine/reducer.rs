use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::event::{CodecError, Event};
use super::recorded::{EventRef, Recorded};
use super::slice::{ErasedSlice, Slice, SliceError, SliceSummary};

/// Pure function `(slice, recorded event) -> slice`.
///
/// It has no clock, no I/O and no randomness, and does not depend on hash order: the same events must always produce
/// the same slice, on every machine. It must accept every event of its type, however odd, and must not panic. Any
/// function or closure of this shape is a reducer.
pub trait Reducer<S, E>: Send + Sync + 'static {
    /// Returns the slice after `event`.
    fn reduce(&self, slice: S, event: &Recorded<E>) -> S;
}

impl<S, E, F> Reducer<S, E> for F
where
    F: Fn(S, &Recorded<E>) -> S + Send + Sync + 'static,
{
    fn reduce(&self, slice: S, event: &Recorded<E>) -> S {
        self(slice, event)
    }
}

/// Fold in progress over many events, with a representation that may be faster than the slice's own. Its result must
/// equal that of reducing the events one by one.
pub trait Folding<S>: Send {
    /// Applies the next event. Fails with [`CodecError`] if the event can't be read; the fold is then unchanged.
    fn apply(&mut self, event: &EventRef<'_>) -> Result<(), CodecError>;

    /// Returns the slice after the events so far.
    fn finish(self: Box<Self>) -> S;
}

pub(crate) trait ErasedFolding: Send {
    fn apply(&mut self, event: &EventRef<'_>) -> Result<(), CodecError>;
    /// Replaces the slice by that of an earlier position; on an error it is unchanged.
    fn restore(&mut self, version: u32, blocks: &[Bytes]) -> Result<(), SliceError>;
    fn finish(self: Box<Self>) -> Arc<dyn ErasedSlice>;
}

struct Finishing<S> {
    folding: Box<dyn Folding<S>>,
    known: SliceType<S>,
}

impl<S: Slice> ErasedFolding for Finishing<S> {
    fn apply(&mut self, event: &EventRef<'_>) -> Result<(), CodecError> {
        self.folding.apply(event)
    }

    fn restore(&mut self, version: u32, blocks: &[Bytes]) -> Result<(), SliceError> {
        let slice = match version {
            version if version == S::VERSION => S::decode(blocks)?,
            version if version < S::VERSION => S::decode_older(version, blocks)?,
            _ => return Err(SliceError::new(S::NAME, "a newer program restored it; this one can't read it")),
        };
        self.folding = self.known.folding(slice, 0);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Arc<dyn ErasedSlice> {
        Arc::new(self.folding.finish())
    }
}

/// Opens a [`Folding`] from a slice; the number estimates the events to come.
pub type Opener<S> = fn(S, usize) -> Box<dyn Folding<S>>;

type Step<S> = Arc<dyn Fn(&mut S, &EventRef<'_>) -> Result<(), CodecError> + Send + Sync>;
type Steps<S> = Arc<BTreeMap<&'static str, Step<S>>>;
/// Returns true for an event that would not change the slice, whatever its payload.
pub(crate) type Ignores<S> = fn(&S, &EventRef<'_>) -> bool;

pub(crate) struct SliceType<S> {
    opener: Option<Opener<S>>,
    steps: Steps<S>,
    ignores: Ignores<S>,
}

impl<S> Clone for SliceType<S> {
    fn clone(&self) -> Self {
        Self { opener: self.opener, steps: Arc::clone(&self.steps), ignores: self.ignores }
    }
}

impl<S: Slice> SliceType<S> {
    pub(crate) fn new(opener: Option<Opener<S>>) -> Self {
        Self { opener, steps: Arc::default(), ignores: |_, _| false }
    }

    /// Sets the events that the slice ignores, depending on its contents. An [`Opener`]'s folding must ignore them, too.
    pub(crate) fn set_ignores(&mut self, ignores: Ignores<S>) {
        self.ignores = ignores;
    }

    /// Adds a reducer; returns false if the event has one already.
    pub(crate) fn add<E: Event>(&mut self, reducer: impl Reducer<S, E>) -> bool {
        let step: Step<S> = Arc::new(move |slice, event| {
            if let Some(typed) = event.typed::<E>() {
                let typed = typed?;
                *slice = reducer.reduce(std::mem::take(slice), &typed);
            }
            Ok(())
        });
        Arc::make_mut(&mut self.steps).insert(E::KIND, step).is_none()
    }

    fn folding(&self, slice: S, expected: usize) -> Box<dyn Folding<S>> {
        match self.opener {
            Some(open) => open(slice, expected),
            None => Box::new(OneByOne { slice, known: self.clone() }),
        }
    }
}

struct OneByOne<S> {
    slice: S,
    known: SliceType<S>,
}

impl<S: Slice> Folding<S> for OneByOne<S> {
    fn apply(&mut self, event: &EventRef<'_>) -> Result<(), CodecError> {
        match self.known.steps.get(event.kind) {
            Some(step) if !(self.known.ignores)(&self.slice, event) => step(&mut self.slice, event),
            _ => Ok(()),
        }
    }

    fn finish(self: Box<Self>) -> S {
        self.slice
    }
}

pub(crate) trait ErasedSliceType: Any + Send + Sync {
    fn summary(&self) -> SliceSummary;
    fn empty(&self) -> Arc<dyn ErasedSlice>;
    fn decode(&self, blocks: &[Bytes]) -> Result<Arc<dyn ErasedSlice>, SliceError>;
    /// Returns true if the slice ignores the event.
    fn ignores(&self, slice: &dyn ErasedSlice, event: &EventRef<'_>) -> bool;
    fn begin(&self, slice: &dyn ErasedSlice, expected: usize) -> Box<dyn ErasedFolding>;
}

impl<S: Slice> ErasedSliceType for SliceType<S> {
    fn summary(&self) -> SliceSummary {
        SliceSummary { name: S::NAME, version: S::VERSION, on_rewind: S::ON_REWIND }
    }

    fn empty(&self) -> Arc<dyn ErasedSlice> {
        Arc::new(S::default())
    }

    fn decode(&self, blocks: &[Bytes]) -> Result<Arc<dyn ErasedSlice>, SliceError> {
        Ok(Arc::new(S::decode(blocks)?))
    }

    fn ignores(&self, slice: &dyn ErasedSlice, event: &EventRef<'_>) -> bool {
        (slice as &dyn Any).downcast_ref::<S>().is_some_and(|slice| (self.ignores)(slice, event))
    }

    fn begin(&self, slice: &dyn ErasedSlice, expected: usize) -> Box<dyn ErasedFolding> {
        let slice = (slice as &dyn Any).downcast_ref::<S>().cloned().unwrap_or_default();
        Box::new(Finishing { folding: self.folding(slice, expected), known: self.clone() })
    }
}
