//! Which events, slices and reducers a program knows.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::event::{CodecError, Event};
use super::id::SessionId;
use super::recorded::EventRef;
use super::reducer::{ErasedSliceType, Opener, Reducer, SliceType};
use super::slice::{ErasedSlice, OnRewind, Slice};
use super::state::State;
use super::store::filtered_batch::WantedKinds;
use crate::engine::error::ValueError;

/// The events, slices and reducers that a program knows.
///
/// It is built once, when the program starts; the journal holds none of it. An event whose kind is
/// not registered is kept and shown, and changes no slice.
///
/// ```
/// use foldspace::{Event, Recorded, Registry, Slice};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Debug, Clone, Serialize, Deserialize)]
/// struct Spent { cents: u64 }
/// impl Event for Spent { const KIND: &'static str = "Spent"; }
///
/// #[derive(Debug, Clone, Default, Serialize, Deserialize)]
/// struct Budget { cents: u64 }
/// impl Slice for Budget { const NAME: &'static str = "Budget"; }
///
/// let registry = Registry::new()
///     .event::<Spent>()?
///     .slice::<Budget>()?
///     .reducer(|budget: Budget, spent: &Recorded<Spent>| Budget { cents: budget.cents + spent.event.cents })?;
/// # Ok::<(), foldspace::ValueError>(())
/// ```
#[derive(Default)]
pub struct Registry {
    events: BTreeMap<&'static str, EventType>,
    slices: Vec<Box<dyn ErasedSliceType>>,
    /// What each slice wants.
    wanted: Vec<WantedKinds>,
}

type ToJson = fn(u16, &[u8]) -> Result<Value, CodecError>;

struct EventType {
    version: u16,
    to_json: ToJson,
}

/// What a registry knows of one slice.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct SliceSummary {
    /// Its name.
    pub name: &'static str,
    /// Its version.
    pub version: u32,
    /// What a rewind does with it.
    pub on_rewind: OnRewind,
}

impl Registry {
    /// A registry that knows nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets a function add what belongs together.
    ///
    /// # Errors
    /// What the function gives.
    pub fn with(self, add: impl FnOnce(Self) -> Result<Self, ValueError>) -> Result<Self, ValueError> {
        add(self)
    }

    /// Makes an event type known, so that it can be shown as JSON.
    ///
    /// # Errors
    /// [`ValueError`] when its kind is taken or not 1 to 100 bytes long.
    pub fn event<E: Event>(mut self) -> Result<Self, ValueError> {
        if E::KIND.is_empty() || E::KIND.len() > super::commit::MAX_KIND_BYTES {
            return Err(ValueError::new(format!("event kind {:?} must have 1 to 100 bytes", E::KIND)));
        }
        let to_json: ToJson = |version, bytes| {
            let event = E::decode(version, bytes)?;
            serde_json::to_value(event).map_err(|e| CodecError::new(E::KIND, version, e))
        };
        match self.events.insert(E::KIND, EventType { version: E::VERSION, to_json }) {
            None => Ok(self),
            Some(_) => Err(twice("event", E::KIND)),
        }
    }

    /// Adds a slice; reducers for it follow.
    ///
    /// # Errors
    /// [`ValueError`] when there is one of its name.
    pub fn slice<S: Slice>(self) -> Result<Self, ValueError> {
        self.add_slice(SliceType::<S>::new(None)).map(|(registry, _)| registry)
    }

    /// Adds a reducer of one event type for a slice that is registered already.
    ///
    /// # Errors
    /// [`ValueError`] when the slice is not there or has a reducer for the event.
    pub fn reducer<S: Slice, E: Event>(mut self, reducer: impl Reducer<S, E>) -> Result<Self, ValueError> {
        let missing = || ValueError::new(format!("slice {} must be registered before a reducer for it", S::NAME));
        let at = self.position(TypeId::of::<S>()).ok_or_else(missing)?;
        let slice = self.slices[at].as_any_mut().downcast_mut::<SliceType<S>>();
        let added = slice.ok_or_else(missing)?.add(reducer);
        if !added {
            return Err(twice("reducer", &format!("of {} for {}", E::KIND, S::NAME)));
        }
        self.wanted[at].add(E::KIND);
        Ok(self)
    }

    /// Adds a slice that folds events itself, in place: for what must be fast.
    ///
    /// `kinds` are the events that it wants to see; none means all.
    ///
    /// # Errors
    /// [`ValueError`] when there is one of its name.
    pub fn folded_slice<S: Slice>(self, kinds: Option<&[&'static str]>, opener: Opener<S>) -> Result<Self, ValueError> {
        let (mut registry, at) = self.add_slice(SliceType::<S>::new(Some(opener)))?;
        match kinds {
            Some(kinds) => kinds.iter().for_each(|kind| registry.wanted[at].add(kind)),
            None => registry.wanted[at] = WantedKinds::all(),
        }
        Ok(registry)
    }

    fn add_slice<S: Slice>(mut self, slice: SliceType<S>) -> Result<(Self, usize), ValueError> {
        if self.slices.iter().any(|known| known.name() == S::NAME) {
            return Err(twice("slice", S::NAME));
        }
        self.slices.push(Box::new(slice));
        self.wanted.push(WantedKinds::nothing());
        let at = self.slices.len() - 1;
        Ok((self, at))
    }

    /// What slices there are, in the order of their registration.
    pub fn slices(&self) -> Vec<SliceSummary> {
        let summary = |slice: &dyn ErasedSliceType| SliceSummary {
            name: slice.name(),
            version: slice.version(),
            on_rewind: slice.on_rewind(),
        };
        self.slices.iter().map(|slice| summary(slice.as_ref())).collect()
    }

    /// The event as JSON. One that can't be read shows its kind, size and what is wrong with it.
    pub fn to_json(&self, event: &EventRef<'_>) -> Value {
        let unreadable = |reason: String| json!({ "unreadable": reason, "bytes": event.payload.len() });
        match self.events.get(event.kind) {
            None => unreadable(format!("{} is not an event that this program knows", event.kind)),
            Some(known) if event.version > known.version => {
                unreadable(CodecError::newer(event.kind, event.version).to_string())
            }
            Some(known) => (known.to_json)(event.version, event.payload).unwrap_or_else(|e| unreadable(e.to_string())),
        }
    }

    /// Whether the registry can read the event.
    pub fn check(&self, event: &EventRef<'_>) -> Result<(), CodecError> {
        match self.events.get(event.kind) {
            None => Err(CodecError::new(event.kind, event.version, "unknown kind of event")),
            Some(known) => (known.to_json)(event.version, event.payload).map(drop),
        }
    }

    pub(crate) fn empty_state(self: &Arc<Self>, session: SessionId) -> State {
        let slices: Vec<Arc<dyn ErasedSlice>> = self.slices.iter().map(|slice| slice.empty()).collect();
        State::new(Arc::clone(self), session, slices)
    }

    pub(crate) fn slice_types(&self) -> &[Box<dyn ErasedSliceType>] {
        &self.slices
    }

    pub(crate) fn position(&self, slice: TypeId) -> Option<usize> {
        self.slices.iter().position(|known| known.as_ref().type_id() == slice)
    }

    /// What each slice wants, in the same order.
    pub(crate) fn wanted(&self) -> &[WantedKinds] {
        &self.wanted
    }
}

fn twice(what: &'static str, name: &str) -> ValueError {
    ValueError::new(format!("{what} {name} is registered twice"))
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry")
            .field("events", &self.events.keys().collect::<Vec<_>>())
            .field("slices", &self.slices.iter().map(|s| s.name()).collect::<Vec<_>>())
            .finish()
    }
}
