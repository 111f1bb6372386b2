//! The state of a session at a position.

use std::any::TypeId;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use super::clock::Timestamp;
use super::id::{Digest, Seq, SessionId};
use super::reducer::ErasedSliceType;
use super::registry::Registry;
use super::slice::{EncodedSlice, ErasedSlice, OnRewind, Slice, SliceError};

/// All slices of a session after the event at [`seq`](State::seq).
///
/// It never changes; a clone costs nanoseconds whatever its size.
#[derive(Clone)]
pub struct State {
    registry: Arc<Registry>,
    pub(crate) session: SessionId,
    pub(crate) seq: Seq,
    pub(crate) time: Timestamp,
    pub(crate) unreadable: u64,
    pub(crate) slices: Arc<[Arc<dyn ErasedSlice>]>,
}

impl State {
    /// Returns the state before a session's first event.
    pub(crate) fn empty(registry: &Arc<Registry>, session: SessionId) -> Self {
        let slices = registry.slices.iter().map(|slice| slice.empty()).collect();
        Self::new(Arc::clone(registry), session, slices)
    }

    pub(crate) fn new(registry: Arc<Registry>, session: SessionId, slices: Vec<Arc<dyn ErasedSlice>>) -> Self {
        let slices = Arc::from(slices);
        Self { registry, session, seq: 0, time: Timestamp::default(), unreadable: 0, slices }
    }

    /// The session.
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// The position of the last event that it takes into account; 0 before the first.
    pub fn seq(&self) -> Seq {
        self.seq
    }

    /// When that event was recorded.
    pub fn time(&self) -> Timestamp {
        self.time
    }

    /// How many events no reducer could read; they changed nothing.
    pub fn unreadable(&self) -> u64 {
        self.unreadable
    }

    /// What the program that made this state knows.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// The slice of type `S`; none when it is not registered.
    pub fn slice<S: Slice>(&self) -> Option<&S> {
        let at = self.registry.position(TypeId::of::<S>())?;
        self.slices[at].as_any().downcast_ref()
    }

    /// The slice of that name as JSON; none when it is not registered.
    ///
    /// # Errors
    /// [`SliceError`] when the slice has no JSON form.
    pub fn slice_json(&self, name: &str) -> Option<Result<Value, SliceError>> {
        let at = self.registry.slice_types().iter().position(|known| known.name() == name)?;
        Some(self.slices[at].to_json())
    }

    /// Every slice's name and digest. Equal states have equal digests.
    ///
    /// # Errors
    /// [`SliceError`] when a slice has no encoding.
    pub fn digests(&self) -> Result<Vec<(&'static str, Digest)>, SliceError> {
        let types = self.registry.slice_types();
        types.iter().zip(self.encode()?).map(|(known, slice)| Ok((known.name(), slice.digest()))).collect()
    }

    /// The digest of the slice of that name, in whatever case; none when there is no such slice, or it has no encoding.
    pub(crate) fn digest(&self, name: &str) -> Option<Digest> {
        let encoded = self.encode_some(|known| known.name().eq_ignore_ascii_case(name)).ok()?;
        encoded.first().map(EncodedSlice::digest)
    }

    /// Every slice as a snapshot keeps it, in the registry's order.
    pub(crate) fn encode(&self) -> Result<Vec<EncodedSlice>, SliceError> {
        self.encode_some(|_| true)
    }

    /// Those that a rewind puts back, but for one that has events of its own for that.
    pub(crate) fn restorable(&self, but: &str) -> Result<Vec<EncodedSlice>, SliceError> {
        self.encode_some(|known| known.on_rewind() == OnRewind::Restore && known.name() != but)
    }

    fn encode_some(&self, pick: impl Fn(&dyn ErasedSliceType) -> bool) -> Result<Vec<EncodedSlice>, SliceError> {
        let types = self.registry.slice_types();
        types
            .iter()
            .zip(self.slices.iter())
            .filter(|(known, _)| pick(known.as_ref()))
            .map(|(known, slice)| {
                Ok(EncodedSlice {
                    name: Arc::from(known.name()),
                    version: known.version(),
                    blocks: slice.encode()?.into_iter().map(Bytes::from).collect(),
                })
            })
            .collect()
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("session", &self.session).field("seq", &self.seq).finish_non_exhaustive()
    }
}
