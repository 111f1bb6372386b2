use std::any::Any;
use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::event::{CodecError, Common, Event, unknown_data};
use super::reducer::{ErasedSliceType, Ignores, Opener, Reducer, SliceType};
use super::slice::SliceSummary;
use super::{EventRef, Slice, ValueError};

/// Events, slices and reducers that a program knows.
///
/// It is built once, when the program starts; the journal stores none of it. An event of an unregistered kind is stored
/// and shown, but changes no slice.
///
/// ```
/// # use foldspace_engine as foldspace;
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
/// # Ok::<(), foldspace::event::ValueError>(())
/// ```
#[derive(Default)]
pub struct Registry {
    events: BTreeMap<&'static str, EventType>,
    pub(super) slices: Vec<Box<dyn ErasedSliceType>>,
    /// Indexes of the slices that take each of [`Common`]; under [`Common::Other`], the slices that take all events.
    pub(super) common: [Vec<usize>; Common::COUNT],
    /// Indexes of the slices that take each other kind, including the slices that take all events.
    others: BTreeMap<&'static str, Vec<usize>>,
}

type ToJson = fn(u16, &[u8]) -> Result<Value, CodecError>;

struct EventType {
    version: u16,
    to_json: ToJson,
}

impl Registry {
    /// Creates an empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Applies a function that registers related parts.
    pub fn with(self, add: impl FnOnce(Self) -> Result<Self, ValueError>) -> Result<Self, ValueError> {
        add(self)
    }

    /// Registers an event type, so that it can be shown as JSON. Fails with [`ValueError`].
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

    /// Registers a slice; its reducers follow. Fails with [`ValueError`] if its name is taken.
    pub fn slice<S: Slice>(self) -> Result<Self, ValueError> {
        self.add_slice(SliceType::<S>::new(None)).map(|(registry, _)| registry)
    }

    /// Registers a reducer of one event type for a registered slice. Fails with [`ValueError`].
    pub fn reducer<S: Slice, E: Event>(mut self, reducer: impl Reducer<S, E>) -> Result<Self, ValueError> {
        let missing = || ValueError::new(format!("slice {} must be registered before a reducer for it", S::NAME));
        let mut slices = self.slices.iter_mut().map(|slice| slice.as_mut() as &mut dyn Any).enumerate();
        let found = slices.find_map(|(at, slice)| Some((at, slice.downcast_mut::<SliceType<S>>()?)));
        let (at, slice) = found.ok_or_else(missing)?;
        if !slice.add(reducer) {
            return Err(twice("reducer", &format!("of {} for {}", E::KIND, S::NAME)));
        }
        self.add_taker(E::KIND, at);
        Ok(self)
    }

    /// Registers a slice with its own, faster folding. `kinds` are the events that it takes; `None` means all. Fails
    /// with [`ValueError`] if its name is taken.
    pub fn folded_slice<S: Slice>(self, kinds: Option<&[&'static str]>, opener: Opener<S>) -> Result<Self, ValueError> {
        let (mut registry, at) = self.add_slice(SliceType::<S>::new(Some(opener)))?;
        match kinds {
            Some(kinds) => kinds.iter().for_each(|kind| registry.add_taker(kind, at)),
            None => registry.common.iter_mut().chain(registry.others.values_mut()).for_each(|takers| takers.push(at)),
        }
        Ok(registry)
    }

    /// Sets the events that a registered slice ignores, so that a fold does not open it for them.
    pub(crate) fn ignoring<S: Slice>(mut self, ignores: Ignores<S>) -> Self {
        let mut slices = self.slices.iter_mut().map(|slice| slice.as_mut() as &mut dyn Any);
        if let Some(slice) = slices.find_map(|slice| slice.downcast_mut::<SliceType<S>>()) {
            slice.set_ignores(ignores);
        }
        self
    }

    fn add_slice<S: Slice>(mut self, slice: SliceType<S>) -> Result<(Self, usize), ValueError> {
        if self.slices.iter().any(|known| known.summary().name == S::NAME) {
            return Err(twice("slice", S::NAME));
        }
        self.slices.push(Box::new(slice));
        let at = self.slices.len() - 1;
        Ok((self, at))
    }

    fn add_taker(&mut self, kind: &'static str, slice: usize) {
        let all = &self.common[Common::Other as usize];
        let takers = match Common::of(kind.as_bytes()) {
            Common::Other => self.others.entry(kind).or_insert_with(|| all.clone()),
            common => &mut self.common[common as usize],
        };
        if !takers.contains(&slice) {
            takers.push(slice);
        }
    }

    /// Returns the slices, in the order of their registration.
    pub fn slices(&self) -> Vec<SliceSummary> {
        self.slices.iter().map(|slice| slice.summary()).collect()
    }

    /// Returns the kinds of the events, in no particular order.
    pub fn event_kinds(&self) -> impl Iterator<Item = &'static str> {
        self.events.keys().copied()
    }

    /// Returns the event as JSON; an unreadable event as its size and the reason. The payload of an unknown kind is
    /// returned if it is JSON.
    pub fn to_json(&self, event: &EventRef<'_>) -> Value {
        let unreadable = |reason: String| json!({ "unreadable": reason, "bytes": event.payload.len() });
        match self.events.get(event.kind) {
            None => unknown_data(event.payload)
                .unwrap_or_else(|| unreadable(format!("{} is not an event that this program knows", event.kind))),
            Some(known) if event.version > known.version => {
                unreadable(CodecError::newer(event.kind, event.version).to_string())
            }
            Some(known) => (known.to_json)(event.version, event.payload).unwrap_or_else(|e| unreadable(e.to_string())),
        }
    }

    /// Checks that the registry can read the event.
    pub fn check(&self, event: &EventRef<'_>) -> Result<(), CodecError> {
        match self.events.get(event.kind) {
            None if unknown_data(event.payload).is_some() => Ok(()),
            None => Err(CodecError::new(event.kind, event.version, "unknown kind of event")),
            Some(known) => (known.to_json)(event.version, event.payload).map(drop),
        }
    }

    pub(crate) fn position<S: Slice>(&self) -> Option<usize> {
        self.slices.iter().position(|known| (known.as_ref() as &dyn Any).is::<SliceType<S>>())
    }

    #[inline]
    pub(crate) fn takers(&self, event: &EventRef<'_>) -> &[usize] {
        let other = if event.common == Common::Other { self.others.get(event.kind) } else { None };
        other.unwrap_or(&self.common[event.common as usize])
    }
}

fn twice(what: &'static str, name: &str) -> ValueError {
    ValueError::new(format!("{what} {name} is registered twice"))
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry")
            .field("events", &self.events.keys().collect::<Vec<_>>())
            .field("slices", &self.slices.iter().map(|s| s.summary().name).collect::<Vec<_>>())
            .finish()
    }
}
