//! Slices: the typed, immutable parts of a session's state.

use std::any::Any;
use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::id::Digest;
use crate::engine::error::{Diagnostic, ErrorKind};

/// What a rewind does with a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OnRewind {
    /// It is state: it goes back to what it was.
    Restore,
    /// It is a log: it keeps what it has.
    Keep,
}

/// One typed part of a session's state.
///
/// A slice changes only by the reducers that are registered for it. Cloning should be cheap whatever
/// its size (`im` collections are): the engine clones it whenever somebody looks.
///
/// The encoding must be canonical: equal slices give equal bytes, so no hash order may show.
pub trait Slice: Clone + Default + Serialize + DeserializeOwned + Send + Sync + 'static {
    /// The name by which people ask for it; unique in a registry.
    const NAME: &'static str;

    /// Raise it when the encoding or a reducer changes its meaning: stored snapshots of other
    /// versions are then not used, and the slice is folded from the events again.
    const VERSION: u32 = 1;

    /// What a rewind does with it.
    const ON_REWIND: OnRewind = OnRewind::Restore;

    /// Encodes the slice as blocks. Blocks that equal blocks of an earlier snapshot take no space,
    /// so a large slice should be cut where a small change leaves most blocks as they were.
    ///
    /// # Errors
    /// [`SliceError`] when the value has no encoding; the slice is then not part of snapshots.
    fn encode(&self) -> Result<Vec<Vec<u8>>, SliceError> {
        Ok(vec![serde_json::to_vec(self).map_err(|e| SliceError::new(Self::NAME, e))?])
    }

    /// Reads what [`encode`](Slice::encode) gave. The bytes come from a disk: never trust them.
    ///
    /// # Errors
    /// [`SliceError`] when the blocks are no such slice; it is then folded from the events.
    fn decode(blocks: &[Bytes]) -> Result<Self, SliceError> {
        let whole = blocks.concat();
        serde_json::from_slice(&whole).map_err(|e| SliceError::new(Self::NAME, e))
    }

    /// Reads what [`encode`](Slice::encode) gave when [`VERSION`](Slice::VERSION) was lower. Snapshots of other
    /// versions are not used; but what a rewind put back stands in the history, and must be understood for good.
    ///
    /// # Errors
    /// [`SliceError`], which it always is unless a slice says otherwise; the slice is then left as it is, and the
    /// event counts as unreadable.
    fn decode_older(version: u32, _blocks: &[Bytes]) -> Result<Self, SliceError> {
        let what = format!("a rewind put back version {version} of it, which this program can't read");
        Err(SliceError::new(Self::NAME, what))
    }
}

/// A slice that could not be encoded or decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("slice {slice}: {reason}")]
pub struct SliceError {
    slice: &'static str,
    reason: String,
}

impl Diagnostic for SliceError {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Damaged
    }
}

impl SliceError {
    /// An error of `slice` with the reason that `source` gives.
    pub fn new(slice: &'static str, source: impl std::fmt::Display) -> Self {
        Self { slice, reason: source.to_string() }
    }
}

/// A slice whose type is known to its registry only.
pub(crate) trait ErasedSlice: Send + Sync {
    fn as_any(&self) -> &dyn Any;
    fn encode(&self) -> Result<Vec<Vec<u8>>, SliceError>;
    fn to_json(&self) -> Result<serde_json::Value, SliceError>;
}

impl<S: Slice> ErasedSlice for S {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn encode(&self) -> Result<Vec<Vec<u8>>, SliceError> {
        Slice::encode(self)
    }

    fn to_json(&self) -> Result<serde_json::Value, SliceError> {
        serde_json::to_value(self).map_err(|e| SliceError::new(S::NAME, e))
    }
}

/// A slice as a snapshot keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedSlice {
    /// The slice's [`NAME`](Slice::NAME).
    pub name: Arc<str>,
    /// Its [`VERSION`](Slice::VERSION).
    pub version: u32,
    /// Its blocks.
    pub blocks: Vec<Bytes>,
}

impl EncodedSlice {
    /// The slice's digest: over name, version and the blocks' digests.
    pub fn digest(&self) -> Digest {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.name.as_bytes());
        hasher.update(&self.version.to_le_bytes());
        for block in &self.blocks {
            hasher.update(blake3::hash(block).as_bytes());
        }
        Digest::from_bytes(*hasher.finalize().as_bytes())
    }
}
