//! General slices that a user can register for a custom event type.

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{decode_blocks, encode_blocks};
use crate::engine::collections::{OrdMap, Vector};
use crate::engine::event::Event;
use crate::engine::{OnRewind, Recorded, Registry, Seq, Slice, SliceError, ValueError};

/// An event about something with a key.
pub trait Keyed: Event {
    /// The key; its order is the order of [`LatestByKey`].
    type Key: Ord + Clone + Serialize + DeserializeOwned + Send + Sync + 'static;

    /// Returns the key of the event.
    fn key(&self) -> Self::Key;
}

/// Every event of a type, in order. A rewind keeps it: it is a log.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent, bound = "E: Event")]
pub struct AppendAll<E: Event> {
    items: Vector<E>,
}

/// The latest event of a type.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent, bound = "E: Event")]
pub struct ReplaceLatest<E: Event> {
    /// The event; `None` before the first.
    pub item: Option<E>,
}

/// The latest event for each key, in the order of the keys.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent, bound = "E: Keyed")]
pub struct LatestByKey<E: Keyed> {
    items: OrdMap<E::Key, E>,
}

/// The latest event for each key, in the order of the keys' first events.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(bound = "E: Keyed")]
pub struct UpsertByKey<E: Keyed> {
    places: OrdMap<E::Key, Seq>,
    items: OrdMap<Seq, E>,
}

impl<E: Event> Default for AppendAll<E> {
    fn default() -> Self {
        Self { items: Vector::new() }
    }
}

impl<E: Event> Default for ReplaceLatest<E> {
    fn default() -> Self {
        Self { item: None }
    }
}

impl<E: Keyed> Default for LatestByKey<E> {
    fn default() -> Self {
        Self { items: OrdMap::new() }
    }
}

impl<E: Keyed> Default for UpsertByKey<E> {
    fn default() -> Self {
        Self { places: OrdMap::new(), items: OrdMap::new() }
    }
}

impl<E: Event> AppendAll<E> {
    /// Iterates over the events in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &E> {
        self.items.iter()
    }

    /// Returns the number of events.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Returns true if it has no events.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}

impl<E: Keyed> LatestByKey<E> {
    /// Returns the latest event for a key.
    pub fn get(&self, key: &E::Key) -> Option<&E> {
        self.items.get(key)
    }

    /// Iterates over the events, in the order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = &E> {
        self.items.values()
    }
}

impl<E: Keyed> UpsertByKey<E> {
    /// Returns the latest event for a key.
    pub fn get(&self, key: &E::Key) -> Option<&E> {
        self.places.get(key).and_then(|place| self.items.get(place))
    }

    /// Iterates over the events, in the order of their keys' first events.
    pub fn iter(&self) -> impl Iterator<Item = &E> {
        self.items.values()
    }
}

impl<E: Event> Slice for AppendAll<E> {
    const NAME: &'static str = E::KIND;
    const ON_REWIND: OnRewind = OnRewind::Keep;
}

impl<E: Event> Slice for ReplaceLatest<E> {
    const NAME: &'static str = E::KIND;
}

impl<E: Keyed> Slice for LatestByKey<E> {
    const NAME: &'static str = E::KIND;

    // As pairs: a key need not be a string, which JSON requires of a map's keys.
    fn encode(&self) -> Result<Vec<Vec<u8>>, SliceError> {
        encode_blocks(Self::NAME, self.items.iter())
    }

    fn decode(blocks: &[Bytes]) -> Result<Self, SliceError> {
        Ok(Self { items: decode_blocks::<(E::Key, E)>(Self::NAME, blocks)?.into_iter().collect() })
    }
}

impl<E: Keyed> Slice for UpsertByKey<E> {
    const NAME: &'static str = E::KIND;

    fn encode(&self) -> Result<Vec<Vec<u8>>, SliceError> {
        encode_blocks(Self::NAME, self.items.iter())
    }

    fn decode(blocks: &[Bytes]) -> Result<Self, SliceError> {
        let items: OrdMap<Seq, E> = decode_blocks::<(Seq, E)>(Self::NAME, blocks)?.into_iter().collect();
        let places = items.iter().map(|(place, item)| (item.key(), *place)).collect();
        Ok(Self { places, items })
    }
}

/// Registers `E` with a slice of all its events.
/// Fails with [`ValueError`] if the event or a slice of its name is registered.
pub fn append_all<E: Event>(registry: Registry) -> Result<Registry, ValueError> {
    registry.event::<E>()?.slice::<AppendAll<E>>()?.reducer(|mut all: AppendAll<E>, event: &Recorded<E>| {
        all.items.push_back(event.event.clone());
        all
    })
}

/// Registers `E` with a slice of the latest event.
pub fn replace_latest<E: Event>(registry: Registry) -> Result<Registry, ValueError> {
    registry
        .event::<E>()?
        .slice::<ReplaceLatest<E>>()?
        .reducer(|_: ReplaceLatest<E>, event: &Recorded<E>| ReplaceLatest { item: Some(event.event.clone()) })
}

/// Registers `E` with a slice of the latest event for each key, in the order of the keys.
pub fn replace_latest_by_key<E: Keyed>(registry: Registry) -> Result<Registry, ValueError> {
    registry.event::<E>()?.slice::<LatestByKey<E>>()?.reducer(|mut latest: LatestByKey<E>, event: &Recorded<E>| {
        latest.items.insert(event.event.key(), event.event.clone());
        latest
    })
}

/// Registers `E` with a slice of the latest event for each key, in the order of the keys' first events.
pub fn upsert_by_key<E: Keyed>(registry: Registry) -> Result<Registry, ValueError> {
    registry.event::<E>()?.slice::<UpsertByKey<E>>()?.reducer(|mut all: UpsertByKey<E>, event: &Recorded<E>| {
        let key = event.event.key();
        let place = all.places.get(&key).copied().unwrap_or(event.seq);
        all.places.insert(key, place);
        all.items.insert(place, event.event.clone());
        all
    })
}
