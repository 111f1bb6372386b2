use std::any::Any;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use super::slice::{EncodedSlice, ErasedSlice, SliceSummary, StateSlice};
use super::{Digest, OnRewind, Registry, Seq, SessionId, Slice, SliceError, Timestamp};

/// All slices of a session after the event at [`seq`](State::seq). It is immutable; a clone costs nanoseconds for any
/// size.
#[derive(Clone)]
pub struct State {
    pub(super) registry: Arc<Registry>,
    pub(crate) session: SessionId,
    pub(crate) seq: Seq,
    pub(crate) time: Timestamp,
    pub(crate) unreadable: u64,
    pub(crate) slices: Arc<[Arc<dyn ErasedSlice>]>,
}

impl State {
    pub(crate) fn empty(registry: &Arc<Registry>, session: SessionId) -> Self {
        let slices = registry.slices.iter().map(|slice| slice.empty()).collect();
        Self::new(Arc::clone(registry), session, slices)
    }

    pub(crate) fn new(registry: Arc<Registry>, session: SessionId, slices: Vec<Arc<dyn ErasedSlice>>) -> Self {
        let slices = Arc::from(slices);
        Self { registry, session, seq: 0, time: Timestamp::default(), unreadable: 0, slices }
    }

    /// Returns the session's id.
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// Returns the position of the last applied event; 0 before the first.
    pub fn seq(&self) -> Seq {
        self.seq
    }

    /// Returns the time of that event.
    pub fn time(&self) -> Timestamp {
        self.time
    }

    /// Returns the number of events that no reducer could read; they changed nothing.
    pub fn unreadable(&self) -> u64 {
        self.unreadable
    }

    /// Returns the registry of the program that created this state.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// Returns the slice of type `S`; `None` if it is not registered.
    pub fn slice<S: Slice>(&self) -> Option<&S> {
        let slice: &dyn Any = self.slices[self.registry.position::<S>()?].as_ref();
        slice.downcast_ref()
    }

    /// Returns its slices: the registered ones in the order of their registration, then the declared ones by name.
    pub fn slices(&self) -> Vec<StateSlice> {
        let registered = self
            .registry
            .slices()
            .into_iter()
            .map(|SliceSummary { name, version, on_rewind }| StateSlice { name: name.to_owned(), version, on_rewind });
        registered.chain(self.slices.iter().flat_map(|slice| slice.parts())).collect()
    }

    /// Returns the slice of that name as JSON; `None` if there is none. Fails with [`SliceError`].
    pub fn slice_json(&self, name: &str) -> Option<Result<Value, SliceError>> {
        match self.registry.slices.iter().position(|known| known.summary().name == name) {
            Some(at) => Some(self.slices[at].to_json()),
            None => self.slices.iter().find_map(|slice| slice.part_json(name)).map(Ok),
        }
    }

    /// Returns every slice's name and digest. Equal states have equal digests. Fails with [`SliceError`].
    pub fn digests(&self) -> Result<Vec<(&'static str, Digest)>, SliceError> {
        let names = self.registry.slices().into_iter().map(|slice| slice.name);
        Ok(names.zip(self.encode()?.iter().map(EncodedSlice::digest)).collect())
    }

    /// Returns the digest of the slice of that name, ignoring case; `None` if the slice is unknown or can't be encoded.
    #[doc(hidden)]
    pub fn digest(&self, name: &str) -> Option<Digest> {
        let encoded = self.encode_some(|known| known.name.eq_ignore_ascii_case(name)).ok()?;
        let part = || self.slices.iter().find_map(|slice| slice.part_json(name));
        encoded.first().map(EncodedSlice::digest).or_else(|| Some(Digest::of(part()?.to_string().as_bytes())))
    }

    pub(crate) fn encode(&self) -> Result<Vec<EncodedSlice>, SliceError> {
        self.encode_some(|_| true)
    }

    /// Encodes the slices that a rewind restores, except `but`, which has its own events for rewinds.
    #[doc(hidden)]
    pub fn restorable(&self, but: &str) -> Result<Vec<EncodedSlice>, SliceError> {
        self.encode_some(|known| known.on_rewind == OnRewind::Restore && known.name != but)
    }

    fn encode_some(&self, pick: impl Fn(&SliceSummary) -> bool) -> Result<Vec<EncodedSlice>, SliceError> {
        let slices = self.registry.slices().into_iter().zip(self.slices.iter());
        let encoded = slices.filter(|(known, _)| pick(known)).map(|(known, slice)| {
            let blocks = slice.encode()?.into_iter().map(Bytes::from).collect();
            Ok(EncodedSlice { name: Arc::from(known.name), version: known.version, blocks })
        });
        encoded.collect()
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("session", &self.session).field("seq", &self.seq).finish_non_exhaustive()
    }
}
